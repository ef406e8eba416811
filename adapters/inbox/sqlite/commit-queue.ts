import { FleethookError } from '../../../src/base/errors.ts'
import type { Move, PendingUpdate, ReaderChanges, VehicleWrites } from './file/interface.ts'
import type { StateRows } from './states.ts'

/** States of vehicles that are written with the changes. */
export type CarriedStates = Pick<StateRows, 'take' | 'written' | 'giveBack' | 'isDue' | 'finish'>

export interface Waiter<T> {
  resolve(value: T): void
  reject(error: unknown): void
}

/** When the next commit is due. */
export interface Schedule {
  /** Soon: somebody waits. */
  soon(): void
  /** With other changes, or within milliseconds. */
  lazily(): void
  /** Resolves when everything up to now is on the disk. */
  flush(): Promise<void>
}

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
  readonly #schedule: Schedule
  readonly #moves: Taken['moves'][number][] = []
  #updates = new Map<number, PendingUpdate>()
  #settled = new Set<number>()
  #writing: Taken | undefined

  constructor(reader: string, schedule: Schedule) {
    this.reader = reader
    this.#schedule = schedule
  }

  /** Resolves to the size of the moved message when the move is on the disk. Rejects when it is not. */
  move(move: Move): Promise<number | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<number | undefined>()
    this.#moves.push({ move, resolve, reject })
    this.#schedule.soon()
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
    this.#schedule.lazily()
  }

  settle(seq: number): void {
    this.#updates.delete(seq)
    this.#settled.add(seq)
    this.#schedule.lazily()
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
    return this.#schedule.flush()
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
