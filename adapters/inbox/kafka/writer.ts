import type { Producer } from '@platformatic/kafka'
import { type Clock, elapsedMs, pause, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { closeClient, codesOf, type Connector, errorsIn, metadataRetries, outageError } from './client.ts'
import type { KafkaSettings } from './options.ts'
import type { Outgoing } from './records.ts'

/** The records of one `append`. They are confirmed, or given up, together. */
export interface Append {
  readonly records: readonly Outgoing[]
  /** See {@link Writer.takeBack}. */
  readonly mayBeTakenBack: boolean
  readonly bytes: number
  /** On the monotonic clock. */
  readonly deadlineMs: number
  readonly resolve: () => void
  readonly reject: (error: FleethookError) => void
  isOver: boolean
  isAlone: boolean
}

interface AppendOptions {
  /** How long the brokers may take, in milliseconds. Default: the option `confirmMs`. */
  readonly withinMs?: number | undefined
  /** See {@link Writer.takeBack}. Default `false`. */
  readonly mayBeTakenBack?: boolean
}

/** The appends that wait for one partition, in order. */
interface Queue {
  readonly topic: string
  readonly partition: number
  appends: Append[]
  isInFlight: boolean
}

interface WriterOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly topics: readonly string[]
}

/** The limits of one request. The batch of a partition must not be larger than the largest record that brokers accept. */
export const mostMessages = 500
export const mostBytes = 800_000

/** The most bytes that wait for a confirmation. The process must not run out of memory while the brokers cannot be reached. */
const mostWaiting = 128 * 1_048_576

/** How long the brokers may take to replicate one request, and to answer it, in milliseconds. */
const produceMs = 3_000
const requestMs = 4_000

const pauseMs = 100
const sweepMs = 100

/** Errors that a retry cannot fix. */
const final = new Set([
  'INVALID_TOPIC_EXCEPTION',
  'TOPIC_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
  'INVALID_TIMESTAMP',
  'INVALID_RECORD',
  'POLICY_VIOLATION',
  'INVALID_REQUIRED_ACKS',
])
const tooLarge = new Set(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'])

/**
 * Appends records to partitions, with one request at a time for each partition and broker. A batch is what arrived
 * during the last request. The same batch is sent again until it is confirmed or its time is over, so no record
 * overtakes it. The reader recognizes records that are in the log twice.
 */
export class Writer {
  readonly #options: WriterOptions
  readonly #producer: Producer
  readonly #queues = new Map<string, Queue>()
  /** The queues that have appends. */
  readonly #waiting = new Set<Queue>()
  readonly #busy = new Set<number>()
  #leaders: ReadonlyMap<string, readonly number[]> | undefined
  #refreshing = false
  /** The bytes that wait for a confirmation. */
  #bytes = 0
  #sweeper: Timer | undefined
  #closed = false
  /** The last error since a message was confirmed. */
  failure: FleethookError | undefined
  #lastError: unknown
  #probing = false

  constructor(options: WriterOptions) {
    this.#options = options
    this.#producer = options.connector.producer(requestMs, produceMs)
  }

  /** Finds the leaders of the partitions, so that the first message does not wait for that. */
  async open(): Promise<void> {
    await this.#readLeaders().catch(() => {})
  }

  /** Resolves when the in-sync replicas have all records. After `inbox_unavailable`, the log may have them too. */
  append(
    records: readonly Outgoing[],
    bytes: number,
    { withinMs = this.#options.settings.confirmMs, mayBeTakenBack = false }: AppendOptions = {},
  ): Promise<void> {
    const [first] = records
    if (first === undefined) return Promise.resolve()
    if (this.#closed) return Promise.reject(closedError())
    if (this.#bytes + bytes > mostWaiting) return Promise.reject(fullError())
    this.#bytes += bytes
    const appended = new Promise<void>((resolve, reject) => {
      const deadlineMs = elapsedMs(this.#options.clock) + withinMs
      const queue = this.#queueOf(first.topic, first.partition)
      queue.appends.push({ records, mayBeTakenBack, bytes, deadlineMs, resolve, reject, isOver: false, isAlone: false })
      this.#waiting.add(queue)
    })
    const over = (): void => {
      this.#bytes -= bytes
    }
    appended.then(over, over)
    this.#sweep()
    this.#pump()
    return appended
  }

  /** Sends none of these appends of a partition again, because somebody else keeps their messages. The brokers may still keep appends in flight. */
  takeBack(topic: string, partition: number): void {
    const queue = this.#queueOf(topic, partition)
    for (const append of queue.appends) if (append.mayBeTakenBack) giveUp(append, takenBackError())
    if (!queue.isInFlight) this.#forgetOver(queue)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#sweeper?.cancel()
    for (const queue of this.#waiting) {
      for (const append of queue.appends) giveUp(append, closedError())
      queue.appends = []
    }
    this.#waiting.clear()
    await closeClient(this.#producer)
  }

  #queueOf(topic: string, partition: number): Queue {
    const key = `${topic}:${partition}`
    const known = this.#queues.get(key)
    if (known !== undefined) return known
    const queue: Queue = { topic, partition, appends: [], isInFlight: false }
    this.#queues.set(key, queue)
    return queue
  }

  /** Sends to every broker that has no request in flight. */
  #pump(): void {
    if (this.#closed || this.#waiting.size === 0) return
    const idle = [...this.#waiting].filter(({ isInFlight }) => !isInFlight)
    const byLeader = Map.groupBy(idle, ({ topic, partition }) =>
      Math.max(-1, this.#leaders?.get(topic)?.[partition] ?? -1),
    )
    // An election takes a while, so pause before asking again. The other partitions continue.
    if (byLeader.delete(-1)) void this.#refresh({ isLater: this.#leaders !== undefined })
    for (const [leader, queues] of byLeader) if (!this.#busy.has(leader)) void this.#request(leader, batchesOf(queues))
  }

  async #request(leader: number, batches: readonly Batch[]): Promise<void> {
    if (batches.length === 0) return
    this.#busy.add(leader)
    for (const { queue } of batches) queue.isInFlight = true
    let thrown: unknown
    try {
      const messages = batches.flatMap(({ appends }) => appends.flatMap(({ records }) => records))
      await this.#producer.send({ messages, acks: -1 })
    } catch (error) {
      thrown = error
    }
    let isUnsent = false
    const results = thrown === undefined ? undefined : resultsOf(thrown)
    for (const { queue, appends } of batches) {
      const code = results === undefined ? 0 : results.get(`${queue.topic}:${queue.partition}`)
      if (code === 0) this.#confirmed(appends)
      else {
        const codes = code === undefined ? codesOf(thrown) : new Set([this.#nameOf(code)])
        if (this.#failed(queue.topic, appends, codes, thrown)) isUnsent = true
      }
      queue.isInFlight = false
      this.#forgetOver(queue)
    }
    if (isUnsent) {
      await this.#pause()
      await this.#refresh()
    }
    this.#busy.delete(leader)
    this.#pump()
  }

  #confirmed(appends: readonly Append[]): void {
    this.failure = undefined
    for (const append of appends) {
      if (append.isOver) continue
      append.isOver = true
      append.resolve()
    }
  }

  /** Returns whether these appends must be sent again. */
  #failed(topic: string, appends: readonly Append[], codes: ReadonlySet<string>, thrown: unknown): boolean {
    const is = (kind: ReadonlySet<string>): boolean => [...codes].some((code) => kind.has(code))
    const [first] = appends
    if (is(tooLarge) && first !== undefined) {
      // The brokers allow less than the topic's settings say. Send the appends one by one, and refuse only the append that is too large.
      if (appends.length === 1) giveUp(first, new TooLargeError())
      else for (const append of appends) append.isAlone = true
      return appends.length > 1
    }
    this.#lastError = thrown
    if (!is(final)) return true
    const error = outageError(thrown, this.#options.settings)
    for (const append of appends) giveUp(append, error)
    this.#noteFailure(topic, error)
    return false
  }

  /** Health checks show when messages are refused. What fails in the other topics refuses none. */
  #noteFailure(topic: string, error: FleethookError): void {
    if (topic !== this.#options.settings.topic) return
    this.failure = error
    this.#probe()
  }

  #nameOf(code: number): string {
    return this.#options.connector.client.protocolErrorsCodesById[code] ?? String(code)
  }

  #forgetOver(queue: Queue): void {
    queue.appends = queue.appends.filter(({ isOver }) => !isOver)
    this.#waiting.delete(queue)
    // Move it to the end, so that every partition gets its turn when one request cannot take all.
    if (queue.appends.length > 0) this.#waiting.add(queue)
  }

  #pause(): Promise<void> {
    return pause(this.#options.clock, pauseMs)
  }

  /** Finds the leaders again. Retries as long as records wait. */
  async #refresh({ isLater = false }: { readonly isLater?: boolean } = {}): Promise<void> {
    if (this.#refreshing) return
    this.#refreshing = true
    if (isLater) await this.#pause()
    while (!this.#closed) {
      try {
        await this.#readLeaders()
        break
      } catch (error) {
        this.#lastError = error
        if (this.#waiting.size === 0) break
        await this.#pause()
      }
    }
    this.#refreshing = false
    this.#pump()
  }

  async #readLeaders(): Promise<void> {
    const topics = [...this.#options.topics]
    const found = await this.#producer.metadata({ topics, forceUpdate: true, retries: metadataRetries })
    this.#leaders = new Map(
      [...found.topics].map(([name, { partitions }]) => [name, partitions.map(({ leader }) => leader)]),
    )
  }

  /** Checks the deadlines while records wait. One timer serves all, because most are confirmed within milliseconds. */
  #sweep(): void {
    if (this.#sweeper !== undefined || this.#closed) return
    this.#sweeper = this.#options.clock.after(sweepMs, () => {
      this.#sweeper = undefined
      this.#expire(elapsedMs(this.#options.clock))
      if (this.#waiting.size > 0) this.#sweep()
    })
  }

  #expire(nowMs: number): void {
    for (const queue of this.#waiting) {
      const oldest = queue.appends.find(({ isOver }) => !isOver)
      if (oldest === undefined || oldest.deadlineMs > nowMs) continue
      const error = unconfirmed(this.#options.settings, this.#lastError)
      for (const append of queue.appends) if (append.deadlineMs <= nowMs) giveUp(append, error)
      this.#noteFailure(queue.topic, error)
      if (!queue.isInFlight) this.#forgetOver(queue)
    }
  }

  /** Finds out when the brokers answer again, even when no messages arrive because the health checks fail. */
  #probe(): void {
    if (this.#probing) return
    this.#probing = true
    this.#options.clock.after(1_000, () => {
      this.#probing = false
      if (this.#closed || this.failure === undefined) return
      this.#readLeaders().then(
        () => {
          this.failure = undefined
          this.#pump()
        },
        (error: unknown) => {
          this.#lastError = error
          this.#probe()
        },
      )
    })
  }
}

interface Batch {
  readonly queue: Queue
  readonly appends: readonly Append[]
}

/** The appends of each queue that fit in one request. */
function batchesOf(queues: readonly Queue[]): readonly Batch[] {
  const batches: Batch[] = []
  let messages = 0
  let bytes = 0
  for (const queue of queues) {
    const appends: Append[] = []
    for (const append of queue.appends) {
      const isFull = messages + append.records.length > mostMessages || bytes + append.bytes > mostBytes
      if (isFull && messages > 0) break
      if (append.isAlone && appends.length > 0) break
      appends.push(append)
      messages += append.records.length
      bytes += append.bytes
      if (append.isAlone) break
    }
    if (appends.length > 0) batches.push({ queue, appends })
  }
  return batches
}

function giveUp(append: Append, error: FleethookError): void {
  if (append.isOver) return
  append.isOver = true
  append.reject(error)
}

/** The result of each partition that a broker answered for: 0, or an error code. */
function resultsOf(error: unknown): ReadonlyMap<string, number> {
  const results = new Map<string, number>()
  for (const inner of errorsIn(error)) {
    const produced: unknown = Reflect.get(inner, 'produced')
    for (const { topic, partition } of readOffsets(produced)) results.set(`${topic}:${partition}`, 0)
    for (const { name, partitionResponses } of readResponses(Reflect.get(inner, 'response')))
      for (const { index, errorCode } of partitionResponses) results.set(`${name}:${index}`, errorCode)
  }
  return results
}

interface ProducedOffset {
  readonly topic: string
  readonly partition: number
}

function readOffsets(produced: unknown): readonly ProducedOffset[] {
  if (typeof produced !== 'object' || produced === null || !('offsets' in produced)) return []
  return Array.isArray(produced.offsets) ? produced.offsets : []
}

interface ProduceResponse {
  readonly name: string
  readonly partitionResponses: readonly { readonly index: number; readonly errorCode: number }[]
}

function readResponses(response: unknown): readonly ProduceResponse[] {
  if (typeof response !== 'object' || response === null || !('responses' in response)) return []
  return Array.isArray(response.responses) ? response.responses : []
}

function takenBackError(): FleethookError {
  return new FleethookError('inbox_unavailable', 'A file on this machine keeps the message.')
}

function closedError(): FleethookError {
  return new FleethookError('inbox_unavailable', 'The inbox was closed: its receiver has been drained.')
}

function fullError(): FleethookError {
  return new FleethookError('inbox_full', `Messages of ${mostWaiting} bytes wait for the brokers, and no more fit.`, {
    hint: 'The brokers do not answer or are too slow. With `meanwhile`, messages wait on the disk.',
  })
}

/** The brokers take none of the records of an append, because one is too large. */
export class TooLargeError extends FleethookError {
  constructor() {
    super('body_too_large', 'The brokers refused a message because of its size.', {
      hint: 'Raise `max.message.bytes` of the topic, and `message.max.bytes` of the brokers.',
    })
  }
}

function unconfirmed(settings: KafkaSettings, cause: unknown): FleethookError {
  const why = cause === undefined ? 'no answer' : outageError(cause, settings).message
  return new FleethookError(
    'inbox_unavailable',
    // What to do about `The brokers did not confirm a message within … ms`: Too few brokers are in sync, or none answers. `meanwhile`
    // would keep the message.
    `The brokers did not confirm a message within ${settings.confirmMs} ms: ${why}`,
    {
      cause,
      hint: 'The message is refused. The inbox continues when enough brokers are in sync again.',
    },
  )
}
