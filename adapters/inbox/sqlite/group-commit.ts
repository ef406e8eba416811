import { FleethookError } from '../../../src/base/errors.ts'
import type { Histogram } from '../../../src/observe/stats.ts'
import type {
  Committed,
  InboxFile,
  Move,
  PendingUpdate,
  ReaderChanges,
  Refused,
  StoredMessage,
  VehicleWrites,
} from './file/interface.ts'
import { receiver } from './file/readers.ts'
import type { Health } from './health.ts'
import type { StateRows } from './states.ts'

interface GroupCommitParts {
  readonly file: Pick<InboxFile, 'commit'>
  readonly health: Pick<Health, 'isUsable' | 'failed'>
  /** The time that deletes what is too old, as of the last look. */
  readonly believed: { readonly knownMs: number }
  /** The bytes of all that waits. */
  readonly pending: { readonly fileBytes: number }
}

const mostMessages = 1_024
const mostBytes = 4 * 1_048_576
/** The bounds of the histogram of commit times, in milliseconds. */
const bounds = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000]
/** Updates and settled messages wait for other changes this long. */
const lazyMs = 5
/** The longest that a commit waits for more messages, even after a commit on a stalled disk. */
const longestWaitMs = 50

interface Waiter<T> {
  resolve(value: T): void
  reject(error: unknown): void
}

/** What one commit writes for callers that wait, beside what the readers change. */
interface CommitGroup {
  readonly puts: readonly Put[]
  readonly flushes: readonly Waiter<void>[]
}

interface Put extends Waiter<void> {
  readonly messages: readonly StoredMessage[]
  readonly stored: () => void
}

/**
 * Collects changes and writes all of them with one sync.
 *
 * - Idle: nothing is to be written, or only updates that wait for `lazyMs` for other changes.
 * - Scheduled: a put, a move or a flush waits. It stays so while more puts arrive (`whenQuiet`).
 * - Writing: one group is in the file's hands, and the next one gathers. When it ends, the queue is scheduled again or idle.
 */
export class GroupCommit {
  /** Set once by the inbox, before the first change. `settled`: what this commit has settled of each reader. */
  onCommitted: (result: Committed, settled: ReadonlyMap<string, ReadonlySet<number>>) => void = () => {}
  /** What the receiver changes. */
  readonly own: CommitQueue
  readonly #queues: CommitQueue[] = []
  readonly #parts: GroupCommitParts
  readonly #puts: Put[] = []
  readonly #flushes: Waiter<void>[] = []
  /** Messages that a failed commit may have written although their puts were refused. */
  #retracted: readonly number[] = []
  #writing: CommitGroup | undefined
  #isScheduled = false
  #lazyTimer: ReturnType<typeof setTimeout> | undefined
  readonly #pace = new Pace()

  constructor(parts: GroupCommitParts) {
    this.#parts = parts
    this.own = this.queueOf(receiver)
  }

  /** What another reader changes. Its changes are written with the receiver's. */
  queueOf(reader: string): CommitQueue {
    const queue = new CommitQueue(reader, this)
    this.#queues.push(queue)
    return queue
  }

  /** Resolves when the messages are on the disk. Rejects when they are not, and then they never will be. `stored`: called in the order of commits. */
  put(messages: readonly StoredMessage[], stored: () => void = () => {}): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#puts.push({ messages, stored, resolve, reject })
    this.soon()
    return promise
  }

  /** Resolves when all changes up to now are on the disk. After a failure, a later commit writes them. */
  flush(): Promise<void> {
    if (this.#isIdle) return Promise.resolve()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#flushes.push({ resolve, reject })
    this.soon()
    return promise
  }

  /** Somebody waits for the next commit. */
  soon(): void {
    if (this.#isScheduled || this.#writing !== undefined) return
    this.#isScheduled = true
    clearTimeout(this.#lazyTimer)
    this.#lazyTimer = undefined
    const ready = (): Promise<void> => this.#write()
    if (this.#puts.length === 0) setImmediate(ready)
    else whenQuiet({ puts: this.#puts, expected: this.#pace.expectedPuts, ready, commitMs: this.#pace.waitMs })
  }

  /** Nobody waits for an update. It is written with other changes, or when there are many updates, or after `lazyMs`. */
  lazily(): void {
    if (this.#isScheduled || this.#writing !== undefined || !this.#parts.health.isUsable) return
    if (this.#lazy >= mostMessages) this.soon()
    else this.#lazyTimer ??= setTimeout(() => this.soon(), lazyMs)
  }

  /** Resolves when nothing is left to write. Rejects when a commit fails. */
  async finish(): Promise<void> {
    for (const { states } of this.#queues) states?.finish()
    while (!this.#isIdle) await this.flush()
  }

  /** The file is usable again: writes what is left. */
  resume(): void {
    if (this.#lazy + this.#retracted.length > 0 || this.#isDue) this.soon()
  }

  /** How long commits took, in milliseconds. */
  durations(): Histogram {
    return this.#pace.histogram()
  }

  get #isIdle(): boolean {
    const waiting = this.#puts.length + this.#lazy + this.#retracted.length
    return this.#writing === undefined && waiting === 0 && !this.#isDue
  }

  /** The changes for which nobody waits. */
  get #lazy(): number {
    let changes = 0
    for (const { lazy } of this.#queues) changes += lazy
    return changes
  }

  get #isDue(): boolean {
    return this.#queues.some(({ isDue }) => isDue)
  }

  /** Removes from the queue what the next commit writes. */
  #take(): CommitGroup {
    let messages = 0
    let bytes = 0
    let count = 0
    for (const put of this.#puts) {
      if (count > 0 && (messages + put.messages.length > mostMessages || bytes >= mostBytes)) break
      count += 1
      messages += put.messages.length
      for (const message of put.messages) bytes += message.bytes
    }
    return { puts: this.#puts.splice(0, count), flushes: this.#flushes.splice(0) }
  }

  async #write(): Promise<void> {
    this.#isScheduled = false
    const group = this.#take()
    this.#writing = group
    const messages: StoredMessage[] = []
    // A spread of very many arguments would end the process.
    for (const put of group.puts) for (const message of put.messages) messages.push(message)
    const [own, ...readers] = this.#queues.map((queue) => queue.take())
    const startedAt = performance.now()
    let result: Committed
    try {
      result = await this.#parts.file.commit({
        retracted: this.#retracted,
        puts: messages,
        updates: own?.updates ?? [],
        settled: own?.settled ?? [],
        moves: own?.moves ?? [],
        vehicles: own?.vehicles,
        readers: readers.filter((changes) => changes !== undefined),
        nowMs: this.#parts.believed.knownMs,
        pendingBytes: this.#parts.pending.fileBytes,
      })
    } catch (error) {
      this.#failed(group, messages, error)
      return
    }
    this.#pace.note(performance.now() - startedAt, group.puts.length + this.#puts.length)
    this.#writing = undefined
    this.#retracted = []
    this.#written(group, result)
    if (this.#puts.length + this.#flushes.length > 0 || this.#isDue) this.soon()
    else if (this.#lazy > 0) this.lazily()
  }

  /** Tells the callers what the file did. */
  #written({ puts, flushes }: CommitGroup, result: Committed): void {
    const { refused, readers } = result
    const reasons = new Map(refused?.map((one) => [keyOf(one), one.reason]))
    const settled = new Map<string, ReadonlySet<number>>()
    for (const queue of this.#queues) {
      const { reader } = queue
      const { moved = [] } = queue === this.own ? result : (readers?.find((one) => one.reader === reader) ?? {})
      const done = queue.written(moved, (key) => reasons.get(keyOf({ reader, row: 'move', key })))
      if (done !== undefined) settled.set(reader, done)
    }
    for (const put of puts) {
      const reason = reasons.get(keyOf({ reader: receiver, row: 'put', key: put.messages[0]?.seq ?? 0 }))
      if (reason !== undefined) put.reject(new FleethookError('message_refused', reason))
      else {
        put.resolve()
        put.stored()
      }
    }
    for (const { resolve } of flushes) resolve()
    this.onCommitted(result, settled)
  }

  /** Rejects the calls that wait. A later commit writes the changes for which nobody waits. */
  #failed(group: CommitGroup, messages: readonly StoredMessage[], error: unknown): void {
    this.#retracted = [...this.#retracted, ...messages.map(({ seq }) => seq)]
    for (const queue of this.#queues) queue.writeAgain()
    this.#writing = undefined
    this.#parts.health.failed(error, messages.length)
    for (const waiter of [...group.puts, ...group.flushes, ...this.#puts.splice(0), ...this.#flushes.splice(0)])
      waiter.reject(error)
    for (const queue of this.#queues) queue.reject(error)
  }
}

const keyOf = ({ reader, row, key }: Pick<Refused, 'reader' | 'row' | 'key'>): string => `${row} ${key} ${reader}`

/** States of vehicles that are written with the changes. */
export type CarriedStates = Pick<StateRows, 'take' | 'written' | 'giveBack' | 'isDue' | 'finish'>

/** What one commit writes of a reader, and the callers that wait for it. */
interface Taken {
  readonly moves: readonly (Waiter<number | undefined> & { readonly move: Move })[]
  readonly updates: ReadonlyMap<number, PendingUpdate>
  readonly settled: ReadonlySet<number>
  readonly states: VehicleWrites | undefined
}

/** The most moves of one commit. */
const mostMoves = 1_024

/** What one reader of the file changes, until a commit writes it. */
export class CommitQueue {
  readonly reader: string
  /** Set once by a reader that keeps states. */
  states: CarriedStates | undefined
  readonly #commits: GroupCommit
  readonly #moves: Taken['moves'][number][] = []
  #updates = new Map<number, PendingUpdate>()
  #settled = new Set<number>()
  #writing: Taken | undefined

  constructor(reader: string, commits: GroupCommit) {
    this.reader = reader
    this.#commits = commits
  }

  /** Resolves to the size of the moved message when the move is on the disk. Rejects when it is not. */
  move(move: Move): Promise<number | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<number | undefined>()
    this.#moves.push({ move, resolve, reject })
    this.#commits.soon()
    return promise
  }

  /** Written with the next commit, within milliseconds. If that commit fails, a later one writes it. */
  update(update: PendingUpdate): void {
    const earlier = this.#updates.get(update.seq)
    // An update that starts the count over replaces every earlier one.
    const replaces = earlier === undefined || update.deliveriesFrom !== undefined
    this.#updates.set(
      update.seq,
      replaces ? update : { ...earlier, ...update, deliveries: earlier.deliveries + update.deliveries },
    )
    this.#commits.lazily()
  }

  settle(seq: number): void {
    this.#updates.delete(seq)
    this.#settled.add(seq)
    this.#commits.lazily()
  }

  /** Whether an update of the message, or its settling, is still to be written. */
  isChanging(seq: number): boolean {
    return this.#updates.has(seq) || this.#writing?.updates.has(seq) === true || this.isSettling(seq)
  }

  /** Whether the settling of the message is still to be written. */
  isSettling(seq: number): boolean {
    return this.#settled.has(seq) || this.#writing?.settled.has(seq) === true
  }

  /** Resolves when all changes up to now are on the disk. After a failure, a later commit writes them. */
  flush(): Promise<void> {
    return this.#commits.flush()
  }

  /** Returns the settled messages that are still to be written, and forgets them. */
  takeSettled(): readonly number[] {
    const taken = [...this.#settled]
    this.#settled = new Set()
    return taken
  }

  /** The changes for which nobody waits. */
  get lazy(): number {
    return this.#updates.size + this.#settled.size
  }

  /** Somebody waits, or a state has to be written. */
  get isDue(): boolean {
    return this.#moves.length > 0 || this.states?.isDue === true
  }

  /** Removes from the queue what the next commit writes. `undefined`: nothing. */
  take(): ReaderChanges | undefined {
    const taken: Taken = {
      // The states of vehicles include everything that is settled, so all of it has to be in the same commit.
      moves: this.#moves.splice(0, this.states === undefined ? mostMoves : this.#moves.length),
      updates: this.#updates,
      settled: this.#settled,
      states: this.states?.take(),
    }
    const { moves, updates, settled, states } = taken
    if (moves.length + updates.size + settled.size === 0 && states === undefined) return undefined
    this.#writing = taken
    this.#updates = new Map()
    this.#settled = new Set()
    return {
      reader: this.reader,
      updates: [...updates.values()],
      settled: [...settled],
      moves: moves.map(({ move }) => move),
      vehicles: states,
    }
  }

  /** The commit has written what was taken. `refused`: why one of its moves is not. Tells the callers. Returns what was settled. */
  written(
    moved: readonly (number | undefined)[],
    refused: (at: number) => string | undefined,
  ): ReadonlySet<number> | undefined {
    const taken = this.#writing
    this.#writing = undefined
    if (taken?.states !== undefined) this.states?.written(taken.states)
    for (const [at, { resolve, reject }] of (taken?.moves ?? []).entries()) {
      const reason = refused(at)
      if (reason === undefined) resolve(moved[at])
      else reject(new FleethookError('message_refused', reason))
    }
    return taken?.settled
  }

  /** The commit failed: what nobody waits for is written by a later one. */
  writeAgain(): void {
    const taken = this.#writing
    if (taken === undefined) return
    if (taken.states !== undefined) this.states?.giveBack(taken.states)
    for (const seq of taken.settled) this.#settled.add(seq)
    const newer = this.#updates
    this.#updates = new Map(taken.updates)
    for (const update of newer.values()) this.update(update)
    for (const seq of this.#settled) this.#updates.delete(seq)
  }

  /** The commit failed: tells the callers, also the callers of later moves. */
  reject(error: unknown): void {
    const taken = this.#writing
    this.#writing = undefined
    for (const waiter of [...(taken?.moves ?? []), ...this.#moves.splice(0)]) waiter.reject(error)
  }
}

/** How fast commits are, and what follows for the next one. */
class Pace {
  /** Callers whose messages are on the disk now are likely to put their next ones. */
  expectedPuts = 0
  #lastMs = 0
  #sumMs = 0
  readonly #counts = Array.from({ length: bounds.length + 1 }, () => 0)

  /** The longest that the next commit waits for more puts. */
  get waitMs(): number {
    return Math.min(this.#lastMs, longestWaitMs)
  }

  note(commitMs: number, puts: number): void {
    this.expectedPuts = puts
    this.#lastMs = commitMs
    this.#sumMs += commitMs
    let at = 0
    while (commitMs > (bounds[at] ?? Infinity)) at += 1
    this.#counts[at] = (this.#counts[at] ?? 0) + 1
  }

  histogram(): Histogram {
    return { bounds, counts: [...this.#counts], sum: this.#sumMs }
  }
}

/** A wait ends when no message has arrived for this part of a commit's duration. */
const quietPart = 0.05

interface Wait {
  /** The puts that wait for a commit. */
  readonly puts: { readonly length: number }
  /** From this number of puts on, one turn of the event loop without a new put ends the wait. */
  readonly expected: number
  /** The longest wait. */
  readonly commitMs: number
  readonly ready: () => unknown
}

/**
 * Calls `ready` when the expected puts are here, or when none has arrived for 5% of `commitMs`, and after `commitMs` at the latest.
 * Messages of many connections arrive one after another, and a message that misses a commit waits for two.
 */
function whenQuiet({ puts, expected, commitMs, ready }: Wait): void {
  const startedAt = performance.now()
  let grownAt = startedAt
  let known = puts.length
  let quietTurns = 0
  setImmediate(function look() {
    const now = performance.now()
    if (puts.length > known) {
      known = puts.length
      grownAt = now
      quietTurns = 0
    } else quietTurns += 1
    // A long turn means that this process itself was busy. What arrived in that time is read in the next turn.
    const isQuiet = known >= expected ? quietTurns >= 1 : quietTurns >= 2 && now - grownAt >= commitMs * quietPart
    if (isQuiet || now - startedAt >= commitMs) ready()
    else setImmediate(look)
  })
}
