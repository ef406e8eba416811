import { randomUUID } from 'node:crypto'
import { type Timer, elapsedMs, pause, resolvedOr } from '../../../src/base/clock.ts'
import type { Log } from '../../../src/base/log.ts'
import { PassingMap } from '../../../src/base/passing-map.ts'
import { DeliveryIds, makerOf } from '../../../src/inbox/delivery-id.ts'
import type {
  Claim,
  DeadLetterReason,
  InboxMessage,
  InboxGap,
  InboxHost,
  Outcome,
  Waiting,
} from '../../../src/inbox/inbox.ts'
import { type PartitionOf, SharedReader } from '../shared-reader.ts'
import { codesOf, type Connector, outageError } from './client.ts'
import type { DeadTopic } from './dead-topic.ts'
import { Fetching } from './fetching.ts'
import { inherited, type Mark, readMark, writeMark } from './ends.ts'
import { Membership, type Offset } from './membership.ts'
import type { KafkaSettings } from './options.ts'
import { fromRecord } from './records.ts'
import { type Fetched, type PlacedRecord, TopicReader } from './topic-reader.ts'

interface ReaderOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly inbox: InboxHost
  readonly dead: DeadTopic
  /** How long the topic keeps a message, in milliseconds. */
  readonly retentionMs: number | undefined
}

/** A message that was read and is not settled. */
interface Unsettled {
  readonly message: InboxMessage
  readonly part: Partition
  offset: number
  readonly replayed: boolean
  readonly replay?: string | undefined
  deliveries: number
}

/** A partition that is assigned to this process. */
interface Partition extends PartitionOf<Unsettled> {
  readonly partition: number
  next: number
  /** The leader epoch of the record before it. -1: unknown. */
  epoch: number
  /** -1: the group has no position here, or a position that is not in the log. */
  committed: number
  /** A process ended that may have had the messages below this offset in hand. */
  suspectsUpTo: number
  /** The number of processes that ended, by offset, where it is more than one. */
  ends: Map<number, number>
  /** The metadata of the position. `undefined`: unknown. */
  metadata: string | undefined
  /** Whether the metadata says that any message from `suspectsUpTo` on may be in hand. */
  isMarked: boolean
  /** The messages below `suspectsUpTo` that are in hand according to the metadata. */
  marked: ReadonlySet<Unsettled>
  /** The highest offset that was handed out. */
  highest: number
  /** Another process may have handed out the messages below this offset. */
  inherited: number
  /** An earlier owner settled the messages below this offset. They are read only for `#seen`. */
  floor: number
  /** The topic deleted this number of messages before `next` (0: unknown), and no gap reports them yet. */
  deleted: number | undefined
  lastReceivedAt: number | undefined
  /** The last known end of the partition. */
  end: number
  /** `next` at the last check of the watchdog, and the number of checks since it last moved. */
  watched: number
  stuck: number
}

interface Assignment {
  readonly number: number
  readonly partitions: readonly number[]
}

/** The number of settled records that are read again when a partition is assigned, to find records that the log has twice. */
const readBefore = 500

/** The most receivers of a partition whose last record is remembered. Each start of one counts. */
const mostMakers = 1_000

/** The most bytes of a foreign record that its dead letter has. As text they can become three times as many. */
const mostForeignBytes = 100_000

/** The most settled messages above the oldest unsettled one of a partition: after a crash, no more than these are handled again. */
const mostAbove = 50_000

const commitMs = 1_000
/** The longest wait for a commit, longer than any request of the client, and at a stop. */
const mostCommitMs = 30_000
const lastCommitMs = 1_500
/** The number of commits that may fail in a row, as they do in a rebalance, before it is a warning. */
const mostFailedCommits = 10
const lookMs = 10_000
const pauseMs = 250
const pollMs = 20

interface ReaderFigures {
  /** Messages in the topic that this process has not settled, by partition. */
  readonly lag: Readonly<Record<string, number>>
  /** Records that were in the log twice. The second one was dropped. */
  readonly repeated: number
}

/**
 * The partitions of this process, as an inbox. Messages come from the topic, and settling one moves the position of its partition.
 * Only the position is durable. After a crash, the messages above it are handed out again, here or in another process.
 */
export class Reader extends SharedReader<Unsettled> {
  readonly #options: ReaderOptions
  readonly #log: Log
  readonly #membership: Membership
  readonly #ids = new DeliveryIds()
  readonly #repeats = new Repeats()
  readonly #fetching: Fetching<Partition>
  readonly #commits: Turns = new Turns(() => resolvedOr(this.#commitNow(), this.clock, mostCommitMs))
  /** Names this process in what it commits. */
  readonly #owner = randomUUID().slice(0, 8)
  /** Before a rebalance, only messages below a message that was handed out may start, and after the last commit none. */
  #startable: 'all' | 'below' | 'none' = 'all'
  #isPaused = false
  /** The last assignment, with its partitions, even if their positions are not known yet. */
  #assignment: Assignment = { number: 0, partitions: [] }
  /** The number of times in a row that the watchdog could not read the ends of partitions. */
  #failedLooks = 0
  /** How far the oldest message is on its way to be deleted, as it was logged last. */
  #nearDeletion: 'no' | 'half' | 'soon' = 'no'
  #failedCommits = 0
  #timers: Timer[] = []

  constructor(options: ReaderOptions) {
    super(options)
    const { connector, settings, inbox } = options
    this.#options = options
    this.#log = inbox.log
    this.#fetching = new Fetching({
      open: () => new TopicReader(connector, settings.topic),
      isClosed: () => this.isClosed,
      mayRead: () => this.#mayRead(),
      parts: () => this.parts.values(),
      mayFetch: (part) => !isFarAhead(part),
      take: (fetched) => this.#take(fetched),
      pause: () => this.#pause(),
      failed: (what, error) => this.failed(what, error),
      leaderless: () => this.#sayLeaderless(),
    })
    this.#membership = new Membership({
      connector,
      settings,
      clock: inbox.clock,
      log: inbox.log,
      quiesce: () => this.#quiesce(),
      assigned: (partitions, isContinued) => this.#assigned(partitions, isContinued),
    })
  }

  async open(): Promise<void> {
    this.#membership.start()
    this.#every(commitMs, async () => {
      await this.#commit()
      this.#fetching.again()
    })
    this.#every(lookMs, () => this.#look())
  }

  protected textHereOf(found: Unsettled): string {
    return found.message.text
  }

  async claim(id: string): Promise<Claim | undefined> {
    const found = await this.handOut(id)
    if (found === undefined) return undefined
    const { message, replayed, replay, deliveries } = found
    found.deliveries += 1
    return { message, deliveries, replayed, replay }
  }

  protected end(found: Unsettled, outcome: Outcome): void | Promise<void> {
    if (outcome.as === 'dead') return this.#bury(found, outcome.reason)
    if (outcome.as === 'done') this.forget(found)
    else {
      found.deliveries = outcome.next.deliveries ?? found.deliveries
      this.takeBack(found)
    }
  }

  async #bury(found: Unsettled, reason: DeadLetterReason): Promise<void> {
    const { message, replay } = found
    await this.#options.dead.add({ ...reason, id: message.id, message, replay })
    if (this.byId.get(message.id) === found) this.forget(found)
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#membership.isLost ? 'inbox_unavailable' : undefined
  }

  figures(): ReaderFigures {
    const lag: Record<string, number> = {}
    for (const part of this.parts.values())
      lag[part.partition] = Math.max(0, Math.max(part.end, part.next) - lowOf(part))
    return { lag, repeated: this.#repeats.count }
  }

  protected async settleDown(withinMs: number): Promise<void> {
    await resolvedOr(this.#settledDown(withinMs), this.clock, withinMs + lastCommitMs)
  }

  protected async leave(): Promise<void> {
    for (const timer of this.#timers) timer.cancel()
    await resolvedOr(this.#commit(), this.clock, lastCommitMs)
    await Promise.all([this.#membership.leave(), this.#fetching.close()])
  }

  #every(ms: number, run: () => Promise<void>): void {
    const index = this.#timers.length
    const again = (): void => {
      this.#timers[index] = this.clock.after(ms, () => {
        void run().finally(() => {
          if (!this.isClosed) again()
        })
      })
    }
    again()
  }

  protected mayStart(found: Unsettled): boolean {
    if (!this.#membership.isFresh) return false
    const { part, offset } = found
    return this.#startable === 'all' || (this.#startable === 'below' && (part.hand.has(found) || offset < part.highest))
  }

  protected override async begins(found: Unsettled): Promise<boolean> {
    if (!isMarked(found)) await this.#commit()
    if (!this.isHere(found) || !isMarked(found) || !this.#membership.isFresh) return false
    found.part.highest = Math.max(found.part.highest, found.offset)
    return true
  }

  protected override forget(found: Unsettled): void {
    super.forget(found)
    found.part.ends.delete(found.offset)
    if (this.#isPaused) this.#fetching.all()
  }

  /** Called before each join: other processes wait for this one. */
  #quiesce(): Promise<void> {
    return this.#settledDown(this.#options.settings.quiesceMs)
  }

  /** Waits for running handlers, then commits. Until the next assignment nothing starts: others may be the owners. */
  async #settledDown(withinMs: number): Promise<void> {
    const before = this.#assignment
    if (this.#startable === 'all') this.#startable = 'below'
    const untilMs = elapsedMs(this.clock) + withinMs
    for (let quiet = 0; quiet < 2 && elapsedMs(this.clock) < untilMs;) {
      if ([...this.parts.values()].every(({ hand }) => hand.size === 0)) quiet += 1
      else quiet = 0
      if (quiet < 2) await pause(this.clock, pollMs)
    }
    // An assignment that came during the wait decides by itself. But in a stop, nothing starts after the last commit.
    if (before === this.#assignment || this.isFinishing) this.#startable = 'none'
    await this.#commit()
  }

  #assigned(partitions: readonly number[], isContinued: boolean): void {
    this.#assignment = { number: this.#assignment.number + 1, partitions }
    const own = new Set(partitions)
    const gone = [...this.parts.keys()].filter((partition) => !isContinued || !own.has(partition))
    this.#options.inbox.on({ type: 'gone', ids: this.drop(gone) })
    this.#startable = this.isFinishing ? 'below' : 'all'
    const added = partitions.filter((partition) => !this.parts.has(partition))
    this.change()
    this.#fetching.all()
    if (this.parts.size > 0) void this.#commit()
    if (added.length > 0) void this.#begin(added, this.#assignment)
  }

  /** Starts to read these partitions at the positions that their last owner committed. */
  async #begin(partitions: readonly number[], assignment: Assignment): Promise<void> {
    const isCurrent = (): boolean => assignment === this.#assignment && !this.isClosed
    let left = partitions
    for (let isFresh = false; left.length > 0 && isCurrent(); isFresh = true) {
      if (isFresh) await this.#pause()
      try {
        const led = await this.#fetching.ledOf(left, isFresh)
        const [committed, first, end] = await Promise.all([
          this.#membership.committed(led),
          this.#fetching.firstOf(led),
          this.#fetching.endsOf(led),
        ])
        if (!isCurrent()) return
        for (const partition of led)
          this.#enter(partition, committed.get(partition), first.get(partition) ?? 0, end.get(partition) ?? 0)
        left = left.filter((partition) => !led.includes(partition))
        if (left.length > 0) this.#sayLeaderless()
        this.#fetching.all()
        void this.#commit()
      } catch (error) {
        this.failed('positions could not be read', error)
      }
    }
  }

  #enter(partition: number, committed: Offset | undefined, first: number, end: number): void {
    const from = committed?.offset ?? first
    const mark = readMark(committed?.metadata ?? '', from)
    // The owner before was never further ahead of its position.
    const upTo = Math.min(end, from + mostAbove + this.mostMessages)
    const counted = inherited(mark, mark.owner === this.#owner, upTo)
    const part = newPartition(partition, from, Math.min(from, Math.max(first, from - readBefore)), end)
    part.suspectsUpTo = counted.upTo
    part.ends = new Map(counted.ends)
    this.parts.set(partition, part)
    if (from > end) this.#endLost(part, end)
    if (committed !== undefined) return
    // With the next commit, the group has a position here, so that the messages that follow are not handled again and again.
    part.committed = -1
    if (first === 0) return
    // A group without members loses its positions after a while, by default as long as the topic keeps messages.
    part.deleted = 0
    this.say.error(
      // What to do: **Messages may be lost**, with a `gap` event. The group is new, or the brokers forgot it (`offsets.retention.minutes`).
      'the group has no position in a partition that has deleted messages: they may not have been handled',
      { partition },
      `deleted ${partition}`,
    )
  }

  // What to do about `positions could not be read`, `messages could not be read`, `the leaders of partitions could not be found`, `a dead letter
  // could not be written`: A broker did not answer. The process tries again.
  protected failed(what: string, error: unknown): void {
    this.say.warn(what, { reason: outageError(error, this.#options.settings).message })
  }

  #pause(): Promise<void> {
    return pause(this.clock, pauseMs)
  }

  /** Not while too many messages wait here. */
  #mayRead(): boolean {
    if (this.isClosed || this.isStopped || this.#startable !== 'all' || this.parts.size === 0) return false
    const isHalf = this.byId.size > this.mostMessages / 2 || this.bytes > this.mostBytes / 2
    this.#isPaused = this.isFull || (this.#isPaused && isHalf)
    return !this.#isPaused
  }

  #sayLeaderless(): void {
    this.say.warn('the leaders of partitions could not be found', { reason: 'LEADER_NOT_AVAILABLE' })
  }

  async #take({ partition, offset, next, epoch, cutAt, records, error }: Fetched): Promise<void> {
    const part = this.parts.get(partition)
    // During the fetch, the partition went to another process, or its next offset changed.
    if (part === undefined || part.next !== offset || this.isStopped) return
    if (error === 'OFFSET_OUT_OF_RANGE') {
      await this.#reposition(part)
      return
    }
    if (error !== undefined) throw new Error(error)
    part.epoch = epoch
    if (cutAt !== undefined) {
      this.#endLost(part, cutAt)
      return
    }
    if (part.deleted !== undefined) {
      // All that was deleted is older than the first record that is left.
      this.#lost(part, part.deleted, records[0]?.timestampMs ?? this.clock.now())
      part.deleted = undefined
    }
    const page: Waiting[] = []
    for (const placed of records) {
      const waiting = this.#accept(part, placed)
      if (waiting !== undefined) page.push(waiting)
    }
    part.next = next
    part.end = Math.max(part.end, next)
    if (page.length > 0) this.#options.inbox.on({ type: 'waiting', messages: page })
  }

  #accept(part: Partition, { partition, offset, record }: PlacedRecord): Waiting | undefined {
    const incoming = fromRecord(record)
    if (incoming === undefined) {
      if (offset >= part.floor) this.#rejectForeign(part, offset, record.value)
      return undefined
    }
    const { message, replayed, replay } = incoming
    const { id, lane, kind } = message
    part.lastReceivedAt = message.receivedAt
    if (!replayed && this.#repeats.has(partition, id, offset)) return undefined
    if (offset < part.floor) return undefined
    // A replayed copy can come before its original is settled.
    if (this.byId.get(id) !== undefined) {
      this.#repeats.count += 1
      return undefined
    }
    const ends = part.ends.get(offset) ?? (offset < part.suspectsUpTo ? 1 : 0)
    const unsettled: Unsettled = { message, part, offset, replayed, replay, deliveries: ends }
    this.add(unsettled)
    return { id, lane, kind, crashes: ends, redelivered: offset < part.inherited }
  }

  /** A record that fleethook did not write must not block its partition: it becomes a dead letter that an operator can look at. */
  #rejectForeign(part: Partition, offset: number, value: Buffer | null): void {
    const now = this.clock.now()
    const text = value?.subarray(0, mostForeignBytes).toString() ?? ''
    const message: InboxMessage = {
      id: this.#ids.next(now),
      lane: '*unknown',
      receivedAt: now,
      door: 'root',
      kind: 'wire',
      text,
      bytes: text.length,
    }
    const placeholder: Unsettled = { message, part, offset, replayed: false, deliveries: 0 }
    this.add(placeholder)
    // What to do: Another program writes into the topic: `fleethook dead show`.
    this.#log.error('a record in the topic is not a message of fleethook, and becomes a dead letter', {
      topic: this.#options.settings.topic,
      partition: part.partition,
      offset,
      delivery: message.id,
    })
    const error = `The record at offset ${offset} of partition ${part.partition} is not a message of fleethook.`
    const keep = async (): Promise<void> => {
      while (!this.isClosed && this.byId.get(message.id) !== undefined) {
        try {
          await this.#bury(placeholder, { error, attempts: 0, diedAt: this.clock.now() })
        } catch (failure) {
          this.failed('a dead letter could not be written', failure)
          await this.#pause()
        }
      }
    }
    void keep()
  }

  /** The next offset is not in the log: retention deleted messages, or the brokers lost the end of the log. */
  async #reposition(part: Partition): Promise<void> {
    const { partition, next } = part
    const [first, last] = await Promise.all([this.#fetching.firstOf([partition]), this.#fetching.endsOf([partition])])
    const low = first.get(partition) ?? 0
    const high = last.get(partition) ?? 0
    if (this.parts.get(partition) !== part || part.next !== next) return
    // A broker also answers like this when it no longer knows the epoch.
    part.epoch = -1
    if (next >= low && next <= high) return
    part.end = high
    if (next > high) {
      this.#endLost(part, high)
      return
    }
    part.next = low
    const missed = low - Math.max(next, part.floor)
    // Messages below the floor were settled.
    if (missed <= 0) return
    part.deleted = missed + (part.deleted ?? 0)
    // What to do: **Messages are lost**, with a `gap` event. Raise `retention.ms`, and watch the lag.
    this.#log.error('the topic deleted messages before they were handled: its retention is shorter than the lag', {
      partition,
      missed,
    })
  }

  /** The log ends below a position of the group. What this process has read stays, and new messages get the offsets from here on. */
  #endLost(part: Partition, end: number): void {
    const position = Math.max(part.next, part.floor)
    for (const found of part.unsettled.values()) found.offset = Math.min(found.offset, end)
    part.next = Math.min(part.next, end)
    part.end = Math.max(part.next, end)
    part.floor = Math.min(part.floor, end)
    part.inherited = Math.min(part.inherited, end)
    part.highest = Math.min(part.highest, end)
    part.suspectsUpTo = Math.min(part.suspectsUpTo, end)
    for (const offset of part.ends.keys()) if (offset >= end) part.ends.delete(offset)
    // The next commit moves the group back. Else the next owner would skip messages.
    part.committed = -1
    // Nobody knows how many messages came after the position.
    this.#lost(part, 0, this.clock.now())
    // What to do: **Messages are lost**, with a `gap` event. All replicas lost power at once, or an unclean leader was elected.
    this.#log.error('the brokers lost the end of a partition, with messages that they had confirmed', {
      partition: part.partition,
      records: position - end,
    })
  }

  /** Reports a gap for messages that are gone from the topic. Their vehicles are unknown. */
  #lost(part: Partition, missed: number, toMs: number): void {
    // A message that was not read yet was there for no longer than the topic keeps it.
    const fromMs = Math.min(part.lastReceivedAt ?? toMs - (this.#options.retentionMs ?? toMs), toMs)
    const gap: InboxGap = { reason: 'inbox_expired', fromMs: Math.max(0, fromMs), toMs, missed }
    this.#options.inbox.on({ type: 'gap', gap })
  }

  /** One commit at a time: a later one must not arrive before an earlier one. All that wait for one share the next. */
  #commit(): Promise<void> {
    return this.#commits.ask()
  }

  async #commitNow(): Promise<void> {
    // Before a rebalance or a stop: the next owner must not count this process as crashed.
    const mayStart = this.#startable !== 'none' && !this.isStopped
    const positions = [...this.parts.values()].map((part) => {
      const offset = Math.max(lowOf(part), part.committed)
      const marked = new Set(mayStart ? [...part.hand].filter((one) => one.offset < part.suspectsUpTo) : [])
      const mark: Mark = {
        owner: mayStart ? this.#owner : undefined,
        upTo: part.suspectsUpTo,
        ends: part.ends,
        hand: [...marked].map((one) => one.offset),
      }
      return { part, marked, offset, before: part.committed, metadata: writeMark(mark, offset) }
    })
    const changed = positions.filter(
      // With a gap that is not noted yet, a new owner has to find the deleted messages again.
      ({ part, offset, before, metadata }) =>
        (offset > before || metadata !== part.metadata) && part.deleted === undefined,
    )
    if (changed.length === 0) return
    try {
      await this.#membership.commit(
        changed.map(({ part: { partition }, offset, metadata }) => ({ partition, offset, metadata })),
      )
      for (const { part, marked, offset, before, metadata } of changed) {
        // During the commit, the end of its log may have been lost.
        if (part.committed === before) part.committed = offset
        part.metadata = metadata
        part.isMarked = mayStart
        part.marked = marked
      }
      this.#failedCommits = 0
    } catch (error) {
      for (const { part, metadata } of changed) {
        if (part.metadata === metadata) continue
        part.metadata = undefined
        part.isMarked = false
      }
      // The next commit includes these positions. Without one, the next owner handles the messages again.
      const details = { error: [...codesOf(error)].join(' ') }
      if (++this.#failedCommits < mostFailedCommits) this.#log.debug('a commit failed', details)
      // What to do: Ten commits failed. If the process ends now, it handles messages again.
      else this.say.warn('positions could not be committed', details)
    }
  }

  /** The watchdog: updates the end of each partition, and opens the reader again when a partition with messages does not move. */
  async #look(): Promise<void> {
    this.#warnOfRetention()
    const found: { ends?: ReadonlyMap<number, number> } = {}
    const ask = async (): Promise<void> => {
      found.ends = await this.#fetching.endsOf(await this.#fetching.ledOf(this.#assignment.partitions, false))
    }
    // A client that never answers must not stop the watchdog.
    await resolvedOr(ask(), this.clock, lookMs)
    if (this.isClosed) return
    const { ends } = found
    this.#failedLooks = ends === undefined ? this.#failedLooks + 1 : 0
    let worst = 0
    for (const [partition, end] of ends ?? []) {
      const part = this.parts.get(partition)
      if (part === undefined) continue
      part.end = Math.max(part.next, end)
      const mayMove = end > part.next && !this.#isPaused && this.#startable === 'all' && !isFarAhead(part)
      part.stuck = mayMove && part.next === part.watched ? part.stuck + 1 : 0
      part.watched = part.next
      worst = Math.max(worst, part.stuck)
    }
    if (Math.max(worst, this.#failedLooks) < 2) return
    // What to do: If this repeats while the brokers run, report it with their log.
    this.#log.warn('partitions are not read: the reader is opened again', { looks: Math.max(worst, this.#failedLooks) })
    this.#failedLooks = 0
    this.#fetching.reopen()
    if (worst >= 4) {
      // Others get the partitions at once.
      await this.#quiesce()
      this.#membership.restart()
    }
    this.#fetching.afresh()
  }

  /** A message that waits for longer than the topic keeps it is lost. */
  #warnOfRetention(): void {
    const { retentionMs } = this.#options
    const oldestMs = this.oldestMs() ?? 0
    if (retentionMs === undefined) return
    const near = oldestMs >= 0.8 * retentionMs ? 'soon' : oldestMs >= 0.5 * retentionMs ? 'half' : 'no'
    if (near === this.#nearDeletion) return
    this.#nearDeletion = near
    const details = { oldestMs, retentionMs }
    if (near === 'half')
      // What to do: Fix the handler, or add handling processes.
      this.#log.warn('the oldest message has waited for half of the time that the topic keeps it', details)
    if (near === 'soon')
      // What to do: Raise `retention.ms` now. Then fix the handler, or add handling processes.
      this.#log.error('the topic deletes the oldest message soon, and it is not handled yet', details)
  }
}

/** Finds records that the log has twice. */
class Repeats {
  /** How many were dropped. */
  count = 0
  /** The highest record of each receiver that made ids, over assignments too: a later record that is not higher is in the log twice. */
  readonly #seen = new Map<number, Map<string, { readonly id: string; readonly offset: number }>>()

  /** Whether the log has this record earlier, too. */
  has(partition: number, id: string, offset: number): boolean {
    const maker = makerOf(id)
    let seen = this.#seen.get(partition)
    if (seen === undefined) {
      seen = new Map()
      this.#seen.set(partition, seen)
    }
    const last = seen.get(maker)
    if (last !== undefined && id <= last.id) {
      if (offset > last.offset) this.count += 1
      return offset > last.offset
    }
    if (last === undefined && seen.size >= mostMakers)
      for (const oldest of seen.keys()) {
        seen.delete(oldest)
        break
      }
    seen.set(maker, { id, offset })
    return false
  }
}

/** One call at a time: a later one must not arrive before an earlier one. All that wait for one share the next. */
class Turns {
  readonly #run: () => Promise<void>
  #running: Promise<void> = Promise.resolve()
  #next: Promise<void> | undefined

  constructor(run: () => Promise<void>) {
    this.#run = run
  }

  ask(): Promise<void> {
    return (this.#next ??= this.#running =
      this.#running.then(() => {
        this.#next = undefined
        return this.#run()
      }))
  }
}

function newPartition(partition: number, from: number, next: number, end: number): Partition {
  return {
    partition,
    next,
    epoch: -1,
    floor: from,
    committed: from,
    unsettled: new PassingMap(),
    hand: new Set(),
    suspectsUpTo: -1,
    ends: new Map(),
    metadata: undefined,
    isMarked: false,
    marked: new Set(),
    highest: -1,
    inherited: end,
    deleted: undefined,
    lastReceivedAt: undefined,
    end,
    watched: -1,
    stuck: 0,
  }
}

/** The position of a partition: the oldest offset that is not settled. */
function lowOf({ unsettled, next, floor }: Partition): number {
  for (const { offset } of unsettled.values()) return offset
  return Math.max(next, floor)
}

/** Whether the group knows that it may be in hand. Only then does it count when its handler ends the process. */
function isMarked(found: Unsettled): boolean {
  const { part, offset } = found
  return part.isMarked && (offset >= part.suspectsUpTo || part.marked.has(found))
}

/** Whether too many settled messages would be handled again after a crash. */
function isFarAhead(part: Partition): boolean {
  return part.next - lowOf(part) - part.unsettled.size > mostAbove
}
