import type { Backlog } from '../../../src/observe/stats.ts'
import { closeClient, codesOf, type Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'
import { earliest, latest, TopicReader } from './topic-reader.ts'

/** How long the brokers may take for one answer, in milliseconds. */
const requestMs = 8_000

/** The messages of the topic that the group of all processes has not settled, and the members of that group. */
export async function backlogOf(connector: Connector, settings: KafkaSettings): Promise<Backlog> {
  const { topic, groupId, partitions } = settings
  const admin = connector.admin(requestMs)
  const reader = new TopicReader(connector, topic)
  try {
    const all = Array.from({ length: partitions }, (_, partition) => partition)
    await reader.leaders(true)
    const [groups, first, ends] = await Promise.all([
      admin.listConsumerGroupOffsets({ groups: [groupId] }).catch(noGroup),
      reader.offsets(all, earliest),
      reader.offsets(all, latest),
    ])
    const places = groups?.[0]?.topics.find(({ name }) => name === topic)?.partitions ?? []
    const committed = new Map(places.map((each) => [each.partitionIndex, Number(each.committedOffset)]))
    let messages = 0
    for (const partition of all) {
      const from = Math.max(committed.get(partition) ?? -1, first.get(partition) ?? 0, 0)
      messages += Math.max(0, (ends.get(partition) ?? 0) - from)
    }
    const described = await admin.describeGroups({ groups: [groupId] }).catch(noGroup)
    return { messages, processes: described?.get(groupId)?.members.size ?? 0 }
  } finally {
    await Promise.all([closeClient(admin), reader.close()])
  }
}

/** Before the first process joins it, a group does not exist. */
function noGroup(error: unknown): undefined {
  if (!codesOf(error).has('GROUP_ID_NOT_FOUND')) throw error
}
