import type { Clock } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Inbox, InboxMessage, Waiting } from '../../../src/inbox/inbox.ts'
import type { KeptBatch, KeptMessage } from '../../../src/backend/backend.ts'

/** The longest delay of a message of a queue: 12 hours. */
const longestDelaySeconds = 43_200

/** A batch that a queue handed over, as an inbox. */
interface BatchInbox extends Inbox {
  /** Resolves when each of its messages is acknowledged or will be retried. */
  readonly done: Promise<void>
}

export function createBatchInbox({ messages }: KeptBatch, clock: Clock): BatchInbox {
  const left = new Map<string, { readonly message: InboxMessage; readonly handed: KeptMessage }>()
  let finish = (): void => {}
  const done = new Promise<void>((resolve) => {
    finish = resolve
  })
  for (const handed of messages) {
    const message = messageOf(handed.body)
    // A foreign message on this queue is retried until the platform moves it to the dead letter queue.
    if (message === undefined) handed.retry()
    else left.set(message.id, { message, handed })
  }
  if (left.size === 0) finish()

  function take(id: string, then: (handed: KeptMessage) => void): void {
    const found = left.get(id)
    if (found === undefined || !left.delete(id)) return
    then(found.handed)
    if (left.size === 0) finish()
  }

  const unsupported = async (): Promise<never> => {
    throw new FleethookError('inbox_unavailable', 'The messages of a queue batch can only be handled.')
  }

  async function* waiting(): AsyncGenerator<readonly Waiting[]> {
    yield [...left.values()].map(({ message: { id, lane, kind }, handed }) => ({
      id,
      lane,
      kind,
      attempts: handed.attempts - 1,
    }))
  }

  return {
    durability: 'replicated',
    done,
    open: async () => ({ waiting: waiting() }),
    put: unsupported,

    async claim(id) {
      const found = left.get(id)
      return found && { message: found.message, deliveries: found.handed.attempts - 1, replayed: false }
    },

    async settle(id) {
      take(id, (handed) => handed.ack())
    },

    async reschedule(id, { notBefore }) {
      const seconds = Math.ceil((notBefore - clock.now()) / 1_000)
      take(id, (handed) => handed.retry({ delaySeconds: Math.min(Math.max(0, seconds), longestDelaySeconds) }))
    },

    async deadLetter(id) {
      // The platform counts attempts as well: after its own last attempt it moves the message to the dead letter queue.
      take(id, (handed) => handed.retry())
      return 0
    },

    deadLetters: async () => [],
    findDeadLetter: async () => undefined,
    settled: async () => [],
    revive: async () => undefined,
    discard: async () => false,

    usage() {
      let bytes = 0
      for (const { message } of left.values()) bytes += message.bytes
      return { messages: left.size, bytes }
    },

    refusing: () => 'inbox_unavailable',
    close: async () => {},
  }
}

/** Reads messages of every version of fleethook. `undefined` for a foreign message. */
function messageOf(body: unknown): InboxMessage | undefined {
  if (typeof body !== 'object' || body === null) return undefined
  const { id, lane, receivedAt, door, kind, text, bytes }: Partial<Record<keyof InboxMessage, unknown>> = body
  if (typeof id !== 'string' || typeof lane !== 'string' || typeof text !== 'string') return undefined
  if (typeof receivedAt !== 'number' || typeof bytes !== 'number') return undefined
  return {
    id,
    lane,
    receivedAt,
    door: door === 'collector' ? 'collector' : 'root',
    kind: kind === 'gap' || kind === 'malformed' ? kind : 'wire',
    text,
    bytes,
  }
}
