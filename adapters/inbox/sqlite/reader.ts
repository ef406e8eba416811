import { setImmediate } from 'node:timers/promises'
import type { RequestScope } from '../../../src/hosting/execution-context.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type {
  Archive,
  Claim,
  Inbox,
  InboxMessage,
  InboxHost,
  Opened,
  Outcome,
  Waiting,
} from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { Window } from '../../../src/inbox/window.ts'
import type { InboxStats } from '../../../src/observe/stats.ts'
import type { InboxFile, OpenedFile, OpenedReader, ReaderSign } from './file/interface.ts'
import type { GroupCommit } from './group-commit.ts'
import { closedError, type Health } from './health.ts'
import type { SqliteSettings } from './options.ts'
import { Pending } from './pending.ts'
import { Places } from './places.ts'

interface ReaderParts {
  readonly name: string
  readonly file: InboxFile
  readonly settings: InboxHost
  readonly options: SqliteSettings
  readonly commits: GroupCommit
  readonly health: Health
  /** Resolves when the receiver has opened the file. */
  readonly opened: Promise<OpenedFile>
  readonly newestSeq: () => number
  readonly put: (messages: readonly InboxMessage[], from: RequestScope | undefined) => Promise<void>
}

/** Which messages of a put a reader gets, until the file has them or refuses them. */
interface Followed {
  readonly name: string
  readonly ids: ReadonlySet<string>
  readonly stored: (from: RequestScope) => void
  readonly refused: () => void
}

/** A branch as a reader of the receiver's file: the same messages, with places of its own. */
export class SqliteReader implements Inbox {
  readonly durability = 'disk'
  readonly shared = { handsOut: 'stored' } as const
  readonly time = 'kept'
  readonly states: VehicleStore | undefined
  readonly archive: Archive
  readonly places: Places
  /** The file has it, so new messages get places. */
  isKnown = false
  readonly #parts: ReaderParts
  #found: OpenedReader | undefined
  #phase: 'new' | 'open' | 'closed' = 'new'
  /** It was opened, so it knows the gaps that the file had of it. */
  #hasGaps = false
  readonly #closed = Promise.withResolvers<void>()

  constructor(parts: ReaderParts) {
    const { name, file, settings, options, commits, health } = parts
    this.#parts = parts
    const queue = commits.queueOf(name)
    const pending = new Pending(settings.limits, options.maxBytes)
    this.places = new Places({ file, settings, options, commits: queue, health, pending })
    this.states = this.places.states
    this.archive = this.places.archive
  }

  /** What this process says about it in the file. */
  get sign(): ReaderSign {
    const { name, settings } = this.#parts
    const keepsVehicles = settings.states !== undefined
    // Gaps that it has not read yet stay in the file. The last sign comes after its end.
    return { reader: name, keepsVehicles, gaps: this.#hasGaps ? settings.receiver?.openGaps?.() : undefined }
  }

  get fileBytes(): number {
    return this.places.pending.fileBytes
  }

  /** The file is open, and has this of it. */
  known(found: OpenedReader, isUnclean: boolean): void {
    this.#found = found
    this.places.opened(found)
    if (isUnclean) this.places.claims.suspect(this.#parts.newestSeq())
    this.isKnown = true
  }

  async open(): Promise<Opened> {
    const { name, file, settings, commits, health, opened, options } = this.#parts
    const { lastId } = await opened
    if (this.#phase === 'closed') throw closedError(options.path)
    if (this.#found === undefined) {
      await commits.flush()
      const keepsVehicles = settings.states !== undefined
      this.known(await health.read(() => file.addReader({ reader: name, keepsVehicles }, settings.clock.now())), false)
    }
    this.#phase = 'open'
    this.#hasGaps = true
    const { places } = this
    return {
      lastId,
      unapplied: places.states && places.unapplied(),
      gaps: places.gaps(this.#found?.gaps ?? []),
      waiting: places.waitingAfter(-1),
    }
  }

  window(host: ConstructorParameters<typeof Window<Waiting>>[0]): Window<Waiting> {
    return new Window(host, (after) => this.places.waitingAfter(after === undefined ? -1 : seqOf(after)))
  }

  put(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    return this.#parts.put(messages, from)
  }

  claim(id: string): Claim | undefined | Promise<Claim | undefined> {
    return this.places.claims.claim(id)
  }

  settle(id: string, outcome?: Outcome): void | Promise<void> {
    return this.places.settle(id, outcome)
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return this.places.usage()
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#parts.health.refusing ?? (this.places.pending.isFull ? 'inbox_full' : undefined)
  }

  stats(): InboxStats {
    const { places } = this
    return {
      used: places.pending.usedOf(this.#parts.options.path),
      deadLetters: places.figures.deadLetters,
      oldestWaitingMs: places.oldestWaitingMs,
    }
  }

  async close(): Promise<void> {
    const wasOpen = this.#phase === 'open'
    this.#phase = 'closed'
    if (!wasOpen) return this.#closed.resolve()
    // A commit that fails is the receiver's to report.
    await this.#parts.commits.flush().catch(() => {})
    await setImmediate()
    this.#closed.resolve()
  }

  /** Resolves when it needs the file no more. */
  whenClosed(): Promise<void> | undefined {
    return this.#phase === 'new' ? undefined : this.#closed.promise
  }

  /** The receiver puts these messages: says which get a place here. It never waits for this reader. */
  follow(messages: readonly InboxMessage[]): Followed {
    const { pending } = this.places
    const placed: InboxMessage[] = []
    const skipped: InboxMessage[] = []
    for (const message of messages) {
      const hasRoom = pending.hasRoom(1, message.bytes)
      if (hasRoom) pending.add(1, message.bytes)
      ;(hasRoom ? placed : skipped).push(message)
    }
    return {
      name: this.#parts.name,
      ids: new Set(placed.map(({ id }) => id)),
      stored: (from) => {
        if (placed.length > 0) this.handOut(placed, from)
        if (skipped.length > 0) this.#parts.settings.on({ type: 'skipped', messages: skipped })
      },
      refused: () => {
        for (const { bytes } of placed) pending.release(1, bytes)
      },
    }
  }

  /** The file has these messages for this reader. */
  handOut(messages: readonly InboxMessage[], from: RequestScope): void {
    for (const message of messages) this.places.claims.added(message, seqOf(message.id))
    this.#parts.settings.on({ type: 'stored', messages, from })
  }
}
