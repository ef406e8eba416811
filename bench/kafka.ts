/**
 * Measures the acknowledged messages per second on three real brokers: the receiver, what one would write instead (Hono and
 * `producer.send` for each POST), in turns in one run, and the raw client. Then the same for reading. `npm run bench -- kafka`, about
 * two minutes.
 */
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Consumer, MessagesStreamModes, ProduceAcks, Producer } from '@platformatic/kafka'
import { kafkaInbox } from '../adapters/inbox/kafka.ts'
import { createReceiver } from '../src/index.ts'
import { spawnTarget, type Target } from '../test/conformance/spawn.ts'
import { startBrokers } from '../test/kafka/brokers.ts'
import { createTopics } from '../test/kafka/topics.ts'
import { programCommand, secret } from '../test/runtimes/targets.ts'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median, percentile } from './median.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '7' }, count: { type: 'string', default: '6000' } },
})
const rounds = Number(values.rounds)
const count = Number(values.count)
const partitions = 24
const bodies = corpus({ messages: 2000, vins: 1000, format: 'service' })
const requests = bodies.map((body) => requestOf(body, secret))

interface Lap {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
}

function start(program: string, settings: object): Promise<Target> {
  const path = fileURLToPath(new URL(program, import.meta.url))
  return spawnTarget(programCommand('node24', path, { SETTINGS: JSON.stringify(settings) }))
}

async function lap({ url }: Target, messages: number): Promise<Lap> {
  const result = await load({ port: Number(new URL(url).port), requests, connections: 64, count: messages })
  if (result.refused > 0) throw new Error(`${result.refused} of ${messages} messages were refused.`)
  const { ackMs, seconds } = result
  return { perSecond: messages / seconds, p50: percentile(ackMs, 0.5), p99: percentile(ackMs, 0.99) }
}

await using brokers = await startBrokers()
const { addresses } = brokers
const [own, other, raw] = ['bench', 'bench-peer', 'bench-raw'] as const
for (const topic of [own, other, raw]) await createTopics(addresses, topic, partitions)

/** The client alone: 500 messages per request, 3 requests at a time. */
async function rawProduced(messages: number): Promise<number> {
  const producer = new Producer({ clientId: 'bench', bootstrapBrokers: [...addresses] })
  const batch = (at: number): Parameters<typeof producer.send>[0] => ({
    acks: ProduceAcks.ALL,
    messages: Array.from({ length: 500 }, (_, n) => ({
      topic: raw,
      key: Buffer.from(`V${(at + n) % 1000}`),
      value: Buffer.from(bodies[(at + n) % bodies.length] ?? ''),
    })),
  })
  await producer.send(batch(0))
  const from = performance.now()
  let at = 0
  const lines = Array.from({ length: 3 }, async () => {
    while (at < messages) await producer.send(batch((at += 500)))
  })
  await Promise.all(lines)
  const perSecond = (at * 1000) / (performance.now() - from)
  await producer.close(true)
  return perSecond
}

/** The cost of reading. */
interface Read {
  readonly perSecond: number
  /** CPU time of this process per message, in microseconds. Unlike elapsed time, it hardly depends on other processes. */
  readonly cpuUs: number
}

/** Reads messages, from joining the group to the last one. */
async function reading(messages: number, read: (resolve: () => void) => Promise<() => Promise<void>>): Promise<Read> {
  const { promise: done, resolve } = Promise.withResolvers<void>()
  const [from, cpu] = [performance.now(), process.cpuUsage()]
  const close = await read(resolve)
  await done
  const { user, system } = process.cpuUsage(cpu)
  const perSecond = (messages * 1000) / (performance.now() - from)
  await close()
  return { perSecond, cpuUs: (user + system) / messages }
}

/** The client alone, with the same records. */
function rawConsumed(messages: number): Promise<Read> {
  return reading(messages, async (resolve) => {
    const groupId = `bench-raw-${performance.now()}`
    const consumer = new Consumer({ clientId: 'bench', groupId, bootstrapBrokers: [...addresses] })
    const stream = await consumer.consume({ topics: [own], mode: MessagesStreamModes.EARLIEST, autocommit: true })
    let seen = 0
    stream.on('data', () => {
      seen += 1
      if (seen === messages) resolve()
    })
    return () => consumer.close(true)
  })
}

/** Handles the messages that the receiver has written. The handler does nothing. */
function handled(messages: number): Promise<Read> {
  return reading(messages, async (resolve) => {
    let seen = 0
    const groupId = `bench-handlers-${performance.now()}`
    const receiver = createReceiver({
      secret,
      inbox: kafkaInbox({ brokers: addresses, topic: own, partitions, role: 'handle', groupId }),
      limits: { pendingMessages: 50_000 },
    }).on('*', () => {
      seen += 1
      if (seen === messages) resolve()
    })
    await receiver.open()
    return async () => void (await receiver.drain())
  })
}

const laps = { peer: [] as Lap[], receiver: [] as Lap[] }
{
  await using peer = await start('servers/kafka-peer.ts', { brokers: addresses, topic: other })
  const kafka = { brokers: addresses, topic: own, partitions, role: 'receive' }
  await using receiver = await start('../test/faults/process/program.ts', { kafka, journal: '', handlerMs: 0 })
  for (const each of [peer, receiver, peer, receiver]) await lap(each, count / 2)
  for (let round = 0; round < rounds; round++) {
    laps.peer.push(await lap(peer, count))
    laps.receiver.push(await lap(receiver, count))
  }
}
const rawCount = 60_000
const produced = await rawProduced(rawCount)
const readCount = count * (rounds + 1)
const reads = { raw: [] as Read[], receiver: [] as Read[] }
for (let round = 0; round < 8; round++) {
  reads.raw.push(await rawConsumed(readCount))
  reads.receiver.push(await handled(readCount))
}
// Not counted: the first round also loads code.
const cpuRatios = reads.receiver.map(({ cpuUs }, round) => (reads.raw[round]?.cpuUs ?? 0) / cpuUs).slice(1)

const ratios = laps.receiver.map(({ perSecond }, round) => perSecond / (laps.peer[round]?.perSecond ?? 1))
const middle = (list: readonly Lap[], of: keyof Lap): number => median(list.map((each) => each[of]))
const row = (name: string, list: readonly Lap[]): string[] => [
  name,
  middle(list, 'perSecond').toFixed(0),
  middle(list, 'p50').toFixed(1),
  middle(list, 'p99').toFixed(1),
]
console.log(
  table(
    ['64 connections', 'acked/s', 'ack p50 ms', 'ack p99 ms'],
    [row('Hono + producer.send per POST', laps.peer), row('fleethook, kafkaInbox', laps.receiver)],
  ),
)
console.log(
  `\nreceiver to peer: ${median(ratios).toFixed(2)} (rounds ${ratios.map((each) => each.toFixed(2)).join(', ')})`,
)
console.log(`raw client: ${produced.toFixed(0)} produced/s`)
for (const [name, list] of Object.entries(reads))
  console.log(
    `${name}: ${list.map(({ cpuUs, perSecond }) => `${cpuUs.toFixed(1)} us CPU (${perSecond.toFixed(0)}/s)`).join(', ')}`,
  )
console.log(
  `reader to raw consumer, by CPU time: ${median(cpuRatios).toFixed(2)} (rounds ${cpuRatios.map((each) => each.toFixed(2)).join(', ')})`,
)
if (median(ratios) < 1.8 || middle(laps.receiver, 'p99') > middle(laps.peer, 'p99') || median(cpuRatios) < 0.3) {
  console.log('MISSED: at least 1.8 times the messages of the peer, with a p99 no worse, and 0.3 of the raw consumer')
  process.exitCode = 1
}
process.exit()
