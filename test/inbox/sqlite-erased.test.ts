/* What is erased is in no byte of any file of the folder, whatever the sizes of messages and the work beside it. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type EventOf, type Receiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test } from 'vitest'
import { openDatabase } from '../../adapters/inbox/sqlite/file/database.ts'
import { createScrub } from '../../adapters/inbox/sqlite/file/scrub.ts'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const numbers = (seed: number): (() => number) => {
  let state = seed * 2_654_435_761 + 1
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32
  }
}

const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`
/** Each message has this of its vehicle, many times, so that any rest of it shows. */
const markOf = (n: number): string => `m${String(n).padStart(3, '0')}k`

/** Little is kept for replays, so that rows are deleted between those that stay. */
const retention = { settled: { maxBytes: 500_000 } }

interface Fleet {
  readonly folder: string
  readonly receiver: Receiver
}

const handler = ({ data }: EventOf<'data'>): void => {
  if (data['Odometer'] === 13) throw new Error('not yet')
}

function fleetIn(folder: string): Fleet {
  const inbox = (name: string): InboxFactory => sqliteInbox({ path: join(folder, name), retention, thread: false })
  const receiver = createReceiver({
    ...{ secret: false, log, inbox: inbox('inbox.db'), retry: { minMs: 600_000, maxMs: 600_000 } },
    parts: [vehicles({ fields: ['VehicleName', 'Odometer', 'Version'] })],
  })
  receiver.on('data', handler)
  branch(receiver, { name: 'crm' }).on('data', handler)
  return { folder, receiver }
}

async function post({ receiver }: Fleet, n: number, random: () => number): Promise<void> {
  const size = random() < 0.1 ? random() * 30_000 : random() < 0.5 ? random() * 4_000 : random() * 200
  const data = {
    VehicleName: markOf(n).repeat(size / 5),
    Version: markOf(n).repeat(1 + random() * 300),
    Odometer: random() < 0.03 ? 13 : random() * 9,
  }
  const body = { vin: vinOf(n), createdAt: new Date().toISOString(), data }
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
}

const databases = ['inbox.db']

/** The files that have something of these vehicles. */
const restsIn = (folder: string, numbersOfVehicles: readonly number[]): readonly string[] =>
  readdirSync(folder)
    .filter((name) => !name.endsWith('.sock'))
    .flatMap((name) => {
      const bytes = readFileSync(join(folder, name), 'latin1')
      return numbersOfVehicles.flatMap((n) =>
        bytes.includes(vinOf(n)) || bytes.includes(markOf(n)) ? [`${name}: ${n}`] : [],
      )
    })

/** What SQLite says about each file that nobody has open. */
const checked = (folder: string): readonly unknown[] =>
  databases.map((name) => {
    using db = new DatabaseSync(join(folder, name))
    return db.prepare('PRAGMA integrity_check').get()?.['integrity_check']
  })

const erased = [3, 7]
const others = [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
const seeds = Array.from({ length: inForm({ short: 3, full: 20, long: 200 }) }, (_, seed) => seed)

describe.each(seeds)('with sizes of messages at random, seed %i', (seed) => {
  /** Messages of all vehicles, a few at once. */
  async function posted(fleet: Fleet, random: () => number, rounds: number, from: readonly number[]): Promise<void> {
    for (let round = 0; round < rounds; round += 1)
      await Promise.all([1, 2, 3].map(() => post(fleet, from[Math.floor(random() * from.length)] ?? 0, random)))
  }

  test('no byte of erased vehicles is in any file, also while and after messages of others come', async () => {
    const random = numbers(seed)
    const fleet = fleetIn(newFolder('erased'))
    await posted(fleet, random, 200, [...others, ...erased])
    expect(restsIn(fleet.folder, erased)).not.toEqual([])
    const erasing = Promise.all(erased.map((n) => fleet.receiver.forget(vinOf(n))))
    await posted(fleet, random, 50, others)
    await erasing
    expect(restsIn(fleet.folder, erased)).toEqual([])
    await posted(fleet, random, 50, others)
    expect(restsIn(fleet.folder, erased)).toEqual([])
    await fleet.receiver.drain()
    expect(restsIn(fleet.folder, erased)).toEqual([])
    expect(restsIn(fleet.folder, [1])).not.toEqual([])
    expect(checked(fleet.folder)).toEqual(['ok'])
  })
})

test('an erasure that a crash interrupted goes on at the next start, and says when it is complete', async () => {
  const random = numbers(1)
  const fleet = fleetIn(newFolder('erased'))
  for (let n = 0; n < 300; n += 1) await post(fleet, n % 12, random)
  await fleet.receiver.drain()
  // What a process writes before it deletes anything.
  for (const name of databases) {
    using db = new DatabaseSync(join(fleet.folder, name))
    db.exec(`INSERT INTO erasing (vin) VALUES ('${vinOf(3)}')`)
  }
  const lines: string[] = []
  const receiver = createReceiver({
    ...{ secret: false, inbox: sqliteInbox({ path: join(fleet.folder, 'inbox.db') }) },
    log: { ...log, warn: (text) => void lines.push(text) },
  })
  branch(receiver, { name: 'crm' })
  await receiver.open()
  await expect
    .poll(() => lines.filter((line) => line.includes('an erasure that was interrupted is complete')))
    .toHaveLength(1)
  expect(restsIn(fleet.folder, [3])).toEqual([])
  expect(restsIn(fleet.folder, [4])).not.toEqual([])
  await receiver.drain()
  expect(checked(fleet.folder)).toEqual(['ok'])
})

test('a page that SQLite fills with other rows between two steps of an erasure is cleaned again', () => {
  const path = join(newFolder('erased'), 'inbox.db')
  const db = openDatabase(path, 2_000)
  const add = db.prepare('INSERT INTO vehicles (vin, place, seen_at, crc, text) VALUES (?, 1, 1, 1, ?)')
  const rowsOf = (mark: string, count: number, size: number): void => {
    for (let n = 0; n < count; n += 1) add.run(`${mark}${(n * 7_919) % count}`, mark.repeat(size / mark.length))
  }
  rowsOf('a-stays', 1_500, 5_000)
  db.exec("INSERT INTO erasing (vin) VALUES ('a')")
  const scrub = createScrub(db, path)
  let steps = 1
  for (let n = 0; scrub.step(() => db.exec('UPDATE erasing SET steps = steps + 1')); n += 1) {
    steps += 1
    // Rows that come and go again, in pages that are clean already.
    rowsOf(`a-leaves-${n}`, 200, 700)
    db.exec("DELETE FROM vehicles WHERE vin GLOB 'a-leaves-*[13579]'; DELETE FROM vehicles WHERE vin GLOB 'a-leaves-*'")
  }
  expect(steps).toBeGreaterThan(2)
  for (const file of [path, `${path}-wal`]) expect(readFileSync(file, 'latin1').includes('leaves'), file).toBe(false)
  expect(db.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
  db.close()
  scrub.close()
})

test('while a vehicle is looked for, other work has a turn for each 2,000 messages', async () => {
  const receiver = createReceiver({
    secret: false,
    log,
    inbox: sqliteInbox({ path: join(newFolder('erased'), 'inbox.db') }),
  })
  const data = { Odometer: 1 }
  for (let batch = 0; batch < 10; batch += 1) {
    const body = Array.from({ length: 1_000 }, () => ({ vin: vinOf(batch), createdAt: '2026-01-01T00:00:00Z', data }))
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  let turns = 0
  let isOver = false
  const turn = (): void => {
    turns += 1
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  expect(await receiver.forget(vinOf(3), { dryRun: true })).toMatchObject({ messages: 1_000 })
  isOver = true
  expect(turns).toBeGreaterThanOrEqual(5)
  await receiver.drain()
})
