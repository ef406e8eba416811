// A cluster in memory with the interface of the client that the Kafka inbox uses, so that tests need no brokers.
import { EventEmitter } from 'node:events'
import { murmur2 } from '@platformatic/kafka'
import { createReceiver, type Receiver, type ReceiverOptions } from 'fleethook'
import type { InboxMessage } from 'fleethook/extend'
import { kafkaInbox } from 'fleethook/inbox/kafka'
import { vi } from 'vitest'
import { type Client, Connector } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions, type KafkaSettings } from '../../adapters/inbox/kafka/options.ts'
import { type Outgoing, toRecord } from '../../adapters/inbox/kafka/records.ts'
import { Writer } from '../../adapters/inbox/kafka/writer.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { message } from '../../src/testing/kept-message.ts'

/** A record that a broker keeps. */
interface Kept {
  readonly offset: number
  readonly epoch: number
  readonly timestampMs: number
  readonly key: Buffer
  readonly value: Buffer | null
  readonly headers: readonly (readonly [Buffer, Buffer])[]
}

/** One partition. */
export interface PartitionLog {
  start: number
  end: number
  records: readonly Kept[]
  /** -1: none. */
  leader: number
  /** The number of leaders before. */
  epoch: number
}

/** The protocol's codes that the cluster answers with. */
const codes: Readonly<Record<number, string>> = {
  ...{ 1: 'OFFSET_OUT_OF_RANGE', 6: 'NOT_LEADER_OR_FOLLOWER', 10: 'MESSAGE_TOO_LARGE' },
  ...{ 20: 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 29: 'TOPIC_AUTHORIZATION_FAILED' },
}

/** What happens to one request that appends records. */
export type Fate = 'kept' | 'refused' | 'lost' | 'kept, refused' | 'kept, lost' | 'not allowed' | 'hangs'

interface Asked {
  readonly topics: readonly { readonly topicId: string; readonly partitions: readonly Position[] }[]
}
interface Position {
  readonly partition: number
  readonly fetchOffset: bigint
  readonly lastFetchedEpoch: number
}

const kGetApi = Symbol('kGetApi')

interface PlaceInRequest {
  readonly partitionIndex: number
  readonly committedOffset?: bigint
  committedMetadata?: string | null
  metadata?: string | null
}
type Request = (
  topics: readonly { readonly partitions: readonly PlaceInRequest[] }[],
  answer: (error: null, response: unknown) => void,
) => void

/** The part of the client's consumer that the inbox uses. It is the only member of its group, and its heartbeats succeed. */
export class FakeConsumer extends EventEmitter {
  readonly groupId = 'handlers'
  readonly topics = { track: (): boolean => true }
  readonly connections = { close: async (): Promise<void> => {} }
  isClosed = false
  /** What the client calls before it joins. */
  beforeJoin = async (): Promise<unknown> => undefined
  readonly #cluster: FakeCluster
  #generation = 0

  constructor(cluster: FakeCluster) {
    super()
    this.#cluster = cluster
    cluster.consumers.push(this)
    Object.assign(this, { [kGetApi]: this.api.bind(this) })
  }

  async joinGroup({ protocolsMetadata }: { readonly protocolsMetadata: () => Promise<Buffer> }): Promise<void> {
    this.beforeJoin = protocolsMetadata
    await protocolsMetadata()
    this.#cluster.join(this)
  }

  /** The group has let it in. */
  joined(partitions: readonly number[], memberId = 'm1', generationId: number = this.#generation + 1): void {
    this.#generation = generationId
    this.emit('consumer:group:join', { memberId, generationId, assignments: [{ topic: 'fleethook', partitions }] })
  }

  heartbeat(): void {
    this.emit('consumer:heartbeat:start')
    this.emit('consumer:heartbeat:end')
  }

  /** Goes on until it is closed. */
  beat(): void {
    if (this.isClosed) return
    this.heartbeat()
    this.#cluster.clock.after(1_000, () => this.beat())
  }

  async metadata({ topics }: { readonly topics: readonly string[] }): Promise<unknown> {
    await this.#asked()
    return this.#cluster.metadata(topics)
  }

  /** As the client: it writes no metadata, and the inbox adds its own to the request. */
  async commit({ offsets }: { readonly offsets: readonly { partition: number; offset: bigint }[] }): Promise<void> {
    await this.#asked()
    const partitions = offsets.map(({ partition, offset }) => ({
      ...{ partitionIndex: partition, committedOffset: offset, committedMetadata: null },
    }))
    await this.#call('OffsetCommit', partitions)
  }

  api(name: string, callback: (error: null, api: Request) => void): void {
    const { committed, positionMetadata: metadata } = this.#cluster
    callback(null, (topics, answer) => {
      for (const place of topics.flatMap(({ partitions }) => partitions)) {
        const { partitionIndex, committedOffset, committedMetadata } = place
        if (name === 'OffsetFetch') place.metadata = metadata.get(partitionIndex) ?? null
        else {
          committed.set(partitionIndex, Number(committedOffset))
          metadata.set(partitionIndex, committedMetadata ?? '')
        }
      }
      answer(null, { topics })
    })
  }

  #call(name: string, partitions: readonly PlaceInRequest[]): Promise<void> {
    return new Promise((resolve) => {
      // The inbox replaces it.
      const replaced: Readonly<Record<symbol, FakeConsumer['api']>> = Object(this)
      replaced[kGetApi]?.(name, (_, api) => api([{ partitions }], () => resolve()))
    })
  }

  async listCommittedOffsets(given: {
    readonly topics: readonly { readonly topic: string; readonly partitions: readonly number[] }[]
  }): Promise<ReadonlyMap<string, readonly bigint[]>> {
    await this.#asked()
    await this.#call(
      'OffsetFetch',
      [...this.#cluster.committed.keys()].map((partitionIndex) => ({ partitionIndex })),
    )
    const of = (partition: number): bigint => BigInt(this.#cluster.committed.get(partition) ?? -1)
    return new Map(given.topics.map(({ topic }) => [topic, this.#cluster.logsOf(topic).map((_, index) => of(index))]))
  }

  async listOffsets({
    topics,
    partitions,
    timestamp,
  }: {
    readonly topics: readonly string[]
    readonly partitions: Readonly<Record<string, readonly number[]>>
    readonly timestamp: bigint
  }): Promise<ReadonlyMap<string, readonly bigint[]>> {
    await this.#asked()
    for (const topic of topics)
      for (const partition of partitions[topic] ?? [])
        if (this.#cluster.logOf(topic, partition).leader < 0) throw new Error('Cannot get a connection.')
    const at = ({ start, end, records }: PartitionLog): bigint => {
      if (timestamp === -2n) return BigInt(start)
      if (timestamp === -1n) return BigInt(end)
      return BigInt(records.find(({ timestampMs }) => timestampMs >= Number(timestamp))?.offset ?? -1)
    }
    return new Map(topics.map((topic) => [topic, this.#cluster.logsOf(topic).map(at)]))
  }

  async fetch(asked: Asked): Promise<unknown> {
    await this.#asked()
    const first = this.#answered(asked)
    const isAnswer = ({ errorCode, divergingEpoch, records }: (typeof first)[number]['partitions'][number]): boolean =>
      errorCode !== 0 || divergingEpoch.epoch >= 0 || records.length > 0
    if (first.some(({ partitions }) => partitions.some(isAnswer))) return { responses: first }
    await new Promise<void>((resolve) => {
      this.#cluster.clock.after(500, resolve)
    })
    await this.#asked()
    return { responses: this.#answered(asked) }
  }

  leaveGroup(_force: boolean, left: () => void): void {
    left()
  }

  async close(): Promise<void> {
    this.isClosed = true
  }

  #answered({ topics }: Asked) {
    return topics.map(({ topicId, partitions }) => ({
      partitions: partitions.map(({ partition, fetchOffset, lastFetchedEpoch }) => {
        const log = this.#cluster.logOf(topicId, partition)
        const from = Number(fetchOffset)
        const isUnknown = this.#cluster.forgetsEpochs && lastFetchedEpoch >= 0
        const errorCode = from < log.start || from > log.end || isUnknown ? 1 : 0
        // As a broker does: the end of what the leaders up to this one have written.
        const endOffset = log.records.find(({ epoch }) => epoch > lastFetchedEpoch)?.offset ?? log.end
        const isCut = errorCode === 0 && lastFetchedEpoch >= 0 && endOffset < from
        const divergingEpoch = isCut ? { epoch: lastFetchedEpoch, endOffset: BigInt(endOffset) } : none
        const records = errorCode === 0 && !isCut ? batchesOf(log, from) : []
        return { partitionIndex: partition, errorCode, divergingEpoch, records }
      }),
    }))
  }

  async #asked(): Promise<void> {
    if (this.isClosed) throw new Error('Connection closed')
    await this.#cluster.asked(this)
  }
}

const none = { epoch: -1, endOffset: -1n }

function batchesOf(log: PartitionLog, from: number) {
  const records = log.records.filter(({ offset }) => offset >= from)
  const [first] = records
  const last = records.at(-1)
  if (first === undefined || last === undefined) return []
  return [
    {
      attributes: 0,
      partitionLeaderEpoch: last.epoch,
      firstOffset: BigInt(first.offset),
      lastOffsetDelta: last.offset - first.offset,
      firstTimestamp: 0n,
      maxTimestamp: BigInt(last.timestampMs),
      records: records.map(({ offset, timestampMs, key, value, headers }) => ({
        ...{ offsetDelta: offset - first.offset, timestampDelta: BigInt(timestampMs), key, value, headers },
      })),
    },
  ]
}

/** Topics, their logs, and the positions of one group. */
export class FakeCluster {
  readonly clock: FakeClock
  readonly settings: KafkaSettings = readKafkaOptions({ brokers: ['b1:9092'], partitions: 2 })
  readonly connector: Connector
  readonly consumers: FakeConsumer[] = []
  readonly committed: Map<number, number> = new Map()
  readonly positionMetadata: Map<number, string> = new Map()
  /** The partitions that the group gives to a process that joins. */
  assigned: readonly number[] = [own]
  /** The brokers no longer know which leader wrote the records. */
  forgetsEpochs: boolean = false
  /** The brokers confirm nothing. */
  isAway: boolean = false
  /** The largest value that the brokers accept, in bytes. */
  mostBytes: number = 1_000_000
  fate: (messages: readonly Outgoing[]) => Fate = () => 'kept'
  /** What was to be appended. */
  readonly requests: { readonly messages: readonly Outgoing[]; readonly acks: number | undefined }[] = []
  /** How many requests came while another one for the same partition was under way. */
  overlaps: number = 0
  readonly #underWay: Set<string> = new Set()
  /** How the group lets a consumer in. */
  join: (consumer: FakeConsumer) => void = (consumer) => {
    consumer.joined(this.assigned)
    consumer.beat()
  }
  /** Called before each answer to a consumer. */
  asked: (consumer: FakeConsumer) => Promise<void> | void = () => {}
  readonly #topics: ReadonlyMap<string, readonly PartitionLog[]>

  constructor(clock: FakeClock) {
    this.clock = clock
    const { topic, deadTopic, lifeTopic } = this.settings
    const log = (): PartitionLog => ({ start: 0, end: 0, records: [], leader: 1, epoch: 0 })
    this.#topics = new Map([
      [topic, [log(), log()]],
      [deadTopic, [log(), log()]],
      [lifeTopic, [log()]],
    ])
    this.connector = new Connector(clientOf(this), this.settings)
  }

  logsOf(topic: string): readonly PartitionLog[] {
    return this.#topics.get(topic) ?? []
  }

  logOf(topic: string, partition = 0): PartitionLog {
    const log = this.logsOf(topic)[partition]
    if (log === undefined) throw new Error(`There is no partition ${partition} of ${topic}.`)
    return log
  }

  /** A broker appends a record at the current time. */
  append({ topic, partition, key, value, headers }: Omit<Outgoing, 'timestamp'>): void {
    const log = this.logOf(topic, partition)
    const place = { offset: log.end, epoch: log.epoch, timestampMs: this.clock.now() }
    log.records = [...log.records, { ...place, key, value: value ?? null, headers: [...headers] }]
    log.end += 1
  }

  /** Retention deletes the records before this offset. */
  deleteBefore(log: PartitionLog, offset: number): void {
    log.start = offset
    log.end = Math.max(log.end, offset)
    log.records = log.records.filter((record) => record.offset >= offset)
  }

  /** All replicas lose the records from this offset on, and elect a new leader. */
  loseFrom(log: PartitionLog, offset: number): void {
    log.end = offset
    log.epoch += 1
    log.records = log.records.filter((record) => record.offset < offset)
  }

  metadata(topics: readonly string[]): {
    readonly topics: ReadonlyMap<string, { readonly id: string; readonly partitions: readonly { leader: number }[] }>
  } {
    const partitionsOf = (name: string) => ({
      id: name,
      partitions: this.logsOf(name).map(({ leader }) => ({ leader })),
    })
    return { topics: new Map(topics.map((name) => [name, partitionsOf(name)])) }
  }

  /** What an administrator sees of the topics. Each partition has three replicas. */
  described(topics: readonly string[]): unknown {
    const partitionsOf = (name: string) => this.logsOf(name).map(({ leader }) => ({ leader, replicas: [1, 2, 3] }))
    const found = topics.map((name) => ({ name, partitions: partitionsOf(name) }))
    return {
      topics: new Map(
        found.map(({ name, partitions }) => [name, { partitions, partitionsCount: partitions.length }] as const),
      ),
    }
  }

  async send(messages: readonly Outgoing[], acks?: number): Promise<void> {
    this.requests.push({ messages, acks })
    const partitions = new Set(messages.map(({ topic, partition }) => `${topic} ${partition}`))
    if ([...partitions].some((each) => this.#underWay.has(each))) this.overlaps += 1
    for (const each of partitions) this.#underWay.add(each)
    await Promise.resolve()
    try {
      const fate = this.isAway ? 'lost' : this.fate(messages)
      if (fate === 'hangs') await new Promise(() => {})
      this.#take(messages, fate)
    } finally {
      for (const each of partitions) this.#underWay.delete(each)
    }
  }

  #take(messages: readonly Outgoing[], fate: Fate): void {
    if (fate.startsWith('kept'))
      for (const message of messages) {
        if ((message.value?.length ?? 0) > this.mostBytes) throw refused(10, [message])
        this.append(message)
      }
    const code = { refused: 6, 'kept, refused': 20, 'not allowed': 29 }[fate as string]
    if (code !== undefined) throw refused(code, messages)
    if (fate.endsWith('lost')) throw new Error('Connection closed')
  }

  writer(): Writer {
    const { topic, deadTopic, lifeTopic } = this.settings
    const { connector, settings, clock } = this
    return new Writer({ connector, settings, clock, topics: [topic, deadTopic, lifeTopic] })
  }
}

/** The package with what the inbox uses of it. */
export function clientOf(cluster: FakeCluster): Client {
  const client = {
    Producer: class {
      on(): void {}
      metadata = async ({ topics }: { readonly topics: readonly string[] }) => cluster.metadata(topics)
      send = ({ messages, acks }: { readonly messages: readonly Outgoing[]; readonly acks?: number }) =>
        cluster.send(messages, acks)
      async close(): Promise<void> {}
    },
    Admin: class {
      on(): void {}
      metadata = async ({ topics }: { readonly topics: readonly string[] }) => cluster.described(topics)
      describeConfigs = async ({ resources }: { readonly resources: readonly { readonly resourceName: string }[] }) =>
        resources.map(({ resourceName }) => ({
          resourceName,
          configs: [
            { name: 'min.insync.replicas', value: '2' },
            { name: 'retention.ms', value: String(7 * 86_400_000) },
          ],
        }))
      async close(): Promise<void> {}
    },
    Consumer: class extends FakeConsumer {
      constructor() {
        super(cluster)
      }
    },
    FetchIsolationLevels: { READ_UNCOMMITTED: 0 },
    protocolErrorsCodesById: codes,
    kGetApi,
    murmur2,
  }
  return client as unknown as Client // oxlint-disable-line no-unsafe-type-assertion -- a stand-in
}

function refused(errorCode: number, messages: readonly Outgoing[]): Error {
  const partitions = new Set(messages.map(({ partition }) => partition))
  const partitionResponses = [...partitions].map((index) => ({ index, errorCode }))
  const response = { responses: [{ name: messages[0]?.topic, partitionResponses }] }
  return Object.assign(new Error(codes[errorCode]), { apiId: codes[errorCode], response })
}

/** The partition of the tests. Events of gaps go to the other one. */
export const own = 1

/** A message in the topic, in a lane of its own. Its number also orders its id. */
export function post(
  cluster: FakeCluster,
  n: number,
  changes: Partial<InboxMessage> = {},
  partition: number = own,
): void {
  const given = { ...message(n), lane: `V${n}`, receivedAt: cluster.clock.now(), ...changes }
  cluster.append(toRecord(given, { topic: 'fleethook', partition }))
}

/** The events of gaps in the topic, without those of restarts. */
export function gapsIn(cluster: FakeCluster): readonly unknown[] {
  return cluster
    .logsOf('fleethook')
    .flatMap(({ records }) => records)
    .filter(({ headers }) => headers.some(([name, value]) => `${String(name)}=${String(value)}` === 'kind=gap'))
    .map(({ value }) => JSON.parse(String(value)) as { reason: string; from: string; to: string; missed: number })
    .filter(({ reason }) => reason !== 'restarted' && reason !== 'stopped')
    .map(({ reason, from, to, missed }) => ({ reason, fromMs: Date.parse(from), toMs: Date.parse(to), missed }))
}

/** A process with `kafkaInbox`. */
export interface KafkaProcess {
  readonly receiver: Receiver
  /** Warnings and errors. */
  readonly logged: readonly string[]
  /** Its client in the group. */
  member(): FakeConsumer
  /** It ends without a word to the group. */
  crash(): void
}

const processes: KafkaProcess[] = []

/** Starts a process on the cluster. `handle` gets the numbers of messages. */
export async function startProcess(
  cluster: FakeCluster,
  handle: (n: number, signal: AbortSignal) => Promise<void> | void,
  options: Partial<ReceiverOptions> = {},
): Promise<KafkaProcess> {
  const client = clientOf(cluster)
  vi.doMock('@platformatic/kafka', () => client)
  const before = cluster.consumers.length
  const mine = (): readonly FakeConsumer[] => cluster.consumers.slice(before)
  const logged: string[] = []
  const silent = (): void => {}
  const note = (level: string) => (line: string) => void logged.push(`${level}: ${line}`)
  const receiver = createReceiver({
    ...{ secret: false, clock: cluster.clock, inbox: kafkaInbox({ brokers: ['b1:9092'], partitions: 2 }) },
    log: { debug: silent, info: silent, warn: note('warn'), error: note('error') },
    ...options,
  }).on('state', ({ raw }, { signal }) => handle(Number(Object(raw).n), signal))
  await receiver.open()
  const process: KafkaProcess = {
    receiver,
    logged,
    member: () => mine().find((one) => one.listenerCount('consumer:group:join') > 0) ?? new FakeConsumer(cluster),
    crash() {
      for (const one of mine()) one.isClosed = true
    },
  }
  processes.push(process)
  return process
}

/** For `afterEach`. */
export function endProcesses(): void {
  for (const process of processes.splice(0)) process.crash()
  vi.doUnmock('@platformatic/kafka')
}

/** A cluster with a fake clock. */
export function newCluster(): FakeCluster {
  return new FakeCluster(fakeClock())
}
