import type { RequestScope } from '../../../src/hosting/execution-context.ts'
import { msOfSeq } from '../../../src/inbox/delivery-id.ts'
import type {
  Archive,
  Claim,
  Inbox,
  InboxGap,
  InboxMessage,
  InboxHost,
  Opened,
  Outcome,
} from '../../../src/inbox/inbox.ts'
import { bitsIn, BranchRows } from './place-rows.ts'
import { type ObjectOptions, Places } from './places.ts'
import { type KnownReader, type ReaderRows, vehiclesOf } from './readers.ts'
import type { ObjectStore } from './store.ts'
import type { ObjectVehicles } from './vehicles.ts'

interface ReaderParts {
  readonly name: string
  readonly store: ObjectStore
  readonly knownReaders: ReaderRows
  readonly settings: InboxHost
  readonly options: ObjectOptions
  /** Resolves to the newest id when the object is open, and knows the branch. */
  readonly opened: () => Promise<string | undefined>
  readonly put: (messages: readonly InboxMessage[], from: RequestScope | undefined) => void
}

/** Which messages of a put a branch gets, until the object has them or refuses them. */
export interface Followed {
  readonly bit: number
  readonly ids: ReadonlySet<string>
  readonly stored: (from: RequestScope) => void
  readonly refused: () => void
}

/** A message that only branches needed, and that had to make room. */
export interface Expended {
  readonly id: string
  readonly place: number
  readonly bytes: number
  /** The bits of the branches. */
  readonly readers: number
  readonly isOfWire: boolean
  /** The numbers of the branches that had it as a dead letter. */
  readonly deadIn: ReadonlySet<number>
}

/** A branch as a reader of the object: the same messages, with places of its own. */
export class ObjectReader implements Inbox {
  readonly durability = 'replicated'
  readonly shared = { handsOut: 'stored' } as const
  readonly time = 'elsewhere'
  readonly states: ObjectVehicles | undefined
  readonly archive: Archive
  readonly places: Places
  readonly #parts: ReaderParts
  readonly #rows: BranchRows
  #known: KnownReader | undefined
  #phase: 'new' | 'open' | 'closed' = 'new'
  #savedGaps = '[]'

  constructor(parts: ReaderParts) {
    const { name, store, settings, options } = parts
    this.#parts = parts
    this.#rows = new BranchRows(store.rows)
    this.places = new Places({ store, rows: this.#rows, table: vehiclesOf(name), settings, options })
    this.states = this.places.vehicles
    this.archive = this.places.archive
  }

  /** The object has it, so new messages get places. */
  get isKnown(): boolean {
    return this.#known !== undefined
  }

  /** Says in the row of a message that the branch needs it. */
  get bit(): number {
    return this.#rows.bit
  }

  /** The object is open, and has this of it, and messages up to this place. */
  known(known: KnownReader, newest: number): void {
    this.#rows.known(known.number)
    this.#known = known
    this.#savedGaps = JSON.stringify(known.gaps)
    this.places.opened(newest)
  }

  async open(): Promise<Opened> {
    const lastId = await this.#parts.opened()
    const gaps = this.#gaps()
    this.#phase = 'open'
    return { lastId, gaps, waiting: this.places.waiting() }
  }

  async put(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    this.#parts.put(messages, from)
  }

  claim(id: string): Promise<Claim | undefined> {
    return this.places.claim(id)
  }

  settle(id: string, outcome?: Outcome): Promise<void> {
    return this.places.settle(id, outcome)
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return { ...this.places.room.pending }
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#phase === 'closed') return 'inbox_unavailable'
    return this.places.room.fits(1, 1) ? undefined : 'inbox_full'
  }

  async close(): Promise<void> {
    this.saveGaps()
    this.#phase = 'closed'
  }

  /** The receiver puts these messages: says which get a place here. It never waits for this reader. */
  follow(messages: readonly InboxMessage[]): Followed {
    const { room } = this.places
    const placed: InboxMessage[] = []
    const skipped: InboxMessage[] = []
    for (const message of messages) {
      const hasRoom = room.fits(1, message.bytes)
      if (hasRoom) room.enter(1, message.bytes)
      ;(hasRoom ? placed : skipped).push(message)
    }
    return {
      bit: this.bit,
      ids: new Set(placed.map(({ id }) => id)),
      stored: (from) => {
        if (placed.length > 0) this.handOut(placed, from)
        if (skipped.length > 0) this.#skipped(skipped)
      },
      refused: () => {
        for (const { bytes } of placed) room.leave(1, bytes)
      },
    }
  }

  /** The object has these messages for this reader. */
  handOut(messages: readonly InboxMessage[], from: RequestScope): void {
    this.#parts.settings.on({ type: 'stored', messages, from })
  }

  /** The receiver needed the room of messages. */
  expended(gone: readonly Expended[]): void {
    const { settings } = this.#parts
    const number = this.#known?.number
    if (number === undefined) return
    const its = gone.filter(({ readers }) => bitsIn(readers).includes(this.bit))
    const letters = its.filter(({ deadIn }) => deadIn.has(number))
    const waited = its.filter(({ deadIn }) => !deadIn.has(number))
    const { room, handedOut } = this.places
    for (const { id, bytes } of waited) {
      room.leave(1, bytes)
      handedOut.delete(id)
    }
    for (const { place, bytes } of letters) room.expended([place], bytes)
    const places = waited.map(({ place }) => place)
    if (places.length > 0)
      settings.on({
        type: 'expired',
        ids: waited.map(({ id }) => id),
        missed: waited.filter(({ isOfWire }) => isOfWire).length,
        fromMs: msOfSeq(Math.min(...places)),
        toMs: msOfSeq(Math.max(...places)),
      })
    if (its.length > 0) this.saveGaps()
  }

  /**
   * Writes the gaps that no event reports yet, if they have changed: in the same task as the loss that they report, so that the object has both or
   * neither. Until this process has read them, they stay.
   */
  saveGaps(): void {
    const { settings, knownReaders } = this.#parts
    if (this.#phase !== 'open' || this.#known === undefined) return
    const text = JSON.stringify(settings.receiver?.openGaps?.() ?? [])
    if (text === this.#savedGaps) return
    knownReaders.note(this.#known.number, { gaps: text === '[]' ? null : text })
    this.#savedGaps = text
  }

  /** A gap event is stored, so the time without the branch, or without its states, is reported. */
  gapKept(): void {
    const known = this.#known
    if (known === undefined || (known.leftAt === undefined && known.staleFrom === undefined)) return
    this.#parts.knownReaders.note(known.number, { left_at: null, stale_from: null })
    this.#known = { ...known, leftAt: undefined, staleFrom: undefined }
  }

  #skipped(messages: readonly InboxMessage[]): void {
    this.#parts.settings.on({ type: 'skipped', messages })
    this.saveGaps()
  }

  /** What an earlier object could not report, and the time in which no receiver had the branch, or in which it kept no states. */
  #gaps(): readonly InboxGap[] {
    const { knownReaders } = this.#parts
    const known = this.#known
    if (known === undefined) return []
    const newest = this.places.states.newestPlace()
    if (this.states === undefined && known.staleFrom === undefined && newest !== undefined)
      knownReaders.note(known.number, { stale_from: msOfSeq(newest) })
    const times = [known.leftAt, this.states === undefined ? undefined : known.staleFrom]
    const since = times.filter((time) => time !== undefined)
    return since.length === 0 ? known.gaps : [...known.gaps, { reason: 'stopped', fromMs: Math.min(...since) }]
  }
}
