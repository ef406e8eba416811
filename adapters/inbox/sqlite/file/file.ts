import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import zlib from 'node:zlib'
import { FleethookError } from '../../../../src/base/errors.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import { laneOf } from '../../../../src/inbox/receipts.ts'
import { msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { Believed } from '../../../../src/base/believed-time.ts'
import type { InboxMessage, ListedMessage, Selection } from '../../../../src/inbox/inbox.ts'
import { bytesOfMessage, pageOf } from '../../../../src/base/pages.ts'
import { claimOf, letterOf, listedOf, messageOf, waitingOf } from '../../stored-row.ts'
import { rulesText } from '../../../../src/inbox/vehicle-store.ts'
import type { FileSettings } from '../options.ts'
import { isHalfReplaced, replaceDamaged } from './damage.ts'
import { checkpoint, closeQuietly, copyMoved, failureOf, openDatabase } from './database.ts'
import type {
  Committed,
  FileFigures,
  ForgottenPage,
  InboxFile,
  Move,
  OpenedFile,
  OpenedVehicles,
  Page,
  Refused,
  Siblings,
  SignOfLife,
  StoredMessage,
  Transaction,
  VehicleRow,
  VehicleWrites,
} from './interface.ts'
import { createScrub, type Scrub } from './scrub.ts'
import { createSpaceKeeper, releaseReserve, spaceFor, type SpaceKeeper, walPagesFor } from './retention.ts'
import { type Adopting, adoptPart, branchesLeft, findSiblings, notReached } from './siblings.ts'
import {
  downtimeOf,
  gapOf,
  intact,
  inTransaction,
  isIntact,
  prepareStatements,
  rollBack,
  type SqlRow,
  type Statements,
  valueOf,
  vehicleOf,
} from './schema.ts'

interface OpenDatabase {
  readonly db: DatabaseSync
  readonly statements: Statements
  readonly space: SpaceKeeper
  /** There since the first erasure. */
  scrub?: Scrub
}

/** After this time without a sign of life, another receiver may take over a file, in milliseconds. */
const goneMs = 60_000

/** Rows per page of a list: a few milliseconds of reading. */
const pageRows = 2_000

/** The free pages that one step of an erasure gives to the disk. */
const freedPages = 1_000

/** Rows that one step of a newest-first list reads, without their texts: a few milliseconds. */
const listedRows = 10_000

/** The file itself. Each step blocks the thread that it runs in. */
export function createInboxFile(settings: FileSettings): InboxFile {
  const { path, maxBytes, adopt, isVisit = false } = settings
  const walPages = walPagesFor(Math.min(maxBytes, spaceFor(path)))
  let connection: OpenDatabase | undefined
  let holdsGaps = false
  let deadLetters = 0
  /** The files that the path and its journal named when the file was opened. */
  let identity: readonly [file: string, journal: string] = ['', '']
  /** Where the messages of a replaced file are. The next `open` takes them over. */
  let movedTo: string | undefined
  /** Damage was found while the file was open. The next `open` replaces the file without reading it first. */
  let isDamaged = false
  /** Some waiting messages may have been handed out by a process that crashed. */
  let hasSuspects = false
  /** This process has opened the file before, so an unclosed file does not mean a crash. */
  let isOurs = false
  /** The files of which only a part is taken over. */
  const adopting = new Map<string, Adopting>()
  /** Settled messages after this `seq` stay: the states of their vehicles are not written yet. */
  let heldAfter = Infinity

  function use<T>(run: (on: OpenDatabase) => T): T {
    if (connection === undefined) throw notOpen(path)
    try {
      return run(connection)
    } catch (error) {
      throw failed(error)
    }
  }

  function failed(error: unknown): FleethookError {
    const failure = failureOf(error, path)
    if (failure.code === 'inbox_damaged') isDamaged = true
    return failure
  }

  /** Closes the connection, and then what it needs open. */
  function release(): void {
    const closing = connection
    connection = undefined
    closeQuietly(closing?.db)
    closing?.scrub?.close()
  }

  /** `false` on a full disk. */
  function unlessFull<Result>(run: () => Result): Result | false {
    try {
      return run()
    } catch (error) {
      const failure = failed(error)
      if (failure.code !== 'inbox_full') throw failure
      return false
    }
  }

  async function openFile(sign: SignOfLife, options: OpenOptions): Promise<OpenedFile> {
    const db = openDatabase(path, walPages)
    try {
      const looksAround = !isVisit && (!isOurs || movedTo !== undefined)
      const { adopted, unopened, unclean } = looksAround
        ? await findSiblings(db, path, movedTo ?? adopt, sign)
        : noSiblings
      const left = (looksAround && unlessFull(() => branchesLeft(db, path, sign))) || []
      movedTo = undefined
      const statements = prepareStatements(db)
      const erasing = isVisit ? [] : await eraseOwed(db, statements)
      const space = createSpaceKeeper(db, statements, settings, walPages, () => heldAfter)
      const pending = await countPending(statements)
      settleJournal(db)
      const begun = beginUse(db, statements, sign, options)
      const vehicles = isVisit ? heldVehicles(statements) : beginVehicles(statements, sign)
      heldAfter = vehicles?.seq ?? Infinity
      // Set only now: a message that was written during the count might or might not be counted.
      connection = { db, statements, space }
      identity = identitiesOf(path)
      isOurs = true
      deadLetters = countDead(statements)
      return {
        ...begun,
        ...pending,
        ...figures(statements),
        siblings: { adopted, unopened: [...unopened, ...left], unclean },
        unclean: begun.unclean || unclean,
        vehicles,
        erasing,
        version: String(valueOf(db, 'SELECT sqlite_version()')),
      }
    } catch (error) {
      closeQuietly(db)
      throw failureOf(error, path)
    }
  }

  /**
   * A journal can be readable and still not be on the disk: a kernel whose write failed may keep the page as clean. A
   * power cut would lose it and all after it, so the content goes into the file, which is synced.
   */
  function settleJournal(db: DatabaseSync): void {
    unlessFull(() => checkpoint(db))
  }

  /** Marks the file as in use, and reads what the last process left. */
  function beginUse(
    db: DatabaseSync,
    statements: Statements,
    sign: SignOfLife,
    options: OpenOptions,
  ): Pick<OpenedFile, 'lastId' | 'gaps' | 'unclean' | 'believed'> {
    const state = statements.state.get() ?? {}
    const believed = believedIn(state)
    const newest = statements.newest.get()
    if (!isOurs) hasSuspects = state['closed'] === 0 || state['closed'] === closedWithSuspects
    // Writes no new sign of life, so that a crash before the next one still reports what was refused since the last one.
    if (isOurs && !isVisit) statements.setOpen.run()
    else if (!isVisit) inTransaction(db, () => noteStart(statements, state, sign, options))
    const gaps = statements.gaps.all().map(gapOf)
    holdsGaps = gaps.length > 0
    const ids = [newest?.['id'], state['last_id']].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1), gaps, unclean: hasSuspects, believed }
  }

  function figures(statements: Statements): FileFigures {
    const oldest = statements.oldest.get()?.['place']
    return { oldest: oldest == null ? undefined : Number(oldest), deadLetters }
  }

  /** The sign of life and the gaps together: the gap of a crash begins there and does not cover earlier refusals. */
  function note(statements: Statements, closed: number, { nowMs, uptimeMs, gaps, believed }: SignOfLife): void {
    if (gaps !== undefined && (holdsGaps || gaps.length > 0)) {
      statements.removeGaps.run()
      for (const { reason, fromMs, toMs, vin, missed } of gaps)
        statements.addGap.run(reason, fromMs, toMs, vin ?? null, missed)
      holdsGaps = gaps.length > 0
    }
    const left = believed ?? believedIn(statements.state.get() ?? {})
    statements.setState.run(closed, nowMs, uptimeMs ?? null, left?.knownMs ?? null, left?.doubtedMs ?? null)
  }

  /** On a full disk, the older sign of life stays. */
  function noteAlive({ db, statements }: OpenDatabase, sign: SignOfLife): void {
    if (unlessFull(() => inTransaction(db, () => note(statements, 0, sign))) === false) holdsGaps = true
  }

  /** On a full disk, the space of the journal and the reserve is enough. */
  function noteEnd({ db }: OpenDatabase, write: () => void): void {
    if (unlessFull(() => inTransaction(db, write)) !== false) return
    releaseReserve(path)
    settleJournal(db)
    inTransaction(db, write)
  }

  /** Saves a file or journal that was deleted, renamed or replaced, and would be lost with this process. */
  function saveMoved({ db }: OpenDatabase): FleethookError | undefined {
    const [file, journal] = identitiesOf(path)
    const isFileHere = file === identity[0]
    if (isFileHere && journal === identity[1]) return undefined
    const copy = isFileHere ? path : copyMoved(db, path)
    if (isFileHere) checkpoint(db)
    else if (copy !== path) movedTo = copy
    // Anything written from here on would not be in the copy.
    release()
    return new FleethookError('inbox_unavailable', `The file of the inbox ${path} was deleted, renamed or replaced.`, {
      hint: `Stop the receiver before you move its files. What they held is in ${copy}.`,
    })
  }

  async function openOrReplace(sign: SignOfLife, options: OpenOptions): Promise<OpenedFile> {
    if (!isDamaged && !isHalfReplaced(path)) {
      try {
        return await openFile(sign, options)
      } catch (error) {
        if (!isFailure(error, 'inbox_damaged')) throw error
      }
    }
    const damage = await replaceDamaged(path, sign.nowMs, walPages, isOurs).catch((error: unknown) => {
      throw failureOf(error, path)
    })
    isDamaged = false
    return { ...(await openFile(sign, options)), damage }
  }

  /** Tries each row alone. */
  function commitEach(transaction: Transaction): Committed {
    const refused: Refused[] = []
    const done = commitAll(transaction, (row, key, run) =>
      use(({ db, statements }) => {
        db.exec('SAVEPOINT alone')
        try {
          const result = run()
          db.exec('RELEASE alone')
          return result
        } catch (error) {
          const failure = failed(error)
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

  function commitAll(transaction: Transaction, each: Each = together): Committed {
    if (connection === undefined) throw notOpen(path)
    const { db, statements, space } = connection
    try {
      statements.begin.run()
      const written = write(statements, space, transaction, each)
      space.sweepBeside(transaction)
      if (holdsGaps) for (const put of transaction.puts) if (put.kind === 'gap') removeReported(statements, put)
      statements.commit.run()
      const moved = saveMoved(connection)
      if (moved !== undefined) throw moved
      const dropped = space.takeDropped()
      deadLetters += written.dead - (dropped?.messages ?? 0)
      heldAfter = transaction.vehicles?.seq ?? heldAfter
      return { ...written, ...figures(statements), hasRoom: space.hasRoom(), dropped }
    } catch (error) {
      rollBack(db)
      space.rolledBack()
      throw failed(error)
    }
  }

  return {
    open: (sign, options = {}) =>
      openOrReplace(sign, options).catch((error: unknown) => {
        // On a full disk, waiting messages can still be handled with the space of the reserve.
        if (!isFailure(error, 'inbox_full') || !releaseReserve(path)) throw error
        return openOrReplace(sign, options)
      }),

    async commit(transaction) {
      let isRefused = false
      for (let tries = 0; ;) {
        try {
          return isRefused ? commitEach(transaction) : commitAll(transaction)
        } catch (error) {
          // One row that SQLite refuses never takes others with it.
          if (isFailure(error, 'message_refused') && !isRefused) isRefused = true
          else if (!isFailure(error, 'inbox_full') || tries === 2) throw error
          else {
            // With free pages of the file first, then with the space of the reserve, too.
            if (tries === 1) use(({ space }) => space.releaseReserve())
            const isFree = unlessFull(() => use(({ space }) => space.freeUp(transaction)))
            if (!isFree && tries === 1) throw error
            tries += 1
          }
        }
      }
    },

    waiting: async (after) =>
      use(({ statements }) => {
        const rows = statements.waiting.all(after, pageRows)
        return { items: rows.map(waitingOf), next: seqAfter(rows) }
      }),

    find: async (seq) =>
      use(({ statements }) => {
        const row = statements.pending.get(seq)
        return row && claimOf(intact(row))
      }),

    message: async (seq) => use(({ statements }) => messageAt(statements, seq)),

    deadLetters: async (which, after) =>
      use(({ statements }) =>
        select(
          statements.deadLetters.all(after, pageRows),
          which,
          ({ place }) => {
            const row = statements.deadLetter.get(Number(place))
            return row && letterOf(intact(row))
          },
          bytesOfMessage,
        ),
      ),

    settled: async (which, after) =>
      use(({ statements }) =>
        select(
          statements.settled.all(after, pageRows),
          which,
          ({ place, elsewhere }) => (elsewhere === 0 ? messageAt(statements, Number(place)) : undefined),
          ({ bytes }) => bytes,
        ),
      ),

    messages: async ({ lane, fromMs, toMs, limit }, before) =>
      use(({ statements }) => {
        const times = [fromMs ?? 0, toMs ?? Number.MAX_SAFE_INTEGER] as const
        const rows = statements.listed.all(before, listedRows, lane ?? null, ...times, limit)
        const reached = statements.listedTo.get(before, listedRows)
        const isEnd = rows.length < limit && Number(reached?.['messages']) < listedRows
        let last = before
        const found = readEach(rows, (seq) => {
          last = seq
          const row = statements.listedOne.get(seq)
          return row && listedOf(intact(row), stateOf(row))
        })
        const items = pageOf(found, limit, bytesOfMessage)
        if (last !== Number(rows.at(-1)?.['place'] ?? before) || rows.length >= limit) return { items, next: last }
        return { items, next: isEnd ? undefined : Number(reached?.['place']) }
      }),

    check: async () =>
      use((on) => {
        const moved = saveMoved(on)
        if (moved !== undefined) throw moved
        on.space.growReserve()
      }),

    tidy: async (sign, pendingBytes) =>
      use((on) => {
        const { db, statements, space } = on
        if (!isVisit) noteAlive(on, sign)
        unlessFull(() => statements.removeOldFailures.run())
        const more = unlessFull(
          () =>
            inTransaction(db, () => space.step(sign.believed?.knownMs ?? sign.nowMs, pendingBytes)) || space.shrink(),
        )
        deadLetters = countDead(statements)
        return { more, hasRoom: space.hasRoom(), dropped: space.takeDropped(), ...figures(statements) }
      }),

    adopt: async (sign) =>
      use(({ db, statements }) => {
        if (adopt === undefined) return { part: undefined, unopened: [], ...figures(statements) }
        const found = adoptPart(db, path, adopt, sign, adopting, sign.nowMs - goneMs)
        if (found.part !== undefined && found.part.gaps.length > 0) holdsGaps = true
        deadLetters += found.part?.deadLetters ?? 0
        const after = figures(statements)
        // Taking over has made a new journal, which SQLite opens when it reads.
        identity = [identity[0], identitiesOf(path)[1]]
        return { ...found, ...after }
      }),

    async probe() {
      const hasRoom = (space: SpaceKeeper): boolean => space.hasRoom() && (space.hasFreePages() || space.growReserve())
      // Other work gets its turn between two steps.
      while (use(({ space }) => !hasRoom(space) && space.freeMore())) await setImmediate()
      return use(({ space }) => hasRoom(space))
    },

    unapplied: async (after) =>
      use(({ statements }) => {
        const rows = statements.unapplied.all(after, pageRows)
        let last = after
        const found = readEach(rows, (seq) => {
          last = seq
          const row = statements.message.get(seq)
          return row !== undefined && isIntact(row) ? messageOf(row) : undefined
        })
        const items = pageOf(found, Infinity, ({ bytes }) => bytes)
        return { items, next: last === Number(rows.at(-1)?.['place'] ?? after) ? seqAfter(rows) : last }
      }),

    vehicle: async (vin) =>
      use(({ statements }) => {
        const row = statements.vehicle.get(vin)
        return row && vehicleOf(row)
      }),

    vehicles: async (after, limit) =>
      use(({ statements }) => {
        function* found(): Generator<VehicleRow> {
          for (let vin: string | undefined = after; vin !== undefined;) {
            const row: SqlRow | undefined = statements.nextVehicle.get(vin)
            const vehicle = row && vehicleOf(row)
            if (vehicle !== undefined) yield vehicle
            vin = row === undefined ? undefined : String(row['vin'])
          }
        }
        return pageOf(found(), limit, ({ text }) => text.length)
      }),

    dueVehicles: async (after) =>
      use(({ statements }) =>
        statements.dueVehicles.all(after).map(({ vin, due }) => ({ vin: String(vin), dueMs: Number(due) })),
      ),

    outdatedVehicles: async (rules, after) =>
      use(({ statements }) => {
        const text = rulesText(rules)
        return statements.outdatedVehicles.all(after, text, text).flatMap((row) => vehicleOf(row) ?? [])
      }),

    countVehicles: async () => use(({ statements }) => Number(statements.countVehicles.get()?.['vehicles'])),

    removeUnseen: async (ms) =>
      use(({ db, statements }) => inTransaction(db, () => Number(statements.removeUnseen.run(ms, pageRows).changes))),

    forget: async (vin, after, dryRun) =>
      use(({ db, statements }) => {
        const page = forgetPage(db, statements, vin, after, dryRun)
        deadLetters = countDead(statements)
        return { ...page, oldest: figures(statements).oldest }
      }),

    scrub: async (vin) =>
      use((on) => {
        const { db, statements } = on
        inTransaction(db, () => eraseState(statements, vin))
        const free = (): number => Number(valueOf(db, 'PRAGMA freelist_count'))
        const before = free()
        db.prepare(`PRAGMA incremental_vacuum(${freedPages})`).all()
        if (free() > 0 && free() < before) return true
        const moved = saveMoved(on)
        if (moved !== undefined) throw moved
        on.scrub ??= createScrub(db, path)
        if (on.scrub.step(() => statements.noteErasing.run(vin))) return true
        statements.removeErasing.run(vin)
        checkpoint(db)
        return false
      }),

    notReached: async (sign) => use(({ db }) => notReached(db, path, sign)),

    async close(sign) {
      const closing = connection
      if (closing === undefined) return
      const { db, statements } = closing
      try {
        if (sign !== undefined) {
          // Messages that a crash left and that still wait may have been handed out before the crash.
          const closed = hasSuspects && figures(statements).oldest !== undefined ? closedWithSuspects : 1
          if (!isVisit) noteEnd(closing, () => note(statements, closed, sign))
          if (saveMoved(closing) !== undefined) return
          settleJournal(db)
        }
      } catch (error) {
        throw failureOf(error, path)
      } finally {
        release()
      }
    },
  }
}

/** The value of `state.closed` in a file that was closed properly, but has waiting messages from before a crash. */
const closedWithSuspects = 3

const noSiblings: Siblings = { adopted: [], unopened: [], unclean: false }

/** What the path of a file and that of its journal name. */
function identitiesOf(path: string): readonly [file: string, journal: string] {
  const how = { bigint: true, throwIfNoEntry: false } as const
  const [file, journal] = [statSync(path, how), statSync(`${path}-wal`, how)]
  return [`${file?.dev} ${file?.ino}`, `${journal?.dev} ${journal?.ino}`]
}

/** Erases the messages of a vehicle among the next rows. `after`: -1 begins, which is written down until all is erased. */
function forgetPage(
  db: DatabaseSync,
  statements: Statements,
  vin: string,
  after: number,
  dryRun: boolean,
): Omit<ForgottenPage, 'oldest'> {
  const reached = statements.sweepTo.get(after, Number.MAX_SAFE_INTEGER, listedRows)
  const upTo = reached?.['place'] == null ? after : Number(reached['place'])
  const found = statements.aboutVin.all(after, upTo, laneOf(vin), vin)
  const waits = found.filter((row) => row['waits'] === 1)
  if (!dryRun)
    inTransaction(db, () => {
      if (after < 0) statements.addErasing.run(vin)
      for (const { place } of found) {
        statements.removePending.get(Number(place))
        statements.removeDead.get(Number(place))
        statements.removeFailure.run(Number(place))
        statements.removeMessage.run(Number(place))
      }
    })
  return {
    messages: found.length,
    waiting: waits.filter(({ kind }) => kind === 'wire').length,
    deadLetters: found.filter(({ died }) => died === 1).length,
    pending: { messages: waits.length, bytes: waits.reduce((sum, { bytes }) => sum + Number(bytes), 0) },
    next: Number(reached?.['messages']) < listedRows ? undefined : upTo,
  }
}

function eraseState(statements: Statements, vin: string): void {
  statements.removeVehicle.run(vin)
  statements.removeGapsOf.run(vin)
  statements.removeOldFailures.run()
}

/** Erases the rows of vehicles whose erasure an earlier process has begun. Returns those, because pages may still have something of them. */
async function eraseOwed(db: DatabaseSync, statements: Statements): Promise<readonly string[]> {
  const owed = statements.erasing.all().map(({ vin }) => String(vin))
  for (const vin of owed) {
    for (let after: number | undefined = -1; after !== undefined;) {
      after = forgetPage(db, statements, vin, after, false).next
      await setImmediate()
    }
    inTransaction(db, () => eraseState(statements, vin))
  }
  return owed
}

const countDead = (statements: Statements): number => Number(statements.countDead.get()?.['messages'])

/** What an earlier process believed. Files of earlier releases have only its last sign of life. */
function believedIn(state: SqlRow): Believed | undefined {
  const seenMs = Number(state['alive_at'] ?? 0)
  if (seenMs === 0) return undefined
  return { knownMs: Number(state['known_ms'] ?? seenMs), doubtedMs: Number(state['doubted_ms'] ?? 0), seenMs }
}

/** Writes that a receiver has started, and the time since the last one in which nobody listened. */
function noteStart(statements: Statements, state: SqlRow, sign: SignOfLife, options: OpenOptions): void {
  const aliveMs = Number(state['alive_at'] ?? 0)
  const isUsed = aliveMs > 0
  statements.removeGapOfStop.run(aliveMs)
  const { fromMs, toMs } = downtimeOf(state, sign)
  const wasHeld = options.listeningWasKept === true && toMs - fromMs <= heldMs
  if (state['closed'] === 0) statements.addGap.run('restarted', fromMs, toMs, null, 0)
  else if (isUsed && toMs > fromMs && !wasHeld) statements.addGap.run('stopped', fromMs, toMs, null, 0)
  // This process has not compared its clock yet.
  const believed = believedIn(state)
  statements.setState.run(
    0,
    sign.nowMs,
    sign.uptimeMs ?? null,
    believed?.knownMs ?? sign.nowMs,
    believed?.doubtedMs ?? 0,
  )
}

/** What the file says about vehicles while a receiver keeps their states in it. */
function heldVehicles(statements: Statements): OpenedVehicles | undefined {
  const state = statements.state.get() ?? {}
  if (state['vehicles_held'] !== 1) return undefined
  return { seq: Number(state['vehicles_seq']), upTo: Number(state['vehicles_up_to']) }
}

/** Writes whether this receiver keeps states of vehicles. If not, retention may drop messages that are not in the states. */
function beginVehicles(statements: Statements, { keepsVehicles }: SignOfLife): OpenedVehicles | undefined {
  if (keepsVehicles !== true) {
    statements.releaseVehicles.run()
    return undefined
  }
  const held = heldVehicles(statements)
  if (held !== undefined) return held
  const before = statements.state.get()?.['vehicles_seq']
  const seq = Number(statements.newestSeq.get()?.['place'] ?? -1)
  statements.holdVehicles.run(seq, seq)
  return { seq, upTo: seq, staleFromMs: before == null ? undefined : msOfSeq(Number(before)) }
}

/** Connections can wait this long in the kernel before their sender may give up. */
const heldMs = 5_000

/** The event of a gap is in the inbox, so the gap is deleted from the file. */
function removeReported(statements: Statements, { text }: StoredMessage): void {
  const event: unknown = JSON.parse(text)
  if (typeof event !== 'object' || event === null) return
  const read = (name: string): string => String(Reflect.get(event, name) ?? '')
  const vin = read('vin')
  statements.removeGap.run(
    read('reason'),
    vin === '' ? null : vin,
    Date.parse(read('from')) || 0,
    Date.parse(read('to')) || 0,
  )
}

function isFailure(error: unknown, code: string): boolean {
  return error instanceof FleethookError && error.code === code
}

function notOpen(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
}

function messageAt(statements: Statements, seq: number): InboxMessage | undefined {
  const row = statements.message.get(seq)
  return row && messageOf(intact(row))
}

/** Reads every pending row, so that damage shows now. Other work runs between two steps. */
async function countPending(statements: Statements): Promise<Pick<OpenedFile, 'messages' | 'bytes'>> {
  let messages = 0
  let bytes = 0
  for (let after: number | undefined = -1; after !== undefined;) {
    const row: SqlRow | undefined = statements.countPending.get(after, pageRows * 10)
    messages += Number(row?.['messages'])
    bytes += Number(row?.['bytes'] ?? 0)
    after = row?.['last'] == null ? undefined : Number(row['last'])
    await setImmediate()
  }
  return { messages, bytes }
}

interface Written extends Pick<Committed, 'moved' | 'retracted'> {
  /** The change in the number of dead letters. */
  readonly dead: number
}

/** Writes one row. Returns `undefined` when the row is refused and others go on. */
type Each = <Result>(row: Refused['row'], key: Refused['key'], run: () => Result) => Result | undefined

const together: Each = (_row, _key, run) => run()

function write(statements: Statements, space: SpaceKeeper, transaction: Transaction, each: Each): Written {
  const retracted = { messages: 0, bytes: 0 }
  for (const seq of transaction.retracted) {
    const bytes = bytesOf(statements.removePending.get(seq))
    statements.removeMessage.run(seq)
    if (bytes === undefined) continue
    retracted.messages += 1
    retracted.bytes += bytes
  }
  if (transaction.puts.length > 0) {
    space.makeRoom(transaction)
    if (each === together) writePuts(statements, transaction.puts)
    else
      for (const [first, puts] of Map.groupBy(transaction.puts, (put) => put.first ?? put.seq))
        each('put', first, () => writePuts(statements, puts))
  }
  for (const { seq, deliveriesFrom, deliveries, attempts, notBefore, failure } of transaction.updates)
    each('update', seq, () => {
      if (failure === null) statements.removeFailure.run(seq)
      else if (failure !== undefined) statements.setFailure.run(seq, JSON.stringify(failure))
      if (deliveriesFrom === undefined && attempts === undefined) statements.addDeliveries.run(deliveries, seq)
      else statements.updatePending.run(deliveriesFrom ?? null, deliveries, attempts ?? 0, notBefore ?? 0, seq)
    })
  for (const seq of transaction.settled) each('settle', seq, () => statements.settle.run(seq))
  const counts = { dead: 0 }
  const moved = transaction.moves.map((move, at) => each('move', at, () => writeMove(statements, move, counts)))
  if (transaction.vehicles !== undefined) writeVehicles(statements, transaction.vehicles, each)
  return { moved, retracted, ...counts }
}

function writeVehicles(statements: Statements, { forgotten, rows, seq, upTo }: VehicleWrites, each: Each): void {
  for (const vin of forgotten) statements.removeVehicle.run(vin)
  for (const { vin, seq: place, seenMs, text } of rows)
    each('vehicle', vin, () => statements.setVehicle.run(vin, place, Math.max(0, seenMs), zlib.crc32(text), text))
  if (upTo !== undefined) statements.setVehiclesUpTo.run(upTo)
  if (seq !== undefined) statements.setVehiclesSeq.run(seq)
}

/** From this number of rows on, one statement that copies all of them is faster than one statement per row. */
const copyFromRows = 8

function writePuts(statements: Statements, puts: readonly StoredMessage[]): void {
  // A range can be copied only when it contains no older message.
  let isRange = puts.length >= copyFromRows
  let previous = isRange ? Number(statements.newestSeq.get()?.['place'] ?? -1) : 0
  for (const { seq } of puts) {
    isRange &&= seq > previous
    previous = seq
  }
  for (const { seq, id, lane, receivedAt, door, kind, bytes, text } of puts) {
    statements.addMessage.run(seq, id, lane, receivedAt, door, kind, bytes, zlib.crc32(text), text)
    if (!isRange) statements.addPending.run(seq, id, lane, kind, bytes)
  }
  if (isRange) statements.addPendingRange.run(puts[0]?.seq ?? 0, previous)
}

/** Returns the size of the moved message. Adds the change in the number of dead letters to `counts`. */
function writeMove(statements: Statements, move: Move, counts: { dead: number }): number | undefined {
  const { seq } = move
  switch (move.to) {
    case 'settled':
      return bytesOf(statements.removePending.get(seq))
    case 'deleted': {
      const bytes = bytesOf(statements.removeDead.get(seq))
      if (bytes === undefined) return undefined
      statements.removeMessage.run(seq)
      counts.dead -= 1
      return bytes
    }
    case 'pending': {
      const bytes = bytesOf(statements.revive.get(seq))
      // One that an earlier life of the message left.
      if (bytes !== undefined) statements.removeFailure.run(seq)
      if (bytes !== undefined && statements.removeDead.get(seq) !== undefined) counts.dead -= 1
      return bytes
    }
    case 'dead': {
      const row = statements.removePending.get(seq)
      const bytes = bytesOf(row)
      if (bytes === undefined) return undefined
      const run = Number(row?.['replayed'])
      statements.addDead.run(seq, bytes, move.error, move.attempts, move.diedAt, move.changed ?? null, run)
      counts.dead += 1
      return bytes
    }
  }
}

function bytesOf(row: SqlRow | undefined): number | undefined {
  return row === undefined ? undefined : Number(row['bytes'])
}

/** Reads the selected rows of a page, until it has its items or its bytes. A page may hold few selected rows, or none. */
function select<T>(
  rows: readonly SqlRow[],
  which: Selection,
  read: (row: SqlRow) => T | undefined,
  bytesOf: (item: T) => number,
): Page<T> {
  const { lane, fromMs, toMs, limit } = which
  let last: SqlRow | undefined
  function* selected(): Generator<T> {
    for (const row of rows) {
      last = row
      const receivedAt = Number(row['received_at'])
      const isSelected =
        (lane === undefined || row['lane'] === lane) &&
        (fromMs === undefined || receivedAt >= fromMs) &&
        (toMs === undefined || receivedAt < toMs)
      const item = isSelected ? read(row) : undefined
      if (item !== undefined) yield item
    }
  }
  const items = pageOf(selected(), limit, bytesOf)
  return { items, next: last === rows.at(-1) ? seqAfter(rows) : Number(last?.['place']) }
}

function* readEach<T>(rows: readonly SqlRow[], read: (seq: number) => T | undefined): Generator<T> {
  for (const { place } of rows) {
    const item = read(Number(place))
    if (item !== undefined) yield item
  }
}

function stateOf({ waits, died_at: diedAt }: SqlRow): ListedMessage['state'] {
  return waits === 1 ? 'waiting' : diedAt == null ? 'settled' : 'dead'
}

function seqAfter(rows: readonly SqlRow[]): number | undefined {
  const last = rows.at(-1)
  return rows.length < pageRows || last === undefined ? undefined : Number(last['place'])
}
