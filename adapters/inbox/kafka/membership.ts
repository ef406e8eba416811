import type { Consumer } from '@platformatic/kafka'
import { type Clock, elapsedMs, pause, type Timer } from '../../../src/base/clock.ts'
import { type Log, throttled } from '../../../src/base/log.ts'
import { closeClient, codesOf, type Connector, outageError, type PositionMetadata } from './client.ts'
import type { KafkaSettings } from './options.ts'

interface MembershipOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly log: Log
  /** Called before a rebalance, in which other processes may get partitions of this one. Finishes running handlers and commits. */
  readonly quiesce: () => Promise<void>
  /** The partitions of this process from now on. `isContinued`: ownership was continuous. */
  readonly assigned: (partitions: readonly number[], isContinued: boolean) => void
}

/** The position of a partition: the oldest offset that is not settled. */
export interface Offset {
  readonly partition: number
  readonly offset: number
  readonly metadata: string
}

/** A moment on both clocks: the monotonic one stops while a machine sleeps, and the wall clock can be set back. */
interface Moment {
  readonly atMs: number
  readonly elapsedMs: number
}

/** After this part of a session without an answered heartbeat, no handler starts. */
const leasePart = 0.7

/** A process counts as lost when the group has not heard from it for this many sessions. */
const mostSessions = 2

const tickMs = 250

/** After this many failures a new client is made: a client keeps asking a coordinator that has left the cluster. */
const mostFailures = 6

/** The first pause between two tries to join, in milliseconds. It grows with each try. */
const pauseMs = 250

/**
 * The membership of this process in the consumer group, with the classic protocol. Only that protocol lets a process finish its
 * work before it loses its partitions: in the hook that the client calls before each join.
 */
export class Membership {
  readonly #options: MembershipOptions
  readonly #say: ReturnType<typeof throttled>
  #consumer: Consumer | undefined
  /** When the last join or heartbeat was sent that the group answered. */
  #heard: Moment | undefined
  #isJoined = false
  #generation = 0
  #memberId: string | null = null
  #joining: Consumer | undefined
  #failures = 0
  #closed = false
  /** When the timers of this process last ran. An answer that is read after a long stall may be old. */
  #ticked: Moment
  #watch: Timer | undefined
  #madeAtMs = 0
  readonly #metadata: PositionMetadata = { committing: new Map(), found: new Map() }

  constructor(options: MembershipOptions) {
    this.#options = options
    this.#say = throttled(options.log, options.clock)
    this.#ticked = this.#now()
  }

  /** Joins the group, and joins again when it must, until `leave`. */
  start(): void {
    this.#renew()
    this.#look()
  }

  /** Whether the group heard from this process so recently that no other process can have its partitions. */
  get isFresh(): boolean {
    return this.#isJoined && this.#silentMs() < leasePart * this.#options.settings.sessionMs
  }

  #silentMs(): number {
    const { clock } = this.#options
    if (this.#heard === undefined) return Infinity
    return Math.max(clock.now() - this.#heard.atMs, elapsedMs(clock) - this.#heard.elapsedMs)
  }

  /** Whether the group has not heard from this process for so long that another one should replace it. */
  get isLost(): boolean {
    const { clock, settings } = this.#options
    const limitMs = mostSessions * settings.sessionMs
    return elapsedMs(clock) - this.#madeAtMs > limitMs && this.#silentMs() > limitMs
  }

  /** The committed positions of these partitions, without partitions that the group never committed. */
  async committed(partitions: readonly number[]): Promise<ReadonlyMap<number, Offset>> {
    if (partitions.length === 0) return new Map()
    const { topic } = this.#options.settings
    const found = await this.#member().listCommittedOffsets({ topics: [{ topic, partitions: [...partitions] }] })
    const offsets = found.get(topic) ?? []
    return new Map(
      partitions.flatMap((partition): readonly (readonly [number, Offset])[] => {
        const offset = offsets[partition]
        if (offset === undefined || offset < 0n) return []
        const metadata = this.#metadata.found.get(partition) ?? ''
        return [[partition, { partition, offset: Number(offset), metadata }]]
      }),
    )
  }

  /**
   * Commits positions, one call at a time. Rejects when this process is not a member of the group's current generation, or when the group has not heard from
   * it for a session: another process may have the partitions. Nothing retries a commit that failed.
   */
  async commit(offsets: readonly Offset[]): Promise<void> {
    if (offsets.length === 0) return
    const { topic, sessionMs } = this.#options.settings
    if (!this.#isJoined || this.#silentMs() >= sessionMs) throw new Error('This process is not a member of the group.')
    for (const { partition, metadata } of offsets) this.#metadata.committing.set(partition, metadata)
    await this.#member().commit({
      offsets: offsets.map(({ partition, offset }) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 })),
    })
  }

  /** Leaves the group, so that others get the partitions at once. */
  async leave(): Promise<void> {
    this.#closed = true
    this.#isJoined = false
    this.#watch?.cancel()
    const consumer = this.#consumer
    this.#consumer = undefined
    await closeClient(consumer)
  }

  /** Leaves the group and joins it again with a new client. */
  restart(): void {
    if (!this.#closed) this.#renew()
  }

  #member(): Consumer {
    if (this.#consumer === undefined) throw new Error('This process is not a member of the group.')
    return this.#consumer
  }

  #renew(): void {
    const { connector, settings, clock } = this.#options
    const { sessionMs, quiesceMs } = settings
    const old = this.#consumer
    this.#isJoined = false
    this.#heard = undefined
    this.#memberId = null
    this.#failures = 0
    this.#madeAtMs = elapsedMs(clock)
    void closeClient(old)
    const rebalanceMs = Math.max(sessionMs, quiesceMs + 8_000)
    const times = { sessionMs, heartbeatMs: Math.floor(sessionMs / 10), rebalanceMs }
    const consumer = connector.consumer(rebalanceMs + 5_000, times, this.#metadata)
    this.#consumer = consumer
    consumer.topics.track(settings.topic)
    let sent = this.#now()
    consumer.on('consumer:heartbeat:start', () => {
      sent = this.#now()
    })
    consumer.on('consumer:heartbeat:end', () => {
      if (consumer !== this.#consumer || !this.#isJoined) return
      this.#heard = sent
      this.#failures = 0
    })
    consumer.on('consumer:heartbeat:error', () => {
      if (consumer === this.#consumer && ++this.#failures >= mostFailures) this.#renew()
    })
    consumer.on('consumer:group:join', ({ memberId, generationId = 0, assignments = [] }) => {
      if (consumer === this.#consumer) this.#joined(memberId, generationId, assignments)
    })
    // The client started a join by itself, after a heartbeat, and the join failed.
    consumer.on('error', (error) => {
      if (consumer !== this.#consumer || this.#joining === consumer) return
      this.#isJoined = false
      this.#say.warn('this process could not join the group again', { error: [...codesOf(error)].join(' ') })
      void this.#join(consumer)
    })
    void this.#join(consumer)
  }

  #now(): Moment {
    const { clock } = this.#options
    return { atMs: clock.now(), elapsedMs: elapsedMs(clock) }
  }

  /** Joins the group. Retries until that succeeds. */
  async #join(consumer: Consumer): Promise<void> {
    if (this.#joining === consumer) return
    this.#joining = consumer
    const { settings, clock } = this.#options
    for (let tries = 1; consumer === this.#consumer && !this.#closed; tries += 1) {
      try {
        await consumer.joinGroup({ protocolsMetadata: async () => this.#beforeJoin(consumer) })
        break
      } catch (error) {
        if (consumer !== this.#consumer || this.#closed) return
        if (!isUsual(error)) {
          // What to do about `this process could not join the group`, `this process could not join the group again`: The group has no coordinator
          // yet, or the cluster fails. No handler starts until then.
          this.#say.warn('this process could not join the group', { reason: outageError(error, settings).message })
          if (tries >= mostFailures) {
            this.#renew()
            return
          }
        }
        await pause(clock, pauseMs * Math.min(tries, 8))
      }
    }
    if (this.#joining === consumer) this.#joining = undefined
  }

  async #beforeJoin(consumer: Consumer): Promise<Buffer> {
    // A client that was replaced still finishes what it waits for. After its call, no assignment would follow.
    if (consumer !== this.#consumer) throw new Error('This client was replaced.')
    await this.#options.quiesce()
    return Buffer.alloc(0)
  }

  #joined(
    memberId: string,
    generation: number,
    assignments: readonly { readonly topic: string; readonly partitions: readonly number[] }[],
  ): void {
    const isContinued = memberId === this.#memberId && generation === this.#generation + 1
    this.#memberId = memberId
    this.#generation = generation
    this.#isJoined = true
    this.#heard = this.#ticked
    const own = assignments.find(({ topic }) => topic === this.#options.settings.topic)
    this.#options.assigned(own?.partitions ?? [], isContinued)
  }

  /** Replaces the client when the group no longer hears from it. */
  #look(): void {
    const { clock, settings } = this.#options
    this.#watch = clock.after(tickMs, () => {
      if (this.#closed) return
      this.#ticked = this.#now()
      const limitMs = Math.max(settings.sessionMs, settings.quiesceMs + 8_000) + 5_000
      if (this.#silentMs() > limitMs && elapsedMs(clock) - this.#madeAtMs > limitMs) {
        // What to do: Look at the network and the CPU.
        this.#say.warn('this process lost its place in the group and joins again', { afterMs: limitMs })
        this.#renew()
      }
      this.#look()
    })
  }
}

/** Whether the error is normal in a rebalance in which several processes join. */
function isUsual(error: unknown): boolean {
  const codes = codesOf(error)
  return (
    codes.has('REBALANCE_IN_PROGRESS') ||
    codes.has('COORDINATOR_NOT_AVAILABLE') ||
    codes.has('NOT_COORDINATOR') ||
    codes.has('COORDINATOR_LOAD_IN_PROGRESS')
  )
}
