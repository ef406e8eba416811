import type { Consumer, RecordsBatch, KafkaRecord } from '@platformatic/kafka'
import { closeClient, codesOf, type Connector, errorsIn, metadataRetries } from './client.ts'

type FetchResponsePartition = Awaited<ReturnType<Consumer['fetch']>>['responses'][number]['partitions'][number]

export interface Position {
  readonly partition: number
  readonly offset: number
  /** The leader epoch of the record before it. With that, the broker notices when the log was cut below. Default: unknown. */
  readonly epoch?: number
}

export interface PlacedRecord {
  readonly partition: number
  readonly offset: number
  /** The timestamp of the record in the topic, in milliseconds since the epoch. */
  readonly timestampMs: number
  readonly record: KafkaRecord
}

export interface Fetched {
  readonly partition: number
  readonly offset: number
  readonly next: number
  /** The leader epoch of the record before `next`. -1: unknown. */
  readonly epoch: number
  /** The log was cut at this offset, which is below the requested offset. Other records can follow there. */
  readonly cutAt: number | undefined
  readonly records: readonly PlacedRecord[]
  /** The name of a protocol error, for instance `OFFSET_OUT_OF_RANGE`. */
  readonly error: string | undefined
}

/** Kafka's special timestamps for the two ends of a partition. */
export const latest = -1
export const earliest = -2

/** How long the broker may hold a fetch while there are no records, in milliseconds. */
const waitMs = 500
const requestMs = 8_000
/** The number of fetches without a result after which a scan gives up: on the partition if its leader answers, else as a whole. */
const mostFailures = 20
/** The tries to ask a leader that does not know its partition yet, each after a quarter of a second. */
const mostLeaderless = 8
const mostBytes = 4 * 1_048_576
const mostPartitionBytes = 1_048_576

const controlBatch = 0x20
const appendTime = 0x08

/** Reads partitions from given offsets, in no group. The client's own streams would rewind theirs in a rebalance. */
export class TopicReader {
  readonly #consumer: Consumer
  readonly #connector: Connector
  readonly #topic: string

  constructor(connector: Connector, topic: string) {
    this.#connector = connector
    this.#topic = topic
    this.#consumer = connector.consumer(requestMs, { sessionMs: 10_000, heartbeatMs: 3_000, rebalanceMs: 10_000 })
    this.#consumer.topics.track(topic)
  }

  /** The leader of each partition, by the partition's number. `isFresh`: asks the cluster, not the cache. */
  async leaders(isFresh: boolean): Promise<readonly number[]> {
    const metadata = await this.#consumer.metadata({
      topics: [this.#topic],
      forceUpdate: isFresh,
      retries: metadataRetries,
    })
    return metadata.topics.get(this.#topic)?.partitions.map(({ leader }) => leader) ?? []
  }

  /** For each partition, the first offset whose timestamp is not before this time. -1: there is none. */
  async offsets(partitions: readonly number[], timestampMs: number): Promise<ReadonlyMap<number, number>> {
    if (partitions.length === 0) return new Map()
    const ask = async (tries: number): Promise<readonly bigint[]> => {
      try {
        const found = await this.#consumer.listOffsets({
          topics: [this.#topic],
          partitions: { [this.#topic]: [...partitions] },
          timestamp: BigInt(timestampMs),
        })
        return found.get(this.#topic) ?? []
      } catch (error) {
        // For a moment, a new partition has a leader that does not know it yet.
        const isNew = [...codesOf(error)].some((code) => /^(?:NOT_LEADER|UNKNOWN_TOPIC|LEADER_NOT)/.test(code))
        if (tries === 0 || !isNew) throw error
        await new Promise((resolve) => setTimeout(resolve, 250))
        await this.leaders(true)
        return ask(tries - 1)
      }
    }
    const offsets = await ask(mostLeaderless)
    return new Map(partitions.map((partition) => [partition, Number(offsets[partition] ?? -1n)]))
  }

  /** Fetches records from these positions, which must have the same leader. Rejects when the leader does not answer. */
  async fetch(node: number, positions: readonly Position[]): Promise<readonly Fetched[]> {
    const metadata = await this.#consumer.metadata({ topics: [this.#topic], retries: metadataRetries })
    const topicId = metadata.topics.get(this.#topic)?.id ?? ''
    const partitions = positions.map(({ partition, offset, epoch = -1 }) => ({
      partition,
      currentLeaderEpoch: -1,
      fetchOffset: BigInt(offset),
      lastFetchedEpoch: epoch,
      partitionMaxBytes: mostPartitionBytes,
    }))
    const found = await this.#consumer
      .fetch({ node, topics: [{ topicId, partitions }], maxWaitTime: waitMs, minBytes: 1, maxBytes: mostBytes })
      .catch((error: unknown) => partialResponse(error))
    const asked = new Map(positions.map((position) => [position.partition, position]))
    return found.responses.flatMap(({ partitions: parts }) =>
      parts.flatMap((part): readonly Fetched[] => {
        const position = asked.get(part.partitionIndex)
        // The broker can also answer for a partition of an earlier request.
        return position === undefined ? [] : [this.#read(part, position)]
      }),
    )
  }

  /**
   * Yields all records between two offsets of each partition, page by page. The records of a partition come in order. `isGenerous`: also what was
   * fetched beyond.
   */
  async *scan(
    from: ReadonlyMap<number, number>,
    to: ReadonlyMap<number, number>,
    isGenerous: boolean = false,
  ): AsyncGenerator<readonly PlacedRecord[]> {
    const left = new Map([...from].filter(([partition, offset]) => offset < (to.get(partition) ?? 0)))
    let isFresh = false
    for (let failures = 0; left.size > 0;) {
      try {
        const leaders = await this.leaders(isFresh)
        isFresh = false
        const [first = 0] = left.keys()
        const node = leaders[first] ?? -1
        const positions = [...left]
          .filter(([partition]) => leaders[partition] === node)
          .map(([partition, offset]) => ({ partition, offset }))
        const fetched = await this.fetch(node, positions)
        const failed = fetched.find(({ error }) => error !== undefined)
        const start = failed?.error === 'OFFSET_OUT_OF_RANGE' ? await this.#startOf(failed.partition) : 0
        // A scan can take so long that the topic deletes records in front of it.
        if (failed !== undefined && start > failed.offset) {
          left.set(failed.partition, start)
          if (start >= (to.get(failed.partition) ?? 0)) left.delete(failed.partition)
          continue
        }
        if (failed !== undefined) throw new Error(failed.error)
        for (const { partition, next, records } of fetched) {
          const end = to.get(partition) ?? 0
          yield isGenerous ? records : records.filter(({ offset }) => offset < end)
          if (next < end) left.set(partition, next)
          else left.delete(partition)
        }
        // The rest of a partition can consist of offsets without records.
        const isMoving = fetched.some(({ next, offset }) => next > offset)
        if (!isMoving && ++failures >= mostFailures) left.delete(first)
        if (isMoving || failures >= mostFailures) failures = 0
      } catch (error) {
        failures += 1
        if (failures >= mostFailures) throw error
        isFresh = true
        await new Promise((resolve) => setTimeout(resolve, 250))
      }
    }
  }

  close(): Promise<void> {
    return closeClient(this.#consumer)
  }

  async #startOf(partition: number): Promise<number> {
    return (await this.offsets([partition], earliest)).get(partition) ?? 0
  }

  #read({ errorCode, divergingEpoch, records: batches }: FetchResponsePartition, position: Position): Fetched {
    const { partition, offset } = position
    const diverged = divergingEpoch !== undefined && divergingEpoch.epoch >= 0 ? divergingEpoch : undefined
    const endOffset = diverged === undefined ? offset : Number(diverged.endOffset)
    let epoch = diverged?.epoch ?? position.epoch ?? -1
    const error =
      errorCode === 0 ? undefined : (this.#connector.client.protocolErrorsCodesById[errorCode] ?? String(errorCode))
    const records: PlacedRecord[] = []
    let next = offset
    for (const batch of batches ?? []) {
      const first = Number(batch.firstOffset)
      if ((batch.attributes & controlBatch) === 0)
        for (const record of batch.records) {
          const at = first + record.offsetDelta
          if (at >= offset) records.push({ partition, offset: at, timestampMs: timeOf(batch, record), record })
        }
      next = Math.max(next, first + batch.lastOffsetDelta + 1)
      epoch = batch.partitionLeaderEpoch
    }
    return { partition, offset, next, epoch, cutAt: endOffset < offset ? endOffset : undefined, records, error }
  }
}

function timeOf({ attributes, firstTimestamp, maxTimestamp }: RecordsBatch, { timestampDelta }: KafkaRecord): number {
  return (attributes & appendTime) === 0 ? Number(firstTimestamp) + Number(timestampDelta) : Number(maxTimestamp)
}

interface FetchedTopics {
  readonly responses: readonly { readonly partitions: readonly FetchResponsePartition[] }[]
}

/** When one partition fails, the client rejects, and the records of the others are in its error. Throws the error if it has none. */
function partialResponse(error: unknown): FetchedTopics {
  for (const inner of errorsIn(error)) {
    const response: unknown = Reflect.get(inner, 'response')
    if (isFetched(response) && response.responses.length > 0) return response
  }
  throw error
}

function isFetched(value: unknown): value is FetchedTopics {
  return typeof value === 'object' && value !== null && 'responses' in value && Array.isArray(value.responses)
}
