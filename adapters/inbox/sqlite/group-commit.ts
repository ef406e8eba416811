import { FleethookError } from '../../../src/base/errors.ts'
import type { Histogram } from '../../../src/observe/stats.ts'
import type { VehicleRows } from './vehicles.ts'
import type {
  Committed,
  InboxFile,
  Move,
  PendingUpdate,
  StoredMessage,
  Transaction,
  VehicleWrites,
} from './file/interface.ts'

/** Collects changes and writes all of them with one sync. */
interface GroupCommit {
  /** Resolves when the messages are on the disk. Rejects when they are not, and then they never will be. */
  put(messages: readonly StoredMessage[]): Promise<void>
  /** Resolves to the size of the moved message when the move is on the disk. Rejects when it is not. */
  move(move: Move): Promise<number | undefined>
  /** Written with the next commit, within milliseconds. If that commit fails, a later one writes it. */
  update(update: PendingUpdate): void
  settle(seq: number): void
  /** Whether an update of the message, or its settling, is still to be written. */
  isChanging(seq: number): boolean
  /** Whether the settling of the message is still to be written. */
  isSettling(seq: number): boolean
  /** Resolves when all updates up to now are on the disk. After a failure, a later commit writes them. */
  flush(): Promise<void>
  /** Resolves when nothing is left to write. Rejects when a commit fails. */
  finish(): Promise<void>
  /** The file is usable again: writes what is left. */
  resume(): void
  /** Returns the settled messages that are still to be written, and forgets them. */
  takeSettled(): readonly number[]
  /** How long commits took, in milliseconds. */
  durations(): Histogram
}

interface GroupCommitOptions {
  readonly file: Pick<InboxFile, 'commit'>
  /** The time that deletes what is too old, as of the last look. */
  readonly believed: { readonly knownMs: number }
  readonly givesWay?: boolean | undefined
  readonly pendingBytes: () => number
  readonly onCommitted: (result: Committed) => void
  readonly onFailed: (error: unknown, puts: number) => void
  readonly health: { readonly isUsable: boolean }
  readonly vehicles?: Pick<VehicleRows, 'take' | 'written' | 'giveBack' | 'isDue' | 'finish'> | undefined
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
  readonly vehicles: VehicleWrites | undefined
}

export function createGroupCommit({
  file,
  believed,
  givesWay,
  pendingBytes,
  onCommitted,
  onFailed,
  health,
  vehicles,
}: GroupCommitOptions): GroupCommit {
  const puts: CommitGroup['puts'][number][] = []
  const moves: CommitGroup['moves'][number][] = []
  const flushes: Waiter<void>[] = []
  let updates = new Map<number, PendingUpdate>()
  let settled = new Set<number>()
  let retracted: readonly number[] = []
  let writing: CommitGroup | undefined
  let isScheduled = false
  let lazyTimer: ReturnType<typeof setTimeout> | undefined
  let commitMs = 0
  /** Callers whose messages are on the disk now are likely to put their next ones. */
  let expectedPuts = 0
  const durationCounts = Array.from({ length: bounds.length + 1 }, () => 0)
  let durationSum = 0

  function schedule(): void {
    if (isScheduled || writing !== undefined) return
    isScheduled = true
    clearTimeout(lazyTimer)
    lazyTimer = undefined
    if (puts.length === 0) setImmediate(write)
    else whenQuiet({ puts, expected: expectedPuts, ready: write, commitMs: Math.min(commitMs, longestWaitMs) })
  }

  /** Nobody waits for an update. It is written with other changes, or when there are many updates, or after `lazyMs`. */
  function scheduleLazily(): void {
    if (isScheduled || writing !== undefined || !health.isUsable) return
    if (settled.size + updates.size >= mostMessages) schedule()
    else lazyTimer ??= setTimeout(schedule, givesWay ? branchLazyMs : lazyMs)
  }

  /** Removes from the queues what the next commit writes. */
  function take(): CommitGroup {
    let messages = 0
    let bytes = 0
    let count = 0
    for (const put of puts) {
      if (count > 0 && (messages + put.messages.length > mostMessages || bytes >= mostBytes)) break
      count += 1
      messages += put.messages.length
      for (const message of put.messages) bytes += message.bytes
    }
    const group = {
      puts: puts.splice(0, count),
      // The states of vehicles include everything that is settled, so all of it has to be in the same commit.
      moves: moves.splice(0, vehicles === undefined ? mostMessages : moves.length),
      flushes: flushes.splice(0),
      updates,
      settled,
      vehicles: vehicles?.take(),
    }
    updates = new Map()
    settled = new Set()
    return group
  }

  async function write(): Promise<void> {
    isScheduled = false
    const group = take()
    writing = group
    const messages: StoredMessage[] = []
    // A spread of very many arguments would end the process.
    for (const put of group.puts) for (const message of put.messages) messages.push(message)
    const transaction: Transaction = {
      retracted,
      puts: messages,
      updates: [...group.updates.values()],
      settled: [...group.settled],
      moves: group.moves.map(({ move }) => move),
      vehicles: group.vehicles,
      nowMs: believed.knownMs,
      pendingBytes: pendingBytes(),
    }
    const startedAt = performance.now()
    let result: Committed
    try {
      result = await file.commit(transaction)
    } catch (error) {
      // The failed commit may have written these messages although their puts are refused.
      retracted = [...retracted, ...messages.map(({ seq }) => seq)]
      writeAgain(group)
      writing = undefined
      onFailed(error, messages.length)
      for (const waiter of [...group.puts, ...group.moves, ...group.flushes]) waiter.reject(error)
      for (const waiter of [...puts.splice(0), ...moves.splice(0), ...flushes.splice(0)]) waiter.reject(error)
      return
    }
    commitMs = performance.now() - startedAt
    expectedPuts = group.puts.length + puts.length
    let at = 0
    while (commitMs > (bounds[at] ?? Infinity)) at += 1
    durationCounts[at] = (durationCounts[at] ?? 0) + 1
    durationSum += commitMs
    writing = undefined
    retracted = []
    if (group.vehicles !== undefined) vehicles?.written(group.vehicles)
    const refused = new Map(result.refused?.map((one) => [`${one.row} ${one.key}`, one.reason]))
    for (const {
      messages: [first],
      resolve,
      reject,
    } of group.puts) {
      const reason = refused.get(`put ${first?.seq}`)
      if (reason === undefined) resolve()
      else reject(new FleethookError('message_refused', reason))
    }
    for (const [at, { resolve, reject }] of group.moves.entries()) {
      const reason = refused.get(`move ${at}`)
      if (reason === undefined) resolve(result.moved[at])
      else reject(new FleethookError('message_refused', reason))
    }
    for (const { resolve } of group.flushes) resolve()
    onCommitted(result)
    if (puts.length + moves.length + flushes.length > 0 || vehicles?.isDue === true) schedule()
    else if (updates.size + settled.size > 0) scheduleLazily()
  }

  function writeAgain(group: CommitGroup): void {
    if (group.vehicles !== undefined) vehicles?.giveBack(group.vehicles)
    for (const seq of group.settled) settled.add(seq)
    const newer = updates
    updates = new Map(group.updates)
    for (const update of newer.values()) addUpdate(update)
    for (const seq of settled) updates.delete(seq)
  }

  function addUpdate(update: PendingUpdate): void {
    const earlier = updates.get(update.seq)
    // An update that starts the count over replaces every earlier one.
    const replaces = earlier === undefined || update.deliveriesFrom !== undefined
    updates.set(
      update.seq,
      replaces ? update : { ...earlier, ...update, deliveries: earlier.deliveries + update.deliveries },
    )
    scheduleLazily()
  }

  const isIdle = (): boolean =>
    writing === undefined &&
    vehicles?.isDue !== true &&
    puts.length + moves.length + updates.size + settled.size + retracted.length === 0

  function flush(): Promise<void> {
    if (isIdle()) return Promise.resolve()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    flushes.push({ resolve, reject })
    schedule()
    return promise
  }

  return {
    put(messages) {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      puts.push({ messages, resolve, reject })
      schedule()
      return promise
    },
    move(move) {
      const { promise, resolve, reject } = Promise.withResolvers<number | undefined>()
      moves.push({ move, resolve, reject })
      schedule()
      return promise
    },
    update: addUpdate,
    settle(seq) {
      updates.delete(seq)
      settled.add(seq)
      scheduleLazily()
    },
    isChanging: (seq) =>
      updates.has(seq) || settled.has(seq) || writing?.updates.has(seq) === true || writing?.settled.has(seq) === true,
    isSettling: (seq) => settled.has(seq) || writing?.settled.has(seq) === true,
    flush,
    async finish() {
      vehicles?.finish()
      while (!isIdle()) await flush()
    },
    resume() {
      if (updates.size + settled.size + retracted.length > 0 || vehicles?.isDue === true) schedule()
    },
    takeSettled() {
      const taken = [...settled]
      settled = new Set()
      return taken
    },
    durations: () => ({ bounds, counts: [...durationCounts], sum: durationSum }),
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
