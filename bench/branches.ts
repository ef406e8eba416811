/*
 * Does a branch cost its receiver anything? Posts the same messages twice, to a receiver without a branch and to one that forwards them to a second
 * server, which is down for the first half and killed five times in the second. Prints both runs, and accounts for every message at the end.
 *
 *   node bench/main.ts branches --messages 1000000 --vehicles 1000 --rate 1500
 *   node bench/main.ts branches --thread        # the inbox works in a thread of its own
 */
import { type ChildProcess, fork } from 'node:child_process'
import { appendFileSync, closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { Agent, createServer, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { forward } from '../adapters/forward.ts'
import { serve } from '../adapters/node.ts'
import { branch } from '../src/branch.ts'
import { createReceiver } from '../src/index.ts'
import { freePort } from '../test/conformance/spawn.ts'

const here = fileURLToPath(import.meta.url)

/** What one run is asked for. */
export interface Load {
  readonly messages: number
  readonly vehicles: number
  /** Messages in a second. */
  readonly rate: number
  /** The number of times the receiver itself is killed in the second half. */
  readonly kills: number
  /** The inbox works in a thread of its own. */
  readonly thread: boolean
}

export interface Run {
  /** Of the first half, and of the second. */
  readonly ackP50Ms: string
  readonly ackP99Ms: string
  /** Messages in a second that were handled while they came. */
  readonly handledRate: number
  readonly refused: number
}

export interface Account {
  readonly posted: number
  /** Different deliveries that the second server has. */
  readonly arrived: number
  readonly lost: number
  readonly repeated: number
  readonly outOfOrder: number
  readonly settledSeconds: number
}

/** A second server that writes down what it gets before it answers. */
function staging(port: number, file: string): void {
  const out = openSync(file, 'a')
  const server = createServer((incoming, response) => {
    let body = ''
    incoming.on('data', (part) => (body += String(part)))
    incoming.on('end', () => {
      const { vin, data } = JSON.parse(body)
      appendFileSync(out, `${String(incoming.headers['fleethook-delivery'])} ${vin} ${data.Odometer}\n`)
      response.end('{"text":"Success","code":0}')
    })
  })
  server.on('close', () => closeSync(out))
  server.listen(port, '127.0.0.1', () => process.send?.('listens'))
}

/** The receiver under test. */
async function production(port: number, folder: string, thread: boolean, to: string): Promise<void> {
  const receiver = createReceiver({ secret: 'secret', inbox: sqliteInbox({ path: join(folder, 'inbox.db'), thread }) })
  let handled = 0
  receiver.on('data', () => void (handled += 1))
  if (to !== '') branch(receiver, { name: 'staging' }).on('*', forward({ to, auth: 'of-staging' }))
  process.on('message', () => {
    const { pending, branches } = receiver.stats()
    process.send?.({ handled, pending: pending.messages, behind: branches?.['staging']?.pending.messages ?? 0 })
  })
  await serve(receiver, { port, announce: false })
  process.send?.('listens')
}

interface Figures {
  readonly handled: number
  readonly pending: number
  readonly behind: number
}

function start(...args: readonly string[]): Promise<ChildProcess> {
  const child = fork(here, args, { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] })
  return new Promise((resolve, reject) => {
    child.once('message', () => resolve(child))
    child.once('exit', (code) => reject(new Error(`${args[0]} ended with ${String(code)}`)))
  })
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGKILL')
  await ended
}

const figuresOf = (child: ChildProcess): Promise<Figures> =>
  new Promise((resolve) => {
    child.once('message', (figures) => resolve(figures as Figures))
    child.send('figures')
  })

/** Posts a message. Resolves to the status, or 0 when there is none. */
function post(agent: Agent, port: number, body: string): Promise<number> {
  return new Promise((resolve) => {
    const headers = { authorization: 'secret', 'content-length': Buffer.byteLength(body) }
    const asked = request({ agent, port, host: '127.0.0.1', method: 'POST', headers }, (answer) => {
      answer.resume()
      answer.on('end', () => resolve(answer.statusCode ?? 0))
    })
    asked.on('error', () => resolve(0))
    asked.end(body)
  })
}

/** One run. `say` gets a line each half minute. */
export async function run(load: Load, isBehind: boolean, say: (line: string) => void): Promise<Run & Partial<Account>> {
  const { messages, vehicles, rate, kills, thread } = load
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-branches-'))
  const [port, other] = [await freePort(), await freePort()]
  const file = join(folder, 'arrived.txt')
  const to = isBehind ? `http://127.0.0.1:${other}/` : ''
  const agent = new Agent({ keepAlive: true, maxSockets: 64 })
  let receiver = await start('production', String(port), folder, String(thread), to)
  let behind: ChildProcess | undefined
  let restarted = Promise.resolve()
  /** What still waits for an answer before it, on a slow disk, is posted to the next receiver. */
  let isUp = Promise.resolve()
  const ackMs: [number[], number[]] = [[], []]
  const acknowledged: number[][] = Array.from({ length: vehicles }, () => [])
  let refused = 0
  let handledBefore = 0
  const next = Array.from({ length: vehicles }, () => Promise.resolve())
  const startedMs = performance.now()
  const killAt = (count: number): readonly number[] =>
    Array.from({ length: count }, (_one, at) => Math.floor(messages * (0.5 + (0.5 * (at + 1)) / (count + 1))))
  const [stagingKills, ownKills] = [killAt(5), killAt(kills).map((at) => at + Math.floor(messages / 40))]
  try {
    for (let at = 0; at < messages; at += 1) {
      // Nobody waits for it: a pause here would become a burst.
      // In both runs: to start a process takes the same machine from the receiver.
      if (at === Math.floor(messages / 2) || stagingKills.includes(at))
        restarted = restarted.then(async () => {
          if (behind !== undefined) await kill(behind)
          behind = await start('staging', String(other), file)
        })
      if (ownKills.includes(at)) {
        handledBefore += (await figuresOf(receiver)).handled
        const up = Promise.withResolvers<void>()
        isUp = up.promise
        await kill(receiver)
        receiver = await start('production', String(port), folder, String(thread), to)
        up.resolve()
      }
      if (at % (rate * 30) === 0) say(`${at} posted, ${JSON.stringify(await figuresOf(receiver))}`)
      const vehicle = at % vehicles
      const body = JSON.stringify({ vin: `V${vehicle}`, createdAt: new Date(), data: { Odometer: at } })
      next[vehicle] = (next[vehicle] ?? Promise.resolve()).then(async () => {
        await isUp
        const sinceMs = performance.now()
        const status = await post(agent, port, body)
        ackMs[at * 2 < messages ? 0 : 1].push(performance.now() - sinceMs)
        if (status === 200) acknowledged[vehicle]?.push(at)
        else refused += 1
      })
      const aheadMs = startedMs + ((at + 1) * 1_000) / rate - performance.now()
      if (aheadMs > 2) await pause(aheadMs)
    }
    await Promise.all(next)
    await restarted
    const seconds = (performance.now() - startedMs) / 1_000
    const handled = handledBefore + (await figuresOf(receiver)).handled
    const figures = { ...percentilesOf(ackMs), handledRate: Math.round(handled / seconds), refused }
    if (!isBehind) return figures
    const sinceMs = performance.now()
    for (let waits = await figuresOf(receiver); waits.behind + waits.pending > 0; waits = await figuresOf(receiver)) {
      if (performance.now() - sinceMs > 1_800_000) break
      await pause(200)
    }
    return {
      ...figures,
      ...account(acknowledged, file),
      settledSeconds: Math.round((performance.now() - sinceMs) / 1_000),
    }
  } finally {
    agent.destroy()
    for (const child of [receiver, behind]) if (child !== undefined) await kill(child)
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Of the first half, and of the second. */
function percentilesOf(ackMs: readonly (readonly number[])[]): Pick<Run, 'ackP50Ms' | 'ackP99Ms'> {
  const sorted = ackMs.map((half) => half.toSorted((a, b) => a - b))
  const percentile = (part: number): string =>
    sorted.map((half) => (half[Math.floor(half.length * part)] ?? 0).toFixed(2)).join(', ')
  return { ackP50Ms: percentile(0.5), ackP99Ms: percentile(0.99) }
}

/** Compares what was acknowledged with what arrived, in the order of the first arrivals of each vehicle. */
function account(acknowledged: readonly (readonly number[])[], file: string): Omit<Account, 'settledSeconds'> {
  const seen = new Set<string>()
  const arrived = acknowledged.map((): number[] => [])
  let lines = 0
  for (const line of existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []) {
    const [delivery = '', vin = '', odometer = ''] = line.split(' ')
    if (odometer === '') continue
    lines += 1
    if (!seen.has(delivery)) arrived[Number(vin.slice(1))]?.push(Number(odometer))
    seen.add(delivery)
  }
  let [lost, outOfOrder] = [0, 0]
  for (const [vehicle, expected] of acknowledged.entries()) {
    const found = arrived[vehicle] ?? []
    const all = new Set(found)
    lost += expected.filter((at) => !all.has(at)).length
    outOfOrder += found.filter((at, place) => place > 0 && at <= (found[place - 1] ?? 0)).length
  }
  const posted = acknowledged.reduce((sum, { length }) => sum + length, 0)
  return { posted, arrived: seen.size, lost, repeated: lines - seen.size, outOfOrder }
}

async function main(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      messages: { type: 'string', default: '20000' },
      vehicles: { type: 'string', default: '1000' },
      rate: { type: 'string', default: '500' },
      kills: { type: 'string', default: '0' },
      thread: { type: 'boolean', default: false },
    },
  })
  const load = {
    messages: Number(values.messages),
    vehicles: Number(values.vehicles),
    rate: Number(values.rate),
    kills: Number(values.kills),
    thread: values.thread,
  }
  const say = (line: string): void => console.error(line)
  console.log('without a branch', await run(load, false, say))
  console.log('with a branch', await run(load, true, say))
}

if (process.argv[1] === here) {
  const [role, ...rest] = process.argv.slice(2)
  if (role === 'staging') staging(Number(rest[0]), rest[1] ?? '')
  else if (role === 'production') await production(Number(rest[0]), rest[1] ?? '', rest[2] === 'true', rest[3] ?? '')
  else await main(process.argv.slice(2))
}
