import type { Claim, DeadLetter, InboxMessage } from './inbox.ts'

/** A row of an inbox in a database. Every version of fleethook names the columns like this. */
type StoredRow = Readonly<Record<string, unknown>>

export function messageOf(row: StoredRow): InboxMessage {
  return {
    id: String(row['id']),
    lane: String(row['lane']),
    receivedAt: Number(row['received_at']),
    door: row['door'] === 'collector' ? 'collector' : 'root',
    kind: kindOf(row['kind']),
    text: String(row['text']),
    bytes: Number(row['bytes']),
  }
}

export function kindOf(kind: unknown): InboxMessage['kind'] {
  return kind === 'gap' || kind === 'malformed' || kind === 'timer' ? kind : 'wire'
}

export function claimOf(row: StoredRow): Claim {
  const deliveries = Number(row['deliveries'])
  return { message: messageOf(row), deliveries, replayed: row['replayed'] === 1, ...changedOf(row) }
}

export function letterOf(row: StoredRow): DeadLetter {
  const message = messageOf(row)
  return {
    id: message.id,
    message,
    error: String(row['error']),
    attempts: Number(row['attempts']),
    diedAt: Number(row['died_at']),
    ...changedOf(row),
  }
}

function changedOf({ changed }: StoredRow): { readonly changed?: string } {
  return typeof changed === 'string' ? { changed } : {}
}
