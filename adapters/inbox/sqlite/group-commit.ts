import { FleethookError } from '../../../src/base/errors.ts'
import type { Histogram } from '../../../src/observe/stats.ts'
import type { StateRows } from './states.ts'
import type { Committed, InboxFile, Move, PendingUpdate, StoredMessage, VehicleWrites } from './file/interface.ts'

/** What a group commit tells the inbox. */
export interface CommitListener {
  onCommitted(result: Committed): void
  /** `puts`: how many messages were to be written. */
  onFailed(error: unknown, puts: number): void
  /** Whether the file takes changes for which nobody waits. */
  readonly isUsable: boolean
}

/** States of vehicles that are written with the changes. */
export type CarriedStates = Pick<StateRows, 'take' | 'written' | 'giveBack' | 'isDue' | 'finish'>

interface GroupCommitParts {
  readonly file: Pick<InboxFile, 'commit'>
  /** The time that deletes what is too old, as of the last look. */
  readonly believed: { readonly knownMs: number }
  /** The bytes of all that waits. */
  readonly pending: { readonly fileBytes: number }
  /** The file is that of a branch. */
  readonly givesWay?: boolean | undefined
}

const mostMessages = 1_024
const mostBytes = 4 * 1_048_576
/** The bounds of the histogram of commit times, in milliseconds. */
const bounds = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000]
/** Updates and settled messages wait for other changes this long, and on a branch this long: the receiver waits for the same disk. */
const lazyMs = 5
const branchLazyMs = 50
/** The longest that a commit waits for more messages, even after a commit on a stalled disk. */
const longestWaitMs = 50

interface Waiter<T> {
  resolve(value: T): void
  reject(error: unknown): void
}

/** What one commit writes, and the callers that wait for it. */
interface CommitGroup {
  readonly puts: readonly (Waiter<void> & { readonly messages: readonly StoredMessage[] })[]
  readonly moves: readonly (Waiter<number | undefined> & { readonly move: Move })[]
  readonly flushes: readonly Waiter<void>[]
  readonly updates: ReadonlyMap<number, PendingUpdate>
  readonly settled: ReadonlySet<number>
  readonly states: VehicleWrites | undefined
}

/**
 * Collects changes and writes all of them with one sync.
 *
 * - Idle: nothing is to be written, or only updates that wait for `lazyMs` for other changes.
 * - Scheduled: a put, a move or a flush waits. It stays so while more puts arrive (`whenQuiet`).
 * - Writing: one group is in the file's hands, and the next one gathers. When it ends, the queue is scheduled again or idle.
 */
export class GroupCommit {
  /** Set once by the inbox, before the first change. */
  on: CommitListener = { onCommitted: () => {}, onFailed: () => {}, isUsable: true }
  /** Set once by an inbox that keeps states. */
  states: CarriedStates | undefined
  readonly #parts: GroupCommitParts
  readonly #puts: CommitGroup['puts'][number][] = []
  readonly #moves: CommitGroup['moves'][number][] = []
  readonly #flushes: Waiter<void>[] = []
  #updates = new Map<number, PendingUpdate>()
  #settled = new Set<number>()
  /** Messages that a failed commit may have written although their puts were refused. */
  #retracted: readonly number[] = []
  #writing: CommitGroup | undefined
  #isScheduled = false
  #lazyTimer: ReturnType<typeof setTimeout> | undefined
  readonly #pace = new Pace()

  constructor(parts: GroupCommitParts) {
    this.#parts = parts
  }

  /** Resolves when the messages are on the disk. Rejects when they are not, and then they never will be. */
  put(messages: readonly StoredMessage[]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#puts.push({ messages, resolve, reject })
    this.#schedule()
    return promise
  }

  /** Resolves to the size of the moved message when the move is on the disk. Rejects when it is not. */
  move(move: Move): Promise<number | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<number | undefined>()
    this.#moves.push({ move, resolve, reject })
    this.#schedule()
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
    this.#scheduleLazily()
  }

  settle(seq: number): void {
    this.#updates.delete(seq)
    this.#settled.add(seq)
    this.#scheduleLazily()
  }

  /** Whether an update of the message, or its settling, is still to be written. */
  isChanging(seq: number): boolean {
    return this.#updates.has(seq) || this.#writing?.updates.has(seq) === true || this.isSettling(seq)
  }

  /** Whether the settling of the message is still to be written. */
  isSettling(seq: number): boolean {
    return this.#settled.has(seq) || this.#writing?.settled.has(seq) === true
  }

  /** Resolves when all updates up to now are on the disk. After a failure, a later commit writes them. */
  flush(): Promise<void> {
    if (this.#isIdle) return Promise.resolve()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#flushes.push({ resolve, reject })
    this.#schedule()
    return promise
  }

  /** Resolves when nothing is left to write. Rejects when a commit fails. */
  async finish(): Promise<void> {
    this.states?.finish()
    while (!this.#isIdle) await this.flush()
  }

  /** The file is usable again: writes what is left. */
  resume(): void {
    const isLeft = this.#updates.size + this.#settled.size + this.#retracted.length > 0
    if (isLeft || this.states?.isDue === true) this.#schedule()
  }

  /** Returns the settled messages that are still to be written, and forgets them. */
  takeSettled(): readonly number[] {
    const taken = [...this.#settled]
    this.#settled = new Set()
    return taken
  }

  /** How long commits took, in milliseconds. */
  durations(): Histogram {
    return this.#pace.histogram()
  }

  get #isIdle(): boolean {
    const waiting = this.#puts.length + this.#moves.length + this.#updates.size + this.#settled.size
    return this.#writing === undefined && this.states?.isDue !== true && waiting + this.#retracted.length === 0
  }

  #schedule(): void {
    if (this.#isScheduled || this.#writing !== undefined) return
    this.#isScheduled = true
    clearTimeout(this.#lazyTimer)
    this.#lazyTimer = undefined
    const ready = (): Promise<void> => this.#write()
    if (this.#puts.length === 0) setImmediate(ready)
    else whenQuiet({ puts: this.#puts, expected: this.#pace.expectedPuts, ready, commitMs: this.#pace.waitMs })
  }

  /** Nobody waits for an update. It is written with other changes, or when there are many updates, or after `lazyMs`. */
  #scheduleLazily(): void {
    if (this.#isScheduled || this.#writing !== undefined || !this.on.isUsable) return
    if (this.#settled.size + this.#updates.size >= mostMessages) this.#schedule()
    else this.#lazyTimer ??= setTimeout(() => this.#schedule(), this.#parts.givesWay ? branchLazyMs : lazyMs)
  }

  /** Removes from the queues what the next commit writes. */
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
    const group: CommitGroup = {
      puts: this.#puts.splice(0, count),
      // The states of vehicles include everything that is settled, so all of it has to be in the same commit.
      moves: this.#moves.splice(0, this.states === undefined ? mostMessages : this.#moves.length),
      flushes: this.#flushes.splice(0),
      updates: this.#updates,
      settled: this.#settled,
      states: this.states?.take(),
    }
    this.#updates = new Map()
    this.#settled = new Set()
    return group
  }

  async #write(): Promise<void> {
    this.#isScheduled = false
    const group = this.#take()
    this.#writing = group
    const messages: StoredMessage[] = []
    // A spread of very many arguments would end the process.
    for (const put of group.puts) for (const message of put.messages) messages.push(message)
    const startedAt = performance.now()
    let result: Committed
    try {
      result = await this.#parts.file.commit({
        retracted: this.#retracted,
        puts: messages,
        updates: [...group.updates.values()],
        settled: [...group.settled],
        moves: group.moves.map(({ move }) => move),
        vehicles: group.states,
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
    if (group.states !== undefined) this.states?.written(group.states)
    answer(group, result)
    this.on.onCommitted(result)
    if (this.#puts.length + this.#moves.length + this.#flushes.length > 0 || this.states?.isDue === true)
      this.#schedule()
    else if (this.#updates.size + this.#settled.size > 0) this.#scheduleLazily()
  }

  /** Whoever waits is told, and what nobody waits for is written by a later commit. */
  #failed(group: CommitGroup, messages: readonly StoredMessage[], error: unknown): void {
    this.#retracted = [...this.#retracted, ...messages.map(({ seq }) => seq)]
    this.#writeAgain(group)
    this.#writing = undefined
    this.on.onFailed(error, messages.length)
    const later = [...this.#puts.splice(0), ...this.#moves.splice(0), ...this.#flushes.splice(0)]
    for (const waiter of [...group.puts, ...group.moves, ...group.flushes, ...later]) waiter.reject(error)
  }

  #writeAgain(group: CommitGroup): void {
    if (group.states !== undefined) this.states?.giveBack(group.states)
    for (const seq of group.settled) this.#settled.add(seq)
    const newer = this.#updates
    this.#updates = new Map(group.updates)
    for (const update of newer.values()) this.update(update)
    for (const seq of this.#settled) this.#updates.delete(seq)
  }
}

/** Tells the callers of a group what the file did. */
function answer({ puts, moves, flushes }: CommitGroup, result: Committed): void {
  const refused = new Map(result.refused?.map((one) => [`${one.row} ${one.key}`, one.reason]))
  for (const put of puts) {
    const reason = refused.get(`put ${put.messages[0]?.seq}`)
    if (reason === undefined) put.resolve()
    else put.reject(new FleethookError('message_refused', reason))
  }
  for (const [at, move] of moves.entries()) {
    const reason = refused.get(`move ${at}`)
    if (reason === undefined) move.resolve(result.moved[at])
    else move.reject(new FleethookError('message_refused', reason))
  }
  for (const { resolve } of flushes) resolve()
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
    // A long turn means that this process itself was busy. What arrived meanwhile is read in the next turn.
    const isQuiet = known >= expected ? quietTurns >= 1 : quietTurns >= 2 && now - grownAt >= commitMs * quietPart
    if (isQuiet || now - startedAt >= commitMs) ready()
    else setImmediate(look)
  })
}
