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
  FileFigures,
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
import { gapOf, inTransaction, prepareStatements, rollBack, type Statements, valueOf, vehicleOf } from './schema.ts'
import { createScrub, type Scrub } from './scrub.ts'
import { branchesLeft, lookInto, notReached, unopenedBeside } from './siblings.ts'
import {
  beginVehicles,
  believedIn,
  closedWithSuspects,
  heldVehicles,
  noteSign,
  noteStart,
  owedIn,
  removeReported,
} from './signs.ts'
import { releaseReserve, spaceFor, walPagesFor } from './volume.ts'
import { type Each, together, write } from './writing.ts'

interface OpenDatabase {
  readonly db: DatabaseSync
  readonly statements: Statements
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
  #deadLetters = 0
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

  async waiting(after: number): Promise<Page<Waiting>> {
    return this.#use(({ statements }) => waitingAfter(statements, after))
  }

  async find(seq: number): Promise<Claim | undefined> {
    return this.#use(({ statements }) => pendingAt(statements, seq))
  }

  async message(seq: number): Promise<InboxMessage | undefined> {
    return this.#use(({ statements }) => messageAt(statements, seq))
  }

  async deadLetters(which: Selection, after: number): Promise<Page<DeadLetter>> {
    return this.#use(({ statements }) => deadLettersAfter(statements, which, after))
  }

  async settled(which: Selection, after: number): Promise<Page<InboxMessage>> {
    return this.#use(({ statements }) => settledAfter(statements, which, after))
  }

  async messages(which: Selection, before: number): Promise<Page<ListedMessage>> {
    return this.#use(({ statements }) => messagesBefore(statements, which, before))
  }

  async check(): Promise<void> {
    this.#use((on) => {
      this.#throwIfMoved(on)
      on.space.volume.growReserve()
    })
  }

  async tidy(sign: SignOfLife, pendingBytes: number): Promise<Tidied> {
    return this.#use((on) => {
      const { db, statements, space } = on
      if (this.#settings.isVisit !== true) this.#noteAlive(on, sign)
      this.#unlessFull(() => statements.removeOldFailures.run())
      const step = (): boolean => space.step(sign.believed?.knownMs ?? sign.nowMs, pendingBytes)
      const more = this.#unlessFull(() => inTransaction(db, step) || space.volume.shrink())
      this.#deadLetters = countDead(statements)
      return { more, hasRoom: space.volume.hasRoom, dropped: space.takeDropped(), ...this.#figures(statements) }
    })
  }

  async probe(): Promise<boolean> {
    const hasRoom = ({ space: { volume } }: OpenDatabase): boolean =>
      volume.hasRoom && (volume.hasFreePages() || volume.growReserve())
    // Other work gets its turn between two steps.
    while (this.#use((on) => !hasRoom(on) && on.space.freeMore())) await setImmediate()
    return this.#use(hasRoom)
  }

  async unapplied(after: number): Promise<Page<InboxMessage>> {
    return this.#use(({ statements }) => unappliedAfter(statements, after))
  }

  async vehicle(vin: string): Promise<VehicleRow | undefined> {
    return this.#use(({ statements }) => {
      const row = statements.vehicle.get(vin)
      return row && vehicleOf(row)
    })
  }

  async vehicles(after: string, limit: number): Promise<readonly VehicleRow[]> {
    return this.#use(({ statements }) => vehiclesAfter(statements, after, limit))
  }

  async dueVehicles(after: string): Promise<readonly Due[]> {
    return this.#use(({ statements }) =>
      statements.dueVehicles.all(after).map(({ vin, due }) => ({ vin: String(vin), dueMs: Number(due) })),
    )
  }

  async outdatedVehicles(rules: string, after: string): Promise<readonly VehicleRow[]> {
    return this.#use(({ statements }) => outdatedAfter(statements, rules, after))
  }

  async countVehicles(): Promise<number> {
    return this.#use(({ statements }) => Number(statements.countVehicles.get()?.['vehicles']))
  }

  async removeUnseen(ms: number): Promise<number> {
    return this.#use(({ db, statements }) =>
      inTransaction(db, () => Number(statements.removeUnseen.run(ms, pageRows).changes)),
    )
  }

  async forget(vin: string, after: number, dryRun: boolean): Promise<ForgottenPage> {
    return this.#use(({ db, statements }) => {
      const page = forgetPage(db, statements, vin, after, dryRun)
      this.#deadLetters = countDead(statements)
      return { ...page, oldest: this.#figures(statements).oldest }
    })
  }

  async scrub(vin: string): Promise<boolean> {
    return this.#use((on) => {
      const { db, statements } = on
      inTransaction(db, () => eraseState(statements, vin))
      const free = (): number => Number(valueOf(db, 'PRAGMA freelist_count'))
      const before = free()
      db.prepare(`PRAGMA incremental_vacuum(${freedPages})`).all()
      if (free() > 0 && free() < before) return true
      this.#throwIfMoved(on)
      on.scrub ??= createScrub(db, this.#settings.path)
      if (on.scrub.step(() => statements.noteErasing.run(vin))) return true
      statements.removeErasing.run(vin)
      checkpoint(db)
      return false
    })
  }

  async notReached(sign: SignOfLife): Promise<readonly string[]> {
    return this.#use(({ db }) => notReached(db, this.#settings.path, sign))
  }

  async close(sign?: SignOfLife): Promise<void> {
    const { path, isVisit = false } = this.#settings
    const closing = this.#connection
    if (closing === undefined) return
    const { db, statements } = closing
    try {
      if (sign !== undefined) {
        // Messages that a crash left and that still wait may have been handed out before the crash.
        const closed = this.#hasSuspects && this.#figures(statements).oldest !== undefined ? closedWithSuspects : 1
        if (!isVisit) this.#noteEnd(closing, () => this.#note(statements, closed, sign))
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
      const statements = prepareStatements(db)
      const erasing = isVisit ? [] : await eraseOwed(db, statements)
      const space = new SpaceKeeper(db, statements, this.#settings, this.#walPages)
      const pending = await countPending(statements)
      this.#settleJournal(db)
      const begun = this.#beginUse(db, statements, sign, options)
      const vehicles = isVisit ? heldVehicles(statements) : beginVehicles(statements, sign)
      space.heldAfter = vehicles?.seq ?? Infinity
      // Set only now: a message that was written during the count might or might not be counted.
      this.#connection = { db, statements, space }
      this.#identity = identitiesOf(path)
      this.#isOurs = true
      this.#deadLetters = countDead(statements)
      return {
        ...begun,
        ...pending,
        ...this.#figures(statements),
        unopened,
        vehicles,
        erasing,
        version: String(valueOf(db, 'SELECT sqlite_version()')),
      }
    } catch (error) {
      closeQuietly(db)
      throw failureOf(error, path)
    }
  }

  /** Takes over the copy of a file that was replaced while it was open. Returns the files that hold messages and have no receiver. */
  #lookAround(db: DatabaseSync, sign: SignOfLife): readonly UnopenedInbox[] {
    const { path } = this.#settings
    const copy = this.#movedTo
    this.#movedTo = undefined
    try {
      if (copy !== undefined) moveInto(db, copy, sign)
      if (this.#isOurs) return []
      return [...unopenedBeside(db, path, sign), ...(this.#unlessFull(() => branchesLeft(db, path, sign)) || [])]
    } catch (error) {
      if (copy === undefined || !isReady(db)) throw error
      return [lookInto(copy) ?? { path: copy, messages: 0, deadLetters: 0 }]
    }
  }

  /** Marks the file as in use, and reads what the last process left. */
  #beginUse(
    db: DatabaseSync,
    statements: Statements,
    sign: SignOfLife,
    options: OpenOptions,
  ): Pick<OpenedFile, 'lastId' | 'gaps' | 'owed' | 'unclean' | 'believed'> {
    const { isVisit = false } = this.#settings
    const state = statements.state.get() ?? {}
    const believed = believedIn(state)
    const newest = statements.newest.get()
    if (!this.#isOurs) this.#hasSuspects = state['closed'] === 0 || state['closed'] === closedWithSuspects
    // Writes no new sign of life, so that a crash before the next one still reports what was refused since the last one.
    if (this.#isOurs && !isVisit) statements.setOpen.run()
    else if (!isVisit) inTransaction(db, () => noteStart(statements, state, sign, options))
    const gaps = statements.gaps.all().map(gapOf)
    this.#holdsGaps = gaps.length > 0
    const ids = [newest?.['id'], state['last_id']].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1), gaps, owed: owedIn(statements), unclean: this.#hasSuspects, believed }
  }

  #figures(statements: Statements): FileFigures {
    const oldest = statements.oldest.get()?.['place']
    return { oldest: oldest == null ? undefined : Number(oldest), deadLetters: this.#deadLetters }
  }

  /** Writes all rows, or, when each is tried alone, the rows that SQLite takes. */
  #commitAll(transaction: Transaction, each: Each = together): Committed {
    const on = this.#connection
    if (on === undefined) throw notOpen(this.#settings.path)
    const { db, statements, space } = on
    try {
      statements.begin.run()
      const written = write(statements, space, transaction, each)
      space.sweepBeside(transaction)
      if (this.#holdsGaps) for (const put of transaction.puts) if (put.kind === 'gap') removeReported(statements, put)
      statements.commit.run()
      this.#throwIfMoved(on)
      const dropped = space.takeDropped()
      this.#deadLetters += written.dead - (dropped?.messages ?? 0)
      space.heldAfter = transaction.vehicles?.seq ?? space.heldAfter
      return { ...written, ...this.#figures(statements), hasRoom: space.volume.hasRoom, dropped }
    } catch (error) {
      rollBack(db)
      space.rolledBack()
      throw this.#failed(error)
    }
  }

  /** Tries each row alone. */
  #commitEach(transaction: Transaction): Committed {
    const refused: Refused[] = []
    const done = this.#commitAll(transaction, (row, key, run) =>
      this.#use(({ db, statements }) => {
        db.exec('SAVEPOINT alone')
        try {
          const result = run()
          db.exec('RELEASE alone')
          return result
        } catch (error) {
          const failure = this.#failed(error)
          if (failure.code !== 'message_refused') throw failure
          db.exec('ROLLBACK TO alone; RELEASE alone')
          const found = typeof key === 'number' && row !== 'move' ? statements.message.get(key) : undefined
          refused.push({ row, key, id: found && String(found['id']), reason: failure.message })
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

  #note(statements: Statements, closed: number, sign: SignOfLife): void {
    const { gaps } = sign
    // Most signs say that there is no gap, as before.
    const isNew = gaps !== undefined && (this.#holdsGaps || gaps.length > 0)
    noteSign(statements, closed, isNew ? sign : { ...sign, gaps: undefined })
    if (isNew) this.#holdsGaps = gaps.length > 0
  }

  /** On a full disk, the older sign of life stays. */
  #noteAlive({ db, statements }: OpenDatabase, sign: SignOfLife): void {
    if (this.#unlessFull(() => inTransaction(db, () => this.#note(statements, 0, sign))) === false)
      this.#holdsGaps = true
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

/** What the path of a file and that of its journal name. */
function identitiesOf(path: string): readonly [file: string, journal: string] {
  const how = { bigint: true, throwIfNoEntry: false } as const
  const [file, journal] = [statSync(path, how), statSync(`${path}-wal`, how)]
  return [`${file?.dev} ${file?.ino}`, `${journal?.dev} ${journal?.ino}`]
}

const countDead = (statements: Statements): number => Number(statements.countDead.get()?.['messages'])

function isFailure(error: unknown, code: string): boolean {
  return error instanceof FleethookError && error.code === code
}

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}
