import type { Consumer } from '@platformatic/kafka'
import { type Clock, elapsedMs, type Timer } from '../../../src/base/clock.ts'
import { type Log, throttled } from '../../../src/base/log.ts'
import { clusterError, closeClient, codesOf, type Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'

interface MembershipOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly log: Log
  /** Other processes are about to get partitions of this one: finishes what runs, and commits. */
  readonly quiesce: () => Promise<void>
  /**
   * These partitions are this process's own from now on. `isContinued`: nobody else can have had those that it had before.
   */
  readonly assigned: (partitions: readonly number[], isContinued: boolean) => void
}

/** The position of a partition: the oldest offset that is not settled. */
export interface Offset {
  readonly partition: number
  readonly offset: number
}

/** A moment on both clocks: one of them stands still while a machine sleeps, and the other one can be set back. */
interface Moment {
  readonly atMs: number
  readonly elapsedMs: number
}

/** The part of a session after which no handler starts without a new sign of life. */
const leasePart = 0.7

/** A member is replaced by a new one when the group did not hear it for this many sessions. */
const mostSessions = 2

const tickMs = 250

/**
 * After this many failures in a row a new client takes the place of this one: a coordinator that has left the cluster is one that
 * this client asks again and again.
 */
const mostFailures = 6

/** The pause before the next attempt to join, in milliseconds. It grows. */
const pauseMs = 250

/**
 * The place of this process in the group of handling processes, with the classic protocol: only there a process can finish its work
 * before its partitions go. The hook that the client calls before each join is used for that.
 */
export class Membership {
  readonly #options: MembershipOptions
  readonly #say: ReturnType<typeof throttled>
  #consumer: Consumer | undefined
  /** When the last request was sent that the group answered: joins and heartbeats. */
  #heard: Moment | undefined
  #isJoined = false
  #generation = 0
  #memberId: string | null = null
  #joining: Consumer | undefined
  /** Heartbeats that failed one after another. */
  #failures = 0
  #closed = false
  /** When the timers of this process last ran: an answer that is read after a long standstill is no sign of life. */
  #ticked: Moment
  #watch: Timer | undefined
  #madeAtMs = 0

  constructor(options: MembershipOptions) {
    this.#options = options
    this.#say = throttled(options.log, options.clock)
    this.#ticked = this.#now()
  }

  /** Begins to join, and goes on until `leave`. */
  start(): void {
    this.#renew()
    this.#look()
  }

  /** Whether the group has heard this process so lately that nobody else can have its partitions. */
  get isFresh(): boolean {
    return this.#isJoined && this.#silentMs() < leasePart * this.#options.settings.sessionMs
  }

  /** How long the group has not heard this process, in milliseconds. */
  #silentMs(): number {
    const { clock } = this.#options
    if (this.#heard === undefined) return Infinity
    return Math.max(clock.now() - this.#heard.atMs, elapsedMs(clock) - this.#heard.elapsedMs)
  }

  /** Whether the process has been no member for so long that another one should take its place. */
  get isLost(): boolean {
    const { clock, settings } = this.#options
    const limitMs = mostSessions * settings.sessionMs
    return elapsedMs(clock) - this.#madeAtMs > limitMs && this.#silentMs() > limitMs
  }

  /** The committed offsets of partitions. Those that the group never committed are missing. */
  async committed(partitions: readonly number[]): Promise<ReadonlyMap<number, number>> {
    const { topic } = this.#options.settings
    const found = await this.#member().listCommittedOffsets({ topics: [{ topic, partitions: [...partitions] }] })
    const offsets = found.get(topic) ?? []
    return new Map(
      partitions.flatMap((partition): readonly (readonly [number, number])[] => {
        const offset = offsets[partition]
        return offset === undefined || offset < 0n ? [] : [[partition, Number(offset)]]
      }),
    )
  }

  /**
   * Commits offsets. Rejects when this process is not a member of the group's current generation: another one may have the partitions.
   * The client does not repeat it, because it makes no retries.
   */
  async commit(offsets: readonly Offset[]): Promise<void> {
    if (offsets.length === 0) return
    if (!this.#isJoined) throw new Error('This process is not a member of the group.')
    const { topic } = this.#options.settings
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

  /** Leaves and joins again with a new client, because this one does not get on. */
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
    const consumer = connector.consumer(rebalanceMs + 5_000, {
      sessionMs,
      heartbeatMs: Math.floor(sessionMs / 10),
      rebalanceMs,
    })
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
    // A join that the client began by itself, at a heartbeat, has failed.
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

  /** Joins, however long it takes. */
  async #join(consumer: Consumer): Promise<void> {
    if (this.#joining === consumer) return
    this.#joining = consumer
    const { settings, clock } = this.#options
    for (let tries = 1; consumer === this.#consumer && !this.#closed; tries += 1) {
      try {
        await consumer.joinGroup({ protocolsMetadata: async () => this.#beforeJoin() })
        break
      } catch (error) {
        if (consumer !== this.#consumer || this.#closed) return
        if (!isUsual(error)) {
          this.#say.warn('this process could not join the group', { reason: clusterError(error, settings).message })
          if (tries >= mostFailures) {
            this.#renew()
            return
          }
        }
        await new Promise<void>((resolve) => {
          clock.after(pauseMs * Math.min(tries, 8), resolve)
        })
      }
    }
    if (this.#joining === consumer) this.#joining = undefined
  }

  /** Called by the client before each join. */
  async #beforeJoin(): Promise<Buffer> {
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

  /** Replaces a member that the group does not hear. */
  #look(): void {
    const { clock, settings } = this.#options
    this.#watch = clock.after(tickMs, () => {
      if (this.#closed) return
      this.#ticked = this.#now()
      const limitMs = Math.max(settings.sessionMs, settings.quiesceMs + 8_000) + 5_000
      if (this.#silentMs() > limitMs && elapsedMs(clock) - this.#madeAtMs > limitMs) {
        this.#say.warn('this process lost its place in the group and joins again', { afterMs: limitMs })
        this.#renew()
      }
      this.#look()
    })
  }
}

/** What happens at every rebalance in which several processes join. */
function isUsual(error: unknown): boolean {
  const codes = codesOf(error)
  return (
    codes.has('REBALANCE_IN_PROGRESS') ||
    codes.has('COORDINATOR_NOT_AVAILABLE') ||
    codes.has('NOT_COORDINATOR') ||
    codes.has('COORDINATOR_LOAD_IN_PROGRESS')
  )
}
