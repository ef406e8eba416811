import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { afterEach, expect, test } from 'vitest'
import { command } from '../cli/command.ts'
import { data, logInto } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { soon } from './soon.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

interface Deployment {
  readonly folder: string
  readonly branches: readonly string[]
  readonly isDown?: boolean
  readonly clock?: ReturnType<typeof fakeClock>
}

async function deploy({ folder, branches, isDown = false, clock }: Deployment) {
  const lines: string[] = []
  /** What handlers got: `crm 1`. */
  const seen: string[] = []
  const inbox = sqliteInbox({ path: join(folder, 'inbox.db') })
  const receiver = createReceiver({ secret: false, inbox, log: logInto(lines), ...(clock && { clock }) })
  stops.push(() => receiver.drain({ handlerGraceMs: 0, deadlineMs: 0 }))
  receiver.on('data', (event) => void seen.push(`receiver ${event.data.Odometer}`))
  for (const name of branches)
    branch(receiver, { name, parts: [vehicles({ fields: ['Odometer'] })] })
      .on('data', (event) => {
        if (isDown) throw new Error('it is down')
        seen.push(`${name} ${event.data.Odometer}`)
      })
      .on('gap', ({ reason }) => void seen.push(`${name} ${reason}`))
  await receiver.open()
  const post = (vin: string, at: number): Promise<unknown> =>
    receiver.accept({ authorization: undefined, body: data(vin, at) })
  return { receiver, lines, seen, post }
}

/** A deployment whose branch waits for the CRM, and has stopped. */
async function stoppedWithWaiting(folder: string, count: number, clock?: ReturnType<typeof fakeClock>): Promise<void> {
  const { receiver, post } = await deploy({ folder, branches: ['crm'], isDown: true, ...(clock && { clock }) })
  for (let at = 0; at < count; at += 1) await post('A', at)
  // A gap of the stop before may wait beside them for a moment.
  const crm = { received: count, pending: { messages: count } }
  await soon(() => expect(receiver.stats()).toMatchObject({ handled: count, branches: { crm } }))
  const drained = receiver.drain({ handlerGraceMs: 0 })
  await clock?.advance(2_000)
  await drained
}

const waits = (lines: readonly string[]): readonly string[] =>
  lines.filter((line) => line.includes('wait for the branch'))

test('what waits for a branch that was removed is told at each start, until it is there again, and a gap says what it lacks', async () => {
  const folder = newFolder('removed')
  await stoppedWithWaiting(folder, 3)
  for (const branches of [[], ['sales'], ['sales']]) {
    const { receiver, lines, post, seen } = await deploy({ folder, branches })
    expect(waits(lines)).toHaveLength(1)
    expect(waits(lines)[0]).toContain('3 messages and 0 dead letters wait for the branch crm')
    const path = join(folder, 'inbox.db')
    expect(receiver.stats().inbox.unopened).toEqual([{ path, branch: 'crm', messages: 3, deadLetters: 0 }])
    await post('B', 9)
    const handlers = ['receiver', ...branches]
    await soon(() => expect(handlers.filter((name) => !seen.includes(`${name} 9`))).toEqual([]))
    await receiver.drain()
  }
  const back = await deploy({ folder, branches: ['crm', 'sales'] })
  expect(waits(back.lines)).toEqual([])
  await soon(() => expect(back.seen.filter((each) => each.startsWith('crm '))).toContain('crm stopped'), 4_000)
  await soon(() => expect(back.seen.filter((each) => /^crm \d/.test(each))).toEqual(['crm 0', 'crm 1', 'crm 2']))
  await back.receiver.drain()
})

test(
  'a command gives what waits to the branch under its new name, and another one deletes it',
  { timeout: 180_000 },
  async () => {
    const folder = newFolder('removed')
    const path = join(folder, 'inbox.db')
    await stoppedWithWaiting(folder, 3)
    const renamed = await command(['branch', 'rename', 'crm', 'sales', '--inbox', path])
    expect(renamed).toMatchObject({ status: 0, stderr: '' })
    const sales = await deploy({ folder, branches: ['sales'] })
    expect(waits(sales.lines)).toEqual([])
    await soon(() => expect(sales.seen.filter((each) => /\d/.test(each))).toEqual(['sales 0', 'sales 1', 'sales 2']))
    const running = await command(['branch', 'drop', 'sales', '--inbox', path, '--yes'])
    expect(running.stderr).toContain('Another receiver already uses')
    await sales.receiver.drain()
    await stoppedWithWaiting(folder, 2)
    const unknown = await command(['branch', 'drop', 'other', '--inbox', path, '--yes'])
    expect(unknown.stderr).toContain('its branches are crm, sales')
    const dropped = await command(['branch', 'drop', 'crm', '--inbox', path, '--yes'])
    expect(dropped.stdout).toBe('Dropped the branch `crm`: 2 messages waited for it, and it had 0 dead letters.\n')
    const gone = await deploy({ folder, branches: ['sales'] })
    expect(waits(gone.lines)).toEqual([])
    await gone.receiver.drain()
    const tables = new DatabaseSync(path).prepare("SELECT name FROM sqlite_schema WHERE name LIKE 'pending%'").all()
    expect(tables).toHaveLength(2)
  },
)

test('a branch that nobody has had for as long as dead letters are kept goes by itself, and the log counts what it had', async () => {
  const clock = fakeClock()
  const folder = newFolder('removed')
  await stoppedWithWaiting(folder, 3, clock)
  for (const [days, isThere] of [
    [29, true],
    [2, false],
    [1, false],
  ] as const) {
    await clock.advance(days * 86_400_000)
    const { receiver, lines } = await deploy({ folder, branches: [], clock })
    expect(waits(lines)).toHaveLength(isThere ? 1 : 0)
    const dropped = lines.filter((line) => line.includes('branch was dropped'))
    expect(dropped).toHaveLength(days === 2 ? 1 : 0)
    if (days === 2) expect(dropped[0]).toContain('"branch":"crm","messages":3')
    const drained = receiver.drain()
    await clock.advance(2_000)
    await drained
  }
})

test('a gap of a branch that no event reports yet is told after the next start', async () => {
  const path = join(newFolder('gap'), 'inbox.db')
  const gaps: string[] = []
  const start = async (handle: () => unknown, pendingMessages: number) => {
    const receiver = createReceiver({ secret: false, inbox: sqliteInbox({ path }), log: logInto([]) })
    stops.push(() => receiver.drain({ handlerGraceMs: 0, deadlineMs: 0 }))
    branch(receiver, { name: 'crm', limits: { pendingMessages } })
      .on('data', handle)
      .on('gap', ({ reason, missed }) => void gaps.push(`${reason} ${missed}`))
    await receiver.open()
    return receiver
  }
  const full = await start(() => new Promise(() => {}), 1)
  for (let at = 0; at < 3; at += 1) await full.accept({ authorization: undefined, body: data('A', at) })
  expect(full.stats().branches?.['crm']?.refused).toEqual({ inbox_full: 2 })
  await full.drain({ handlerGraceMs: 0 })
  expect(gaps).toEqual([])
  await start(() => {}, 10)
  await soon(() => expect(gaps).toContain('inbox_full 2'))
})
