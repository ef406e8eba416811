import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { DeadLetter, InboxMessage, Selection } from '../../../src/inbox/inbox.ts'
import type { SqlValue } from './platform.ts'

/** A row of `fleethook_messages`, or some of its columns. */
export type Row = Readonly<Record<string, SqlValue>>

/** Runs a statement and returns its rows. */
export type Rows = (query: string, ...bindings: readonly (string | number)[]) => readonly Row[]

export function messageOf(row: Row): InboxMessage {
  const { kind } = row
  return {
    id: String(row['id']),
    lane: String(row['lane']),
    receivedAt: Number(row['received_at']),
    door: row['door'] === 'collector' ? 'collector' : 'root',
    kind: kind === 'gap' || kind === 'malformed' ? kind : 'wire',
    text: String(row['text']),
    bytes: Number(row['bytes']),
  }
}

export function letterOf(row: Row): DeadLetter {
  const message = messageOf(row)
  return {
    id: message.id,
    message,
    error: String(row['error']),
    attempts: Number(row['attempts']),
    diedAt: Number(row['died_at']),
  }
}

/** The rows of a state that are asked for, in the order of ids. */
export function selecting(rows: Rows, state: number, { limit, after, lane, fromMs, toMs }: Selection): readonly Row[] {
  // Written into the statement: the index of the dead ones is found by it.
  const conditions = [`state = ${state}`]
  const bindings: (string | number)[] = []
  const where = (condition: string, binding: string | number | undefined): void => {
    if (binding === undefined) return
    conditions.push(condition)
    bindings.push(binding)
  }
  where('place > ?', after === undefined ? undefined : seqOf(after))
  where('lane = ?', lane)
  where('received_at >= ?', fromMs)
  where('received_at < ?', toMs)
  return rows(
    `SELECT * FROM fleethook_messages WHERE ${conditions.join(' AND ')} ORDER BY place LIMIT ?`,
    ...bindings,
    limit,
  )
}
