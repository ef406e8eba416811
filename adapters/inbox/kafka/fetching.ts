import { earliest, type Fetched, latest, type TopicReader } from './topic-reader.ts'

/** A partition that is read. */
interface Fetchable {
  readonly partition: number
  readonly next: number
  readonly epoch: number
}

interface FetchingHost<Part extends Fetchable> {
  /** Opens a reader of the topic. */
  open(): TopicReader
  isClosed(): boolean
  /** Whether messages may be read now. */
  mayRead(): boolean
  /** The partitions of this process. */
  parts(): Iterable<Part>
  /** Whether more of this one may be read. */
  mayFetch(part: Part): boolean
  take(fetched: Fetched): Promise<void>
  /** Waits before the next try. */
  pause(): Promise<void>
  failed(what: string, error: unknown): void
  /** A partition has no leader. The others are still read. */
  leaderless(): void
}

/** Fetches from the brokers that lead partitions of this process: one fetch from each of them at a time. */
export class Fetching<Part extends Fetchable> {
  readonly #host: FetchingHost<Part>
  #topic: TopicReader
  #isWanted = false
  #isPlanning = false
  #needsLeaders = false
  #isLeaderless = false
  readonly #underWay = new Set<number>()

  constructor(host: FetchingHost<Part>) {
    this.#host = host
    this.#topic = host.open()
  }

  /** Fetches from every broker that leads partitions and has no fetch in flight. */
  all(): void {
    this.#isWanted = true
    if (!this.#isPlanning) void this.#plan()
  }

  /** The same. Partitions without a leader may have one by now. */
  again(): void {
    if (this.#isLeaderless) this.#needsLeaders = true
    this.all()
  }

  /** The same, after the leaders are asked for. */
  afresh(): void {
    this.#needsLeaders = true
    this.all()
  }

  /** Opens another reader of the topic, because this one does not move. Fetches nothing before the next call. */
  reopen(): void {
    const old = this.#topic
    this.#topic = this.#host.open()
    void old.close()
    this.#underWay.clear()
    this.#isPlanning = false
  }

  close(): Promise<void> {
    return this.#topic.close()
  }

  /** The partitions that have a leader. When one has none, the client lists the offsets of no partition at all. */
  async ledOf(partitions: readonly number[], isFresh: boolean): Promise<readonly number[]> {
    const leaders = await this.#topic.leaders(isFresh)
    return partitions.filter((partition) => (leaders[partition] ?? -1) >= 0)
  }

  /** The first offsets of these partitions that are in the log. */
  firstOf(partitions: readonly number[]): Promise<ReadonlyMap<number, number>> {
    return this.#topic.offsets(partitions, earliest)
  }

  /** The offsets behind their last records. */
  endsOf(partitions: readonly number[]): Promise<ReadonlyMap<number, number>> {
    return this.#topic.offsets(partitions, latest)
  }

  async #plan(): Promise<void> {
    this.#isPlanning = true
    const topic = this.#topic
    while (this.#isWanted && !this.#host.isClosed() && topic === this.#topic) {
      this.#isWanted = false
      try {
        await this.#fetchEach()
      } catch (error) {
        this.#host.failed('the leaders of partitions could not be found', error)
        this.#needsLeaders = true
        await this.#host.pause()
        this.#isWanted = true
      }
    }
    // The watchdog has opened the reader again, and started another loop.
    if (topic === this.#topic) this.#isPlanning = false
  }

  async #fetchEach(): Promise<void> {
    if (!this.#host.mayRead()) return
    const needed = this.#needsLeaders
    this.#needsLeaders = false
    const leaders = await this.#topic.leaders(needed)
    const byLeader = Map.groupBy(this.#host.parts(), ({ partition }) => Math.max(-1, leaders[partition] ?? -1))
    this.#isLeaderless = byLeader.delete(-1)
    for (const [leader, led] of byLeader) {
      const parts = this.#underWay.has(leader) ? [] : led.filter((part) => this.#host.mayFetch(part))
      if (parts.length > 0) void this.#fetchFrom(leader, parts)
    }
    if (this.#isLeaderless) this.#host.leaderless()
  }

  async #fetchFrom(leader: number, parts: readonly Part[]): Promise<void> {
    this.#underWay.add(leader)
    const topic = this.#topic
    try {
      const fetched = await topic.fetch(
        leader,
        parts.map(({ partition, next, epoch }) => ({ partition, offset: next, epoch })),
      )
      for (const one of fetched) await this.#host.take(one)
    } catch (error) {
      if (!this.#host.isClosed()) this.#host.failed('messages could not be read', error)
      this.#needsLeaders = true
      await this.#host.pause()
    }
    // The watchdog has opened the reader again, which may already fetch from this leader.
    if (topic !== this.#topic) return
    this.#underWay.delete(leader)
    this.all()
  }
}
