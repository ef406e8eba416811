import { FleethookError } from '../errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetter, Inbox, InboxMessage, Waiting } from '../inbox/inbox.ts'
import type { DeadMessage } from '../options.ts'
import type { DeadLetters } from '../receiver-interface.ts'
import type { Surroundings } from './work.ts'

export interface DeadLettersOptions {
  readonly inbox: Inbox
  /** Opens the inbox, if it is not open yet. */
  readonly open: () => Promise<void>
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly isDraining: () => boolean
  /** A dead letter is a message again and wants its handlers. */
  readonly revived: (message: Waiting, surroundings: Surroundings) => void
}

/** The dead letters of an inbox as a person looks at them: with the event instead of the text. */
export function createDeadLetters({ inbox, open, read, isDraining, revived }: DeadLettersOptions): DeadLetters {
  return {
    async list({ limit = 100 } = {}) {
      await open()
      return (await inbox.deadLetters({ limit })).map((letter) => deadMessage(letter, read))
    },
    async replay(id, { env, context } = {}) {
      // It would be lost where it now is safe.
      if (isDraining()) throw new FleethookError('inbox_unavailable', 'The receiver is draining and replays nothing.')
      await open()
      const message = await inbox.revive(id)
      if (message === undefined) return false
      revived(message, { env, context })
      return true
    },
    async discard(id) {
      await open()
      return inbox.discard(id)
    },
  }
}

/** How much of a text that cannot be read any more is shown, in characters. */
const shownLength = 4096

export function deadMessage(
  { id, message, error, attempts, diedAt }: DeadLetter,
  read: (message: InboxMessage) => FleetEvent | MalformedBody,
): DeadMessage {
  return { id, event: message.event ?? readable(message, read), error, attempts, diedAt: new Date(diedAt) }
}

function readable(
  message: InboxMessage,
  read: (message: InboxMessage) => FleetEvent | MalformedBody,
): FleetEvent | MalformedBody {
  try {
    return read(message)
  } catch {
    return {
      topic: 'malformed',
      receivedAt: new Date(message.receivedAt),
      error: 'message_unreadable',
      text: message.text.slice(0, shownLength),
      length: message.text.length,
    }
  }
}
