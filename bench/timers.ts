// What rules with a time cost: 100,000 vehicles in a file, each with three pending timers, and the CPU time of a message.
//   node --expose-gc --import ./test/docs/resolve-sources.ts bench/timers.ts
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, message } from 'fleethook/testing'
import { becomes, below, changed, type Edge, silent, starts } from 'fleethook/when'

const count = 100_000
const fields = ['BatteryLevel', 'Gear', 'Location', 'DetailedChargeState'] as const
const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`
const week = { days: 7 } as const
const timed: readonly Edge[] = [
  starts(below('BatteryLevel', 20), { first: true }).after(week),
  becomes('Gear', 'P', { first: true }).after(week),
  silent(week),
]
const plain: readonly Edge[] = [
  starts(below('BatteryLevel', 20), { first: true }),
  becomes('Gear', 'P'),
  changed('BatteryLevel'),
]
const log = { debug() {}, info() {}, warn() {}, error() {} }

function receiverOf(inbox: InboxFactory, edges: readonly Edge[]) {
  const receiver = createReceiver({ secret: false, log, inbox, parts: [vehicles({ fields })] })
  for (const edge of edges) receiver.when(edge, () => undefined)
  return receiver
}

const told = (battery: number, gear: string, vin: string): Parameters<typeof deliver>[1] => ({
  ...message.data({}, { vin, createdAt: new Date().toISOString() }),
  data: {
    BatteryLevel: battery,
    Gear: gear,
    Location: { latitude: 52.37, longitude: 4.89 },
    DetailedChargeState: 'Disconnected',
  },
})

/** A file with all vehicles: one is made by a receiver, and the others are copies of it. */
async function filled(folder: string): Promise<string> {
  const path = join(folder, 'inbox.db')
  const receiver = receiverOf(sqliteInbox({ path }), timed)
  await (
    await deliver(receiver, told(19, 'P', vinOf(0)))
  ).settled
  await receiver.drain()
  const db = new DatabaseSync(path)
  const row = db.prepare('SELECT * FROM vehicles WHERE vin = ?').get(vinOf(0)) as Record<string, string | number>
  const add = db.prepare('INSERT INTO vehicles (vin, place, seen_at, crc, text) VALUES (?, ?, ?, ?, ?)')
  db.exec('BEGIN')
  for (let n = 1; n < count; n += 1)
    add.run(vinOf(n), row['place'] ?? 0, row['seen_at'] ?? 0, row['crc'] ?? 0, row['text'] ?? '')
  db.exec('COMMIT')
  db.close()
  return path
}

const heapMb = (): number => {
  globalThis.gc?.()
  globalThis.gc?.()
  return process.memoryUsage().heapUsed / 1_048_576
}

async function opened(path: string, edges: readonly Edge[]): Promise<{ ms: number; mb: number }> {
  const before = heapMb()
  const start = performance.now()
  const receiver = receiverOf(sqliteInbox({ path }), edges)
  await receiver.open()
  await (
    await deliver(receiver, told(18, 'P', 'another'))
  ).settled
  const ms = performance.now() - start
  const mb = heapMb() - before
  await receiver.drain()
  return { ms, mb }
}

/** The CPU time of messages, in microseconds each. */
async function cpu(edges: readonly Edge[], messages: number): Promise<number> {
  const receiver = receiverOf(memoryInbox(), edges)
  const start = process.cpuUsage()
  for (let n = 0; n < messages; n += 1)
    await deliver(receiver, told(10 + (n % 80), n % 3 === 0 ? 'P' : 'D', vinOf((n * 7) % 1_000)))
  await receiver.drain()
  const { user, system } = process.cpuUsage(start)
  return (user + system) / messages
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

const folder = mkdtempSync(join(tmpdir(), 'fleethook-timers-'))
const path = await filled(folder)
await opened(path, plain)
for (const [name, edges] of [
  ['plain edges', plain],
  ['edges with a time', timed],
] as const) {
  const { ms, mb } = await opened(path, edges)
  console.log(`${name}: first message handled ${ms.toFixed(0)} ms after the start, ${mb.toFixed(1)} MB`)
}
rmSync(folder, { recursive: true })

const rounds = { plain: [] as number[], timed: [] as number[] }
for (let round = 0; round < 9; round += 1) {
  rounds.plain.push(await cpu(plain, 10_000))
  rounds.timed.push(await cpu(timed, 10_000))
}
const [one, other] = [median(rounds.plain), median(rounds.timed)]
console.log(`CPU per message: ${one.toFixed(1)} µs, ${other.toFixed(1)} µs: ${(other / one).toFixed(3)}`)
