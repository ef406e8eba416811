import type { Admin } from '@platformatic/kafka'
import { describe, expect, test } from 'vitest'
import { TopicReader } from '../../adapters/inbox/kafka/topic-reader.ts'
import { checkTopics, type FoundTopics } from '../../adapters/inbox/kafka/topics.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import { fakeClock } from '../../src/testing.ts'
import { silent } from '../vehicles/scene.ts'
import { FakeCluster } from './kafka-cluster.ts'

/** Checks topics whose settings differ from good ones in these. */
function check(
  changes: Readonly<Record<string, Readonly<Record<string, string>>>>,
  allowWeak = false,
): Promise<FoundTopics> {
  const settings = readKafkaOptions({ brokers: ['b1:9092'], partitions: 1, allowWeak })
  const good = { 'min.insync.replicas': '2', 'cleanup.policy': 'delete', 'max.message.bytes': '1000000' }
  const admin = {
    async metadata({ topics }: { readonly topics: readonly string[] }) {
      const partitions = [{ leader: 1, replicas: [1, 2, 3] }]
      return { topics: new Map(topics.map((name) => [name, { partitionsCount: 1, partitions }])) }
    },
    async describeConfigs({ resources }: { readonly resources: readonly { readonly resourceName: string }[] }) {
      return resources.map(({ resourceName }) => ({
        resourceName,
        configs: Object.entries({ ...good, ...changes[resourceName] }).map(([name, value]) => ({ name, value })),
      }))
    },
  } as unknown as Admin // oxlint-disable-line no-unsafe-type-assertion -- a stand-in with what the check uses
  return checkTopics(admin, settings, silent)
}

describe('the check of topics', () => {
  test('a topic of messages that keeps only the newest one of each vehicle is refused, also with `allowWeak`', async () => {
    const compacted = { fleethook: { 'cleanup.policy': 'compact,delete' } }
    for (const allowWeak of [false, true])
      await expect(check(compacted, allowWeak)).rejects.toMatchObject({
        code: 'option_invalid',
        message:
          'The topic fleethook has cleanup.policy=compact,delete: it deletes messages of a vehicle that has newer ones.',
      })
    await check({
      'fleethook-dead': { 'cleanup.policy': 'compact,delete' },
      'fleethook-life': { 'cleanup.policy': 'compact' },
    })
  })

  test('a topic whose leader may lack acknowledged messages is refused without `allowWeak`', async () => {
    const unclean = { fleethook: { 'unclean.leader.election.enable': 'true' } }
    await expect(check(unclean)).rejects.toMatchObject({
      code: 'option_invalid',
      message: expect.stringContaining('unclean.leader.election.enable=true'),
    })
    expect(await check(unclean, true)).toMatchObject({ isWeak: true })
  })

  test('no message is accepted that would not fit in the topic of dead letters', async () => {
    expect(await check({ 'fleethook-dead': { 'max.message.bytes': '1100000' } })).toMatchObject({
      mostBytes: 1_000_000,
    })
    const { mostBytes } = await check({ 'fleethook-dead': { 'max.message.bytes': '500000' } })
    expect(mostBytes).toBeLessThan(500_000 - 12_000)
  })
})

describe('a scan of a topic', () => {
  const put = (cluster: FakeCluster, partition: number, name: string): void =>
    cluster.append({ topic: 'fleethook', partition, key: Buffer.from(name), headers: new Map() })

  /** The keys of all records from the beginning on. */
  async function scanned(cluster: FakeCluster, from: readonly number[]): Promise<readonly string[]> {
    const reader = new TopicReader(cluster.connector, 'fleethook')
    const ends = new Map(cluster.logsOf('fleethook').map(({ end }, partition) => [partition, end]))
    const keys: string[] = []
    let isOver = false
    const scan = async (): Promise<void> => {
      for await (const page of reader.scan(new Map(from.map((offset, partition) => [partition, offset])), ends))
        keys.push(...page.map(({ record }) => String(record.key)))
      isOver = true
    }
    const scanning = scan()
    for (let round = 0; round < 40 && !isOver; round += 1) await cluster.clock.advance(500)
    await scanning
    return keys
  }

  test('a partition whose last offsets have no records does not hide those of another broker', async () => {
    const cluster = new FakeCluster(fakeClock())
    cluster.logOf('fleethook', 0).end = 5
    cluster.logOf('fleethook', 1).leader = 2
    put(cluster, 1, 'one')
    expect(await scanned(cluster, [0, 0])).toEqual(['one'])
  })

  test('records that the topic deleted meanwhile are skipped', async () => {
    const cluster = new FakeCluster(fakeClock())
    for (let n = 0; n < 5; n += 1) put(cluster, 0, `${n}`)
    cluster.deleteBefore(cluster.logOf('fleethook', 0), 3)
    expect(await scanned(cluster, [0, 0])).toEqual(['3', '4'])
  })
})
