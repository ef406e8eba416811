import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetter, Inbox, InboxMessage } from '../inbox/inbox.ts'
import type { DeadMessage } from '../options.ts'
import type { DeadLetters } from '../receiver-interface.ts'

/** The dead letters of an inbox as a person looks at them: with the event instead of the text. */
export function createDeadLetters(
  inbox: Inbox,
  read: (message: InboxMessage) => FleetEvent | MalformedBody,
  replay: (message: InboxMessage) => Promise<void>,
): DeadLetters {
  return {
    async list({ limit = 100 } = {}) {
      return (await inbox.deadLetters(limit)).map((letter) => deadMessage(letter, read))
    },
    async replay(id) {
      const letter = await inbox.takeDeadLetter(id)
      if (letter === undefined) return false
      await replay({ ...letter.message, replayed: true })
      return true
    },
    async discard(id) {
      return (await inbox.takeDeadLetter(id)) !== undefined
    },
  }
}

export function deadMessage(
  { id, message, error, attempts, diedAt }: DeadLetter,
  read: (message: InboxMessage) => FleetEvent | MalformedBody,
): DeadMessage {
  return { id, event: message.event ?? read(message), error, attempts, diedAt: new Date(diedAt) }
}
