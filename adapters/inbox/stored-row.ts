import type { LastFailure } from '../../src/observe/stats.ts'
import {
  type Claim,
  type DeadLetter,
  type InboxMessage,
  listedLetter,
  type ListedMessage,
  type Waiting,
} from '../../src/inbox/inbox.ts'

/** A row of an inbox in a database. Every version of fleethook names the columns like this. */
type StoredRow = Readonly<Record<string, unknown>>

/** The error of a dead letter whose own error the store refuses. */
export const unwritable = 'The inbox refused to write the error and what the message changed.'

export function messageOf(row: StoredRow): InboxMessage {
  return {
    id: String(row['id']),
    lane: String(row['lane']),
    receivedAt: Number(row['received_at']),
    door: doorOf(row['door']),
    kind: kindOf(row['kind']),
    text: String(row['text']),
    bytes: Number(row['bytes']),
  }
}

/** What an inbox kept as `door`. */
export function doorOf(kept: unknown): InboxMessage['door'] {
  return isDoor(kept) ? kept : 'root'
}

const isDoor = (kept: unknown): kept is InboxMessage['door'] =>
  typeof kept === 'string' && /^(?:root|collector)(?: \d{1,6})?$/.test(kept)

function kindOf(kind: unknown): InboxMessage['kind'] {
  return kind === 'gap' || kind === 'malformed' || kind === 'timer' || kind === 'facts' ? kind : 'wire'
}

export function claimOf(row: StoredRow): Claim {
  const deliveries = Number(row['deliveries'])
  const { replayed } = row
  return {
    message: messageOf(row),
    deliveries,
    replayed: Number(replayed) > 0,
    replay: replayIn(replayed),
    changed: changedIn(row),
  }
}

export function letterOf(row: StoredRow): DeadLetter {
  const message = messageOf(row)
  return {
    id: message.id,
    message,
    error: String(row['error']),
    attempts: Number(row['attempts']),
    diedAt: Number(row['died_at']),
    replay: replayIn(row['run']),
    changed: changedIn(row),
  }
}

export function listedOf(row: StoredRow, state: ListedMessage['state']): ListedMessage {
  return state === 'dead' ? listedLetter(letterOf(row)) : { message: messageOf(row), state }
}

export function waitingOf(row: StoredRow): Waiting {
  const attempts = Number(row['attempts'])
  return {
    id: String(row['id']),
    lane: String(row['lane']),
    kind: kindOf(row['kind']),
    attempts,
    notBefore: Number(row['not_before']),
    crashes: Math.max(0, Number(row['deliveries']) - attempts),
    failure: failureIn(row['failure']),
  }
}

/** 1: a dead letter of the first run that is replayed. A larger number names the replay of a handled message. */
const replayIn = (run: unknown): string | undefined => (Number(run) > 1 ? String(run) : undefined)

const changedIn = ({ changed }: StoredRow): string | undefined => (typeof changed === 'string' ? changed : undefined)

function failureIn(text: unknown): LastFailure | undefined {
  if (typeof text !== 'string') return undefined
  try {
    const found: unknown = JSON.parse(text)
    if (typeof found !== 'object' || found === null) return undefined
    const { handler, error, sinceMs }: { handler?: unknown; error?: unknown; sinceMs?: unknown } = found
    return typeof handler === 'string' && typeof error === 'string' && typeof sinceMs === 'number'
      ? { handler, error, sinceMs }
      : undefined
  } catch {
    return undefined
  }
}
