import { pause } from '../../../src/base/clock.ts'
import { nothing } from '../../../src/base/pages.ts'
import type { Durability } from '../../../src/hosting/drainable.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type {
  Claim,
  HandledSubjects,
  Inbox,
  InboxMessage,
  InboxHost,
  KeptGap,
  Opened,
  Outcome,
  Settled,
} from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import { ForwardingInbox } from '../forwarding.ts'
import { type AddedBranch, noteReported } from './branches.ts'
import { type Database, databaseError } from './client.ts'
import type { Partitions } from './partitions.ts'
import type { Places } from './places.ts'
import type { Reader } from './reader.ts'
import type { Room } from './room.ts'
import type { Tables } from './tables.ts'
import type { Follower, Writer } from './writer.ts'

interface BranchParts {
  readonly name: string
  readonly db: Database
  readonly settings: InboxHost
  readonly places: Places
  readonly room: Room
  /** Of its own messages: they are for this branch only. */
  readonly writer: Writer
  /** `undefined`: this process only receives. */
  readonly partitions: Partitions | undefined
  readonly takesNone: Refusal | undefined
  /** What operators ask, once the inbox is connected. */
  readonly operator: Asked
  /** Connects the inbox, and gives the branch its places. Resolves to `undefined` when that is not possible yet. */
  readonly add: () => Promise<AddedBranch | undefined>
}

/** How often a branch asks whether it can have its places now, in milliseconds. */
const againMs = 1_000

/** A branch as a reader of the receiver's tables: the same messages, with places of its own. */
export class PostgresBranch extends ForwardingInbox implements Follower {
  readonly durability: Durability = 'database'
  override readonly shared: NonNullable<Inbox['shared']>
  readonly states: VehicleStore | undefined
  readonly archive: Asked
  readonly name: string
  readonly tables: Tables
  readonly #parts: BranchParts
  /** Since when new messages were not for it, until an event says so. */
  #lacksFromMs: number | undefined
  #begun: Promise<void> | undefined
  readonly #closing = new AbortController()
  #closed: Promise<void> | undefined

  constructor(parts: BranchParts) {
    super(parts.settings)
    const { name, places, partitions, takesNone, operator } = parts
    this.#parts = parts
    this.name = name
    this.tables = places.tables
    this.shared = {
      handsOut: partitions === undefined ? 'elsewhere' : 'shared',
      takesNone,
      keepsOrder: places.vehicles !== undefined,
      isStillHeld: async (id) => (await this.#reader?.isStillHeld(id)) === true,
      finish: (withinMs, breakOff) => this.#reader?.finish(withinMs, breakOff) ?? breakOff(),
    }
    this.states = places.vehicles
    this.archive = operator
  }

  /** What this branch has in hand here. */
  get places(): Places {
    return this.#parts.places
  }

  /** The gaps that no event reports yet. */
  get openGaps(): readonly KeptGap[] {
    return this.#parts.settings.receiver?.openGaps?.() ?? []
  }

  handlers(): readonly HandledSubjects[] {
    return this.#parts.settings.receiver?.handlers?.() ?? []
  }

  /** A process that has ended left a gap of this branch. */
  adopt(gap: KeptGap): void {
    this.#parts.settings.on({ type: 'gap', gap })
  }

  override async open(): Promise<Opened> {
    const added = await this.#parts.add()
    if (added === undefined) void this.#beginLater()
    else await this.#begin(added)
    const since = this.#lacksFromMs
    return { waiting: nothing(), gaps: since === undefined ? [] : [{ reason: 'stopped', fromMs: since }] }
  }

  protected async forward(messages: readonly InboxMessage[]): Promise<void> {
    const { writer, db } = this.#parts
    await writer.put(messages)
    if (this.#lacksFromMs === undefined || !messages.some(({ kind }) => kind === 'gap')) return
    this.#lacksFromMs = undefined
    // Otherwise the next start reports it once more.
    await noteReported(db, this.name).catch(() => {})
  }

  override claim(id: string): Promise<Claim | undefined> | undefined {
    return this.#reader?.claim(id)
  }

  override settle(id: string, outcome?: Outcome): Settled | Promise<Settled> {
    return this.#reader?.settle(id, outcome)
  }

  override usage(): { readonly messages: number; readonly bytes: number } {
    return this.#reader?.usage() ?? super.usage()
  }

  stats(): ReturnType<NonNullable<Inbox['stats']>> {
    const { backlog, failing } = this.#parts.places.watch
    return { oldestWaitingMs: this.#reader?.oldestMs(), backlog, failing }
  }

  override close(): Promise<void> {
    return (this.#closed ??= this.#close())
  }

  /** Resolves when it needs the inbox of its receiver no more. */
  get whenClosed(): Promise<void> | undefined {
    return this.#begun === undefined ? undefined : this.#whenClosed
  }

  full(messages: readonly InboxMessage[]): readonly number[] {
    return this.#parts.room.full(messages)
  }

  stored(messages: readonly InboxMessage[], full: readonly number[]): void {
    const { room, settings } = this.#parts
    const shared = messages.map((message, at) => ({ message, hasPlace: !full.includes(at) }))
    room.placed(shared.flatMap(({ message, hasPlace }) => (hasPlace && message.kind !== 'timer' ? [message] : [])))
    const skipped = shared.flatMap(({ message, hasPlace }) => (hasPlace ? [] : [message]))
    if (skipped.length > 0) settings.on({ type: 'skipped', messages: skipped })
    this.#reader?.lookNow()
  }

  readonly #whenClosed = new Promise<void>((resolve) => {
    this.#closing.signal.addEventListener('abort', () => resolve())
  })

  get #reader(): Reader | undefined {
    return this.#parts.places.reader
  }

  /** Its places are there. */
  #begin({ number, lacksFromMs }: AddedBranch): Promise<void> {
    return (this.#begun ??= this.#read(number, lacksFromMs).catch((error: unknown) => {
      this.#begun = undefined
      throw error
    }))
  }

  async #read(number: number, lacksFromMs: number | undefined): Promise<void> {
    const { places, room, partitions } = this.#parts
    this.tables.number = number
    this.#lacksFromMs = lacksFromMs
    await room.count()
    void places.watch.start()
    if (partitions !== undefined) await (places.reader ?? places.read(partitions, room)).open()
  }

  async #beginLater(): Promise<void> {
    const { add, settings } = this.#parts
    const { signal } = this.#closing
    // What to do: Normal in a deploy: it begins when the last of them has stopped.
    settings.log.warn('the branch waits: processes of the version before would give it no messages')
    while (!signal.aborted)
      try {
        await pause(this.clock, againMs, signal)
        const added = await add()
        if (added === undefined) continue
        await this.#begin(added)
        const since = this.#lacksFromMs
        if (since !== undefined) settings.on({ type: 'gap', gap: { reason: 'stopped', fromMs: since } })
        return
      } catch (error) {
        // What to do: The inbox tries again.
        if (!signal.aborted) settings.log.warn('the branch cannot begin yet', { reason: databaseError(error).message })
      }
  }

  async #close(): Promise<void> {
    const { places, writer } = this.#parts
    await this.#reader?.close()
    places.watch.stop()
    await writer.close()
    this.#closing.abort()
  }
}
