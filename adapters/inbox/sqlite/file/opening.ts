import type { DatabaseSync } from 'node:sqlite'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import type { UnopenedInbox } from '../../../../src/observe/stats.ts'
import type { FileSettings } from '../options.ts'
import { finishReplacing, isHalfReplaced, replaceDamaged } from './damage.ts'
import { checkpoint, closeQuietly, failureOf, isFailure, openDatabase, unlessFull } from './database.ts'
import { eraseOwed } from './erasing.ts'
import type { LeftReader, OpenedFile, OpenedReader, ReaderSign, SignOfLife } from './interface.ts'
import { isReady, moveInto } from './moving.ts'
import { countPending } from './reading.ts'
import { countDead, figuresOf, type Reader, Readers } from './readers.ts'
import { SpaceKeeper } from './retention.ts'
import { inTransaction, valueOf } from './schema.ts'
import type { Scrub } from './scrub.ts'
import { lookInto, unopenedBeside } from './siblings.ts'
import { beginVehicles, believedIn, closedWithSuspects, gapOf, heldVehicles, noteStart } from './signs.ts'
import { releaseReserve, spaceFor, walPagesFor } from './volume.ts'

/** A file that is open. */
export interface OpenDatabase {
  readonly db: DatabaseSync
  readonly readers: Readers
  readonly space: SpaceKeeper
  /** Some waiting messages may have been handed out by a process that crashed. */
  readonly hasSuspects: boolean
  /** The file has gaps that no stored event reports. */
  holdsGaps: boolean
  /** There since the first erasure. */
  scrub?: Scrub
}

/** How many messages wait for a reader, and their size. */
type Counted = Pick<OpenedFile, 'messages' | 'bytes'>

const nothing: Counted = { messages: 0, bytes: 0 }

/** Opens the file, as often as this process needs it, and takes over what was left: by another process, in a copy, or in a damaged file. */
export class Opening {
  readonly #settings: FileSettings
  readonly #walPages: number
  /** Damage was found while the file was open, so it is replaced without reading it first. */
  #isDamaged = false
  /** The copy of the file that was open, when another one has its path. */
  #movedTo: string | undefined
  #hasSuspects = false
  /** This process has opened the file before, so an unclosed file does not mean a crash. */
  #isOurs = false

  constructor(settings: FileSettings) {
    this.#settings = settings
    this.#walPages = walPagesFor(Math.min(settings.maxBytes, spaceFor(settings.path)))
  }

  /** Damage was found in the open file. */
  damaged(): void {
    this.#isDamaged = true
  }

  /** Another file has the path now. What the open one held is in this copy. */
  moved(copy: string): void {
    this.#movedTo = copy
  }

  async open(sign: SignOfLife, options: OpenOptions): Promise<readonly [on: OpenDatabase, found: OpenedFile]> {
    try {
      return await this.#openOrReplace(sign, options)
    } catch (error) {
      // On a full disk, waiting messages can still be handled with the space of the reserve.
      if (!isFailure(error, 'inbox_full') || !releaseReserve(this.#settings.path)) throw error
      return await this.#openOrReplace(sign, options)
    }
  }

  async #openOrReplace(sign: SignOfLife, options: OpenOptions): ReturnType<Opening['open']> {
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
      const [on, found] = await this.#openFile(sign, options)
      return [on, { ...found, damage }]
    } catch (error) {
      throw failureOf(error, path)
    }
  }

  async #openFile(sign: SignOfLife, options: OpenOptions): ReturnType<Opening['open']> {
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
      settleJournal(db, path)
      const begun = this.#beginUse(db, readers, sign, options)
      const opened = (reader: Reader, keepsVehicles: boolean | undefined): OpenedReader =>
        openReader(readers, reader, keepsVehicles, isVisit, counted.get(reader))
      const { reader: _reader, isNew: _isNew, ...own } = opened(readers.receiver, sign.keepsVehicles)
      const branches = (sign.readers ?? []).map((each) => opened(readers.of(each.reader), each.keepsVehicles))
      const goneMs = (sign.believed?.knownMs ?? sign.nowMs) - this.#settings.dead.forMs
      this.#isOurs = true
      const holdsGaps = [own, ...branches].some(({ gaps }) => gaps.length > 0)
      const found: OpenedFile = {
        ...begun,
        ...own,
        readers: branches,
        left: isVisit ? [] : leftOf(db, readers, counted, goneMs),
        unopened,
        erasing,
        version: String(valueOf(db, 'SELECT sqlite_version()')),
      }
      return [{ db, readers, space, holdsGaps, hasSuspects: this.#hasSuspects }, found]
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
    // Writes no new sign of life, so that a crash before the next one still reports what was refused since the last one.
    if (this.#isOurs && !isVisit) file.setOpen.run()
    else if (!isVisit) inTransaction(db, () => noteStart(readers, state, sign, options))
    const ids = [newest?.['id'], state['last_id']].filter((id) => typeof id === 'string')
    return { lastId: ids.toSorted().at(-1), unclean: this.#hasSuspects, believed }
  }
}

/** Adds a branch to a file that is open. */
export function addReader(
  on: OpenDatabase,
  { reader: name, keepsVehicles }: ReaderSign,
  nowMs: number,
  isVisit: boolean,
): OpenedReader {
  const { readers } = on
  const known = readers.all.find((each) => each.name === name)
  const reader = readers.use(name, nowMs)
  if (known !== undefined && known.usedMs > 0) reader.statements.addGap.run('stopped', known.usedMs, nowMs, null, 0)
  const counted = reader.statements.countPending.get(-1, Number.MAX_SAFE_INTEGER)
  const pending = { messages: Number(counted?.['messages']), bytes: Number(counted?.['bytes'] ?? 0) }
  const opened = openReader(readers, reader, keepsVehicles, isVisit, pending)
  if (opened.gaps.length > 0) on.holdsGaps = true
  return opened
}

/**
 * A journal can be readable and still not be on the disk: a kernel whose write failed may keep the page as clean. A
 * power cut would lose it and all after it, so the content goes into the file, which is synced.
 */
export function settleJournal(db: DatabaseSync, path: string): void {
  unlessFull(path, () => checkpoint(db))
}

/** Counts what a reader has, and marks its states as in use. */
function openReader(
  readers: Readers,
  reader: Reader,
  keepsVehicles: boolean | undefined,
  isVisit: boolean,
  { messages, bytes }: Counted = nothing,
): OpenedReader {
  const vehicles = isVisit ? heldVehicles(reader) : beginVehicles(readers, reader, keepsVehicles)
  reader.heldAfter = vehicles?.seq ?? Infinity
  countDead(reader)
  const gaps = reader.statements.gaps.all().map(gapOf)
  return { reader: reader.name, isNew: reader.isNew, gaps, messages, bytes, vehicles, ...figuresOf(reader) }
}

/** The branches that this process does not have. Branches that nobody had since `beforeMs` are dropped. */
function leftOf(
  db: DatabaseSync,
  readers: Readers,
  counted: ReadonlyMap<Reader, Counted>,
  beforeMs: number,
): readonly LeftReader[] {
  return readers.all.flatMap((reader) => {
    if (reader.isUsed) return []
    const { name, usedMs, statements } = reader
    statements.releaseVehicles.run()
    countDead(reader)
    const isDropped = usedMs < beforeMs
    if (isDropped) inTransaction(db, () => readers.drop(name))
    const { messages } = counted.get(reader) ?? nothing
    return [{ reader: name, messages, deadLetters: reader.deadLetters, isDropped }]
  })
}
