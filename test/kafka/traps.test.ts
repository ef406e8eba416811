/*
 * Traps of the client, measured in version 2.12.1. Each test judges the inbox, not the client, so that the suite says whether a new version of
 * the client can be used. `faults.test.ts` has those about acks, retries, moving leaders and rebalances (1, 2, 3, 6).
 */
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { closeClient, Connector, loadClient } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import { ofFile } from '../of-file.ts'
import { startBrokers } from './brokers.ts'
import { count, numbersOf, receiversOn } from './receivers.ts'
import { addPartitions, createAdmin, endsOf, ledBy, placeReplicas } from './topics.ts'

const brokers = ofFile(() => startBrokers())

const partitions = 6
const { run, newTopic } = receiversOn(() => brokers, partitions)

/** Counts the heartbeats of a member in the second after its close. It closes `afterMs` milliseconds after it began to join again. */
async function heartbeatsAfterClose(topic: string, groupId: string, afterMs: number): Promise<number> {
  const settings = readKafkaOptions({ brokers: brokers.addresses, topic, groupId })
  const connector = new Connector(await loadClient(), settings)
  const consumer = connector.consumer(5_000, { sessionMs: 6_000, heartbeatMs: 100, rebalanceMs: 6_000 })
  consumer.topics.track(topic)
  let heartbeats = 0
  const joined = (): Promise<boolean> => consumer.joinGroup({}).then(Boolean, () => false)
  await expect.poll(joined).toBe(true)
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
  test('4: partitions that move from one broker to two others are still read', async () => {
    const topic = await newTopic({ 'min.insync.replicas': '1' })
    const place = async (leaders: readonly number[]): Promise<void> => {
      await placeReplicas(
        brokers.addresses,
        topic,
        leaders.map((leader) => [leader]),
      )
      await ledBy(brokers.addresses, topic, leaders)
    }
    await place(count(partitions).map(() => 1))
    await using one = await run({ topic, allowWeak: true })
    for (const n of count(50)) expect(await one.post(`V${n % 10}`, n)).toBe(200)
    await expect.poll(() => one.runs.length).toBe(50)
    // The broker that has all partitions keeps none, so a request for several of them no longer has a single leader.
    await place(count(partitions).map((partition) => 2 + (partition % 2)))
    for (const n of count(50)) expect(await one.post(`V${n % 10}`, 50 + n)).toBe(200)
    await expect.poll(() => one.runs.length).toBe(100)
    for (const vehicle of count(10))
      expect(numbersOf(one, `V${vehicle}`)).toEqual(count(100).filter((n) => n % 10 === vehicle))
  })

  test('5: messages that arrived before the first process with handlers started are handled', async () => {
    const topic = await newTopic()
    await using front = await run({ topic, role: 'receive' })
    for (const n of count(20)) expect(await front.post('V1', n)).toBe(200)
    await using back = await run({ topic, role: 'handle' })
    await expect.poll(() => numbersOf(back, 'V1')).toEqual(count(20))
  })

  test('7: a process that the group has removed commits nothing, and joins again', async () => {
    const topic = await newTopic()
    const groupId = `${topic}-handlers`
    await using one = await run({ topic })
    for (const n of count(20)) expect(await one.post('V1', n)).toBe(200)
    await expect.poll(() => one.runs.length).toBe(20)
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
    await expect.poll(() => handled().size).toBe(40)
    // Messages are handed out again from the group's position on, in order: under load, in more than one assignment. The first twenty can be called
    // redelivered, too: a process does not know whether another one had those that came before it joined.
    const again = one.runs.flatMap(({ redelivered, number }, at) => (at >= 20 && redelivered ? [number] : []))
    const skips = again.filter((number, at) => at > 0 && number > (again[at - 1] ?? 0) + 1)
    expect(skips).toEqual([])
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
    await expect.poll(() => one.runs.length).toBe(60)
    expect(one.logged).toContain('the topic has more partitions than the option says, and the others stay empty')
    expect(one.receiver.stats().inbox.lag).toMatchObject({ 0: 0 })
    expect((await endsOf(brokers.addresses, topic)).slice(6)).toEqual([0, 0, 0, 0, 0, 0])
  })

  test('9: a message that is too large is refused alone, before it is sent', async () => {
    const topic = await newTopic({ 'max.message.bytes': '20000' })
    await using one = await run({ topic })
    const statuses = await Promise.all([one.post('V1', 0), one.post('V1', 1, 30_000), one.post('V1', 2)])
    expect(statuses).toEqual([200, 413, 200])
    await expect.poll(() => numbersOf(one, 'V1')).toEqual([0, 2])
  })

  test('11: a process that closes while it joins the group sends no heartbeat afterwards', async () => {
    const topic = await newTopic()
    const failures = await Promise.all(count(20).map((ms) => heartbeatsAfterClose(topic, `${topic}-${ms}`, ms)))
    expect(failures).toEqual(count(20).map(() => 0))
  })
})
