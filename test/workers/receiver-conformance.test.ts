import { receiverConformance } from '../../adapters/cli/conform/receiver-conformance.ts'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { createHandled } from '../conformance/handled.ts'
import { secret, slowVins } from '../conformance/target.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { type StoredWorker, storedWorker } from './command.ts'

// In workerd an object runs in the isolate of its Worker, so the Worker can answer what its handlers saw.
const source = `
  import { durableObjectInbox, inboxObject } from '../../../adapters/inbox/durable-object.ts'
  import { worker } from '../../../adapters/workers.ts'
  import { createTarget } from '../../conformance/target.ts'
  const target = createTarget({ receiver: { inbox: durableObjectInbox({ objects: (env) => env.FLEETHOOK_INBOX }) } })
  export const FleethookInbox = inboxObject(target.receiver)
  export default worker(target)`

describe('the conformance suite against a receiver that keeps its messages in Durable Objects', () => {
  let stored: StoredWorker
  let target: Target
  const events = createHandled(() => target.url)
  beforeAll(async () => {
    stored = await storedWorker(source)
    target = await spawnTarget(stored.commands.workerd)
  })
  afterAll(async () => {
    await target.stop('SIGKILL')
    stored[Symbol.dispose]()
  })

  for (const mount of inForm({ short: [''], full: ['', '/mounted'] })) {
    const names = receiverConformance({ url: 'http://not.yet', secret, slowVins, events }).map(({ name }) => name)
    let checks: ReturnType<typeof receiverConformance> | undefined
    test.each(names.map((name, index) => [name, index] as const))(
      `%s${mount && `, mounted at ${mount}`}`,
      { timeout: 180_000 },
      async (_name, index) => {
        // Made once, because its bodies are compressed.
        checks ??= receiverConformance({ url: target.url + mount, secret, slowVins, events })
        await checks[index]?.run()
      },
    )
  }
})
