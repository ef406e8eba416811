import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import type { Claim, DeadLetter, InboxMessage, ListedMessage, Selection, Waiting } from '../../../../src/inbox/inbox.ts'
import type { Due } from '../../../../src/inbox/vehicle-store.ts'
import type { UnopenedInbox } from '../../../../src/observe/stats.ts'
import type { FileSettings } from '../options.ts'
import { finishReplacing, isHalfReplaced, replaceDamaged } from './damage.ts'
import { checkpoint, closeQuietly, copyMoved, failureOf, openDatabase } from './database.ts'
import { eraseOwed, eraseState, forgetPage } from './erasing.ts'
import type {
  Committed,
  Dropped,
  FileFigures,
  LeftReader,
  OpenedReader,
  ReaderCommitted,
  ReaderSign,
  WrittenChanges,
  ForgottenPage,
  InboxFile,
  OpenedFile,
  Page,
  Refused,
  SignOfLife,
  Tidied,
  Transaction,
  VehicleRow,
} from './interface.ts'
import { isReady, moveInto } from './moving.ts'
import {
  countPending,
  deadLettersAfter,
  messageAt,
  messagesBefore,
  outdatedAfter,
  pageRows,
  pendingAt,
  settledAfter,
  unappliedAfter,
  vehiclesAfter,
  waitingAfter,
} from './reading.ts'
import { SpaceKeeper } from './retention.ts'
import { type Reader, Readers, receiver } from './readers.ts'
import {
  type FileStatements,
  gapOf,
  inTransaction,
  type ReaderStatements,
  rollBack,
  valueOf,
  vehicleOf,
} from './schema.ts'
import { createScrub, type Scrub } from './scrub.ts'
import { lookInto, notReached, unopenedBeside } from './siblings.ts'
import {
  beginVehicles,
  believedIn,
  closedWithSuspects,
  heldVehicles,
  noteSign,
  noteStart,
  removeReported,
} from './signs.ts'
import { releaseReserve, spaceFor, walPagesFor } from './volume.ts'
import { type Each, together, write } from './writing.ts'

interface OpenDatabase {
  readonly db: DatabaseSync
  readonly readers: Readers
  readonly space: SpaceKeeper
  /** There since the first erasure. */
  scrub?: Scrub
}

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
  readonly #walPages: number
  #connection: OpenDatabase | undefined
  #holdsGaps = false
  /** What the path and its journal named when the file was opened. */
  #identity: readonly [file: string, journal: string] = ['', '']
  /** Where the messages of a replaced file are. The next `open` takes them over. */
  #movedTo: string | undefined
  /** Damage was found while the file was open. The next `open` replaces the file without reading it first. */
  #isDamaged = false
  /** Some waiting messages may have been handed out by a process that crashed. */
  #hasSuspects = false
  /** This process has opened the file before, so an unclosed file does not mean a crash. */
  #isOurs = false

  constructor(settings: FileSettings) {
    this.#settings = settings
    this.#walPages = walPagesFor(Math.min(settings.maxBytes, spaceFor(settings.path)))
  }

  async open(sign: SignOfLife, options: OpenOptions = {}): Promise<OpenedFile> {
    try {
      return await this.#openOrReplace(sign, options)
    } catch (error) {
      // On a full disk, waiting messages can still be handled with the space of the reserve.
      if (!isFailure(error, 'inbox_full') || !releaseReserve(this.#settings.path)) throw error
      return await this.#openOrReplace(sign, options)
    }
  }

  async commit(transaction: Transaction): Promise<Committed> {
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
          const isFree = this.#unlessFull(() => this.#use(({ space }) => space.freeUp(transaction)))
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
    return this.#use((on) => {
      const { db, readers, space } = on
      if (this.#settings.isVisit !== true) this.#noteAlive(on, sign)
      for (const { statements } of readers.all) this.#unlessFull(() => statements.removeOldFailures.run())
      const step = (): boolean => space.step(sign.believed?.knownMs ?? sign.nowMs, pendingBytes)
      const more = this.#unlessFull(() => inTransaction(db, step) || space.volume.shrink())
      for (const reader of readers.all) countDead(reader)
      const branches = used(readers).map((reader) => ({
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
    return this.#read(reader, (statements) => {
      const row = statements.vehicle.get(vin)
      return row && vehicleOf(row)
    })
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
    const { db, readers } = closing
    try {
      if (sign !== undefined) {
        // Messages that a crash left and that still wait may have been handed out before the crash.
        const isAnyLeft = readers.all.some((reader) => figuresOf(reader).oldest !== undefined)
        const closed = this.#hasSuspects && isAnyLeft ? closedWithSuspects : 1
        if (!isVisit) this.#noteEnd(closing, () => this.#note(readers, closed, sign))
        if (this.#saveMoved(closing) !== undefined) return
        this.#settleJournal(db)
      }
    } catch (error) {
      throw failureOf(error, path)
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
    if (failure.code === 'inbox_damaged') this.#isDamaged = true
    return failure
  }

  /** Closes the connection, and then what it needs open. */
  #release(): void {
    const closing = this.#connection
    this.#connection = undefined
    closeQuietly(closing?.db)
    closing?.scrub?.close()
  }

  /** `false` on a full disk. */
  #unlessFull<Result>(run: () => Result): Result | false {
    try {
      return run()
    } catch (error) {
      const failure = this.#failed(error)
      if (failure.code !== 'inbox_full') throw failure
      return false
    }
  }

  async #openOrReplace(sign: SignOfLife, options: OpenOptions): Promise<OpenedFile> {
    const { path } = this.#settings
    try {
      if (isHalfReplaced(path)) finishReplacing(path)
      if (!this.#isDamaged) return await this.#openFile(sign, options)
    } catch (error) {
      if (!isFailure(error, 'inbox_damaged')) throw failureOf(error, path)
    }
    try {
      const damage = replaceDamaged(path, sign.nowMs, this.#walPages)
      this.#isDamaged = false
      return { ...(await this.#openFile(sign, options)), damage }
    } catch (error) {
      throw failureOf(error, path)
    }
  }

  async #openFile(sign: SignOfLife, options: OpenOptions): Promise<OpenedFile> {
    const { path, isVisit = false } = this.#settings
    const db = openDatabase(path, this.#walPages)
    try {
      const unopened = isVisit ? [] : this.#lookAround(db, sign)
      const readers = new Readers(db)
      for (const branch of sign.readers ?? []) readers.use(branch.reader, sign.nowMs)
      const erasing = isVisit ? [] : await eraseOwed(db, readers)
      const space = new SpaceKeeper(db, readers, this.#settings, this.#walPages)
      const counted = new Map<Reader, Counted>()
      for (const reader of readers.all) counted.set(reader, await countPending(reader.statements))
      this.#settleJournal(db)
      const begun = this.#beginUse(db, readers, sign, options)
      const opened = (reader: Reader, keepsVehicles: boolean | undefined): OpenedReader =>
        this.#openReader(readers, reader, keepsVehicles, counted.get(reader))
      const { reader: _reader, isNew: _isNew, ...own } = opened(readers.receiver, sign.keepsVehicles)
      const branches = (sign.readers ?? []).map((each) => opened(readers.of(each.reader), each.keepsVehicles))
      const goneMs = (sign.believed?.knownMs ?? sign.nowMs) - this.#settings.dead.forMs
      // Set only now: a message that was written during the count might or might not be counted.
      this.#connection = { db, readers, space }
      this.#identity = identitiesOf(path)
      this.#isOurs = true
      return {
        ...begun,
        ...own,
        readers: branches,
        left: isVisit ? [] : leftOf(db, readers, counted, goneMs),
        unopened,
        erasing,
        version: String(valueOf(db, 'SELECT sqlite_version()')),
      }
    } catch (error) {
      closeQuietly(db)
      throw failureOf(error, path)
    }
  }

  /** Counts what a reader has, and marks its states as in use. */
  #openReader(
    readers: Readers,
    reader: Reader,
    keepsVehicles: boolean | undefined,
    { messages, bytes }: Counted = { messages: 0, bytes: 0 },
  ): OpenedReader {
    const { isVisit = false } = this.#settings
    const vehicles = isVisit ? heldVehicles(reader) : beginVehicles(readers, reader, keepsVehicles)
    reader.heldAfter = vehicles?.seq ?? Infinity
    countDead(reader)
    const gaps = reader.statements.gaps.all().map(gapOf)
    if (gaps.length > 0) this.#holdsGaps = true
    return { reader: reader.name, isNew: reader.isNew, gaps, messages, bytes, vehicles, ...figuresOf(reader) }
  }

  async addReader({ reader: name, keepsVehicles }: ReaderSign, nowMs: number): Promise<OpenedReader> {
    return this.#use(({ readers }) => {
      const known = readers.all.find((each) => each.name === name)
      const reader = readers.use(name, nowMs)
      if (known !== undefined && known.usedMs > 0) {
        reader.statements.addGap.run('stopped', known.usedMs, nowMs, null, 0)
        this.#holdsGaps = true
      }
      const counted = reader.statements.countPending.get(-1, Number.MAX_SAFE_INTEGER)
      const pending = { messages: Number(counted?.['messages']), bytes: Number(counted?.['bytes'] ?? 0) }
      return this.#openReader(readers, reader, keepsVehicles, pending)
    })
  }

  /** Takes over the copy of a file that was replaced while it was open. Returns the files that hold messages and have no receiver. */
  #lookAround(db: DatabaseSync, sign: SignOfLife): readonly UnopenedInbox[] {
    const { path } = this.#settings
    const copy = this.#movedTo
    this.#movedTo = undefined
    try {
      if (copy !== undefined) moveInto(db, copy, sign)
      if (this.#isOurs) return []
      return unopenedBeside(path)
    } catch (error) {
      if (copy === undefined || !isReady(db)) throw error
      return [lookInto(copy) ?? { path: copy, messages: 0, deadLetters: 0 }]
    }
  }

  /** Marks the file as in use, and reads what the last process left. */
  #beginUse(
    db: DatabaseSync,
    readers: Readers,
    sign: SignOfLife,
    options: OpenOptions,
  ): Pick<OpenedFile, 'lastId' | 'unclean' | 'believed'> {
    const { isVisit = false } = this.#settings
    const { file } = readers
    const state = file.state.get() ?? {}
    const believed = believedIn(state)
    const newest = file.newest.get()
    if (!this.#isOurs) this.#hasSuspects = state['closed'] === 0 || state['closed'] === closedWithSuspects
    this.#holdsGaps = false
    // Writes no new sign of life, so that a crash before the next one still reports what was refused since the last one.
    if (this.#isOurs && !isVisit) file.setOpen.run()
    else if (!isVisit) inTransaction(db, () => noteStart(readers, state, sign, options))
    const ids = [newest?.['id'], state['last_id']].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1), unclean: this.#hasSuspects, believed }
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
      return { ...own, hasRoom: space.volume.hasRoom, readers: used(readers).map(resultOf) }
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

  /**
   * A journal can be readable and still not be on the disk: a kernel whose write failed may keep the page as clean. A
   * power cut would lose it and all after it, so the content goes into the file, which is synced.
   */
  #settleJournal(db: DatabaseSync): void {
    this.#unlessFull(() => checkpoint(db))
  }

  #note(readers: Readers, closed: number, sign: SignOfLife): void {
    const { gaps, readers: branches = [] } = sign
    const all = [gaps, ...branches.map((branch) => branch.gaps)]
    // Most signs say that there is no gap, as before.
    const isNew = this.#holdsGaps || all.some((each) => each !== undefined && each.length > 0)
    const same = branches.map(({ reader }) => ({ reader }))
    noteSign(readers, closed, isNew ? sign : { ...sign, gaps: undefined, readers: same })
    // Gaps that are left out stay in the file.
    if (isNew) this.#holdsGaps = all.some((each) => each === undefined || each.length > 0)
  }

  /** On a full disk, the older sign of life stays. */
  #noteAlive({ db, readers }: OpenDatabase, sign: SignOfLife): void {
    if (this.#unlessFull(() => inTransaction(db, () => this.#note(readers, 0, sign))) === false) this.#holdsGaps = true
  }

  /** On a full disk, the space of the journal and the reserve is enough. */
  #noteEnd({ db }: OpenDatabase, note: () => void): void {
    if (this.#unlessFull(() => inTransaction(db, note)) !== false) return
    releaseReserve(this.#settings.path)
    this.#settleJournal(db)
    inTransaction(db, note)
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
    else if (copy !== path) this.#movedTo = copy
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

type Counted = Pick<OpenedFile, 'messages' | 'bytes'>

function countDead(reader: Reader): void {
  reader.deadLetters = Number(reader.statements.countDead.get()?.['messages'])
}

function figuresOf({ statements, deadLetters }: Reader): FileFigures {
  const oldest = statements.oldest.get()?.['place']
  return { oldest: oldest == null ? undefined : Number(oldest), deadLetters }
}

/** The branches that this process has. */
const used = (readers: Readers): readonly Reader[] =>
  readers.all.filter((reader) => reader.isUsed && reader !== readers.receiver)

/** The branches that this process does not have. Branches that nobody had since `beforeMs` are dropped. */
const leftOf = (
  db: DatabaseSync,
  readers: Readers,
  counted: ReadonlyMap<Reader, Counted>,
  beforeMs: number,
): readonly LeftReader[] =>
  readers.all.flatMap((reader) => {
    if (reader.isUsed) return []
    const { name, usedMs } = reader
    reader.statements.releaseVehicles.run()
    countDead(reader)
    const isDropped = usedMs < beforeMs
    if (isDropped) inTransaction(db, () => readers.drop(name))
    return [{ reader: name, messages: counted.get(reader)?.messages ?? 0, deadLetters: reader.deadLetters, isDropped }]
  })

function committedOf(
  reader: Reader,
  written: ReadonlyMap<Reader, WrittenChanges>,
  dropped: Dropped | undefined,
): ReaderCommitted {
  const { moved = [], retracted = { messages: 0, bytes: 0 } } = written.get(reader) ?? {}
  return { reader: reader.name, moved, retracted, dropped, ...figuresOf(reader) }
}

function isFailure(error: unknown, code: string): boolean {
  return error instanceof FleethookError && error.code === code
}

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}
