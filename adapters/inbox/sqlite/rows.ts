import type { SQLOutputValue, StatementSync } from 'node:sqlite'
import zlib from 'node:zlib'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { GapReason } from '../../../src/events/event.ts'
import type { DeadLetter, InboxMessage, Waiting } from '../../../src/inbox/inbox.ts'
import type { Pending, Row as Put } from './store.ts'

/** A row as SQLite gives it. */
export type Row = Readonly<Record<string, SQLOutputValue>>

export function keep(statement: StatementSync, row: Put): void {
  const { place, id, lane, receivedAt, door, kind, bytes, text } = row
  statement.run(place, id, lane, receivedAt, door, kind, bytes, zlib.crc32(text), text)
}

/** Whether the text of a message is the one that was put: SQLite looks at how pages hang together, not at what they say. */
export function intactText({ text, crc }: Row): boolean {
  return typeof text === 'string' && zlib.crc32(text) === crc
}

/** Throws `inbox_damaged` when it is not what was put. */
export function messageOf(row: Row): InboxMessage {
  const text = String(row['text'])
  const id = String(row['id'])
  if (!intactText(row)) {
    throw new FleethookError('inbox_damaged', `The inbox has not kept the text of the message ${id} as it was put.`)
  }
  return {
    id,
    lane: String(row['lane']),
    receivedAt: Number(row['received_at']),
    door: row['door'] === 'collector' ? 'collector' : 'root',
    kind: kindOf(row['kind']),
    text,
    bytes: Number(row['bytes']),
  }
}

export function pendingOf(row: Row): Pending {
  return { message: messageOf(row), deliveries: Number(row['deliveries']), replayed: row['replayed'] === 1 }
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

export function waitingOf({ id, lane, kind, attempts, not_before: notBefore }: Row): Waiting {
  const waiting = { id: String(id), lane: String(lane), kind: kindOf(kind) }
  if (attempts === 0 && notBefore === 0) return waiting
  return { ...waiting, attempts: Number(attempts), notBefore: Number(notBefore) }
}

export function reasonOf(reason: unknown): GapReason {
  return reason === 'inbox_damaged' ? reason : 'restarted'
}

function kindOf(kind: unknown): InboxMessage['kind'] {
  return kind === 'gap' || kind === 'malformed' ? kind : 'wire'
}

/** A message as it is stored: without its event, at its place. */
export function rowOf({ id, lane, receivedAt, door, kind, text, bytes }: InboxMessage): Put {
  return { place: seqOf(id), id, lane, receivedAt, door, kind, text, bytes }
}
