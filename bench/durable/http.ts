/**
 * Measures the acknowledged messages per second over HTTP, while the handler runs too: the inbox in memory, SQLite in the
 * process and in a thread, and a hand-written route that inserts each message before it answers.
 *
 *     npm run bench -- durable
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { corpus } from '../corpus.ts'
import { load, requestOf } from '../load.ts'
import { median, percentile } from '../median.ts'
import { loadCore, pinThis } from '../pin.ts'
import { secret } from '../servers/answer.ts'
import { type ServerProcess, startServer } from '../server-process.ts'
import { table } from '../table.ts'

const { values } = parseArgs({
  options: {
    folder: { type: 'string', default: '.' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '1' },
    connections: { type: 'string', default: '1,16,64,256' },
    only: { type: 'string', default: '' },
  },
})
const rounds = Number(values.rounds)
const seconds = Number(values.seconds)
const budget = 0.65
const folder = mkdtempSync(join(values.folder, 'fleethook-http-'))
const requests = corpus({ messages: 5000, vins: 1000, format: 'service' }).map((body) => requestOf(body, secret))

const contenders = [
  { name: 'memoryInbox', server: 'durable', inbox: 'memory' },
  { name: 'sqliteInbox', server: 'durable', inbox: 'sqlite' },
  { name: 'sqliteInbox, thread', server: 'durable', inbox: 'thread' },
  { name: 'insert by hand', server: 'by-hand-sqlite', inbox: 'by-hand' },
] as const
const chosen = contenders.filter(({ inbox }) => values.only === '' || values.only.split(',').includes(inbox))

interface Lap {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly loopDelayP99: number
}

async function lap(process: ServerProcess, connections: number, count: number): Promise<Lap> {
  await process.begin()
  const { ackMs, refused, seconds: taken } = await load({ port: process.port, requests, connections, count })
  const { loopDelayP99Ms = Number.NaN } = await process.end()
  if (refused > 0) throw new Error(`${refused} of ${count} messages were refused.`)
  return {
    perSecond: count / taken,
    p50: percentile(ackMs, 0.5),
    p99: percentile(ackMs, 0.99),
    loopDelayP99: loopDelayP99Ms,
  }
}

pinThis(loadCore)
const rows: string[][] = []
for (const connections of values.connections.split(',').map(Number)) {
  const courses = await Promise.all(
    chosen.map(async ({ name, server, inbox }) => ({
      name,
      process: await startServer(server, [], { BENCH_INBOX: inbox, BENCH_FOLDER: folder }),
      laps: [] as Lap[],
      count: 0,
    })),
  )
  for (const course of courses) {
    // A server that has just started is half as fast.
    for (const end = performance.now() + 2000; performance.now() < end;) await lap(course.process, connections, 500)
    // Choose the number of messages so that a lap takes about this long.
    const { perSecond } = await lap(course.process, connections, 500)
    course.count = Math.max(100, Math.round(perSecond * seconds))
  }
  for (let round = 0; round < rounds; round++)
    for (const { process, laps, count } of courses) laps.push(await lap(process, connections, count))
  for (const { process } of courses) await process.stop()
  const [memory] = courses
  for (const { name, laps } of courses) {
    const of = (what: keyof Lap): number => median(laps.map((each) => each[what]))
    const ratio = median(laps.map((each, round) => each.perSecond / (memory?.laps[round]?.perSecond ?? Number.NaN)))
    rows.push([
      name,
      String(connections),
      of('perSecond').toFixed(0),
      ratio.toFixed(2),
      name === 'sqliteInbox' && connections === 64 ? budget.toFixed(2) : '',
      of('p50').toFixed(2),
      of('p99').toFixed(2),
      of('loopDelayP99').toFixed(2),
    ])
  }
}
rmSync(folder, { recursive: true })
console.log(
  table(
    ['server', 'connections', 'acked/s', 'to memory', 'at least', 'ack p50 ms', 'ack p99 ms', 'loop delay p99 ms'],
    rows,
  ),
)
