/**
 * Measures what the part `vehicles` costs: the CPU time of a message with and without it, in turns, without a socket in one process
 * and over sockets in two; the memory of a hundred thousand vehicles; a start with a file that holds them; a message with ten thousand
 * rules; and a message of vehicles with ten facts, and the state of a fact.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parseArgs } from 'node:util'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { createReceiver, memoryInbox, type Receiver, type ReceiverOptions, vehicles } from '../src/index.ts'
import type { InboxFactory } from '../src/extend.ts'
import { type Bounds, type Edge, fact } from '../src/when.ts'
import { tenFields } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median } from './median.ts'
import { secret } from './servers/answer.ts'
import { type ServerProcess, startServer } from './server-process.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    count: { type: 'string', default: '20000' },
    vehicles: { type: 'string', default: '100000' },
    only: { type: 'string', default: 'pipeline,memory,sqlite,facts,weight,start,rules' },
  },
})
const rounds = Number(values.rounds)
const count = Number(values.count)
const many = Number(values.vehicles)
const parts = new Set(values.only.split(','))
const folder = mkdtempSync(join(tmpdir(), 'fleethook-bench-'))
setFlagsFromString('--expose-gc')
const collect: () => void = runInNewContext('gc')
const log = { debug() {}, info() {}, warn() {}, error() {} }

const valueOf: Readonly<Record<(typeof tenFields)[number], (n: number) => unknown>> = {
  BatteryLevel: (n) => 20 + (n % 7_000) / 100,
  Soc: (n) => 20 + (n % 7_000) / 100,
  Gear: (n) => ['P', 'R', 'D'][n % 3],
  VehicleSpeed: (n) => n % 70,
  Odometer: (n) => 10_000 + n / 10,
  InsideTemp: (n) => 15 + (n % 100) / 10,
  OutsideTemp: (n) => 10 + (n % 100) / 10,
  DetailedChargeState: (n) => ['Charging', 'Stopped'][n % 2],
  Location: (n) => ({ latitude: 40 + (n % 1_000) / 1_000, longitude: -90 + (n % 997) / 1_000 }),
  Locked: (n) => n % 2 === 0,
}

const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`

/** A message with one or two fields, as in recordings: 1.5 on average. */
function bodyOf(n: number, vins: number): string {
  const named = n % 2 === 0 ? [n % 10] : [n % 10, (n + 3) % 10]
  const data = Object.fromEntries(
    named.map((at) => {
      const field = tenFields[at] ?? 'Soc'
      return [field, valueOf[field](n)]
    }),
  )
  const createdAt = new Date(Date.now() - 1_000).toISOString()
  return JSON.stringify({ data, vin: vinOf(n % vins), createdAt })
}

type Parts = NonNullable<ReceiverOptions['parts']>

/** The number of messages whose handlers have not run yet, and what to call when it is 0. */
let unhandled = 0
let allHandled = (): void => {}

function make(inbox: InboxFactory, parts: Parts): Receiver {
  return createReceiver({ secret: false, log, inbox, parts }).on('data', countDown)
}

function countDown(): void {
  unhandled -= 1
  if (unhandled === 0) allHandled()
}

/**
 * Waits for handlers after every 64 messages, because a full inbox refuses messages, and each refusal costs time. It does not poll,
 * because polling would be most of what it measures.
 */
async function handled(receiver: Receiver, bodies: readonly string[]): Promise<void> {
  for (let at = 0; at < bodies.length; at += 64) {
    const some = bodies.slice(at, at + 64)
    unhandled = some.length
    const done = new Promise<void>((resolve) => {
      allHandled = resolve
    })
    const posts = some.map((body) => receiver.accept({ authorization: undefined, body }))
    for (const { status } of await Promise.all(posts)) if (status !== 200) throw new Error(`A message got ${status}.`)
    await done
  }
}

async function cpuOf(receiver: Receiver, bodies: readonly string[]): Promise<number> {
  const before = process.cpuUsage()
  await handled(receiver, bodies)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / bodies.length
}

let files = 0
const file = (): InboxFactory => sqliteInbox({ path: join(folder, `${(files += 1)}.db`) })

async function compare(name: string, off: Receiver, on: Receiver): Promise<readonly unknown[]> {
  const laps: { off: number; on: number }[] = []
  for (let round = -2; round < rounds; round += 1) {
    const bodies = Array.from({ length: count }, (_, n) => bodyOf(n + (round + 2) * count, 1_000))
    const isFirst = round % 2 === 0
    const first = await cpuOf(isFirst ? off : on, bodies)
    const second = await cpuOf(isFirst ? on : off, bodies)
    if (round >= 0) laps.push(isFirst ? { off: first, on: second } : { off: second, on: first })
  }
  await off.drain()
  await on.drain()
  return [name, ...medians(laps)]
}

const withVehicles = (inbox: InboxFactory): Receiver => make(inbox, [vehicles({ fields: tenFields })])

const tenFacts = Array.from({ length: 10 }, (_, n) =>
  n % 2 === 0 ? fact(`fact${n}`, 'string') : fact(`fact${n}`, 'number'),
)

/** A receiver with this many facts of each vehicle. */
async function withFacts(inbox: InboxFactory, vins: number, most: number): Promise<Receiver> {
  const receiver = createReceiver({
    secret: false,
    log,
    inbox,
    parts: [vehicles({ fields: tenFields, facts: tenFacts })],
  })
  receiver.on('data', countDown)
  const told = tenFacts.slice(0, most)
  const rows = Array.from({ length: vins }, (_, n) => ({
    vin: vinOf(n),
    ...Object.fromEntries(told.map(({ name, type }, nth) => [name, type === 'number' ? n + nth : `customer ${n}`])),
  }))
  await receiver.vehicles.setAll(rows)
  while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setTimeout(resolve, 10))
  return receiver
}

/** Measures the whole way from the socket to the handler, in processes that differ only in the option. */
async function overSockets(name: string, kind: 'memory' | 'sqlite'): Promise<readonly unknown[]> {
  const env = { BENCH_INBOX: kind, BENCH_FOLDER: folder }
  const off = await startServer('durable', [], env)
  const on = await startServer('durable', [], { ...env, BENCH_VEHICLES: 'on' })
  const perLap = 12_000
  const requests = Array.from({ length: perLap }, (_, n) => requestOf(bodyOf(n, 1_000), secret))
  const lap = async (server: ServerProcess): Promise<number> => {
    await server.begin()
    const { refused } = await load({ port: server.port, requests, connections: 64, count: perLap })
    const { cpuMicroseconds } = await server.end()
    if (refused > 0) throw new Error(`${refused} messages were refused.`)
    return cpuMicroseconds / perLap
  }
  const laps: { off: number; on: number }[] = []
  for (let round = -4; round < rounds; round += 1) {
    const isFirst = round % 2 === 0
    const first = await lap(isFirst ? off : on)
    const second = await lap(isFirst ? on : off)
    if (round >= 0) laps.push(isFirst ? { off: first, on: second } : { off: second, on: first })
  }
  await off.stop()
  await on.stop()
  return [name, ...medians(laps)]
}

/** The CPU time without and with the option, and the ratio of each round. */
function medians(laps: readonly { readonly off: number; readonly on: number }[]): readonly string[] {
  const figures = [median(laps.map((lap) => lap.off)), median(laps.map((lap) => lap.on))]
  return [...figures.map((figure) => figure.toFixed(2)), median(laps.map((lap) => lap.on / lap.off)).toFixed(3)]
}

/** A hundred thousand vehicles with ten fields each. */
const full = (n: number): string =>
  JSON.stringify({
    data: Object.fromEntries(tenFields.map((field) => [field, valueOf[field](n)])),
    vin: vinOf(n),
    createdAt: new Date(Date.now() - 1_000).toISOString(),
  })

async function fill(receiver: Receiver): Promise<void> {
  for (let at = 0; at < many; at += 1_000)
    await handled(
      receiver,
      Array.from({ length: Math.min(1_000, many - at) }, (_, n) => full(at + n)),
    )
}

/** The heap in bytes. What ran is only free once its last tasks have run. */
async function heapUsed(): Promise<number> {
  for (let turn = 0; turn < 3; turn += 1) {
    collect()
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  collect()
  return process.memoryUsage().heapUsed
}

/** The heap that a receiver takes, in bytes. */
async function heapOf(filled: () => Promise<Receiver>): Promise<number> {
  const before = await heapUsed()
  const receiver = await filled()
  const bytes = (await heapUsed()) - before
  await receiver.drain()
  return bytes
}

/** In a process that has run for a while: optimized code can keep a list of numbers in another form. */
async function weigh(): Promise<number> {
  const earlier = withVehicles(memoryInbox())
  for (let round = 0; round < 5; round += 1)
    await handled(
      earlier,
      Array.from({ length: 20_000 }, (_, n) => bodyOf(n, 1_000)),
    )
  await earlier.drain()
  const bytes = await heapOf(async () => {
    const receiver = withVehicles(memoryInbox())
    await fill(receiver)
    return receiver
  })
  return bytes / 1e6
}

/** What each of ten facts takes: in the row of its vehicle, in characters, and in memory, in bytes. */
async function factsWeigh(): Promise<readonly number[]> {
  const vins = 10_000
  let characters = 0
  const inbox: InboxFactory = (settings) => {
    const made = memoryInbox()(settings)
    const close = async (): Promise<void> => {
      characters = (await made.states?.load(vinOf(5)))?.text().length ?? 0
      await made.close()
    }
    return { ...made, close }
  }
  await (await withFacts(inbox, 10, 10)).drain()
  const bytes: number[] = []
  for (let round = 0; round < 5; round += 1) {
    const one = await heapOf(() => withFacts(memoryInbox(), vins, 1))
    const ten = await heapOf(() => withFacts(memoryInbox(), vins, 10))
    bytes.push((ten - one) / vins / 9)
  }
  return [characters / 10, median(bytes)]
}

async function starts(): Promise<readonly number[]> {
  const path = join(folder, 'many.db')
  const filled = make(sqliteInbox({ path }), [vehicles({ fields: tenFields })])
  await fill(filled)
  await filled.drain()
  const laps: number[][] = [[], []]
  for (let round = 0; round < 5; round += 1)
    for (const [at, parts] of [[vehicles({ fields: tenFields })], []].entries()) {
      const receiver = make(sqliteInbox({ path }), parts)
      const startedAt = performance.now()
      await receiver.open()
      await receiver.accept({ authorization: undefined, body: full(5) })
      laps[at]?.push(performance.now() - startedAt)
      await receiver.drain()
    }
  return laps.map(median)
}

/** An edge with bounds. */
function fence(n: number): Edge {
  const south = -60 + (n % 100)
  const west = -170 + Math.floor(n / 100) * 3
  const bounds: Bounds = { south, west, north: south + 0.01, east: west + 0.01 }
  const edge: Edge = {
    ...{ name: `fence ${n}`, fields: ['Location'], reads: ['Location'], topics: [], bounds },
    detect: () => undefined,
    where: () => edge,
  }
  return edge
}

async function rules(): Promise<readonly number[]> {
  const few = make(memoryInbox(), [vehicles({ fields: tenFields })])
  const lots = make(memoryInbox(), [vehicles({ fields: tenFields })])
  for (let n = 0; n < 10_000; n += 1) lots.when(fence(n), () => {})
  for (let n = 0; n < 10; n += 1) few.when(fence(n), () => {})
  const laps: number[][] = [[], []]
  for (let round = -1; round < rounds; round += 1) {
    const bodies = Array.from({ length: count }, (_, n) => bodyOf(n, 1_000))
    for (const [at, receiver] of [few, lots].entries()) {
      const cpu = await cpuOf(receiver, bodies)
      if (round >= 0) laps[at]?.push(cpu)
    }
  }
  return laps.map(median)
}

const budgets: Readonly<Record<string, string>> = {
  'pipeline, in memory': '1.05',
  'pipeline, SQLite': '1.10',
  'ten facts, in memory': '1.05',
  'ten facts, SQLite': '1.05',
}
const compared: (readonly unknown[])[] = []
if (parts.has('memory'))
  compared.push(await compare('without a socket, in memory', make(memoryInbox(), []), withVehicles(memoryInbox())))
if (parts.has('sqlite'))
  compared.push(await compare('without a socket, SQLite', make(file(), []), withVehicles(file())))
if (parts.has('pipeline')) {
  compared.push(await overSockets('pipeline, in memory', 'memory'), await overSockets('pipeline, SQLite', 'sqlite'))
}
if (parts.has('facts')) {
  const inMemory = await withFacts(memoryInbox(), 1_000, 10)
  const onDisk = await withFacts(file(), 1_000, 10)
  compared.push(await compare('ten facts, in memory', withVehicles(memoryInbox()), inMemory))
  compared.push(await compare('ten facts, SQLite', withVehicles(file()), onDisk))
}
if (compared.length > 0)
  console.log(
    table(
      ['inbox', 'without, µs of CPU', 'with, µs of CPU', 'ratio', 'budget'],
      compared.map((row) => [...row.map(String), budgets[String(row[0])] ?? '']),
    ),
  )

const measured: string[][] = []
if (parts.has('weight'))
  measured.push([`${many} vehicles with ten fields in memory, MB`, (await weigh()).toFixed(1), '100'])
if (parts.has('facts')) {
  const [characters = 0, bytes = 0] = await factsWeigh()
  measured.push(['a fact in the row of its vehicle, characters', characters.toFixed(1), '60'])
  measured.push(['a fact in memory, bytes', bytes.toFixed(0), '60'])
}
if (parts.has('start')) {
  const [withThem = 0, without = 0] = await starts()
  measured.push([`open a file with ${many} vehicles, ms`, withThem.toFixed(0), '500'])
  measured.push(['the same file without the option, ms', without.toFixed(0), ''])
}
if (parts.has('rules')) {
  const [ten = 0, tenThousand = 0] = await rules()
  measured.push(['a message with 10 fences, CPU µs', ten.toFixed(2), ''])
  measured.push(['a message with 10,000 fences, CPU µs', tenThousand.toFixed(2), ''])
}
if (measured.length > 0) console.log(`\n${table(['what', 'measured', 'budget'], measured)}`)
rmSync(folder, { recursive: true, force: true })
