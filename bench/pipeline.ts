/**
 * Measures the CPU time of a message from the socket to its handler. Compares it with the least that a server can do with a
 * message, and with what people would use instead. Each server is a process of its own, and all get the same bodies, in turns.
 */
import { parseArgs } from 'node:util'
import type { Format } from '../src/normalize.ts'
import { corpus } from './corpus.ts'
import { load, type LoadResult, requestOf } from './load.ts'
import { median, percentile } from './median.ts'
import { loadCore, pinThis } from './pin.ts'
import { secret } from './servers/answer.ts'
import { startServer, type ServerProcess } from './server-process.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    count: { type: 'string', default: '15000' },
    only: { type: 'string', default: '' },
  },
})
const rounds = Number(values.rounds)
const count = Number(values.count)
const connections = 64
const budget = 1.15
/** The highest rate that 1,000 driving cars send, in messages per second. */
const calmRate = 2000

interface Contender {
  readonly name: string
  readonly server: 'bare' | 'hono' | 'express' | 'fleethook'
  readonly format: Format
}

const contenders: readonly Contender[] = [
  { name: 'node:http + JSON.parse', server: 'bare', format: 'service' },
  { name: 'Hono + c.req.json()', server: 'hono', format: 'service' },
  { name: 'Express by hand', server: 'express', format: 'service' },
  { name: 'fleethook', server: 'fleethook', format: 'service' },
  { name: 'node:http + JSON.parse', server: 'bare', format: 'vehicle_maker' },
  { name: 'fleethook', server: 'fleethook', format: 'vehicle_maker' },
  { name: 'node:http + JSON.parse', server: 'bare', format: 'event_collector' },
  { name: 'fleethook', server: 'fleethook', format: 'event_collector' },
] as const

interface Lap {
  readonly cpuMicroseconds: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly spare: number
}

interface Course extends Contender {
  readonly process: ServerProcess
  readonly requests: readonly Buffer[]
  readonly laps: Lap[]
  readonly calm: Lap[]
}

function requestsOf(format: Format): Buffer[] {
  const authorization = format === 'event_collector' ? `Splunk ${secret}` : secret
  return corpus({ messages: 5000, vins: 1000, format }).map((body) => requestOf(body, authorization))
}

async function lap({ process, requests, name }: Course, messages: number, ratePerSecond?: number): Promise<Lap> {
  await process.begin()
  const pace = ratePerSecond === undefined ? {} : { ratePerSecond }
  const result: LoadResult = await load({ port: process.port, requests, connections, count: messages, ...pace })
  const { cpuMicroseconds, handled = messages } = await process.end()
  if (result.refused > 0) throw new Error(`${name} refused ${result.refused} of ${messages} messages.`)
  if (handled !== messages) throw new Error(`The handler of ${name} saw ${handled} of ${messages} messages.`)
  return {
    cpuMicroseconds: cpuMicroseconds / messages,
    perSecond: messages / result.seconds,
    p50: percentile(result.ackMs, 0.5),
    p99: percentile(result.ackMs, 0.99),
    spare: result.spare,
  }
}

pinThis(loadCore)
const courses: Course[] = []
for (const contender of contenders) {
  if (values.only !== '' && !values.only.split(',').includes(contender.format)) continue
  const process = await startServer(contender.server)
  courses.push({ ...contender, process, requests: requestsOf(contender.format), laps: [], calm: [] })
}
// Laps that are not counted: the first 50,000 messages cost more, because V8 compiles code and heaps reach their size.
for (let warm = 0; warm * count < 50_000; warm++) for (const course of courses) await lap(course, count)
for (let round = 0; round < rounds; round++) for (const course of courses) course.laps.push(await lap(course, count))
for (let round = 0; round < 3; round++)
  for (const course of courses) course.calm.push(await lap(course, calmRate / 2, calmRate))
for (const { process } of courses) await process.stop()

const of = (laps: readonly Lap[], what: keyof Lap): number => median(laps.map((each) => each[what]))

/** Each ratio is of one round, so that other load on the machine affects both servers. */
function ratioToBare(course: Course): number {
  const bare = courses.find(({ server, format }) => server === 'bare' && format === course.format)
  return median(
    course.laps.map((each, round) => each.cpuMicroseconds / (bare?.laps[round]?.cpuMicroseconds ?? Number.NaN)),
  )
}

console.log(
  `${rounds} rounds of ${count} messages each, medians; ${connections} connections, each sends its next message when the last was answered.`,
)
console.log(
  `Ratio: CPU time to node:http + JSON.parse of the same bodies; fleethook's budget is ${budget.toFixed(2)}. "at ${calmRate}/s": ack latency at a steady rate.\n`,
)
console.log(
  table(
    [
      'server',
      'format',
      'CPU µs',
      'ratio',
      'messages/s',
      'p50 ms',
      'p99 ms',
      `p50 at ${calmRate}/s`,
      'p99',
      'load spare',
    ],
    courses.map((course) => [
      course.name,
      course.format,
      of(course.laps, 'cpuMicroseconds').toFixed(1),
      ratioToBare(course).toFixed(2),
      of(course.laps, 'perSecond').toFixed(0),
      of(course.laps, 'p50').toFixed(2),
      of(course.laps, 'p99').toFixed(2),
      of(course.calm, 'p50').toFixed(2),
      of(course.calm, 'p99').toFixed(2),
      `${(of(course.laps, 'spare') * 100).toFixed(0)} %`,
    ]),
  ),
)
