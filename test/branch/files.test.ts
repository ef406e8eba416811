import { join } from 'node:path'
import { createReceiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { afterEach, expect, test } from 'vitest'
import { data, logInto } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { soon } from './soon.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

interface Deployment {
  readonly folder: string
  /** The name of the branch, and its file. */
  readonly branches: Readonly<Record<string, string>>
  readonly isDown?: boolean
}

async function deploy({ folder, branches, isDown = false }: Deployment) {
  const lines: string[] = []
  /** What handlers got: `crm 1`. */
  const seen: string[] = []
  const inbox = sqliteInbox({ path: join(folder, 'inbox.db') })
  const receiver = createReceiver({ secret: false, inbox, log: logInto(lines) })
  stops.push(() => receiver.drain({ handlerGraceMs: 0 }))
  receiver.on('data', (event) => void seen.push(`receiver ${event.data.Odometer}`))
  for (const [name, file] of Object.entries(branches))
    branch(receiver, { name, inbox: sqliteInbox({ path: join(folder, file) }) }).on('data', (event) => {
      if (isDown) throw new Error('it is down')
      seen.push(`${name} ${event.data.Odometer}`)
    })
  await receiver.open()
  const post = (vin: string, at: number): Promise<unknown> =>
    receiver.accept({ authorization: undefined, body: data(vin, at) })
  return { receiver, lines, seen, post }
}

/** A deployment whose branch waits for the CRM, and has stopped. */
async function stoppedWithWaiting(folder: string, file: string, count: number): Promise<void> {
  const { receiver, post } = await deploy({ folder, branches: { crm: file }, isDown: true })
  for (let at = 0; at < count; at += 1) await post('A', at)
  await soon(() => expect(receiver.stats()).toMatchObject({ handled: count, branches: { crm: { received: count } } }))
  await receiver.drain({ handlerGraceMs: 0 })
}

const waits = (lines: readonly string[]): readonly string[] =>
  lines.filter((line) => line.includes('wait in the inbox'))

test('what waits on a branch that was removed, or has another file now, is told at each start, until it is there again', async () => {
  const folder = newFolder('left')
  await stoppedWithWaiting(folder, 'crm.db', 3)
  for (const branches of [{}, { crm: 'other.db' }, {}]) {
    const { receiver, lines, post, seen } = await deploy({ folder, branches })
    expect(waits(lines)).toEqual([
      `warn: 3 messages and 0 dead letters wait in the inbox ${join(folder, 'crm.db')}, and no receiver has it open {}`,
    ])
    expect(receiver.stats().inbox.unopened).toEqual([{ path: join(folder, 'crm.db'), messages: 3, deadLetters: 0 }])
    await post('B', 9)
    const handlers = ['receiver', ...Object.keys(branches)]
    await soon(() => expect(handlers.filter((name) => !seen.includes(`${name} 9`))).toEqual([]))
    await receiver.drain()
  }
  // Under another name, with the same file.
  const back = await deploy({ folder, branches: { sales: 'crm.db' } })
  expect(waits(back.lines)).toEqual([])
  await soon(() => expect(back.seen).toEqual(['sales 0', 'sales 1', 'sales 2']))
  // The gap of the stop, too.
  const ended = { openGaps: 0, pending: { messages: 0 } }
  await soon(() => expect(back.receiver.stats().branches).toMatchObject({ sales: ended }))
  await back.receiver.drain()
  const gone = await deploy({ folder, branches: {} })
  expect(waits(gone.lines)).toEqual([])
})

test('the file of a branch is not that of another receiver, also when its name is like theirs', async () => {
  const folder = newFolder('beside')
  const file = 'inbox-crm.db'
  await stoppedWithWaiting(folder, file, 3)
  const removed = await deploy({ folder, branches: {} })
  expect(waits(removed.lines)).toHaveLength(1)
  await removed.receiver.drain()
  const { lines, seen, receiver } = await deploy({ folder, branches: { crm: file } })
  await soon(() => expect(seen).toEqual(['crm 0', 'crm 1', 'crm 2']))
  expect(waits(lines)).toEqual([])
  expect(receiver.stats()).toMatchObject({ recovered: 0, branches: { crm: { recovered: 3 } } })
})
