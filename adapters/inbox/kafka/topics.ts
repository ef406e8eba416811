import type { Admin, ClusterTopicMetadata } from '@platformatic/kafka'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import { clusterError, codesOf, metadataRetries } from './client.ts'
import type { KafkaSettings } from './options.ts'

/** The partitions and settings that a topic should have. */
export interface TopicPlan {
  readonly name: string
  readonly partitions: number
  readonly configs: Readonly<Record<string, string>>
}

const dayMs = 86_400_000

/** With these settings, two brokers have each acknowledged record, and no broker without it becomes the leader. */
const safe = { 'min.insync.replicas': '2', 'unclean.leader.election.enable': 'false' }

export function topicPlans({ topic, deadTopic, lifeTopic, partitions }: KafkaSettings): readonly TopicPlan[] {
  // The brokers set the time of a record. With a wrong clock in a receiver, retention could delete its messages too early.
  const times = { 'message.timestamp.type': 'LogAppendTime' }
  return [
    {
      name: topic,
      partitions,
      configs: {
        ...safe,
        ...times,
        'cleanup.policy': 'delete',
        'retention.ms': String(7 * dayMs),
        'max.message.bytes': '1153434',
      },
    },
    {
      name: deadTopic,
      partitions,
      configs: {
        ...safe,
        ...times,
        'cleanup.policy': 'compact,delete',
        'retention.ms': String(30 * dayMs),
        'max.message.bytes': '1200000',
      },
    },
    {
      name: lifeTopic,
      partitions: 1,
      configs: { ...safe, ...times, 'cleanup.policy': 'compact', 'segment.ms': String(3_600_000) },
    },
  ]
}

/** The record of a dead letter has at most so many bytes more than the record of its message. */
const mostReasonBytes = 16_384

export interface FoundTopics {
  /** The largest record that the topic of the messages accepts, and that fits in the topic of dead letters, in bytes. */
  readonly mostBytes: number
  /** How long the topic keeps a message, in milliseconds. `undefined`: without limit, or unknown. */
  readonly retentionMs: number | undefined
  /** The topics do not require two brokers, and `allowWeak` accepts that. */
  readonly isWeak: boolean
}

/** Checks the topics. Rejects with `option_invalid` or, when one is missing or nobody answers, `inbox_unavailable`. */
export async function checkTopics(admin: Admin, settings: KafkaSettings, log: Log): Promise<FoundTopics> {
  const plans = topicPlans(settings)
  const names = plans.map(({ name }) => name)
  // This tries each broker of the option once. The caller retries, and begins with another one.
  const found = await admin.metadata({ topics: names, forceUpdate: true, retries: 0 })
  const configs = await readConfigs(admin, names)
  let isWeak = false
  for (const plan of plans) {
    const topic = found.topics.get(plan.name)
    if (topic === undefined) throw clusterError(new Error(`Unknown topic ${plan.name}.`), settings)
    checkPartitions(plan, topic, settings, log)
    if (plan.name === settings.topic) checkCleanup(plan.name, configs?.get(plan.name))
    const weakness = weaknessOf(plan.name, topic, configs?.get(plan.name))
    if (weakness !== undefined && !settings.allowWeak) throw weakness
    isWeak ||= weakness !== undefined
  }
  const most = (name: string): number => Number(configs?.get(name)?.get('max.message.bytes') ?? 1_048_588)
  const retentionMs = Number(configs?.get(settings.topic)?.get('retention.ms') ?? -1)
  return {
    mostBytes: Math.min(most(settings.topic), most(settings.deadTopic) - mostReasonBytes),
    retentionMs: retentionMs > 0 ? retentionMs : undefined,
    isWeak,
  }
}

/** The settings of topics. `undefined` when the user may not read them, or the cluster does not offer them. */
async function readConfigs(
  admin: Admin,
  names: readonly string[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, string>> | undefined> {
  const wanted = [...Object.keys(safe), 'max.message.bytes', 'retention.ms', 'cleanup.policy']
  const topicResource = 2
  try {
    const described = await admin.describeConfigs({
      resources: names.map((resourceName) => ({
        resourceType: topicResource,
        resourceName,
        configurationKeys: wanted,
      })),
    })
    return new Map(
      described.map(({ resourceName, configs }) => [
        resourceName,
        new Map(configs.map(({ name, value }) => [name, value ?? ''])),
      ]),
    )
  } catch (error) {
    const codes = codesOf(error)
    const isRefused = [...codes].some(
      (code) => code.endsWith('_AUTHORIZATION_FAILED') || code === 'PLT_KFK_UNSUPPORTED_API',
    )
    if (!isRefused) throw error
    return undefined
  }
}

function checkPartitions(plan: TopicPlan, topic: ClusterTopicMetadata, settings: KafkaSettings, log: Log): void {
  const { partitionsCount } = topic
  if (partitionsCount < plan.partitions) {
    throw new FleethookError(
      'option_invalid',
      `The topic ${plan.name} has ${partitionsCount} partitions, and option \`partitions\` of kafkaInbox is ${plan.partitions}.`,
      { hint: `Set partitions: ${partitionsCount} in every process, or add partitions to the topic.` },
    )
  }
  if (plan.name !== settings.topic || partitionsCount === plan.partitions) return
  // What to do: To use them, drain all processes and raise `partitions` in all.
  log.warn('the topic has more partitions than the option says, and the others stay empty', {
    topic: plan.name,
    partitions: partitionsCount,
    option: plan.partitions,
  })
}

/** A topic that keeps only the newest message of each vehicle loses messages that wait. */
function checkCleanup(name: string, configs: ReadonlyMap<string, string> | undefined): void {
  const policy = configs?.get('cleanup.policy') ?? 'delete'
  if (!policy.includes('compact')) return
  throw new FleethookError(
    'option_invalid',
    `The topic ${name} has cleanup.policy=${policy}: it deletes messages of a vehicle that has newer ones.`,
    { hint: 'Set cleanup.policy=delete for this topic.' },
  )
}

function weaknessOf(
  name: string,
  { partitions }: ClusterTopicMetadata,
  configs: ReadonlyMap<string, string> | undefined,
): FleethookError | undefined {
  const replicas = Math.min(...partitions.map((partition) => partition.replicas.length))
  const least = Number(configs?.get('min.insync.replicas') ?? Number.NaN)
  const hint =
    'fleethook kafka topics prints the settings that the topics need. allowWeak: true accepts that messages can be lost.'
  if (replicas < 3)
    return new FleethookError(
      'option_invalid',
      // What to do about `The topic … has … of the 3 replicas`, `The topic … has min.insync.replicas=…`: `fleethook kafka topics` prints what a topic
      // needs. `allowWeak: true` accepts losses.
      `The topic ${name} has ${replicas} of the 3 replicas that keep a message safe.`,
      { hint },
    )
  if (Number.isNaN(least))
    return new FleethookError(
      'option_invalid',
      `The settings of the topic ${name} cannot be read, so the receiver cannot check that it keeps messages safe.`,
      { hint: 'Allow DescribeConfigs for this user, or set allowWeak: true.' },
    )
  if (least < 2)
    return new FleethookError(
      'option_invalid',
      `The topic ${name} has min.insync.replicas=${least}: one broker alone may confirm a message, and lose it.`,
      { hint },
    )
  if (configs?.get('unclean.leader.election.enable') === 'true')
    return new FleethookError(
      'option_invalid',
      `The topic ${name} has unclean.leader.election.enable=true: a broker without the newest messages may become the leader, and lose them.`,
      { hint },
    )
  return undefined
}

/** What {@link applyTopics} did to one topic. A topic that exists can have other settings than its plan. */
export type AppliedTopic =
  (TopicPlan & { readonly outcome: 'created' }) | { readonly name: string; readonly outcome: 'exists' }

/** Creates the topics that are missing. Existing topics stay as they are. */
export async function applyTopics(admin: Admin, settings: KafkaSettings): Promise<readonly AppliedTopic[]> {
  const replicas = settings.allowWeak
    ? Math.min(3, (await admin.metadata({ topics: [], forceUpdate: true, retries: metadataRetries })).brokers.size)
    : 3
  const applied: AppliedTopic[] = []
  for (const plan of topicPlans(settings)) {
    const { name, partitions } = plan
    const configs = { ...plan.configs, 'min.insync.replicas': String(Math.min(2, replicas)) }
    try {
      const entries = Object.entries(configs).map(([key, value]) => ({ name: key, value }))
      await admin.createTopics({ topics: [name], partitions, replicas, configs: entries })
      applied.push({ name, partitions, configs, outcome: 'created' })
    } catch (error) {
      const codes = codesOf(error)
      if (codes.has('INVALID_REPLICATION_FACTOR'))
        throw new FleethookError(
          'option_invalid',
          `The cluster has fewer than ${replicas} brokers for the topic ${name}.`,
          {
            cause: error,
            hint: 'Add brokers, or accept fewer replicas with --allow-weak.',
          },
        )
      if (!codes.has('TOPIC_ALREADY_EXISTS')) throw error
      applied.push({ name, outcome: 'exists' })
    }
  }
  return applied
}
