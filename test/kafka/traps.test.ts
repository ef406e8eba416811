/*
 * Traps of the client, measured in version 2.12.1. Each test judges the inbox, not the client, so that the suite says
 * whether a new version of the client can be used.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Producer } from '@platformatic/kafka'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { closeClient, Connector, loadClient } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import { cluster } from '../../scripts/kafka.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { createProxy, errorCodes, type Proxy } from './proxy.ts'
import { count, numbersOf, receiversOn, type Running, type Way } from './receivers.ts'
import { addPartitions, createAdmin, endsOf, ledBy, moveLeaders, placeReplicas } from './topics.ts'

const proxy: Proxy = createProxy()
let brokers: Brokers

beforeAll(async () => {
  brokers = await startBrokers({
    proxied: (port, listener) => (listener === 'first' ? proxy.before(port) : Promise.resolve(port)),
  })
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await proxy[Symbol.asyncDispose]()
})

const partitions = 6
const { run, newTopic } = receiversOn(() => brokers, partitions)
const patience = { timeout: 20_000, interval: 50 }

/** Counts the heartbeats of a member in the second after its close. It closes `afterMs` milliseconds after it began to join again. */
async function heartbeatsAfterClose(topic: string, groupId: string, afterMs: number): Promise<number> {
  const settings = readKafkaOptions({ brokers: brokers.addresses, topic, groupId })
  const connector = new Connector(await loadClient(), settings)
  const consumer = connector.consumer(5_000, { sessionMs: 6_000, heartbeatMs: 100, rebalanceMs: 6_000 })
  consumer.topics.track(topic)
  let heartbeats = 0
  const joined = (): Promise<boolean> => consumer.joinGroup({}).then(Boolean, () => false)
  await expect.poll(joined, patience).toBe(true)
  const joining = consumer.joinGroup({}).catch(() => {})
  await pause(afterMs)
  await closeClient(consumer)
  await joining
  consumer.on('consumer:heartbeat:error', () => {
    heartbeats += 1
  })
  await pause(1_000)
  return heartbeats
}

describe('traps of the client', () => {
  test('1: every produce request asks for all in-sync replicas', async () => {
    const topic = await newTopic()
    await using one = await run({ topic })
    const before = new Map(proxy.acks)
    for (const n of count(5)) expect(await one.post(`V${n}`, n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(5)
    expect([...proxy.acks.keys()]).toEqual([-1])
    expect(proxy.acks.get(-1)).toBeGreaterThan(before.get(-1) ?? 0)
  })

  test.each([
    ['refused', { kind: 'refused', error: errorCodes.notLeader }],
    ['appended, and answered with an error', { kind: 'appended', error: errorCodes.notEnoughReplicasAfterAppend }],
    ['lost on the way', { kind: 'lost' }],
    ['appended, and the answer is lost', { kind: 'answer lost' }],
  ] as const)('2, 3: messages behind one that is %s stay behind it', async (_, fault) => {
    const topic = await newTopic()
    await using one = await run({ topic })
    const posted: Promise<number>[] = []
    for (const n of count(300)) {
      if (n % 50 === 25) proxy.failProduce(fault, fault)
      posted.push(one.post(`V${n % 5}`, n))
      if (n % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 1))
    }
    expect([...new Set(await Promise.all(posted))]).toEqual([200])
    await expect.poll(() => one.runs.length, patience).toBe(300)
    for (const vehicle of count(5))
      expect(numbersOf(one, `V${vehicle}`)).toEqual(count(300).filter((n) => n % 5 === vehicle))
  })

  test('4: partitions whose leaders move are still read', async () => {
    const topic = await newTopic()
    await using one = await run({ topic })
    for (const round of count(4)) {
      for (const n of count(50)) expect(await one.post(`V${n % 10}`, round * 50 + n)).toBe(200)
      await moveLeaders(brokers.otherAddresses, topic)
    }
    for (const n of count(50)) expect(await one.post(`V${n % 10}`, 200 + n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(250)
    for (const vehicle of count(10))
      expect(numbersOf(one, `V${vehicle}`)).toEqual(count(250).filter((n) => n % 10 === vehicle))
  })

  test('4: partitions that move from one broker to two others are still read', async () => {
    const topic = await newTopic({ 'min.insync.replicas': '1' })
    const place = async (leaders: readonly number[]): Promise<void> => {
      await placeReplicas(
        brokers.otherAddresses,
        topic,
        leaders.map((leader) => [leader]),
      )
      await ledBy(brokers.otherAddresses, topic, leaders)
    }
    await place(count(partitions).map(() => 1))
    await using one = await run({ topic, allowWeak: true })
    for (const n of count(50)) expect(await one.post(`V${n % 10}`, n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(50)
    // The broker that has all partitions keeps none, so a request for several of them no longer has a single leader.
    await place(count(partitions).map((partition) => 2 + (partition % 2)))
    for (const n of count(50)) expect(await one.post(`V${n % 10}`, 50 + n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(100)
    for (const vehicle of count(10))
      expect(numbersOf(one, `V${vehicle}`)).toEqual(count(100).filter((n) => n % 10 === vehicle))
  })

  test('5: messages that arrived before the first process with handlers started are handled', async () => {
    const topic = await newTopic()
    await using front = await run({ topic, role: 'receive' })
    for (const n of count(20)) expect(await front.post('V1', n)).toBe(200)
    await using back = await run({ topic, role: 'handle' })
    await expect.poll(() => numbersOf(back, 'V1'), patience).toEqual(count(20))
  })

  test('6: a rebalance hands out no message a second time', async () => {
    const topic = await newTopic()
    const handle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5))
    await using front = await run({ topic, role: 'receive' })
    await using first = await run({ topic, role: 'handle', handle })
    const others: Running[] = []
    try {
      for (const n of count(600)) {
        expect(await front.post(`V${n % 20}`, n)).toBe(200)
        if (n === 200 || n === 350) others.push(await run({ topic, role: 'handle', handle }))
        if (n === 500) await others[0]?.[Symbol.asyncDispose]()
      }
      const all = (): Running['runs'] => [first, ...others].flatMap(({ runs }) => runs)
      await expect.poll(() => new Set(all().map(({ number }) => number)).size, patience).toBe(600)
      expect(all().length).toBe(600)
    } finally {
      for (const one of others) await one[Symbol.asyncDispose]()
    }
  })

  test('7: a process that the group has removed commits nothing, and joins again', async () => {
    const topic = await newTopic()
    const groupId = `${topic}-handlers`
    await using one = await run({ topic })
    for (const n of count(20)) expect(await one.post('V1', n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(20)
    const admin = createAdmin(brokers.addresses)
    try {
      const groups = await admin.describeGroups({ groups: [groupId] })
      const members = [...(groups.get(groupId)?.members.keys() ?? [])].map((memberId) => ({ memberId }))
      expect(members.length).toBe(1)
      await admin.removeMembersFromConsumerGroup({ groupId, members })
    } finally {
      await admin.close()
    }
    for (const n of count(20)) expect(await one.post('V1', 20 + n)).toBe(200)
    const handled = (): ReadonlySet<number> => new Set(numbersOf(one, 'V1'))
    await expect.poll(() => handled().size, patience).toBe(40)
    // Messages are handed out again from the group's position on, in order.
    const again = one.runs.filter(({ redelivered }) => redelivered).map(({ number }) => number)
    expect(again).toEqual([...again].sort((a, b) => a - b))
  })

  test('8: a topic with fewer partitions than the option is refused, and one with more moves no vehicle', async () => {
    const topic = await newTopic()
    await expect(run({ topic, partitions: 12 })).rejects.toMatchObject({
      code: 'option_invalid',
      message: `The topic ${topic} has 6 partitions, and option \`partitions\` of kafkaInbox is 12.`,
    })
    await addPartitions(brokers.addresses, topic, 12)
    await using one = await run({ topic })
    for (const n of count(60)) expect(await one.post(`V${n}`, n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(60)
    expect(one.logged).toContain('the topic has more partitions than the option says, and the others stay empty')
    expect(one.receiver.stats().inbox.lag).toMatchObject({ 0: 0 })
    expect((await endsOf(brokers.addresses, topic)).slice(6)).toEqual([0, 0, 0, 0, 0, 0])
  })

  test('9: a message that is too large is refused alone, before it is sent', async () => {
    const topic = await newTopic({ 'max.message.bytes': '20000' })
    await using one = await run({ topic })
    const statuses = await Promise.all([one.post('V1', 0), one.post('V1', 1, 30_000), one.post('V1', 2)])
    expect(statuses).toEqual([200, 413, 200])
    await expect.poll(() => numbersOf(one, 'V1'), patience).toEqual([0, 2])
  })

  test.each(['PLAIN', 'SCRAM-SHA-512'] as const)('9: a wrong %s password has a clear error', async (mechanism) => {
    const topic = await newTopic()
    const login = (password: string): Way => ({
      topic,
      brokers: brokers.addressesWithPassword,
      confirmMs: 2_000,
      sasl: { mechanism, username: cluster.user, password },
    })
    await expect(run(login('a-wrong-password'))).rejects.toMatchObject({
      code: 'inbox_unavailable',
      hint: expect.stringContaining('password'),
    })
    await using one = await run(login(cluster.password))
    expect(await one.post('V1', 1)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(1)
  })

  test('10: a handler that hangs times out, and its partition continues', async () => {
    const topic = await newTopic()
    let hangs = true
    await using one = await run({
      topic,
      options: { timeoutMs: 500, retry: { minMs: 10, maxMs: 50 } },
      handle: (_vin, number) => {
        if (number !== 0 || !hangs) return undefined
        hangs = false
        return new Promise(() => {})
      },
    })
    for (const n of count(3)) expect(await one.post('V1', n)).toBe(200)
    await expect.poll(() => numbersOf(one, 'V1'), patience).toEqual([0, 0, 1, 2])
  })

  test('11: a process that closes while it joins the group sends no heartbeat afterwards', async () => {
    const topic = await newTopic()
    const failures = await Promise.all(count(20).map((ms) => heartbeatsAfterClose(topic, `${topic}-${ms}`, ms)))
    expect(failures).toEqual(count(20).map(() => 0))
  })

  test('a foreign record in the topic becomes a dead letter, and the messages around it are handled', async () => {
    const topic = await newTopic()
    const producer = new Producer({ clientId: 'tests', bootstrapBrokers: [...brokers.addresses] })
    await using one = await run({ topic })
    try {
      expect(await one.post('V1', 0)).toBe(200)
      for (const partition of count(partitions))
        await producer.send({ messages: [{ topic, partition, value: Buffer.from('not ours') }], acks: -1 })
    } finally {
      await producer.close()
    }
    expect(await one.post('V1', 1)).toBe(200)
    await expect.poll(() => numbersOf(one, 'V1'), patience).toEqual([0, 1])
    await expect
      .poll(async () => (await Array.fromAsync(one.receiver.deadLetters.list())).length, patience)
      .toBe(partitions)
    await expect
      .poll(() => Object.values(one.receiver.stats().inbox.lag ?? {}), patience)
      .toEqual(count(partitions).map(() => 0))
  })
})
