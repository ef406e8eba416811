/*
 * The controls: code that one would write without the inbox must lose, reorder or stall under the faults of these tests. If it does not,
 * the tests cannot detect anything.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  Consumer,
  type Message,
  MessagesStreamModes,
  ProduceAcks,
  Producer,
  type ProducerOptions,
  stringDeserializers,
  stringSerializers,
} from '@platformatic/kafka'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { messageOf } from '../faults/process/traffic.ts'
import { programCommand } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { judge, pause, readJournal } from './fleet.ts'
import type { PeerSettings } from './peer.ts'
import { createProxy, errorCodes, type Proxy } from './proxy.ts'
import { configure, createAdmin, createTopics, eventually, ledBy, placeReplicas } from './topics.ts'

let brokers: Brokers
let proxy: Proxy
const rows: Row[] = []
const folder = mkdtempSync(join(tmpdir(), 'fleethook-controls-'))

beforeAll(async () => {
  proxy = createProxy()
  brokers = await startBrokers({
    proxied: (port) => proxy.before(port),
    properties: { 'broker.session.timeout.ms': 3_000, 'broker.heartbeat.interval.ms': 500 },
  })
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await proxy[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
  await writeFigures({
    piece: 'kafka-controls',
    title: 'Kafka: what one would write without the inbox',
    file: 'test/kafka/controls.test.ts',
    about: 'The same brokers and faults as in the other tests. Each of these controls has to fail.',
    tables: [{ title: 'Controls', rows }],
  })
})

function createProducer(
  options: Pick<ProducerOptions<string, string, string, string>, 'acks' | 'retries' | 'retryDelay'> = {},
): Producer<string, string, string, string> & AsyncDisposable {
  const producer = new Producer({
    clientId: 'control',
    bootstrapBrokers: [...brokers.addresses],
    serializers: stringSerializers,
    ...options,
  })
  producer.on('error', () => {})
  return Object.assign(producer, {
    async [Symbol.asyncDispose]() {
      await producer.close(true)
    },
  })
}

/** All messages of the topic, in order within each partition. Waits up to 30 seconds for at least `atLeast` of them. */
async function contentOf(topic: string, atLeast: number): Promise<readonly Message<string, string, string, string>[]> {
  const consumer = new Consumer({
    groupId: `${topic}-reader`,
    clientId: 'control',
    bootstrapBrokers: [...brokers.addresses],
    deserializers: stringDeserializers,
  })
  consumer.on('error', () => {})
  const found: Message<string, string, string, string>[] = []
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST, autocommit: false })
  stream.on('data', (message) => found.push(message))
  stream.on('error', () => {})
  const giveUpAt = performance.now() + 30_000
  for (let last = -1, quiet = 0; quiet < 4 && performance.now() < giveUpAt;) {
    await pause(500)
    quiet = found.length === last && found.length >= atLeast ? quiet + 1 : 0
    last = found.length
  }
  await consumer.close(true)
  return found
}

test('with acks only in the constructor, the client sends acks=1, and acknowledged messages are lost with a killed leader', async () => {
  const topic = 'control-acks'
  await createTopics(brokers.addresses, topic, 3)
  await using producer = createProducer({ acks: ProduceAcks.ALL, retries: 0 })
  // All replicas have this one, because the setting of a single call reaches the broker.
  await producer.send({ messages: [{ topic, partition: 0, key: 'V', value: 'first' }], acks: ProduceAcks.ALL })
  const metadata = await producer.metadata({ topics: [topic], forceUpdate: true })
  const leader = metadata.topics.get(topic)?.partitions[0]?.leader
  const [leading, others] = [brokers.all.find(({ id }) => id === leader), brokers.all.filter(({ id }) => id !== leader)]
  // For a moment, the others do not copy what the leader acknowledges.
  await Promise.all(others.map((broker) => broker.kill('SIGSTOP')))
  // The leader answers a fetch of the others within 500 ms. One that still waited would carry the message to them.
  await pause(1_500)
  const value = 'acknowledged by the leader'
  await producer.send({ messages: [{ topic, partition: 0, key: 'V', value }] })
  await leading?.kill('SIGKILL')
  await Promise.all(others.map((broker) => broker.kill('SIGCONT')))
  // The proxy of a dead broker still accepts connections, so ask only the others.
  await using admin = createAdmin(others.map(({ address }) => address))
  await eventually(async () => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    const found = topics.get(topic)?.partitions[0]?.leader
    if (!others.some(({ id }) => id === found)) throw new Error('No other broker leads the partition yet.')
  })
  await leading?.start()
  const partitions = [{ partitionIndex: 0, timestamp: -1n }]
  const [ends] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  const left = Number(ends?.partitions[0]?.offset)
  rows.push({
    control: '`acks: ALL` in the constructor, leader killed',
    messages: 2,
    failure: `${2 - left} acknowledged and lost`,
  })
  expect([...proxy.acks]).toEqual([
    [-1, 1],
    [1, 1],
  ])
  expect(left).toBe(1)
})

test('with a send for each message, a retry reorders the messages of a vehicle', async () => {
  const topic = 'control-order'
  await createTopics(brokers.addresses, topic, 3)
  await using producer = createProducer()
  const count = 60
  const sends = Array.from({ length: count }, async (_, number) => {
    await pause(number * 20)
    if (number % 15 === 5) proxy.failProduce({ kind: 'refused', error: errorCodes.notEnoughReplicas })
    await producer.send({ messages: [{ topic, key: 'V', value: String(number) }], acks: ProduceAcks.ALL })
  })
  await Promise.all(sends)
  const numbers = (await contentOf(topic, count)).map(({ value }) => Number(value))
  const behind = numbers.filter((number, place) => number < Math.max(-1, ...numbers.slice(0, place)))
  rows.push({
    control: '`producer.send` for each message, 4 refused by the broker',
    messages: count,
    failure: `${behind.length} out of order`,
  })
  expect(behind.length).toBeGreaterThan(0)
})

test('a spool that takes single messages reorders the messages of a vehicle', async () => {
  const topic = 'control-spool'
  await createTopics(brokers.addresses, topic, 3)
  await using producer = createProducer({ retries: 0 })
  const spool: string[] = []
  const send = (value: string): Promise<unknown> =>
    producer.send({ messages: [{ topic, key: 'V', value }], acks: ProduceAcks.ALL })
  let isOver = false
  const forwarding = (async () => {
    while (!isOver || spool.length > 0) {
      const [oldest] = spool
      if (oldest === undefined) await pause(10)
      else
        await send(oldest).then(
          () => spool.shift(),
          () => pause(100),
        )
    }
  })()
  // The last hundred come when the brokers can be reached again, and most of them while the spool is being emptied.
  const count = 160
  const sends = Array.from({ length: count }, async (_, number) => {
    await pause(number * 30)
    if (number === 30) proxy.cut()
    if (number === 60) proxy.heal()
    await send(String(number)).catch(() => spool.push(String(number)))
  })
  await Promise.all(sends)
  isOver = true
  await forwarding
  const numbers = (await contentOf(topic, count)).map(({ value }) => Number(value))
  const behind = numbers.filter((number, place) => number < Math.max(-1, ...numbers.slice(0, place)))
  rows.push({
    control: 'a spool for single messages, brokers cut off for a second',
    messages: count,
    failure: `${behind.length} out of order`,
  })
  expect(behind.length).toBeGreaterThan(0)
})

function startPeer(settings: PeerSettings): Promise<Target> {
  const program = join(import.meta.dirname, 'peer.ts')
  return spawnTarget(programCommand('node24', program, { SETTINGS: JSON.stringify(settings) }))
}

test.each<NodeJS.Signals>(['SIGKILL', 'SIGTERM'])(
  "the consumer of the client's README loses acknowledged messages when one of two gets %s",
  async (signal) => {
    const topic = `control-consumer-${signal.toLowerCase()}`
    const journal = join(folder, signal)
    await createTopics(brokers.addresses, topic, 12)
    await using producer = createProducer()
    const peer = { brokers: brokers.addresses, topic, role: 'handle', journal, handlerMs: 100 } as const
    await using first = await startPeer(peer)
    await using second = await startPeer(peer)
    const numbers = new Map<string, number>()
    const sent: Parameters<typeof judge>[0][number][] = []
    const handledOnes = (): number => readJournal(journal).runs.length
    let victim: Promise<unknown> | undefined
    for (let round = 0; round < 60; round++) {
      const messages = Array.from({ length: 30 }, (_, n) => {
        const vin = `V${n}`
        const number = (numbers.get(vin) ?? 0) + 1
        numbers.set(vin, number)
        return { vin, number }
      })
      const sentAtMs = Date.now()
      await producer.send({
        messages: messages.map(({ vin, number }) => ({ topic, key: vin, value: messageOf(vin, number) })),
        acks: ProduceAcks.ALL,
      })
      sent.push(...messages.map((message) => ({ ...message, sentAtMs, endedAtMs: Date.now(), status: 200 })))
      if (victim === undefined && round >= 30 && handledOnes() > 300) victim = second.stop(signal)
      await pause(100)
    }
    await victim
    for (let last = -1; last !== handledOnes();) {
      last = handledOnes()
      await pause(12_000)
    }
    expect(first.pid).toBeGreaterThan(0)
    const { lost, outOfOrder, again } = judge(sent, readJournal(journal))
    rows.push({
      control: `README consumer, one of two gets ${signal}`,
      messages: sent.length,
      failure: `${lost.length} lost, ${outOfOrder.length} out of order, ${again} again`,
    })
    expect(victim).toBeDefined()
    expect(lost.length + outOfOrder.length).toBeGreaterThan(0)
  },
)

test('a consumer with `retries: true` stalls when partitions move from one broker to two others', async () => {
  const topic = 'control-stall'
  const journal = join(folder, 'stall')
  const partitions = 6
  await createTopics(brokers.addresses, topic, partitions)
  const all = Array.from({ length: partitions }, (_, partition) => partition)
  // A broker answers for each partition of which it has a replica, even if another one leads it. So the first one must have none left.
  const place = async (brokerOf: (partition: number) => number): Promise<void> => {
    const leaders = all.map(brokerOf)
    await placeReplicas(
      brokers.addresses,
      topic,
      leaders.map((leader) => [leader]),
    )
    await ledBy(brokers.addresses, topic, leaders)
  }
  await configure(brokers.addresses, topic, { 'min.insync.replicas': '1' })
  await place(() => 1)
  await using peer = await startPeer({ brokers: brokers.addresses, topic, role: 'handle', journal, retries: true })
  const handledOnes = (): number => readJournal(journal).runs.length
  const send = async (number: number): Promise<void> => {
    await using producer = createProducer()
    const messages = all.map((partition) => ({
      ...{ topic, partition, key: `V${partition}`, value: messageOf(`V${partition}`, number) },
    }))
    await producer.send({ messages, acks: ProduceAcks.ALL })
  }
  await send(1)
  await expect.poll(handledOnes, { timeout: 30_000, interval: 100 }).toBe(partitions)
  await place((partition) => 2 + (partition % 2))
  await send(2)
  const waitMs = 15_000
  await pause(waitMs)
  const missing = 2 * partitions - handledOnes()
  rows.push({
    control: '`retries: true`, partitions moved from one broker to two others',
    messages: 2 * partitions,
    failure: `${missing} not handled ${waitMs / 1_000} s later`,
  })
  expect(peer.pid).toBeGreaterThan(0)
  expect(missing).toBeGreaterThan(0)
})
