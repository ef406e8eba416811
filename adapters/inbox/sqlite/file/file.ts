import { statSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import type { Claim, DeadLetter, InboxMessage, ListedMessage, Selection, Waiting } from '../../../../src/inbox/inbox.ts'
import type { Due } from '../../../../src/inbox/vehicle-store.ts'
import type { FileSettings } from '../options.ts'
import { checkpoint, closeQuietly, copyMoved, failureOf, isFailure, unlessFull } from './database.ts'
import { eraseState, forgetPage } from './erasing.ts'
import type {
  Committed,
  Dropped,
  ForgottenPage,
  InboxFile,
  OpenedFile,
  OpenedReader,
  Page,
  ReaderCommitted,
  ReaderSign,
  Refused,
  SignOfLife,
  Tidied,
  Transaction,
  VehicleRow,
  WrittenChanges,
} from './interface.ts'
import { addReader, type OpenDatabase, Opening, settleJournal } from './opening.ts'
import {
  deadLettersAfter,
  messageAt,
  messagesBefore,
  outdatedAfter,
  pageRows,
  pendingAt,
  settledAfter,
  unappliedAfter,
  vehicleAt,
  vehiclesAfter,
  waitingAfter,
} from './reading.ts'
import { countDead, figuresOf, type Reader, receiver } from './readers.ts'
import { inTransaction, rollBack, valueOf } from './schema.ts'
import { createScrub } from './scrub.ts'
import { notReached } from './siblings.ts'
import { closedWithSuspects, noteLife, removeReported } from './signs.ts'
import type { FileStatements, ReaderStatements } from './statements.ts'
import { releaseReserve } from './volume.ts'
import { type Each, together, write } from './writing.ts'

/** The free pages that one step of an erasure gives to the disk. */
const freedPages = 256

/**
 * The file itself. Each step blocks the thread that it runs in.
 *
 * It is closed, open, or lost: the path names another file now, or a page is damaged. The next `open` takes over what is in the copy of a lost
 * file, or replaces a damaged one.
 */
export class SqliteFile implements InboxFile {
  readonly #settings: FileSettings
  readonly #opening: Opening
  #connection: OpenDatabase | undefined
  /** What the path and its journal named when the file was opened. */
  #identity: readonly [file: string, journal: string] = ['', '']

  constructor(settings: FileSettings) {
    this.#settings = settings
    this.#opening = new Opening(settings)
  }

  async open(sign: SignOfLife, options: OpenOptions = {}): Promise<OpenedFile> {
    const [on, found] = await this.#opening.open(sign, options)
    // Set only now: a message that was written while the file was counted might or might not be counted.
    this.#connection = on
    this.#identity = identitiesOf(this.#settings.path)
    return found
  }

  async addReader(sign: ReaderSign, nowMs: number): Promise<OpenedReader> {
    return this.#use((on) => addReader(on, sign, nowMs, this.#settings.isVisit === true))
  }

  async commit(transaction: Transaction): Promise<Committed> {
    const { path } = this.#settings
    let isRefused = false
    for (let tries = 0; ;) {
      try {
        return isRefused ? this.#commitEach(transaction) : this.#commitAll(transaction)
      } catch (error) {
        // One row that SQLite refuses never takes others with it.
        if (isFailure(error, 'message_refused') && !isRefused) isRefused = true
        else if (!isFailure(error, 'inbox_full') || tries === 2) throw error
        else {
          // With free pages of the file first, then with the space of the reserve, too.
          if (tries === 1) this.#use(({ space }) => space.volume.releaseReserve())
          const isFree = unlessFull(path, () => this.#use(({ space }) => space.freeUp(transaction)))
          if (!isFree && tries === 1) throw error
          tries += 1
        }
      }
    }
  }

  async waiting(after: number, reader?: string): Promise<Page<Waiting>> {
    return this.#read(reader, (statements) => waitingAfter(statements, after))
  }

  async find(seq: number, reader?: string): Promise<Claim | undefined> {
    return this.#read(reader, (statements) => pendingAt(statements, seq))
  }

  async message(seq: number, reader?: string): Promise<InboxMessage | undefined> {
    return this.#read(reader, (statements) => messageAt(statements, seq))
  }

  async deadLetters(which: Selection, after: number, reader?: string): Promise<Page<DeadLetter>> {
    return this.#read(reader, (statements) => deadLettersAfter(statements, which, after))
  }

  async settled(which: Selection, after: number, reader?: string): Promise<Page<InboxMessage>> {
    return this.#read(reader, (statements) => settledAfter(statements, which, after))
  }

  async messages(which: Selection, before: number, reader?: string): Promise<Page<ListedMessage>> {
    return this.#read(reader, (statements, file) => messagesBefore(file, statements, which, before))
  }

  async check(): Promise<void> {
    this.#use((on) => {
      this.#throwIfMoved(on)
      on.space.volume.growReserve()
    })
  }

  async tidy(sign: SignOfLife, pendingBytes: number): Promise<Tidied> {
    const { path, isVisit = false } = this.#settings
    return this.#use((on) => {
      const { db, readers, space } = on
      if (!isVisit) this.#noteAlive(on, sign)
      for (const { statements } of readers.all) unlessFull(path, () => statements.removeOldFailures.run())
      const step = (): boolean => space.step(sign.believed?.knownMs ?? sign.nowMs, pendingBytes)
      const more = unlessFull(path, () => inTransaction(db, step) || space.volume.shrink())
      for (const reader of readers.all) countDead(reader)
      const branches = readers.branches.map((reader) => ({
        reader: reader.name,
        dropped: space.takeDropped(reader),
        ...figuresOf(reader),
      }))
      const dropped = space.takeDropped(readers.receiver)
      return { more, hasRoom: space.volume.hasRoom, dropped, ...figuresOf(readers.receiver), readers: branches }
    })
  }

  async probe(): Promise<boolean> {
    const hasRoom = ({ space: { volume } }: OpenDatabase): boolean =>
      volume.hasRoom && (volume.hasFreePages() || volume.growReserve())
    // Other work gets its turn between two steps.
    while (this.#use((on) => !hasRoom(on) && on.space.freeMore())) await setImmediate()
    return this.#use(hasRoom)
  }

  async unapplied(after: number, reader?: string): Promise<Page<InboxMessage>> {
    return this.#read(reader, (statements) => unappliedAfter(statements, after))
  }

  async vehicle(vin: string, reader?: string): Promise<VehicleRow | undefined> {
    return this.#read(reader, (statements) => vehicleAt(statements, vin))
  }

  async vehicles(after: string, limit: number, reader?: string): Promise<readonly VehicleRow[]> {
    return this.#read(reader, (statements) => vehiclesAfter(statements, after, limit))
  }

  async dueVehicles(after: string, reader?: string): Promise<readonly Due[]> {
    return this.#read(reader, (statements) =>
      statements.dueVehicles.all(after).map(({ vin, due }) => ({ vin: String(vin), dueMs: Number(due) })),
    )
  }

  async outdatedVehicles(rules: string, after: string, reader?: string): Promise<readonly VehicleRow[]> {
    return this.#read(reader, (statements) => outdatedAfter(statements, rules, after))
  }

  async countVehicles(reader?: string): Promise<number> {
    return this.#read(reader, (statements) => Number(statements.countVehicles.get()?.['vehicles']))
  }

  async removeUnseen(ms: number, reader?: string): Promise<number> {
    return this.#use(({ db, readers }) => {
      const { removeUnseen } = readers.of(reader ?? receiver).statements
      return inTransaction(db, () => Number(removeUnseen.run(ms, pageRows).changes))
    })
  }

  async forget(vin: string, after: number, dryRun: boolean): Promise<ForgottenPage> {
    return this.#use(({ db, readers }) => {
      const { messages, waiting, deadLetters, next, places } = forgetPage(db, readers, vin, after, dryRun)
      const erased = places.map(({ reader, pending, waiting: waited }) => ({
        reader: reader.name,
        pending,
        waiting: waited,
        ...figuresOf(reader),
      }))
      return { messages, waiting, deadLetters, next, readers: erased }
    })
  }

  async scrub(vin: string): Promise<boolean> {
    return this.#use((on) => {
      const { db, readers } = on
      const { file } = readers
      inTransaction(db, () => eraseState(readers, vin))
      const free = (): number => Number(valueOf(db, 'PRAGMA freelist_count'))
      const before = free()
      db.prepare(`PRAGMA incremental_vacuum(${freedPages})`).all()
      if (free() > 0 && free() < before) return true
      this.#throwIfMoved(on)
      on.scrub ??= createScrub(db, this.#settings.path)
      if (on.scrub.step(() => file.noteErasing.run(vin))) return true
      file.removeErasing.run(vin)
      checkpoint(db)
      return false
    })
  }

  async notReached(): Promise<readonly string[]> {
    return this.#use(() => notReached(this.#settings.path))
  }

  async close(sign?: SignOfLife): Promise<void> {
    const { path, isVisit = false } = this.#settings
    const closing = this.#connection
    if (closing === undefined) return
    const { db, readers, hasSuspects } = closing
    try {
      if (sign !== undefined) {
        // Messages that a crash left and that still wait may have been handed out before the crash.
        const isAnyLeft = readers.all.some((reader) => figuresOf(reader).oldest !== undefined)
        const closed = hasSuspects && isAnyLeft ? closedWithSuspects : 1
        if (!isVisit) this.#noteEnd(closing, closed, sign)
        if (this.#saveMoved(closing) !== undefined) return
        settleJournal(db, path)
      }
    } catch (error) {
      throw this.#failed(error)
    } finally {
      this.#release()
    }
  }

  #use<T>(run: (on: OpenDatabase) => T): T {
    if (this.#connection === undefined) throw notOpen(this.#settings.path)
    try {
      return run(this.#connection)
    } catch (error) {
      throw this.#failed(error)
    }
  }

  #read<T>(reader: string | undefined, run: (statements: ReaderStatements, file: FileStatements) => T): T {
    return this.#use(({ readers }) => run(readers.of(reader ?? receiver).statements, readers.file))
  }

  #failed(error: unknown): FleethookError {
    const failure = failureOf(error, this.#settings.path)
    if (failure.code === 'inbox_damaged') this.#opening.damaged()
    return failure
  }

  /** Closes the connection, and then what it needs open. */
  #release(): void {
    const closing = this.#connection
    this.#connection = undefined
    closeQuietly(closing?.db)
    closing?.scrub?.close()
  }

  /** Writes all rows, or, when each is tried alone, the rows that SQLite takes. */
  #commitAll(transaction: Transaction, each: Each = together): Committed {
    const on = this.#connection
    if (on === undefined) throw notOpen(this.#settings.path)
    const { db, readers, space } = on
    const before = readers.all.map((reader) => [reader, reader.deadLetters] as const)
    try {
      readers.file.begin.run()
      const written = write(readers, space, transaction, each)
      space.sweepBeside(transaction)
      for (const put of transaction.puts) if (put.kind === 'gap') removeReported(readers.of(put.own ?? receiver), put)
      readers.file.commit.run()
      this.#throwIfMoved(on)
      for (const { reader, vehicles } of [{ reader: receiver, ...transaction }, ...(transaction.readers ?? [])])
        readers.of(reader).heldAfter = vehicles?.seq ?? readers.of(reader).heldAfter
      const resultOf = (reader: Reader): ReaderCommitted => committedOf(reader, written, space.takeDropped(reader))
      const { reader: _, ...own } = resultOf(readers.receiver)
      return { ...own, hasRoom: space.volume.hasRoom, readers: readers.branches.map(resultOf) }
    } catch (error) {
      rollBack(db)
      space.rolledBack()
      for (const [reader, deadLetters] of before) reader.deadLetters = deadLetters
      throw this.#failed(error)
    }
  }

  /** Tries each row alone. */
  #commitEach(transaction: Transaction): Committed {
    const refused: Refused[] = []
    const done = this.#commitAll(transaction, (reader, row, key, run) =>
      this.#use(({ db, readers }) => {
        db.exec('SAVEPOINT alone')
        try {
          const result = run()
          db.exec('RELEASE alone')
          return result
        } catch (error) {
          const failure = this.#failed(error)
          if (failure.code !== 'message_refused') throw failure
          db.exec('ROLLBACK TO alone; RELEASE alone')
          const found = typeof key === 'number' && row !== 'move' ? readers.file.idAt.get(key) : undefined
          refused.push({ reader, row, key, id: found && String(found['id']), reason: failure.message })
          return undefined
        }
      }),
    )
    return { ...done, refused }
  }

  /** On a full disk, the older sign of life stays. */
  #noteAlive(on: OpenDatabase, sign: SignOfLife): void {
    const { path } = this.#settings
    if (unlessFull(path, () => inTransaction(on.db, () => noteLife(on, 0, sign))) === false) on.holdsGaps = true
  }

  /** On a full disk, the space of the journal and the reserve is enough. */
  #noteEnd(on: OpenDatabase, closed: number, sign: SignOfLife): void {
    const { path } = this.#settings
    const end = (): void => inTransaction(on.db, () => noteLife(on, closed, sign))
    if (unlessFull(path, end) !== false) return
    releaseReserve(path)
    settleJournal(on.db, path)
    end()
  }

  #throwIfMoved(on: OpenDatabase): void {
    const moved = this.#saveMoved(on)
    if (moved !== undefined) throw moved
  }

  /** Saves a file or journal that was deleted, renamed or replaced, and would be lost with this process. */
  #saveMoved({ db }: OpenDatabase): FleethookError | undefined {
    const { path } = this.#settings
    const [file, journal] = identitiesOf(path)
    const isFileHere = file === this.#identity[0]
    if (isFileHere && journal === this.#identity[1]) return undefined
    const copy = isFileHere ? path : copyMoved(db, path)
    if (isFileHere) checkpoint(db)
    else if (copy !== path) this.#opening.moved(copy)
    // Anything written from here on would not be in the copy.
    this.#release()
    return new FleethookError('inbox_unavailable', `The file of the inbox ${path} was deleted, renamed or replaced.`, {
      hint: `Stop the receiver before you move its files. What they held is in ${copy}.`,
    })
  }
}

/** The inodes of a file and its journal, by path. */
function identitiesOf(path: string): readonly [file: string, journal: string] {
  const how = { bigint: true, throwIfNoEntry: false } as const
  const [file, journal] = [statSync(path, how), statSync(`${path}-wal`, how)]
  return [`${file?.dev} ${file?.ino}`, `${journal?.dev} ${journal?.ino}`]
}

function committedOf(
  reader: Reader,
  written: ReadonlyMap<Reader, WrittenChanges>,
  dropped: Dropped | undefined,
): ReaderCommitted {
  const { moved = [], retracted = { messages: 0, bytes: 0 } } = written.get(reader) ?? {}
  return { reader: reader.name, moved, retracted, dropped, ...figuresOf(reader) }
}

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}
