import type { DeadLetter, InboxMessage, Selection, Waiting } from '../../../src/inbox/inbox.ts'
import { letterOf, messageOf, type Row, waitingOf } from './rows.ts'
import type { Statements } from './statements.ts'
import type { Page } from './store.ts'

/** Rows that are read at once: a few milliseconds. */
export const pageRows = 2_000

export function listWaiting(statements: Statements, after: number): Page<Waiting> {
  const rows = statements.waiting.all(after, pageRows)
  return { found: rows.map(waitingOf), next: behind(rows) }
}

export function listLetters(statements: Statements, which: Selection, after: number): Page<DeadLetter> {
  return select(statements.letters.all(after, pageRows), which, letterOf)
}

export function listSettled(statements: Statements, which: Selection, after: number): Page<InboxMessage> {
  return select(statements.listed.all(after, pageRows), which, ({ place, elsewhere }) => {
    const message = elsewhere === 0 ? statements.message.get(Number(place)) : undefined
    return message === undefined ? undefined : messageOf(message)
  })
}

/** As many rows are looked at as a step may take, however few of them are asked for. */
function select<T>(rows: readonly Row[], which: Selection, read: (row: Row) => T | undefined): Page<T> {
  const { lane, fromMs, toMs, limit } = which
  const found: T[] = []
  for (const row of rows) {
    const receivedAt = Number(row['received_at'])
    const isAsked =
      (lane === undefined || row['lane'] === lane) &&
      (fromMs === undefined || receivedAt >= fromMs) &&
      (toMs === undefined || receivedAt < toMs)
    const item = isAsked ? read(row) : undefined
    if (item !== undefined) found.push(item)
    if (found.length >= limit) return { found, next: undefined }
  }
  return { found, next: behind(rows) }
}

function behind(rows: readonly Row[]): number | undefined {
  const last = rows.at(-1)
  return rows.length < pageRows || last === undefined ? undefined : Number(last['place'])
}
