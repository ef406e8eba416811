import type { StoredVehicle } from 'fleethook/extend'
/* Parts of postgresInbox on a client that answers as a test wants. */
import { expect, test } from 'vitest'
import { Database, type Row } from '../../adapters/inbox/postgres/client.ts'
import { Endings } from '../../adapters/inbox/postgres/endings.ts'
import { Leases } from '../../adapters/inbox/postgres/leases.ts'
import { partitionOf } from '../../adapters/inbox/postgres/schema.ts'
import { receiver, Tables } from '../../adapters/inbox/postgres/tables.ts'
import { stateValues, VehicleRows } from '../../adapters/inbox/postgres/vehicles.ts'
import { systemClock } from '../../src/base/clock.ts'

/** `answer` gets the text of each statement. */
function databaseWith(answer: (text: string) => readonly Row[] | Promise<readonly Row[]>): Database {
  const query = async (text: string): Promise<{ rows: readonly Row[] }> => ({ rows: await answer(text) })
  return new Database({ query }, 'fleethook', systemClock)
}

const tables = new Tables('fleethook', receiver)
const vin = '0FLEETV14T0000001'
const stateOf = (seq: number, dueMs?: number): StoredVehicle => {
  const state = { vin, seq, seenMs: seq, bytes: 100, text: () => `{"seq":${seq}}` }
  return dueMs === undefined ? state : { ...state, dueMs }
}

const ignored = { failed: () => {}, refused: () => {}, erased: () => {}, locked: () => {} }

test('what is settled without end does not delay who waits for what was settled before', async () => {
  let statements = 0
  const settle = (): void => endings.settle({ part: 1, seq: String(statements) })
  const db = databaseWith(async () => {
    statements += 1
    if (statements < 50) settle()
    await new Promise((resolve) => setTimeout(resolve, 1))
    return []
  })
  const endings = new Endings(db, tables, () => 'me', { ...ignored, deleted: () => {} })
  settle()
  await endings.flush(10_000)
  expect(statements).toBeLessThan(10)
  await expect.poll(() => statements).toBe(50)
  await endings.flush(10_000)
})

test('partitions stay until it is known whether they were given back', async () => {
  const events: string[] = []
  let mine = [7, 8].map((part) => ({ part, epoch: 1, clean: 'false', missing: -2, left_ms: '10000' }))
  let fails = true
  const db = databaseWith((text) => {
    if (!text.startsWith('UPDATE')) return mine
    if (fails) throw new Error('The connection was lost.')
    return []
  })
  const leases = new Leases({
    ...{ db, clock: systemClock, me: 'me', leaseMs: 10_000 },
    renewed: (lost, gained) => events.push(`lost ${lost.join()}`, `gained ${gained.map(({ part }) => part).join()}`),
  })
  expect(await leases.renew()).toBe(2)
  await expect(leases.giveBack([7, 8], [])).rejects.toThrow('Postgres cannot be used')
  // One of them went, and another process has it.
  mine = mine.filter(({ part }) => part !== 7)
  fails = false
  await leases.renew()
  expect(events).toEqual(['lost ', 'gained 7,8', 'lost 7', 'gained '])
})

test('leases end by the time of day too, because a suspended machine stops the other clock', async () => {
  let nowMs = 0
  const clock = { ...systemClock, now: () => nowMs, elapsedMs: () => 0 }
  const leases = new Leases({
    db: databaseWith(() => [{ part: 1, epoch: 1, clean: 'false', missing: 0, left_ms: '10000' }]),
    ...{ clock, me: 'me', leaseMs: 10_000, renewed: () => {} },
  })
  await leases.renew()
  expect(leases.isFresh).toBe(true)
  nowMs = 60_000
  expect(leases.isFresh).toBe(false)
  await leases.renew()
  expect(leases.isFresh).toBe(true)
})

test('what was given up and handled again is written again', async () => {
  const answers: (() => void)[] = []
  const db = databaseWith(async () => {
    await new Promise<void>((resolve) => answers.push(resolve))
    return []
  })
  const deleted: number[] = []
  const endings = new Endings(db, tables, () => 'me', {
    ...ignored,
    deleted: (written) => deleted.push(written.length),
  })
  endings.settle({ part: 1, seq: '1' })
  await expect.poll(() => answers.length).toBe(1)
  // Another process had the partition for a while.
  endings.drop([1])
  endings.settle({ part: 1, seq: '1' })
  answers[0]?.()
  await expect.poll(() => answers.length).toBe(2)
  answers[1]?.()
  await expect.poll(() => deleted).toEqual([0, 1])
})

test('a dead letter leaves a newer state than one that is still to be written', async () => {
  const rows = new VehicleRows(
    databaseWith(() => []),
    tables,
  )
  rows.gained([partitionOf(vin)])
  rows.settled(stateOf(1))
  expect(await rows.load(vin)).toMatchObject({ seq: 1 })
  rows.keep(stateOf(2))
  expect(await rows.load(vin)).toMatchObject({ seq: 2 })
})

test('timers that could not be read are read again', async () => {
  let isDown = true
  const db = databaseWith(() => {
    if (isDown) throw new Error('The connection was lost.')
    return []
  })
  const rows = new VehicleRows(db, tables)
  rows.gained([partitionOf(vin)])
  const moved: boolean[] = []
  rows.follow({
    moved: async (isStale) => {
      moved.push(isStale(vin))
      for await (const page of rows.due()) expect(page).toEqual([])
    },
    forget: async () => {},
  })
  await expect(rows.due().next()).rejects.toThrow('Postgres cannot be used')
  await expect(rows.followMoves()).rejects.toThrow('Postgres cannot be used')
  isDown = false
  await rows.followMoves()
  await rows.followMoves()
  expect(moved).toEqual([true, true])
})

test('a timer without a time is not written', () => {
  const states = [stateOf(1, Number.NaN), stateOf(2, 1e300), stateOf(3, 4.5), stateOf(4)]
  const dues = stateValues(states.map((state) => ['1', state]))[4]
  expect(dues).toEqual([null, null, 5, null])
})
