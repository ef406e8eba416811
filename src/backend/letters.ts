import type { DeadLetters, DeadMessage, MessageSelection } from '../inbox/dead-letters.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { DeadLetter, InboxMessage, Selection } from '../inbox/inbox.ts'

type Read = (message: InboxMessage) => FleetEvent | MalformedBody

/** Where dead letters are. */
export interface LetterSource {
  /** In the order of ids. */
  deadLetters(which: Selection): Promise<readonly DeadLetter[]>
  findDeadLetter(id: string): Promise<DeadLetter | undefined>
  readonly read: Read
}

/** Dead letters to look at. */
export interface Letters extends Pick<DeadLetters, 'list' | 'get'> {
  /** The ids of all that are asked for. */
  ids(which: MessageSelection): Promise<readonly string[]>
}

/** How many are looked at in one step. */
const pageSize = 500

/** The dead letters of an inbox as a person looks at them: with the event instead of the text. */
export function createLetters({ deadLetters, findDeadLetter, read }: LetterSource): Letters {
  async function* pages(
    which: MessageSelection,
    size: number,
    behind?: string,
  ): AsyncGenerator<readonly DeadMessage[]> {
    const selection = { ...selectionOf(which), limit: size }
    for (let after = behind; ;) {
      const found = await deadLetters(after === undefined ? selection : { ...selection, after })
      const messages = found.map((letter) => deadMessage(letter, read))
      yield which.topic === undefined ? messages : messages.filter(({ event }) => event.topic === which.topic)
      after = found.at(-1)?.id
      if (after === undefined || found.length < size) return
    }
  }

  return {
    async list({ limit = 100, after, ...which } = {}) {
      if (!Number.isSafeInteger(limit) || limit < 1)
        throw new FleethookError('option_invalid', `\`limit\` must be a whole number from 1 up and is ${limit}.`)
      const found: DeadMessage[] = []
      for await (const page of pages(which, Math.min(limit, pageSize), after)) {
        found.push(...page)
        if (found.length >= limit) break
      }
      return found.slice(0, limit)
    },

    async get(id) {
      const letter = await findDeadLetter(id)
      return letter && deadMessage(letter, read)
    },

    async ids(which) {
      const found: string[] = []
      for await (const page of pages(which, pageSize)) for (const { id } of page) found.push(id)
      return found
    },
  }
}

/** What an inbox can look for by itself; a topic takes reading. Throws `option_invalid` for times that are none. */
export function selectionOf({ vin, from, to }: MessageSelection): Omit<Selection, 'limit' | 'after'> {
  return {
    ...(vin === undefined ? {} : { lane: vin }),
    ...(from === undefined ? {} : { fromMs: msOf('from', from) }),
    ...(to === undefined ? {} : { toMs: msOf('to', to) }),
  }
}

function msOf(name: string, time: Date): number {
  const ms = time.getTime()
  if (Number.isNaN(ms)) throw new FleethookError('option_invalid', `\`${name}\` must be a Date and is none.`)
  return ms
}

/** How much of a text that cannot be read any more is shown, in characters. */
const shownLength = 4096

export function deadMessage({ id, message, error, attempts, diedAt }: DeadLetter, read: Read): DeadMessage {
  return { id, event: readable(message, read), error, attempts, diedAt: new Date(diedAt) }
}

/** The event of a message, or what can be shown of one that cannot be read any more. */
export function readable(message: InboxMessage, read: Read): FleetEvent | MalformedBody {
  try {
    return message.event ?? read(message)
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
