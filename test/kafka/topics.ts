// Creates and changes topics of the tests, and moves them between brokers.
import { setTimeout as pause } from 'node:timers/promises'
import { Admin, alterPartitionReassignmentsV1, Connection, metadataV12 } from '@platformatic/kafka'

/** Creates the topics that the inbox of this topic needs, and waits until every partition has a leader. */
export async function createTopics(
  brokers: readonly string[],
  topic: string,
  partitions: number,
  configs: Readonly<Record<string, string>> = {},
): Promise<void> {
  await using admin = createAdmin(brokers)
  const weak = { 'min.insync.replicas': '2', ...configs }
  const make = (name: string, count: number, extra: Readonly<Record<string, string>>): Promise<unknown> =>
    admin.createTopics({
      topics: [name],
      partitions: count,
      replicas: 3,
      configs: Object.entries({ ...weak, ...extra }).map(([key, value]) => ({ name: key, value })),
    })
  await eventually(async () => {
    const have = await admin.listTopics()
    if (!have.includes(topic)) await make(topic, partitions, {})
    if (!have.includes(`${topic}-dead`)) await make(`${topic}-dead`, partitions, {})
    if (!have.includes(`${topic}-life`)) await make(`${topic}-life`, 1, { 'cleanup.policy': 'compact' })
  })
  await eventually(async () => {
    const { topics } = await admin.metadata({ topics: [topic, `${topic}-dead`, `${topic}-life`], forceUpdate: true })
    if (topics.size < 3 || [...topics.values()].some((each) => each.partitions.some(({ leader }) => leader < 0)))
      throw new Error('A partition has no leader yet.')
  })
}

/** An admin client. Close it with `await using`. */
export function createAdmin(brokers: readonly string[]): Admin & AsyncDisposable {
  const admin = new Admin({ clientId: 'tests', bootstrapBrokers: [...brokers], retries: 3, requestTimeout: 5_000 })
  admin.on('error', () => {})
  return Object.assign(admin, {
    async [Symbol.asyncDispose]() {
      await admin.close()
    },
  })
}

/** Adds partitions to a topic until it has this many, and waits until each of them has a leader. */
export async function addPartitions(brokers: readonly string[], topic: string, count: number): Promise<void> {
  await using admin = createAdmin(brokers)
  const { brokers: alive, topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
  const ids = [...alive.keys()]
  const added = count - (topics.get(topic)?.partitionsCount ?? 0)
  const assignments = Array.from({ length: added }, (_, n) => ({
    brokerIds: ids.map((_id, place) => ids[(place + n) % ids.length] ?? 0),
  }))
  await admin.createPartitions({ topics: [{ name: topic, count, assignments }] })
  await eventually(async () => {
    const found = (await admin.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic)
    if (found === undefined || found.partitionsCount < count || found.partitions.some(({ leader }) => leader < 0))
      throw new Error(`${topic} does not have ${count} partitions with a leader yet.`)
  })
}

/** The offset after the last record of each partition, by its number. */
export async function endsOf(brokers: readonly string[], topic: string): Promise<readonly number[]> {
  await using admin = createAdmin(brokers)
  const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
  const partitions = Array.from({ length: topics.get(topic)?.partitionsCount ?? 0 }, (_, partitionIndex) => ({
    partitionIndex,
    timestamp: -1n,
  }))
  const [found] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  const ends = new Map(found?.partitions.map(({ partitionIndex, offset }) => [partitionIndex, Number(offset)]))
  return partitions.map(({ partitionIndex }) => ends.get(partitionIndex) ?? 0)
}

/** Retries until `attempt` does not throw, for 30 seconds by default. */
export async function eventually(attempt: () => Promise<void>, withinMs = 30_000): Promise<void> {
  for (const giveUpAt = performance.now() + withinMs; ;) {
    try {
      return await attempt()
    } catch (error) {
      if (performance.now() > giveUpAt) throw error
      await pause(200)
    }
  }
}

type TopicInCluster = Awaited<ReturnType<typeof metadataV12.api.async>>['topics'][number]

/** All topics of the cluster, as one broker knows them. The client itself leaves out Kafka's own, such as `__consumer_offsets`. */
async function readTopics(brokers: readonly string[]): Promise<readonly TopicInCluster[]> {
  return asked(brokers, async (connection) => (await metadataV12.api.async(connection, null, false, false)).topics)
}

/** The answer of the first broker that answers. */
async function asked<Answer>(
  brokers: readonly string[],
  ask: (connection: Connection) => Promise<Answer>,
): Promise<Answer> {
  const failures: unknown[] = []
  for (const address of brokers) {
    const [host = '', port = ''] = address.split(':')
    const connection = new Connection('tests', { connectTimeout: 2_000, requestTimeout: 5_000 })
    connection.on('error', () => {})
    try {
      await connection.connect(host, Number(port))
      return await ask(connection)
    } catch (error) {
      failures.push(error)
    } finally {
      await connection.close()
    }
  }
  throw new AggregateError(failures, 'No broker answered.')
}

/** Resolves when every replica of every topic is in sync. */
export async function inSync(brokers: readonly string[]): Promise<void> {
  await eventually(async () => {
    const behind = (await readTopics(brokers)).flatMap(({ partitions }) =>
      partitions.filter(({ isrNodes, replicaNodes }) => isrNodes.length < replicaNodes.length),
    )
    if (behind.length > 0) throw new Error(`${behind.length} partitions have replicas that are not in sync.`)
  }, 120_000)
}

/** Changes the order of replicas of each partition of the topic. A broker of the tests makes the first one the leader within a second. */
export async function moveLeaders(brokers: readonly string[], topic: string): Promise<void> {
  await using admin = createAdmin(brokers)
  const { brokers: alive } = await admin.metadata({ topics: [], forceUpdate: true })
  const found = (await readTopics(brokers)).find(({ name }) => name === topic)
  if (found === undefined) throw new Error(`There is no topic ${topic}.`)
  const placed = found.partitions.map(({ partitionIndex, leaderId, replicaNodes }) => {
    const others = replicaNodes.filter((id) => id !== leaderId && alive.has(id))
    const next = others[Math.floor(Math.random() * others.length)]
    if (next === undefined) throw new Error(`Partition ${partitionIndex} has no other replica that is alive.`)
    return [next, ...replicaNodes.filter((id) => id !== next)]
  })
  await placeReplicas(brokers, topic, placed)
}

/** Puts the replicas of each partition, by its number, on these brokers. The first one becomes the leader. */
export async function placeReplicas(
  brokers: readonly string[],
  topic: string,
  placed: readonly (readonly number[])[],
): Promise<void> {
  const partitions = placed.map((replicas, partitionIndex) => ({ partitionIndex, replicas: [...replicas] }))
  await asked(brokers, (connection) =>
    alterPartitionReassignmentsV1.api.async(connection, 5_000, true, [{ name: topic, partitions }]),
  )
}

/** Resolves when each partition, by its number, has this leader. */
export async function ledBy(brokers: readonly string[], topic: string, leaders: readonly number[]): Promise<void> {
  await eventually(async () => {
    const found = (await readTopics(brokers)).find(({ name }) => name === topic)
    const wrong = leaders.filter(
      (leader, partition) =>
        !found?.partitions.some(({ partitionIndex, leaderId }) => partitionIndex === partition && leaderId === leader),
    )
    if (wrong.length > 0) throw new Error(`${wrong.length} partitions of ${topic} have another leader.`)
  })
}
