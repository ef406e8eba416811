import { closeSync, existsSync, fdatasyncSync, openSync, readSync, realpathSync, writeSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../../src/base/errors.ts'
import { checkpoint, withOpen } from './database.ts'
import { valueOf } from './schema.ts'

/*
 * What SQLite deletes, it overwrites (`secure_delete`). Not so the copies that it leaves when it moves rows between pages, and pages that become
 * free. So an erasure overwrites all that is no row: in bounded steps, because a VACUUM of some gigabytes would hold up the receiver for minutes.
 *
 * A step moves the journal into the file, drops SQLite's cache, and writes zeros over the unused bytes of some pages, in the file itself. Only bytes
 * that SQLite never reads are written, so that a crash at any moment harms nothing. Between two steps SQLite may move an unclean page to another
 * place: every page that the journal names is cleaned again. https://sqlite.org/fileformat.html explains the layout.
 */

/** The most pages that one step cleans, and the least on a busy machine. */
const [pagesAtOnce, leastPages] = [512, 64]
/** How long it may take, in milliseconds, beside the syncs. */
const stepMs = 20

export interface Scrub {
  /** Cleans the next pages. Returns whether there are more. Outside a transaction. `note` commits something, whatever. */
  step(note: () => void): boolean
  /** Only after the connection is closed: closing any handle of the file ends the lock of this process. */
  close(): void
}

/** `path`: of the file that the connection has open. */
export function createScrub(db: DatabaseSync, path: string): Scrub {
  const file = openSync(path, 'r+')
  const layout = layoutOf(file, path)
  const journalPath = `${realpathSync(path)}-wal`
  /** The next page of this round. */
  let next = 1
  /** Which journal has all pages that changed since the last step: every new journal has other salts. */
  let salts: string | undefined

  return {
    step(note) {
      const journal = readJournal(journalPath)
      // Otherwise there was another one in between, and nobody knows what it changed.
      const isKnown = salts !== undefined && journal?.salts === salts
      if (!isKnown) next = 1
      checkpoint(db)
      const last = Number(valueOf(db, 'PRAGMA page_count'))
      // What SQLite has in memory of a page, it would write again.
      db.exec('PRAGMA shrink_memory')
      const pages = new Pages(file, path, layout)
      for (const page of journal?.pages ?? []) if (page < next && page <= last) pages.clean(page)
      const to = Math.min(next + pagesAtOnce, last + 1)
      pages.readAhead(next, to)
      const [from, untilMs] = [next, performance.now() + stepMs]
      for (; next < to && (next - from < leastPages || performance.now() < untilMs); next += 1) pages.clean(next)
      if (pages.hasWritten) fdatasyncSync(file)
      if (next > last) return false
      note()
      salts = readJournal(journalPath)?.salts
      return true
    },

    close: () => closeSync(file),
  }
}

interface Journal {
  readonly salts: string
  /** The pages that it changes. */
  readonly pages: ReadonlySet<number>
}

/** The bytes of the header of a journal, and of each page in it ("The Write-Ahead Log"). */
const journalHeader = 32
const frameHeader = 24

/** `undefined`: it is empty. */
function readJournal(path: string): Journal | undefined {
  if (!existsSync(path)) return undefined
  return withOpen(path, 'r', (file) => {
    const header = read(file, 0, journalHeader)
    if (header.length < journalHeader) return undefined
    const salts = header.toString('hex', 16, 24)
    const pages = new Set<number>()
    const frameBytes = frameHeader + header.readUInt32BE(8)
    for (let at = journalHeader; ; at += frameBytes) {
      const frame = read(file, at, frameHeader)
      // What follows is from an earlier journal.
      if (frame.length < frameHeader || frame.toString('hex', 8, 16) !== salts) return { salts, pages }
      pages.add(frame.readUInt32BE(0))
    }
  })
}

function read(file: number, at: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes)
  return buffer.subarray(0, readSync(file, buffer, 0, bytes, at))
}

interface Layout {
  readonly pageBytes: number
  /** The bytes of a page, without bytes that an extension of SQLite reserves at its end. */
  readonly usable: number
  /** Each page of this kind says what the pages behind it are. */
  readonly mapEvery: number
  /** SQLite never uses the page with the bytes that it locks. */
  readonly lockPage: number
}

function layoutOf(file: number, path: string): Layout {
  const header = read(file, 0, 100)
  if (header.length < 100 || header.readUInt32BE(52) === 0) throw unreadable(path, 1)
  const pageBytes = header.readUInt16BE(16) === 1 ? 65_536 : header.readUInt16BE(16)
  const usable = pageBytes - header.readUInt8(20)
  return { pageBytes, usable, mapEvery: Math.floor(usable / 5) + 1, lockPage: Math.floor(0x40000000 / pageBytes) + 1 }
}

const unreadable = (path: string, page: number): FleethookError =>
  new FleethookError(
    'inbox_unavailable',
    `Page ${page} of the inbox ${path} cannot be read, so erased data may be left.`,
    {
      hint: 'Stop the receiver and run `PRAGMA integrity_check`, then `VACUUM`, with the program sqlite3.',
    },
  )

/** What a page is, as the map says ("Pointer Map or Ptrmap Pages"). */
const kinds = { root: 1, free: 2, overflow: 3, moreOverflow: 4, tree: 5 } as const

/** The kinds of a page in a tree, by its first byte ("B-tree Pages"). */
const trees = { innerIndex: 2, innerTable: 5, leafIndex: 10, leafTable: 13 } as const

/** As many as the largest page of SQLite has. */
const zeros = Buffer.alloc(65_536)

/** The pages of a file whose journal is empty, in one step. */
class Pages {
  hasWritten = false
  readonly #file: number
  readonly #path: string
  readonly #layout: Layout
  /** The last map that was read, and the pages that were read ahead. */
  #map: { readonly page: number; readonly bytes: Buffer } | undefined
  #ahead: { readonly first: number; readonly bytes: Buffer } | undefined
  /** The free pages that list others. */
  #lists: ReadonlySet<number> | undefined

  constructor(file: number, path: string, layout: Layout) {
    this.#file = file
    this.#path = path
    this.#layout = layout
  }

  /** Reads the pages from `first` to the one before `end` at once. */
  readAhead(first: number, end: number): void {
    const { pageBytes } = this.#layout
    this.#ahead = { first, bytes: read(this.#file, (first - 1) * pageBytes, (end - first) * pageBytes) }
  }

  /** Overwrites what is unused in a page, and behind the end of the long rows in it. */
  clean(page: number): void {
    const kind = this.#kindOf(page)
    if (kind === kinds.free) this.#cleanFree(page)
    if (kind === kinds.root || kind === kinds.tree) this.#cleanTree(page)
    // Pages of a long row are cleaned with the page that has its beginning. Maps have only numbers.
  }

  #read(page: number): Buffer {
    const { pageBytes } = this.#layout
    const at = (page - (this.#ahead?.first ?? 0)) * pageBytes
    const found = at >= 0 ? this.#ahead?.bytes.subarray(at, at + pageBytes) : undefined
    const bytes = found?.length === pageBytes ? found : read(this.#file, (page - 1) * pageBytes, pageBytes)
    if (bytes.length < pageBytes) throw unreadable(this.#path, page)
    return bytes
  }

  #kindOf(page: number): number | undefined {
    const { mapEvery, lockPage } = this.#layout
    if (page === 1) return kinds.root
    if (page === lockPage) return undefined
    let map = Math.floor((page - 2) / mapEvery) * mapEvery + 2
    if (map === lockPage) map += 1
    if (page <= map) return undefined
    if (this.#map?.page !== map) this.#map = { page: map, bytes: this.#read(map) }
    return this.#map.bytes[5 * (page - map - 1)]
  }

  #write(page: number, bytes: Buffer, from: number, to: number): void {
    if (from < 0 || to > bytes.length) throw unreadable(this.#path, page)
    if (from >= to || zeros.compare(bytes, from, to, 0, to - from) === 0) return
    bytes.fill(0, from, to)
    writeSync(this.#file, bytes, from, to - from, (page - 1) * this.#layout.pageBytes + from)
    this.hasWritten = true
  }

  #cleanFree(page: number): void {
    this.#lists ??= this.#readLists()
    const bytes = this.#read(page)
    // A list has the next list, the number of its pages, and the pages.
    this.#write(page, bytes, this.#lists.has(page) ? 8 + 4 * bytes.readUInt32BE(4) : 0, bytes.length)
  }

  #readLists(): ReadonlySet<number> {
    const lists = new Set<number>()
    for (let page = this.#read(1).readUInt32BE(32); page !== 0 && !lists.has(page);) {
      lists.add(page)
      page = this.#read(page).readUInt32BE(0)
    }
    return lists
  }

  #cleanTree(page: number): void {
    const bytes = this.#read(page)
    const header = page === 1 ? 100 : 0
    const kind = bytes[header]
    const isInner = kind === trees.innerIndex || kind === trees.innerTable
    if (!isInner && kind !== trees.leafIndex && kind !== trees.leafTable) throw unreadable(this.#path, page)
    const cells = bytes.readUInt16BE(header + 3)
    const pointers = header + (isInner ? 12 : 8)
    this.#write(page, bytes, pointers + 2 * cells, bytes.readUInt16BE(header + 5) || 65_536)
    for (let at = bytes.readUInt16BE(header + 1); at !== 0;) {
      const next = bytes.readUInt16BE(at)
      this.#write(page, bytes, at + 4, at + bytes.readUInt16BE(at + 2))
      // They are in order, so that the loop ends.
      at = next > at ? next : 0
    }
    // Rows of inner pages of a table have no content.
    if (kind === trees.innerTable) return
    for (let cell = 0; cell < cells; cell += 1) this.#cleanLongRow(bytes, bytes.readUInt16BE(pointers + 2 * cell), kind)
  }

  /** The last page of a row that needs several ("Cell Payload Overflow Pages"). */
  #cleanLongRow(bytes: Buffer, cell: number, kind: number): void {
    const { usable } = this.#layout
    const isTable = kind === trees.leafTable
    const size = numberAt(bytes, cell + (kind === trees.innerIndex ? 4 : 0))
    const most = isTable ? usable - 35 : Math.floor(((usable - 12) * 64) / 255) - 23
    if (size.value <= most) return
    const least = Math.floor(((usable - 12) * 32) / 255) - 23
    const fitting = least + ((size.value - least) % (usable - 4))
    const here = fitting <= most ? fitting : least
    const start = isTable ? numberAt(bytes, size.end).end : size.end
    let left = size.value - here
    let page = bytes.readUInt32BE(start + here)
    for (; left > usable - 4; left -= usable - 4) page = this.#read(page).readUInt32BE(0)
    this.#write(page, this.#read(page), 4 + left, usable)
  }
}

/** A number of one to nine bytes ("A variable-length integer"). */
function numberAt(bytes: Buffer, at: number): { readonly value: number; readonly end: number } {
  let value = 0
  for (let end = at; end < at + 8; end += 1) {
    const byte = bytes.readUInt8(end)
    value = value * 128 + (byte & 127)
    if (byte < 128) return { value, end: end + 1 }
  }
  return { value: value * 256 + bytes.readUInt8(at + 8), end: at + 9 }
}
