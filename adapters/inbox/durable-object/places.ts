import { seqOf } from '../../../src/inbox/delivery-id.ts'
import {
  type Archive,
  type Claim,
  done,
  type InboxHost,
  mostCrashes,
  type NextAttempt,
  type Outcome,
  type Waiting,
} from '../../../src/inbox/inbox.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import { claimOf, listedOf, messageOf, unwritable, waitingOf } from '../stored-row.ts'
import type { PlaceRows, Released } from './place-rows.ts'
import { type Keeping, Room } from './room.ts'
import { dead, listing, waiting } from './rows.ts'
import type { ObjectStore } from './store.ts'
import { ObjectVehicles } from './vehicles.ts'

/** What an object keeps, and what it does when a message waits. */
export interface ObjectOptions extends Pick<Keeping, 'maxBytes' | 'dead'> {
  /** Called in the same step as the write of a message. */
  readonly kept: () => void
}

interface PlacesParts {
  readonly store: ObjectStore
  readonly rows: PlaceRows
  /** The table of its states of vehicles. */
  readonly table: string
  readonly settings: InboxHost
  readonly options: ObjectOptions
}

const pageSize = 1_000

/** What one reader of an object still has to do. */
export class Places {
  readonly room: Room
  readonly vehicles: ObjectVehicles | undefined
  /** The states of vehicles, also when this receiver does not keep them. */
  readonly states: ObjectVehicles
  readonly archive: Archive
  /** The number of times each message was handed out. Most are not written, because rows are most of what a message costs. */
  readonly handedOut: Map<string, number> = new Map()
  /** All claims so far. */
  claims = 0
  readonly #parts: PlacesParts
  /** The object before this one may have ended with messages in hand. */
  readonly #crashSuspects = new CrashSuspects()

  constructor(parts: PlacesParts) {
    const { store, rows, table, settings, options } = parts
    const { pendingMessages = 50_000, pendingBytes = options.maxBytes } = settings.limits
    this.#parts = parts
    this.states = new ObjectVehicles(store.rows, table)
    this.vehicles = settings.states !== undefined ? this.states : undefined
    this.room = new Room(store, rows, { ...options, pendingMessages, pendingBytes }, (times) => this.#dropped(times))
    this.archive = {
      // Keeping a settled message would cost one more row.
      list: async (what, which) =>
        what === 'settled'
          ? []
          : listing(store.rows, rows.source, what, which).map((row) =>
              listedOf(row, row['state'] === dead ? 'dead' : 'waiting'),
            ),
      revive: async (id) => this.#revive(id),
      discard: async (id) => this.room.discard(seqOf(id)),
    }
  }

  /** The object has its tables, and messages up to this place. */
  opened(newest: number): void {
    this.#crashSuspects.upTo = newest
    this.room.count()
    if (this.room.pending.messages > 0) this.#parts.options.kept()
  }

  /** Messages that wait now. What is put while they are read is in none of the pages. */
  async *waiting(): AsyncGenerator<readonly Waiting[]> {
    const { store, rows } = this.#parts
    const upTo = Number(store.rows('SELECT max(place) AS place FROM fleethook_messages')[0]?.['place'] ?? -1)
    for (let after = -1; ;) {
      const page = rows.waiting(after, upTo, pageSize)
      if (page.length === 0) return
      after = Number(page.at(-1)?.['place'])
      yield page.map(waitingOf)
    }
  }

  async claim(id: string): Promise<Claim | undefined> {
    const { store, rows } = this.#parts
    const seq = seqOf(id)
    const row = rows.find(seq, waiting)
    if (row === undefined) return undefined
    const { message, replayed, ...claim } = claimOf(row)
    const known = { lane: message.lane, seq, replayed, deliveries: this.handedOut.get(id) ?? claim.deliveries }
    const deliveries = this.#crashSuspects.deliveriesOf(known)
    this.claims += 1
    this.handedOut.set(id, deliveries + 1)
    if (this.#crashSuspects.mustWrite(known)) {
      this.#writeOrGoOn(id, () => rows.change(seq, waiting, { deliveries: deliveries + 1 }))
      // A handler that ends the object in this task would undo what the task wrote.
      await store.storage.sync()
    }
    return { ...claim, message, replayed, deliveries }
  }

  async settle(id: string, outcome: Outcome = done): Promise<void> {
    const { store, rows } = this.#parts
    // That it ran alone and did not end the object must be written before others run, because they may end it.
    const wasAlone = (this.handedOut.get(id) ?? 0) >= mostCrashes
    if (outcome.as === 'later') this.#reschedule(id, outcome.next)
    else if (outcome.as === 'dead') {
      const bytes = this.#withState(outcome.vehicle, () => this.#bury(id, outcome.reason))
      if (bytes !== undefined) this.room.died(bytes)
    } else {
      // It is handled. When its row cannot go, the next object handles it again.
      const release = (): Released | undefined => rows.release(seqOf(id), waiting)
      const gone = this.#writeOrGoOn(id, () => this.#withState(outcome.vehicle, release))
      if (gone !== undefined) this.room.settled(gone)
    }
    this.handedOut.delete(id)
    if (wasAlone) await store.storage.sync()
  }

  /** Writes the state of a vehicle together with the change that led to it, or neither. A state that is refused holds no message: the older one stays. */
  #withState<Result>(vehicle: StoredVehicle | undefined, change: () => Result): Result {
    const { store, settings } = this.#parts
    const { vehicles } = this
    return vehicle === undefined || vehicles === undefined
      ? change()
      : store.withBoth(
          () => vehicles.keep(vehicle),
          change,
          (error) => settings.on({ type: 'failed', error }),
        )
  }

  /** Writes about one message, which goes on without it when the row is refused. */
  #writeOrGoOn<Result>(id: string, write: () => Result): Result | undefined {
    try {
      return write()
    } catch (error) {
      const refusal = this.#parts.store.refusalOf(id, error)
      if (refusal === error) throw error
      this.#parts.settings.on({ type: 'failed', error: refusal })
      return undefined
    }
  }

  #bury(
    id: string,
    { error, attempts, diedAt, changed }: Extract<Outcome, { as: 'dead' }>['reason'],
  ): number | undefined {
    const { rows, settings } = this.#parts
    try {
      return rows.change(seqOf(id), waiting, { state: dead, attempts, died_at: diedAt, error, changed })
    } catch (refused) {
      // Without what is refused: the message must not hold its vehicle forever.
      settings.on({ type: 'failed', error: refused })
      return rows.change(seqOf(id), waiting, { state: dead, attempts, died_at: diedAt, error: unwritable })
    }
  }

  /** The error of a message that waits is its last failure. */
  #reschedule(id: string, { attempts, notBefore, deliveries, failure }: NextAttempt): void {
    const { store, rows } = this.#parts
    try {
      rows.change(seqOf(id), waiting, {
        attempts,
        not_before: notBefore,
        deliveries: deliveries ?? this.handedOut.get(id),
        error: failure === undefined ? null : JSON.stringify(failure),
      })
    } catch (error) {
      throw store.refusalOf(id, error)
    }
  }

  #revive(id: string): Waiting | undefined {
    const { rows, options } = this.#parts
    const row = rows.find(seqOf(id), dead)
    if (row === undefined) return undefined
    this.room.revive(Number(row['bytes']))
    rows.change(seqOf(id), dead, {
      state: waiting,
      replayed: 1,
      deliveries: 0,
      attempts: 0,
      not_before: 0,
      error: null,
      died_at: null,
    })
    options.kept()
    return messageOf(row)
  }

  /** Dead letters that were received at these times are deleted. */
  #dropped(times: readonly number[]): void {
    const { settings } = this.#parts
    const [fromMs, toMs] = [Math.min(...times), Math.max(...times)]
    settings.on({ type: 'dropped', deadLetters: times.length })
    settings.on({ type: 'gap', gap: { reason: 'inbox_expired', fromMs, toMs, missed: times.length } })
    settings.log.warn('dead letters were deleted: their retention is over', { deadLetters: times.length })
  }
}
