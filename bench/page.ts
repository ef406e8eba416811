/**
 * Compares fleethook with the servers that people would use instead, in memory and with each message on disk before its answer.
 * Writes the table in `bench/README.md` and `bench/chart.svg`. `npm run bench`, two minutes.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, release, type } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Bar, chart } from './chart.ts'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { writeBetween } from './marks.ts'
import { median, percentile } from './median.ts'
import { canPin, loadCore, pinThis } from './pin.ts'
import { type ServerProcess, startServer } from './server-process.ts'
import { secret } from './servers/answer.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string', default: '0.7' },
    print: { type: 'boolean', default: false },
  },
})
const rounds = Number(values.rounds)
const seconds = Number(values.seconds)
const connections = 64
/** The rate that 500 to 1,000 driving cars send, in messages per second. */
const calmRate = 1000
const calmRounds = 3

interface Contender {
  readonly name: string
  readonly server: string
  readonly keeps: 'memory' | 'disk'
  readonly inbox?: string
}

const contenders: readonly Contender[] = [
  { name: 'node:http + JSON.parse', server: 'bare', keeps: 'memory' },
  { name: 'Hono + c.req.json()', server: 'hono', keeps: 'memory' },
  { name: 'fleethook', server: 'fleethook', keeps: 'memory' },
  { name: 'Fastify by hand', server: 'fastify', keeps: 'memory' },
  { name: 'Express by hand', server: 'express', keeps: 'memory' },
  { name: 'fleethook, sqliteInbox', server: 'durable', keeps: 'disk', inbox: 'sqlite' },
  { name: 'an INSERT per request', server: 'by-hand-sqlite', keeps: 'disk' },
]

interface Lap {
  readonly perSecond: number
  readonly cpuMicroseconds: number
  readonly p50: number
  readonly p99: number
}

interface Course extends Contender {
  readonly process: ServerProcess
  readonly laps: Lap[]
  readonly calm: Lap[]
  count: number
}

const requests = corpus({ messages: 5000, vins: 1000, format: 'service' }).map((body) => requestOf(body, secret))

async function lap({ process, name }: Course, count: number, ratePerSecond?: number): Promise<Lap> {
  await process.begin()
  const pace = ratePerSecond === undefined ? {} : { ratePerSecond }
  const result = await load({ port: process.port, requests, connections, count, ...pace })
  const { cpuMicroseconds } = await process.end()
  if (result.refused > 0) throw new Error(`${name} refused ${result.refused} of ${count} messages.`)
  return {
    perSecond: count / result.seconds,
    cpuMicroseconds: cpuMicroseconds / count,
    p50: percentile(result.ackMs, 0.5),
    p99: percentile(result.ackMs, 0.99),
  }
}

const started = performance.now()
const folder = mkdtempSync(join('.', 'fleethook-bench-'))
const courses: Course[] = []
try {
  pinThis(loadCore)
  for (const contender of contenders) {
    const variables = {
      BENCH_FOLDER: folder,
      ...(contender.inbox === undefined ? {} : { BENCH_INBOX: contender.inbox }),
    }
    const process = await startServer(contender.server, [], variables)
    courses.push({ ...contender, process, laps: [], calm: [], count: 0 })
  }
  for (const course of courses) {
    // A server that has just started is half as fast, and fleethook's first 50,000 messages cost twice as much as later ones.
    for (const end = performance.now() + 3000; performance.now() < end;) await lap(course, 500)
    const { perSecond } = await lap(course, 1000)
    course.count = Math.max(500, Math.round(perSecond * seconds))
  }
  for (let round = 0; round < rounds; round++)
    for (const course of courses) course.laps.push(await lap(course, course.count))
  for (let round = 0; round < calmRounds; round++)
    for (const course of courses) course.calm.push(await lap(course, calmRate, calmRate))
} finally {
  for (const { process } of courses) await process.stop()
  rmSync(folder, { recursive: true, force: true })
}

const of = (laps: readonly Lap[], what: keyof Lap): number => median(laps.map((each) => each[what]))

/** Each ratio is of one round, so that other load on the machine affects both servers. */
function ratioToBare({ laps }: Course): number {
  const [bare] = courses
  return median(laps.map((each, round) => each.cpuMicroseconds / (bare?.laps[round]?.cpuMicroseconds ?? Number.NaN)))
}

const kept = { memory: 'memory', disk: 'disk' }
const figures = table(
  ['server', 'keeps in', 'messages/s', 'CPU µs', 'to bare', 'ack p50 ms', 'ack p99 ms', `p50 at ${calmRate}/s`, 'p99'],
  courses.map((course) => [
    course.name,
    kept[course.keeps],
    of(course.laps, 'perSecond').toFixed(0),
    of(course.laps, 'cpuMicroseconds').toFixed(1),
    ratioToBare(course).toFixed(2),
    of(course.laps, 'p50').toFixed(2),
    of(course.laps, 'p99').toFixed(2),
    of(course.calm, 'p50').toFixed(2),
    of(course.calm, 'p99').toFixed(2),
  ]),
)

const version = (name: string): string =>
  JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), 'utf8')).version
const libraries = ['hono', '@hono/node-server', 'fastify', 'express'].map((name) => `${name} ${version(name)}`)
const today = new Date().toISOString().slice(0, 10)
const machine = `${today}, ${type()} ${release().split('-')[0]}, ${cpus().length} × ${cpus()[0]?.model.trim()}, ${canPin ? 'the server on one core and the load on another' : 'processes not pinned'}`
const measured = [
  `Node ${process.versions.node}, ${libraries.join(', ')}. Measured on ${machine}.`,
  `${rounds} rounds in turns, medians; ${connections} connections, each sends its next message when the last one was answered.`,
].join('\n')
console.log(`${measured}\n\n${figures}\n\n${((performance.now() - started) / 1000).toFixed(0)} seconds`)

if (!values.print) {
  writeBetween(fileURLToPath(new URL('README.md', import.meta.url)), 'measured', `${measured}\n\n${figures}`)
  const bars = courses.map((course): Bar => ({
    label: course.name,
    group: course.keeps === 'memory' ? 'kept in memory' : 'on disk before the answer',
    value: of(course.laps, 'perSecond'),
    note: `${of(course.laps, 'cpuMicroseconds').toFixed(0)} µs CPU, p99 ${of(course.calm, 'p99').toFixed(2)} ms at ${calmRate.toLocaleString('en')}/s`,
    isOurs: course.name.startsWith('fleethook'),
  }))
  const title = 'Messages per second on one core'
  writeFileSync(new URL('chart.svg', import.meta.url), chart(title, `Node ${process.versions.node}, ${today}`, bars))
}
