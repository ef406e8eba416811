import { setImmediate } from 'node:timers/promises'
import zlib from 'node:zlib'
import { FleethookError } from '../../../../src/base/errors.ts'
import { bytesOfMessage, pageOf } from '../../../../src/base/pages.ts'
import type { Claim, DeadLetter, InboxMessage, ListedMessage, Selection, Waiting } from '../../../../src/inbox/inbox.ts'
import { claimOf, letterOf, listedOf, messageOf, waitingOf } from '../../stored-row.ts'
import type { OpenedFile, Page, VehicleRow } from './interface.ts'
import type { SqlRow } from './schema.ts'
import type { FileStatements, ReaderStatements } from './statements.ts'

/** Rows per page of a list: a few milliseconds of reading. */
export const pageRows = 2_000

/** Rows that one step of a newest-first list reads, without their texts: a few milliseconds. */
export const listedRows = 10_000

export function waitingAfter(statements: ReaderStatements, after: number): Page<Waiting> {
  const rows = statements.waiting.all(after, pageRows)
  return { items: rows.map(waitingOf), next: seqAfter(rows) }
}

export function pendingAt(statements: ReaderStatements, seq: number): Claim | undefined {
  const row = statements.pending.get(seq)
  return row && claimOf(intact(row))
}

export function messageAt(statements: ReaderStatements, seq: number): InboxMessage | undefined {
  const row = statements.message.get(seq)
  return row && messageOf(intact(row))
}

export function deadLettersAfter(statements: ReaderStatements, which: Selection, after: number): Page<DeadLetter> {
  const read = ({ place }: SqlRow): DeadLetter | undefined => {
    const row = statements.deadLetter.get(Number(place))
    return row && letterOf(intact(row))
  }
  return select(statements.deadLetters.all(after, pageRows), which, read, bytesOfMessage)
}

export function settledAfter(statements: ReaderStatements, which: Selection, after: number): Page<InboxMessage> {
  const read = ({ place, elsewhere }: SqlRow): InboxMessage | undefined =>
    elsewhere === 0 ? messageAt(statements, Number(place)) : undefined
  return select(statements.settled.all(after, pageRows), which, read, ({ bytes }) => bytes)
}

/** Messages of every state, newest first. */
export function messagesBefore(
  { listedTo }: FileStatements,
  statements: ReaderStatements,
  which: Selection,
  before: number,
): Page<ListedMessage> {
  const { lane, fromMs, toMs, limit } = which
  const times = [fromMs ?? 0, toMs ?? Number.MAX_SAFE_INTEGER] as const
  const rows = statements.listed.all(before, listedRows, lane ?? null, ...times, limit)
  let last = before
  const found = readEach(rows, (seq) => {
    last = seq
    const row = statements.listedOne.get(seq)
    return row && listedOf(intact(row), stateOf(row))
  })
  const items = pageOf(found, limit, bytesOfMessage)
  if (last !== Number(rows.at(-1)?.['place'] ?? before) || rows.length >= limit) return { items, next: last }
  const reached = listedTo.get(before, listedRows)
  const isEnd = Number(reached?.['messages']) < listedRows
  return { items, next: isEnd ? undefined : Number(reached?.['place']) }
}

/** Messages that are settled or given up, and that the stored states may lack. */
export function unappliedAfter(statements: ReaderStatements, after: number): Page<InboxMessage> {
  const rows = statements.unapplied.all(after, pageRows)
  let last = after
  const found = readEach(rows, (seq) => {
    last = seq
    const row = statements.message.get(seq)
    return row !== undefined && isIntact(row) ? messageOf(row) : undefined
  })
  const items = pageOf(found, Infinity, ({ bytes }) => bytes)
  return { items, next: last === Number(rows.at(-1)?.['place'] ?? after) ? seqAfter(rows) : last }
}

export function vehicleAt(statements: ReaderStatements, vin: string): VehicleRow | undefined {
  const row = statements.vehicle.get(vin)
  return row && vehicleOf(row)
}

/** States in the order of VINs. */
export function vehiclesAfter(statements: ReaderStatements, after: string, limit: number): readonly VehicleRow[] {
  function* found(): Generator<VehicleRow> {
    for (let vin: string | undefined = after; vin !== undefined;) {
      // A statement for each of them would take half of the time.
      const rows: readonly SqlRow[] = statements.nextVehicles.all(vin)
      for (const row of rows) {
        const vehicle = vehicleOf(row)
        if (vehicle !== undefined) yield vehicle
      }
      const last = rows.at(-1)?.['vin']
      vin = last === undefined ? undefined : String(last)
    }
  }
  return pageOf(found(), limit, ({ text }) => text.length)
}

export function outdatedAfter(statements: ReaderStatements, rules: string, after: string): readonly VehicleRow[] {
  return statements.outdatedVehicles.all(after, rules).flatMap((row) => vehicleOf(row) ?? [])
}

/** Reads every pending row, so that damage shows now. Other work runs between two steps. */
export async function countPending(statements: ReaderStatements): Promise<Pick<OpenedFile, 'messages' | 'bytes'>> {
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

/** Whether the text is still as it was stored. SQLite itself checks the structure of pages, not their content. */
function isIntact({ text, crc }: SqlRow): boolean {
  return typeof text === 'string' && zlib.crc32(text) === crc
}

/** The row, if it is intact. Otherwise throws `inbox_damaged`. */
function intact(row: SqlRow): SqlRow {
  if (isIntact(row)) return row
  const id = String(row['id'])
  throw new FleethookError('inbox_damaged', `The text of the message ${id} in the inbox does not match its checksum.`)
}

/** A state as it is stored. `undefined` when the text is not as it was stored: then the vehicle's state begins again. */
function vehicleOf(row: SqlRow): VehicleRow | undefined {
  if (!isIntact(row)) return undefined
  const { vin, place, seen_at: seenAt, due, rules, text } = row
  return {
    vin: String(vin),
    seq: Number(place),
    seenMs: Number(seenAt),
    dueMs: due == null ? undefined : Number(due),
    rules: typeof rules === 'string' ? rules : undefined,
    text: String(text),
  }
}
