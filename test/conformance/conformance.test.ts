import { receiverConformance } from '../../adapters/cli/conform/receiver-conformance.ts'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { inForm } from '../form.ts'
import { createHandled } from './handled.ts'
import { spawnTarget, type Target } from './spawn.ts'
import { secret, slowVins } from './target.ts'
import { targetCommands } from './targets.ts'

/** The paths below which a target is reached. The short form mounts nothing: `test/mounts` does. */
const mounts = inForm({ short: [''], full: ['', '/mounted'] })

for (const { runtime, command, how } of targetCommands) {
  describe(`the conformance suite against ${runtime}${how === undefined ? '' : ` ${how}`}`, () => {
    let target: Target
    let eventsUrl: string
    const events = createHandled(() => eventsUrl)
    beforeAll(async () => {
      target = await spawnTarget(await command())
      eventsUrl = target.output.join('\n').match(/events at (\S+)/)?.[1] ?? target.url
    })
    afterAll(() => target.stop())

    for (const mount of how === undefined ? mounts : ['']) {
      describe(mount === '' ? 'at the root' : `mounted at ${mount}`, () => {
        const at = (): string => target.url + mount
        const names = receiverConformance({ url: 'http://not.yet', secret, slowVins, events }).map(({ name }) => name)
        let checks: ReturnType<typeof receiverConformance> | undefined
        test.each(names.map((name, index) => [name, index] as const))('%s', async (_name, index) => {
          // Made once, because its bodies are compressed.
          checks ??= receiverConformance({ url: at(), secret, slowVins, events })
          await checks[index]?.run()
        })
      })
    }
  })
}
