import type { Batch, Change, Committed, Move, Row, Store } from './store.ts'
import { whenQuiet } from './when-quiet.ts'

/** Gathers what is to be written, and writes all of it with one sync. */
export interface GroupCommit {
  /** Resolves when the rows are on the disk; rejects when they are not, and then they will never be. */
  put(rows: readonly Row[]): Promise<void>
  /** Resolves when it is on the disk, to the size of the message that was moved. Rejects when it is not. */
  move(move: Move): Promise<number | undefined>
  /** Written with what comes next, or soon. Stays to be written when that fails. */
  change(change: Change): void
  settle(place: number): void
  /** Whether something that became of the message is still to be written. */
  touches(place: number): boolean
  /** Whether it was settled, and that is still to be written. */
  isSettled(place: number): boolean
  /** Resolves when what is to be written now is on the disk. Rejects when the commit fails, and then it still is to be written. */
  flush(): Promise<void>
  /** Resolves when nothing is left to be written. Rejects when a commit fails. */
  finish(): Promise<void>
  /** There is sense in trying again. */
  resume(): void
  /** What was settled and is still to be written, which from now on it is not. */
  takeSettled(): readonly number[]
}

export interface GroupCommitOptions {
  readonly store: Pick<Store, 'commit'>
  readonly now: () => number
  readonly pendingBytes: () => number
  readonly committed: (result: Committed) => void
  /** A commit failed. */
  readonly failed: (error: unknown, puts: number) => void
  /** Whether there is sense in trying. */
  readonly isUsable: () => boolean
  /** The store works in a thread: while it commits, the event loop is free. */
  readonly inThread: boolean
}

/** What one transaction takes at most. A row that holds no text costs a tenth of one that does. */
const mostRows = 1_024
const mostBytes = 4 * 1_048_576
const mostNarrow = 4_096
/** How long what nobody waits for is gathered at most, when nothing else has to be written. */
const lazyMs = 5
/** How long a commit in a thread waits for what still comes at most: a disk that stalled once must not stall the next one too. */
const longestWaitMs = 50

interface Waiter<T> {
  resolve(value: T): void
  reject(error: unknown): void
}

interface Put extends Waiter<void> {
  readonly rows: readonly Row[]
}

interface Moving extends Waiter<number | undefined> {
  readonly move: Move
}

/** What one transaction writes, and who waits for it. */
interface Group {
  readonly puts: readonly Put[]
  readonly moves: readonly Moving[]
  readonly flushes: readonly Waiter<void>[]
  readonly changes: Map<number, Change>
  readonly settled: Set<number>
}

export function createGroupCommit(options: GroupCommitOptions): GroupCommit {
  const { store } = options
  const puts: Put[] = []
  const moves: Moving[] = []
  const flushes: Waiter<void>[] = []
  let changes = new Map<number, Change>()
  let settled = new Set<number>()
  let retracted: readonly number[] = []
  let writing: Group | undefined
  let scheduled = false
  let lazily: ReturnType<typeof setTimeout> | undefined
  let commitMs = 0

  function schedule(): void {
    if (scheduled || writing !== undefined) return
    scheduled = true
    clearTimeout(lazily)
    lazily = undefined
    // Behind a commit that blocks the loop everything has come when the loop goes on.
    if (options.inThread && puts.length > 0) whenQuiet(() => puts.length, Math.min(commitMs, longestWaitMs), write)
    else setImmediate(write)
  }

  /** It goes with what somebody waits for, or when enough has come together, or soon. */
  function scheduleLazily(): void {
    if (scheduled || writing !== undefined || !options.isUsable()) return
    if (settled.size + changes.size >= mostRows) schedule()
    else lazily ??= setTimeout(schedule, lazyMs)
  }

  function take(): Group {
    let rows = 0
    let bytes = 0
    let count = 0
    for (const put of puts) {
      if (count > 0 && (rows + put.rows.length > mostRows || bytes >= mostBytes)) break
      count += 1
      rows += put.rows.length
      for (const row of put.rows) bytes += row.bytes
    }
    const group: Group = {
      puts: puts.splice(0, count),
      moves: moves.splice(0, mostRows),
      changes: new Map(first(changes, mostNarrow)),
      settled: new Set(first(settled, mostNarrow)),
      flushes: changes.size + settled.size > mostNarrow ? [] : flushes.splice(0),
    }
    if (group.changes.size === changes.size) changes = new Map()
    else for (const place of group.changes.keys()) changes.delete(place)
    if (group.settled.size === settled.size) settled = new Set()
    else for (const place of group.settled) settled.delete(place)
    return group
  }

  async function write(): Promise<void> {
    scheduled = false
    const group = take()
    writing = group
    const rows = group.puts.length === 1 ? (group.puts[0]?.rows ?? []) : group.puts.flatMap((put) => put.rows)
    const batch: Batch = {
      retracted,
      puts: rows,
      changes: [...group.changes.values()],
      settled: [...group.settled],
      moves: group.moves.map(({ move }) => move),
      nowMs: options.now(),
      pendingBytes: options.pendingBytes(),
    }
    const startedAt = performance.now()
    let result: Committed
    try {
      result = await store.commit(batch)
    } catch (error) {
      writing = undefined
      // It may have been written before the sync failed, and it is refused.
      retracted = [...retracted, ...rows.map(({ place }) => place)]
      putBack(group)
      options.failed(error, rows.length)
      for (const waiter of [...group.puts, ...group.moves, ...group.flushes]) waiter.reject(error)
      for (const waiter of [...puts.splice(0), ...moves.splice(0), ...flushes.splice(0)]) waiter.reject(error)
      return
    }
    commitMs = performance.now() - startedAt
    writing = undefined
    retracted = []
    for (const { resolve } of group.puts) resolve()
    for (const [at, { resolve }] of group.moves.entries()) resolve(result.moved[at])
    for (const { resolve } of group.flushes) resolve()
    options.committed(result)
    if (puts.length + moves.length + flushes.length > 0) schedule()
    else if (changes.size + settled.size > 0) scheduleLazily()
  }

  function putBack(group: Group): void {
    for (const place of group.settled) settled.add(place)
    const newer = changes
    changes = new Map(group.changes)
    for (const change of newer.values()) note(change)
    for (const place of settled) changes.delete(place)
  }

  function note(change: Change): void {
    const earlier = changes.get(change.place)
    // One that begins its count anew stands for all before it.
    const isWhole = earlier === undefined || change.from !== undefined
    changes.set(
      change.place,
      isWhole ? change : { ...earlier, ...change, deliveries: earlier.deliveries + change.deliveries },
    )
  }

  const isIdle = (): boolean =>
    writing === undefined && puts.length + moves.length + changes.size + settled.size + retracted.length === 0

  function flush(): Promise<void> {
    if (isIdle()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      flushes.push({ resolve, reject })
      schedule()
    })
  }

  return {
    put(rows) {
      return new Promise((resolve, reject) => {
        puts.push({ rows, resolve, reject })
        schedule()
      })
    },
    move(move) {
      return new Promise((resolve, reject) => {
        moves.push({ move, resolve, reject })
        schedule()
      })
    },
    change(change) {
      note(change)
      scheduleLazily()
    },
    settle(place) {
      changes.delete(place)
      settled.add(place)
      scheduleLazily()
    },
    touches: (place) =>
      changes.has(place) ||
      settled.has(place) ||
      writing?.changes.has(place) === true ||
      writing?.settled.has(place) === true,
    isSettled: (place) => settled.has(place) || writing?.settled.has(place) === true,
    flush,
    async finish() {
      while (!isIdle()) await flush()
    },
    takeSettled() {
      const taken = [...settled]
      settled = new Set()
      return taken
    },
    resume() {
      if (changes.size + settled.size + retracted.length > 0) schedule()
    },
  }
}

function first<T>(all: Iterable<T> & { readonly size: number }, most: number): Iterable<T> {
  return all.size <= most ? all : [...all].slice(0, most)
}
