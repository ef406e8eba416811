/*
 * The controls: code that one would write without the inbox must lose, reorder or stall under the faults of these tests. If it does not,
 * the tests cannot detect anything.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ProduceAcks, Producer, type ProducerOptions, stringSerializers } from '@platformatic/kafka'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { messageOf } from '../faults/process/traffic.ts'
import { programCommand } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { judge, pause, readJournal } from './fleet.ts'
import type { PeerSettings } from './peer.ts'
import { createProxy, type Proxy } from './proxy.ts'
import { createAdmin, createTopics, eventually } from './topics.ts'

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
  options: Pick<ProducerOptions<string, string, string, string>, 'acks' | 'retries'> = {},
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
