/**
 * Measures the CPU time of a message on each runtime, from the socket to its handler. Compares it with what an empty Hono handler and
 * the runtime's own server take to read the body, parse it and answer. Each server is a process of its own, and all get the same
 * bodies, in turns. Linux only.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as later } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Runtime, runtimePath } from '../scripts/runtimes.ts'
import { spawnTarget, type Target, type TargetCommand } from '../test/conformance/spawn.ts'
import { workerCommand } from '../test/runtimes/targets.ts'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median } from './median.ts'
import { loadCore, measuredCore, pinned, pinThis } from './pin.ts'
import { answerBody, secret } from './servers/answer.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    count: { type: 'string', default: '10000' },
    only: { type: 'string', default: 'node24,bun,deno,workerd' },
  },
})
const rounds = Number(values.rounds)
const count = Number(values.count)
/** The number of messages to each server before its first round. On Deno, the ratio falls until about 40,000. */
const warmUpMessages = 40_000

type Kind = 'bare' | 'Hono' | 'fleethook'
const kinds: readonly Kind[] = ['bare', 'Hono', 'fleethook']
/** The budget of a runtime, and what it is a multiple of. */
const budgets: Partial<Record<Runtime, readonly [of: Kind, ratio: number]>> = {
  node24: ['Hono', 1],
  bun: ['Hono', 1.15],
  deno: ['Hono', 1.4],
  workerd: ['bare', 1.5],
}
const runtimes: readonly Runtime[] = (['node24', 'bun', 'deno', 'workerd'] as const).filter((each) =>
  values.only.split(',').includes(each),
)

const answer = `new Response('${answerBody}', { headers: { 'content-type': 'application/json' } })`
const parse = `async (request) => { JSON.parse(await request.text()); return ${answer} }`
const hono = `new Hono().post('/', async (c) => {
  JSON.parse(await c.req.text())
  return c.body('${answerBody}', 200, { 'content-type': 'application/json' })
})`
const receiver = `createReceiver({ secret: '${secret}' }).on('data', ({ data }) => { highest = Math.max(highest, data.VehicleSpeed ?? 0) })`

const programs: Readonly<Record<Kind, string>> = {
  bare: `
    const say = (port) => console.log('listening on http://127.0.0.1:' + port)
    const fetch = ${parse}
    if (process.argv[2] === 'bun') say(Bun.serve({ port: 0, hostname: '127.0.0.1', fetch }).port)
    else if (process.argv[2] === 'deno') say(Deno.serve({ port: 0, hostname: '127.0.0.1', onListen() {} }, fetch).addr.port)
    else {
      const { createServer } = await import('node:http')
      const headers = { 'content-type': 'application/json', 'content-length': ${answerBody.length} }
      const server = createServer((request, response) => {
        const chunks = []
        request.on('data', (chunk) => { chunks.push(chunk) })
        request.on('end', () => {
          JSON.parse(Buffer.concat(chunks).toString())
          response.writeHead(200, headers)
          response.end('${answerBody}')
        })
      }).listen(0, '127.0.0.1', () => say(server.address().port))
    }`,
  Hono: `
    import { Hono } from 'hono'
    const say = ({ port }) => console.log('listening on http://127.0.0.1:' + port)
    const { fetch } = ${hono}
    const options = { port: 0, hostname: '127.0.0.1' }
    if (process.argv[2] === 'bun') say(Bun.serve({ ...options, fetch }))
    else if (process.argv[2] === 'deno') say(Deno.serve({ ...options, onListen() {} }, (request) => fetch(request)).addr)
    else (await import('@hono/node-server')).serve({ ...options, fetch }, say)`,
  fleethook: `
    import { createReceiver } from '../../dist/src/index.js'
    const { serve } = await import('../../dist/adapters/' + process.argv[2] + '.js')
    let highest = 0
    await serve(${receiver}, { port: 0, hostname: '127.0.0.1' })`,
}

const workers: Readonly<Record<Kind, string>> = {
  bare: `export default { fetch: ${parse} }`,
  Hono: `
    import { Hono } from 'hono'
    export default ${hono}`,
  fleethook: `
    import { createReceiver } from '../../../src/index.ts'
    import { worker } from '../../../adapters/workers.ts'
    let highest = 0
    export default worker(${receiver})`,
}

/** Writes programs that use the installed package, in a folder that can resolve the dependencies. */
function write(): string {
  const root = fileURLToPath(new URL('..', import.meta.url))
  if (!existsSync(`${root}dist`)) throw new Error('Run "npm run build" first.')
  const folder = `${root}.runtimes/bench-${process.pid}/`
  mkdirSync(folder, { recursive: true })
  for (const kind of kinds) writeFileSync(`${folder}${kind}.mjs`, programs[kind])
  return folder
}

async function commandOf(runtime: Runtime, kind: Kind, folder: string): Promise<TargetCommand> {
  const { command, args }: Pick<TargetCommand, 'command' | 'args'> =
    runtime === 'workerd'
      ? await workerCommand(workers[kind])
      : {
          command: runtimePath(runtime),
          args: [
            ...(runtime === 'deno' ? ['run', '--allow-all'] : []),
            `${folder}${kind}.mjs`,
            runtime.replace(/\d+/, ''),
          ],
        }
  const [program = command, ...rest] = pinned(measuredCore, [command, ...args])
  return { runtime, command: program, args: rest }
}

/** CPU time of all threads of a process, in microseconds. */
function cpuOf({ pid }: Target): number {
  return readdirSync(`/proc/${pid}/task`)
    .map((task) => Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]) / 1000)
    .reduce((sum, each) => sum + each, 0)
}

interface Course {
  readonly runtime: Runtime
  readonly kind: Kind
  readonly command: TargetCommand
  readonly target: Target
  readonly cpuMicroseconds: number[]
  readonly perSecond: number[]
}

const requests = corpus({ messages: 5000, vins: 1000, format: 'service' }).map((body) => requestOf(body, secret))

async function lap({ target, cpuMicroseconds, perSecond, runtime }: Course, counts: boolean): Promise<void> {
  const before = cpuOf(target)
  const { seconds, refused } = await load({ port: Number(new URL(target.url).port), requests, connections: 64, count })
  if (refused > 0) throw new Error(`${runtime} refused ${refused} of ${count} messages.`)
  // Handlers run after the last answer, and are part of the cost.
  await later(50)
  if (!counts) return
  cpuMicroseconds.push((cpuOf(target) - before) / count)
  perSecond.push(count / seconds)
}

pinThis(loadCore)
const folder = write()
const courses: Course[] = []
try {
  for (const runtime of runtimes)
    for (const kind of kinds) {
      const command = await commandOf(runtime, kind, folder)
      const target = await spawnTarget(command)
      courses.push({ runtime, kind, command, target, cpuMicroseconds: [], perSecond: [] })
    }
  // Laps that are not counted: V8 compiles code, and heaps reach their size.
  for (let round = -Math.ceil(warmUpMessages / count); round < rounds; round++)
    for (const course of courses) await lap(course, round >= 0)
} finally {
  for (const { target } of courses) await target.stop('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
}

const least = (runtime: Runtime, kind: Kind): number =>
  Math.min(...courses.flatMap((each) => (each.runtime === runtime && each.kind === kind ? each.cpuMicroseconds : [])))

function row({ runtime, kind, cpuMicroseconds, perSecond }: Course): readonly string[] {
  const to = (other: Kind): string =>
    kind === 'fleethook' ? (least(runtime, kind) / least(runtime, other)).toFixed(2) : ''
  const [of, budget] = budgets[runtime] ?? []
  return [
    runtime,
    kind,
    least(runtime, kind).toFixed(1),
    median(cpuMicroseconds).toFixed(1),
    to('Hono'),
    to('bare'),
    kind === 'fleethook' && budget !== undefined ? `${budget.toFixed(2)} of ${of}` : '',
    median(perSecond).toFixed(0),
  ]
}

console.log(
  `Messages of the service's own format, ${rounds} rounds of ${count} after ${warmUpMessages}; 64 connections, each sends its next message when the last was answered. ` +
    'CPU time of the process for a message, in µs. The ratios are of the least of all rounds: other work on the machine only adds.\n',
)
console.log(
  table(['runtime', 'server', 'least', 'median', 'to Hono', 'to bare', 'budget', 'messages/s'], courses.map(row)),
)
