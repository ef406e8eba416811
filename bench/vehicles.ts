/**
 * What the option `vehicles` costs: the CPU of a message with and without it, in turns in one process, and over HTTP, in turns in
 * two processes; the memory of a hundred thousand
 * vehicles; the start with a file that holds them; and a message among ten thousand rules.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parseArgs } from 'node:util'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { serve } from '../adapters/node.ts'
import { type Bounds, createReceiver, type Edge, type InboxFactory, memoryInbox, type Receiver } from '../src/index.ts'
import { median } from './median.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    count: { type: 'string', default: '20000' },
    vehicles: { type: 'string', default: '100000' },
    only: { type: 'string', default: 'memory,sqlite,http,weight,start,rules' },
    serve: { type: 'string' },
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

const fields = [
  ...['BatteryLevel', 'Soc', 'Gear', 'VehicleSpeed', 'Odometer'],
  ...['InsideTemp', 'OutsideTemp', 'DetailedChargeState', 'Location', 'Locked'],
] as const

const valueOf: Readonly<Record<(typeof fields)[number], (n: number) => unknown>> = {
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

/** A message with one or two fields, as in recordings: 1.5 on average. */
function bodyOf(n: number, vins: number): string {
  const named = n % 2 === 0 ? [n % 10] : [n % 10, (n + 3) % 10]
  const data = Object.fromEntries(
    named.map((at) => {
      const field = fields[at] ?? 'Soc'
      return [field, valueOf[field](n)]
    }),
  )
  const createdAt = new Date(Date.now() - 1_000).toISOString()
  return JSON.stringify({ data, vin: `0FLEETV14T${String(n % vins).padStart(7, '0')}`, createdAt })
}

type Vehicles = NonNullable<Parameters<typeof createReceiver>[0]['vehicles']>

/** The messages that handlers still have to see, and what happens then. */
let unhandled = 0
let allHandled = (): void => {}

function make(inbox: InboxFactory, vehicles: Vehicles): Receiver {
  return createReceiver({ secret: false, log, inbox, vehicles }).on('data', () => {
    unhandled -= 1
    if (unhandled === 0) allHandled()
  })
}

/**
 * Waits for handlers after every 64 messages: a full inbox refuses messages, and each refusal is work of its own. It does not ask again
 * and again: that would be most of what it measures.
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

async function compare(name: string, inbox: () => InboxFactory): Promise<readonly unknown[]> {
  const off = make(inbox(), false)
  const on = make(inbox(), { fields })
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
  const ratios = laps.map((lap) => lap.on / lap.off)
  const figures = [median(laps.map((lap) => lap.off)), median(laps.map((lap) => lap.on))]
  return [name, ...figures.map((figure) => figure.toFixed(2)), median(ratios).toFixed(3)]
}

/** A receiver in a process of its own, which says on request how much CPU it has used. */
async function serveHere(which: string): Promise<void> {
  const [inbox, vehicles] = which.split(', ')
  const receiver = createReceiver({
    ...{ secret: false, log, inbox: inbox === 'SQLite' ? file() : memoryInbox() },
    vehicles: vehicles === 'on' && { fields },
  }).on('data', () => {})
  const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })
  process.on('message', () => process.send?.(process.cpuUsage()))
  process.send?.(server.url)
  process.once('disconnect', () => process.exit())
}

async function asked(child: ChildProcess): Promise<number> {
  child.send('cpu')
  const [used]: NodeJS.CpuUsage[] = await once(child, 'message')
  return used === undefined ? Number.NaN : used.user + used.system
}

async function post(url: string, agent: Agent, body: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const posted = request(url, { agent, method: 'POST' }, (response) => {
    if (response.statusCode !== 200) reject(new Error(`A message got ${response.statusCode}.`))
    response.resume().once('end', resolve)
  })
  posted.once('error', reject)
  posted.end(body)
  return promise
}

/** The whole path of a message: 64 connections, each of which sends its next message when the last one was answered. */
async function compareServers(inbox: string): Promise<readonly unknown[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 })
  const servers = await Promise.all(
    ['off', 'on'].map(async (vehicles) => {
      const child = fork(import.meta.filename, ['--serve', `${inbox}, ${vehicles}`], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      })
      const [url]: string[] = await once(child, 'message')
      return { child, url: url ?? '' }
    }),
  )
  const laps: number[][] = [[], []]
  for (let round = -2; round < rounds; round += 1) {
    const bodies = Array.from({ length: count }, (_, n) => bodyOf(n + (round + 2) * count, 1_000))
    for (const at of round % 2 === 0 ? [0, 1] : [1, 0]) {
      const server = servers[at]
      if (server === undefined) continue
      const before = await asked(server.child)
      let next = 0
      const sender = async (): Promise<void> => {
        while (next < bodies.length) await post(server.url, agent, bodies[next++] ?? '')
      }
      await Promise.all(Array.from({ length: 64 }, sender))
      // Its handlers run after the answers.
      await new Promise((resolve) => setTimeout(resolve, 100))
      const cpu = ((await asked(server.child)) - before) / count
      if (round >= 0) laps[at]?.push(cpu)
    }
  }
  agent.destroy()
  for (const { child } of servers) child.disconnect()
  const [off = [], on = []] = laps
  const ratio = median(on.map((cpu, lap) => cpu / (off[lap] ?? cpu)))
  return [`${inbox}, over HTTP`, median(off).toFixed(2), median(on).toFixed(2), ratio.toFixed(3)]
}

/** A hundred thousand vehicles with ten fields each. */
const full = (n: number): string =>
  JSON.stringify({
    data: Object.fromEntries(fields.map((field) => [field, valueOf[field](n)])),
    vin: `0FLEETV14T${String(n).padStart(7, '0')}`,
    createdAt: new Date(Date.now() - 1_000).toISOString(),
  })

async function fill(receiver: Receiver): Promise<void> {
  for (let at = 0; at < many; at += 1_000)
    await handled(
      receiver,
      Array.from({ length: Math.min(1_000, many - at) }, (_, n) => full(at + n)),
    )
}

async function weigh(): Promise<number> {
  const receiver = make(memoryInbox(), { fields })
  collect()
  const before = process.memoryUsage().heapUsed
  await fill(receiver)
  collect()
  const bytes = process.memoryUsage().heapUsed - before
  await receiver.drain()
  return bytes / 1e6
}

async function starts(): Promise<readonly number[]> {
  const path = join(folder, 'many.db')
  const filled = make(sqliteInbox({ path }), { fields })
  await fill(filled)
  await filled.drain()
  const laps: number[][] = [[], []]
  for (let round = 0; round < 5; round += 1)
    for (const [at, vehicles] of [{ fields }, false].entries()) {
      const receiver = make(sqliteInbox({ path }), vehicles)
      const startedAt = performance.now()
      await receiver.open()
      await receiver.accept({ authorization: undefined, body: full(5) })
      laps[at]?.push(performance.now() - startedAt)
      await receiver.drain()
    }
  return laps.map(median)
}

/** An edge that looks at a rectangle of the earth. */
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
  const few = make(memoryInbox(), { fields })
  const lots = make(memoryInbox(), { fields })
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
  'in memory': '1.05',
  SQLite: '1.10',
  'in memory, over HTTP': '1.05',
  'SQLite, over HTTP': '1.10',
}
const compared: (readonly unknown[])[] = []
if (values.serve !== undefined) {
  await serveHere(values.serve)
  parts.clear()
}
if (parts.has('memory')) compared.push(await compare('in memory', () => memoryInbox()))
if (parts.has('sqlite')) compared.push(await compare('SQLite', file))
if (parts.has('http')) for (const inbox of ['in memory', 'SQLite']) compared.push(await compareServers(inbox))
if (compared.length > 0)
  console.log(
    table(
      ['inbox', 'off, µs of CPU', 'ten fields, µs of CPU', 'ratio', 'budget'],
      compared.map((row) => [...row.map(String), budgets[String(row[0])] ?? '']),
    ),
  )

const measured: string[][] = []
if (parts.has('weight'))
  measured.push([`${many} vehicles with ten fields in memory, MB`, (await weigh()).toFixed(1), '100'])
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
if (values.serve === undefined) rmSync(folder, { recursive: true, force: true })
