import { appendFileSync, existsSync, rmSync, statfsSync, statSync, truncateSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { goesOn, isOutOfSpace, pageBytes as newPageBytes } from './database.ts'
import { valueOf } from './schema.ts'
import type { FileStatements } from './statements.ts'

/** The space that a message takes beside its text: its row in `pending`, its columns, its share of the pages. */
export const rowBytes = 320
/** The volume is looked at each time that this much was put. */
const lookBytes = 1_048_576
/** Free pages that stay in the file for new messages, and how many others go back to the disk at once. */
const sparePages = 1_024
const vacuumPages = 256
/** The pages of a file without messages, at most. */
const emptyPages = 32

/** SQLite starts the journal over at this number of pages, when the inbox can have so many bytes. That space is part of them. */
export const walPagesFor = (bytes: number): number => Math.max(64, Math.min(2000, Math.floor(bytes / 8 / newPageBytes)))

/** The most bytes that the messages of one body can take in a file of this size, when it is empty. */
export const mostNewBytes = (maxBytes: number): number =>
  maxBytes - (2 * walPagesFor(maxBytes) + emptyPages) * newPageBytes

/** A message takes at most twice its space while pages are split. */
const roomFor = (needed: number, pageBytes: number): number => 2 * needed + pageBytes * 16

interface Opened {
  readonly db: DatabaseSync
  readonly statements: Pick<FileStatements, 'pageCount' | 'freePages'>
}

/** The bytes of the journal, of the reserve, and of the rest. */
interface Sizes {
  readonly pages: number
  readonly journal: number
  readonly reserve: number
  readonly budget: number
}

/**
 * The space of the file, its journal and its reserve, in `maxBytes` and on the volume.
 *
 * - Roomy: puts take what they need, until the file has `kept`; then settled messages go first.
 * - Over: the file has all of its budget. Dead letters go, and then puts are refused.
 * - Cramped: the volume has no room for the reserve, so puts may use only free pages of the file, or the journal could never move into it.
 *
 * `look` moves from one to the other, each time that a MiB was put and at each step while the inbox is idle.
 */
export class Volume {
  readonly pageBytes: number
  readonly #path: string
  readonly #maxBytes: number
  readonly #on: Opened
  #sizes: Sizes
  /** What is kept for replays goes when the file has more than this, so that the volume never gets full because of it. */
  #kept: number
  #isCramped = false
  /** What may still be put before the volume is looked at again. */
  #unseenBytes = 0
  #isVacuuming = false

  constructor(on: Opened, path: string, maxBytes: number, walPages: number) {
    this.pageBytes = Number(valueOf(on.db, 'PRAGMA page_size'))
    this.#on = on
    this.#path = path
    this.#maxBytes = maxBytes
    this.#sizes = this.#sizesWith(walPages)
    this.#kept = this.#sizes.budget
  }

  get usedBytes(): number {
    return (this.#count('pageCount') - this.#count('freePages')) * this.pageBytes
  }

  get hasRoom(): boolean {
    return this.#isUnlimited || this.usedBytes + this.pageBytes * 16 <= this.#sizes.budget
  }

  /** Whether what is kept for replays takes nearly all that it may. */
  get isNearlyFull(): boolean {
    return this.usedBytes > this.#kept * 0.9
  }

  /** Whether puts of this size need what is kept for replays. */
  needsSettled(needed: number): boolean {
    return this.usedBytes + needed > this.#kept || this.isCramped(needed)
  }

  /** Whether puts of this size exceed `maxBytes`. */
  isOver(needed: number): boolean {
    return !this.#isUnlimited && this.usedBytes + needed > this.#sizes.budget
  }

  isCramped(needed: number): boolean {
    return this.#isCramped && !this.hasFreePages(roomFor(needed, this.pageBytes))
  }

  /** Whether a full disk still has no room for puts of this size. */
  isOut(needed: number): boolean {
    return !this.hasFreePages(roomFor(needed, this.pageBytes)) || this.isOver(needed)
  }

  /** Whether the file can take puts of this size as it is. Looks at the volume now and then. */
  takes(needed: number): boolean {
    this.#unseenBytes -= needed
    if (this.#unseenBytes <= 0) this.look()
    return !this.#isCramped && this.usedBytes + needed <= this.#kept
  }

  /** Looks how much of its volume the inbox can have. */
  look(): void {
    this.#unseenBytes = lookBytes
    this.growReserve()
    // A disk quota leaves less than the volume has.
    const space = this.#isCramped ? ownBytes(this.#path) : spaceFor(this.#path)
    const { budget, journal, reserve } = this.#sizes
    this.#kept = Math.min(budget, Math.max(space / 8, space - journal - reserve))
  }

  /** Whether free pages of the file can take so much. Default: some megabytes. */
  hasFreePages(bytes: number = Math.min(pieceBytes, this.#sizes.reserve)): boolean {
    return this.#count('freePages') * this.pageBytes >= bytes
  }

  /**
   * Adds a piece to the reserve, if it is not complete. Returns whether there was room for it. While the volume has plenty of space, only a quota can
   * end it, and the files of the inbox show how much may be needed: all of the journal that is there has to fit into the file, with what is put until
   * the next look.
   */
  growReserve(): boolean {
    const { reserve, journal } = this.#sizes
    const hasPlenty = spaceFor(this.#path) > plenty * reserve
    const usual = hasPlenty ? Math.min(reserve, ownBytes(this.#path, ['', '-wal'])) : reserve
    const bytes = Math.max(usual, ownBytes(this.#path, ['-wal']) + reserve - journal / 2)
    const hasRoom = addToReserve(this.#path, bytes)
    if (!hasRoom) this.#fitInto(ownBytes(this.#path))
    this.#isCramped = !hasRoom || (this.#isCramped && ownBytes(this.#path, ['-reserve']) < bytes)
    return hasRoom
  }

  /** Gives the space of the reserve to the file and its journal. */
  releaseReserve(): void {
    this.#isCramped = true
    this.#unseenBytes = 0
    releaseReserve(this.#path)
  }

  /** Moves the journal into the file. It starts over then, so that it needs no more space on the disk, and gives back what is too long. */
  restartJournal(): void {
    const isTooLong = ownBytes(this.#path, ['-wal']) > this.#sizes.journal
    this.#on.db.prepare(`PRAGMA wal_checkpoint(${isTooLong ? 'TRUNCATE' : 'PASSIVE'})`).get()
  }

  /** Returns some free pages to the disk. Runs outside a transaction. Returns whether there are more. */
  shrink(): boolean {
    const free = this.#count('freePages')
    const pages = this.#count('pageCount')
    const isTooLong = pages * this.pageBytes > this.#kept
    const isMany = free > (isTooLong ? 0 : sparePages)
    if (isMany && (this.#isVacuuming || isTooLong || free * 4 >= pages)) {
      if (isTooLong) this.restartJournal()
      this.#on.db.prepare(`PRAGMA incremental_vacuum(${vacuumPages})`).all()
      this.#isVacuuming = true
      return true
    }
    // The file gets shorter only at a checkpoint.
    if (this.#isVacuuming) this.restartJournal()
    this.#isVacuuming = false
    return false
  }

  get #isUnlimited(): boolean {
    return this.#maxBytes >= Number.MAX_SAFE_INTEGER
  }

  #count(name: 'pageCount' | 'freePages'): number {
    return Number(Object.values(this.#on.statements[name].get() ?? {})[0])
  }

  /** SQLite starts the journal over at `pages`, and one transaction may still exceed that. */
  #sizesWith(pages: number): Sizes {
    const journal = 2 * pages * this.pageBytes
    return {
      pages,
      journal,
      reserve: journal / 2 + Math.min(pieceBytes, journal / 2),
      budget: this.#maxBytes - journal,
    }
  }

  /**
   * A disk quota, which nobody can ask for, has ended: what the files take is all that there is. A journal and a reserve for the whole volume would
   * leave no room for messages, and the inbox would refuse them for good.
   */
  #fitInto(bytes: number): void {
    const pages = walPagesFor(bytes)
    if (pages >= this.#sizes.pages) return
    this.#sizes = this.#sizesWith(pages)
    this.#on.db.exec(`PRAGMA wal_autocheckpoint = ${pages}`)
  }
}

/** What an inbox at this path can have of its volume, in bytes: the space of its files, and what is free. */
export function spaceFor(path: string): number {
  try {
    let folder = dirname(resolve(path))
    while (!existsSync(folder)) folder = dirname(folder)
    const { bavail, bsize } = statfsSync(folder)
    return bavail * bsize + ownBytes(path)
  } catch {
    // The runtime needs a permission for it, or the disk is gone.
    return Infinity
  }
}

function ownBytes(path: string, ends: readonly string[] = ['', '-wal', '-reserve']): number {
  return ends.reduce((sum, end) => sum + (statSync(path + end, { throwIfNoEntry: false })?.size ?? 0), 0)
}

export function budgetUsed(path: string, maxBytes: number, pendingBytes: number): FleethookError {
  return new FleethookError(
    'inbox_full',
    `The inbox ${path} has used up its \`maxBytes\` (${maxBytes}); pending messages take ${pendingBytes} bytes.`,
    { hint: `Make the handlers faster, or raise \`maxBytes\`. ${goesOn}` },
  )
}

/** A file of zeros. On a full disk it makes room to move the journal and to write down what is settled. */
const reservePath = (path: string): string => `${path}-reserve`

/** The reserve is not larger than the inbox itself while the volume has this many times its size. */
const plenty = 128

/** What is added to the reserve at once: some milliseconds of writing. */
const pieceBytes = 4 * 1_048_576

/** Returns `false` when there is no room for a piece. */
function addToReserve(path: string, bytes: number): boolean {
  const reserve = reservePath(path)
  const size = statSync(reserve, { throwIfNoEntry: false })?.size ?? 0
  if (size >= bytes) return true
  const piece = Math.min(pieceBytes, bytes - size)
  try {
    // No sync: file systems and quotas count the space when it is written, and nobody reads it.
    appendFileSync(reserve, new Uint8Array(piece), { mode: 0o600 })
    return true
  } catch (error) {
    // A part of a piece would only take the last of the disk.
    if (existsSync(reserve)) truncateSync(reserve, size)
    return !isOutOfSpace(error)
  }
}

/** Deletes the reserve. Returns whether there was one. */
export function releaseReserve(path: string): boolean {
  try {
    rmSync(reservePath(path))
    return true
  } catch {
    // There is no reserve, or the disk cannot be written.
    return false
  }
}
