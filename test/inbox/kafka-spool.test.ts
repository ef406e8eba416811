import { createReceiver } from 'fleethook'
import { afterEach, expect, test, vi } from 'vitest'
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { partitionOf } from '../../adapters/inbox/kafka/records.ts'
import { Spool } from '../../adapters/inbox/kafka/spool.ts'
import { fakeClock } from '../../src/testing.ts'
import { id, message } from '../../src/testing/kept-message.ts'
import { data } from '../dispatch/scene.ts'
import { clientOf, FakeCluster } from './kafka-cluster.ts'
import { silent } from '../vehicles/scene.ts'
import { settingsOf } from './sqlite-settings.ts'
import { disk, type Faults, storedInbox } from './stored-inbox.ts'

async function setup(faults: Faults = {}) {
  const clock = fakeClock()
  const inbox = storedInbox(disk(), faults)(settingsOf({ clock }).settings)
  /** The ids of each request to the topic. */
  const appended: (readonly string[])[] = []
  const spool = new Spool({
    ...{ inbox, clock, log: silent, partitionOf: () => 0, failed: () => {} },
    append: async (_, messages) => void appended.push(messages.map((one) => one.id)),
  })
  await spool.open()
  return { spool, clock, appended }
}

test('the spool forwards messages in order, and no more bytes at once than fit in memory', async () => {
  const { spool, clock, appended } = await setup()
  const messages = Array.from({ length: 5 }, (_, n) => message(n, 1_048_576))
  await spool.put(0, messages)
  await clock.advance(100)
  expect(appended).toEqual([[id(0), id(1)], [id(2), id(3)], [id(4)]])
  expect(spool.size).toBe(0)
  expect(spool.has(0)).toBe(false)
})

test('the spool counts what is in its file, also when the file failed between two messages', async () => {
  let isBroken = true
  const { spool, clock, appended } = await setup({
    settle(one) {
      if (one !== id(1) || !isBroken) return
      isBroken = false
      throw new Error('The disk fails.')
    },
  })
  await spool.put(0, [message(0), message(1), message(2)])
  await clock.advance(1_000)
  expect(appended).toEqual([
    [id(0), id(1), id(2)],
    [id(1), id(2)],
  ])
  expect(spool.size).toBe(0)
})

afterEach(() => vi.doUnmock('@platformatic/kafka'))

test('a gap that the handling half finds goes through the spool, behind the messages that wait there', async () => {
  const clock = fakeClock()
  const cluster = new FakeCluster(clock)
  const client = clientOf(cluster)
  cluster.assigned = [0, 1]
  vi.doMock('@platformatic/kafka', () => client)
  const inbox = kafkaInbox({ brokers: ['b1:9092'], partitions: 2, spool: storedInbox(disk()) })
  const receiver = createReceiver({ secret: false, inbox, clock, log: silent })
  await receiver.open()
  await clock.advance(1_000)
  const partition = partitionOf(client, '*gap', 2)
  const vin = ['A', 'B', 'C', 'D'].find((one) => partitionOf(client, one, 2) === partition) ?? ''
  cluster.isAway = true
  const answer = receiver.accept({ authorization: undefined, body: data(vin, 1) })
  await clock.advance(3_000)
  expect((await answer).status).toBe(200)
  cluster.deleteBefore(cluster.logOf('fleethook', 1 - partition), 10)
  await clock.advance(2_500)
  expect(receiver.stats().inbox.spooled).toBe(2)
  cluster.isAway = false
  await clock.advance(2_000)
  const { records } = cluster.logOf('fleethook', partition)
  // A message that came over the wire has no such header.
  const kinds = records.map(({ headers }) => headers.find(([name]) => name.toString() === 'kind')?.[1].toString())
  expect(kinds).toEqual([undefined, 'gap'])
  const drained = receiver.drain()
  await clock.advance(5_000)
  await drained
})
