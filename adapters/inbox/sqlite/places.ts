import { FleethookError } from '../../../src/base/errors.ts'
import { msOfSeq, seqOf } from '../../../src/inbox/delivery-id.ts'
import {
  done,
  type InboxGap,
  type InboxMessage,
  type InboxHost,
  type Outcome,
  type Selection,
  type Waiting,
} from '../../../src/inbox/inbox.ts'
import { FileArchive, pages } from './archive.ts'
import type {
  Dropped,
  FileFigures,
  InboxFile,
  OpenedReader,
  OpenedVehicles,
  ReaderCommitted,
  Refused,
} from './file/interface.ts'
import type { CommitQueue } from './group-commit.ts'
import type { Health } from './health.ts'
import { Moves } from './moves.ts'
import type { SqliteSettings } from './options.ts'
import { Claims, type Pending } from './pending.ts'
import { StateRows } from './states.ts'

interface PlacesParts {
  readonly file: InboxFile
  readonly settings: InboxHost
  readonly options: SqliteSettings
  readonly commits: CommitQueue
  readonly health: Health
  readonly pending: Pending
}

/** What becomes of a message whose row SQLite refuses. */
const keptAnyway = {
  update: 'Its message becomes a dead letter, unless it is tried at this moment.',
  settle: 'Its message is handled, and the next process handles it again.',
  vehicle: 'The file keeps the older state of this vehicle.',
} as const

/** What one reader of the file still has to do: what is in memory of it, and what the file still has to write. */
export class Places {
  readonly pending: Pending
  readonly claims: Claims
  readonly moves: Moves
  readonly archive: FileArchive
  readonly states: StateRows | undefined
  figures: FileFigures = { oldest: undefined, deadLetters: 0 }
  /** The file was damaged: messages up to this `seq` may be missing there, although they are in memory. */
  damagedUpTo = -1
  readonly #parts: PlacesParts
  readonly #file: ReaderFile
  #vehicles: OpenedVehicles | undefined

  constructor(parts: PlacesParts) {
    const { file, settings, commits, health, pending } = parts
    const { clock } = settings
    const failed = (error: unknown): void => settings.on({ type: 'failed', error })
    this.#parts = parts
    this.#file = new ReaderFile(file, commits.reader)
    this.pending = pending
    this.states =
      settings.states !== undefined ? new StateRows({ file: this.#file, clock, commits, health, failed }) : undefined
    commits.states = this.states
    this.moves = new Moves({ commits, pending, failed })
    this.claims = new Claims({ file: this.#file, commits, health })
    this.archive = new FileArchive({ file: this.#file, commits, health, moves: this.moves, pending })
  }

  opened(found: Omit<OpenedReader, 'reader' | 'gaps'>): void {
    this.reopened(found)
    this.#vehicles = found.vehicles
    if (found.vehicles !== undefined) this.states?.begin(found.vehicles)
  }

  /** The file was opened again, and decides about what is in doubt. */
  reopened({ messages, bytes, oldest, deadLetters }: Omit<OpenedReader, 'reader' | 'gaps'>): void {
    this.figures = { oldest, deadLetters }
    Object.assign(this.pending, { messages, bytes })
  }

  settle(id: string, outcome: Outcome = done): void | Promise<void> {
    const { commits } = this.#parts
    const found = this.claims.get(id)
    const seq = found?.seq ?? seqOf(id)
    if (outcome.as === 'later') return this.claims.reschedule(seq, outcome.next, found)
    if (outcome.vehicle !== undefined) this.states?.settled(seq, outcome.vehicle)
    if (outcome.as === 'dead' || found === undefined || seq <= this.damagedUpTo)
      return this.#settleInFile(id, seq, outcome)
    this.claims.delete(id)
    this.pending.release(1, found.message.bytes)
    commits.settle(seq)
    return this.claims.writeEnd(found.deliveries)
  }

  /** A commit has written what this reader changed. `settled`: what it has settled. */
  committed(committed: Omit<ReaderCommitted, 'reader'>, settled: ReadonlySet<number> | undefined): void {
    const { oldest, deadLetters, retracted, dropped } = committed
    this.figures = { oldest, deadLetters }
    this.pending.release(retracted.messages, retracted.bytes)
    if (dropped !== undefined) this.dropped(dropped, settled)
  }

  /** The file needed room, or a retention is over. */
  dropped({ messages, places, fromMs, toMs }: Dropped, settled: ReadonlySet<number> = new Set()): void {
    const { settings, commits } = this.#parts
    if (messages > 0) {
      settings.on({ type: 'dropped', deadLetters: messages })
      settings.on({ type: 'gap', gap: { reason: 'inbox_expired', fromMs, toMs, missed: messages } })
    }
    if (places === undefined) return
    // Messages that are settled in the same moment are counted already.
    const gone = places.filter(({ seq }) => !settled.has(seq) && !commits.isSettling(seq))
    for (const { id } of gone) this.claims.delete(id)
    this.pending.release(
      gone.length,
      gone.reduce((sum, { bytes }) => sum + bytes, 0),
    )
    const missed = gone.filter(({ isOfWire }) => isOfWire).length
    if (gone.length > 0) settings.on({ type: 'expired', ids: gone.map(({ id }) => id), missed, fromMs, toMs })
  }

  /** SQLite does not take a row of this reader. Callers hear of a put and of a move. */
  refused({ row, id, reason }: Refused): void {
    const { settings } = this.#parts
    if (row === 'put' || row === 'move') return
    const error = new FleethookError('message_refused', reason, { hint: keptAnyway[row] })
    settings.on({ type: 'failed', error })
    if (row === 'update' && id !== undefined) settings.on({ type: 'refused', id, reason })
  }

  /** Its vehicle is erased in the file. */
  async forget(vin: string): Promise<void> {
    this.claims.forget(vin)
    await this.states?.forget(vin)
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    const { messages, bytes } = this.pending
    return { messages, bytes }
  }

  get oldestWaitingMs(): number | undefined {
    const { oldest } = this.figures
    return oldest === undefined ? undefined : Math.max(0, this.#parts.settings.clock.now() - msOfSeq(oldest))
  }

  /** The gaps that the file reports, and a gap for the time in which a process that keeps no states of vehicles used it. */
  gaps(found: readonly InboxGap[]): readonly InboxGap[] {
    const staleFromMs = this.#vehicles?.staleFromMs
    if (staleFromMs === undefined) return found
    return [...found, { reason: 'stopped', fromMs: Math.min(staleFromMs, this.#parts.settings.clock.now()) }]
  }

  /** Messages that the stored states of vehicles may lack. */
  async *unapplied(): AsyncGenerator<readonly InboxMessage[]> {
    const { health } = this.#parts
    const from = this.#vehicles?.seq ?? -1
    for await (const page of pages(from, (after) => health.read(() => this.#file.unapplied(after)))) {
      yield page
      const last = page.at(-1)
      if (last !== undefined) this.states?.recovered(seqOf(last.id))
    }
  }

  /** Messages that wait. When the file fails, it goes on where it stopped as soon as the file is usable again. */
  waitingAfter(seq: number): AsyncIterable<readonly Waiting[]> {
    const { health } = this.#parts
    return pages(seq, async (after) => {
      while (!health.isClosed) {
        try {
          const { items, next } = await health.read(() => this.#file.waiting(after))
          return { items: items.map((waiting) => this.claims.recovered(waiting)), next }
        } catch {
          await health.whenUsable()
        }
      }
      return { items: [], next: undefined }
    })
  }

  /** The file has more of the message than this process knows, or keeps it as a dead letter. */
  async #settleInFile(id: string, seq: number, outcome: Exclude<Outcome, { as: 'later' }>): Promise<void> {
    if (outcome.as === 'dead') await this.moves.bury(seq, outcome.reason)
    else if (Number.isNaN(seq) || this.#parts.commits.isSettling(seq)) return
    else await this.moves.settle(seq)
    this.claims.delete(id)
  }
}

type Calls =
  | 'waiting'
  | 'find'
  | 'message'
  | 'deadLetters'
  | 'settled'
  | 'messages'
  | 'unapplied'
  | 'vehicle'
  | 'vehicles'
  | 'dueVehicles'
  | 'outdatedVehicles'
  | 'countVehicles'
  | 'removeUnseen'

/** The file as one of its readers sees it. */
class ReaderFile implements Pick<InboxFile, Calls> {
  readonly #file: InboxFile
  readonly #reader: string

  constructor(file: InboxFile, reader: string) {
    this.#file = file
    this.#reader = reader
  }

  waiting(after: number): ReturnType<InboxFile['waiting']> {
    return this.#file.waiting(after, this.#reader)
  }

  find(seq: number): ReturnType<InboxFile['find']> {
    return this.#file.find(seq, this.#reader)
  }

  message(seq: number): ReturnType<InboxFile['message']> {
    return this.#file.message(seq, this.#reader)
  }

  deadLetters(which: Selection, after: number): ReturnType<InboxFile['deadLetters']> {
    return this.#file.deadLetters(which, after, this.#reader)
  }

  settled(which: Selection, after: number): ReturnType<InboxFile['settled']> {
    return this.#file.settled(which, after, this.#reader)
  }

  messages(which: Selection, before: number): ReturnType<InboxFile['messages']> {
    return this.#file.messages(which, before, this.#reader)
  }

  unapplied(after: number): ReturnType<InboxFile['unapplied']> {
    return this.#file.unapplied(after, this.#reader)
  }

  vehicle(vin: string): ReturnType<InboxFile['vehicle']> {
    return this.#file.vehicle(vin, this.#reader)
  }

  vehicles(after: string, limit: number): ReturnType<InboxFile['vehicles']> {
    return this.#file.vehicles(after, limit, this.#reader)
  }

  dueVehicles(after: string): ReturnType<InboxFile['dueVehicles']> {
    return this.#file.dueVehicles(after, this.#reader)
  }

  outdatedVehicles(rules: string, after: string): ReturnType<InboxFile['outdatedVehicles']> {
    return this.#file.outdatedVehicles(rules, after, this.#reader)
  }

  countVehicles(): ReturnType<InboxFile['countVehicles']> {
    return this.#file.countVehicles(this.#reader)
  }

  removeUnseen(ms: number): ReturnType<InboxFile['removeUnseen']> {
    return this.#file.removeUnseen(ms, this.#reader)
  }
}
