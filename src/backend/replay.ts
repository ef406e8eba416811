import { FleethookError } from '../base/errors.ts'
import { checkOption, wholeNumber } from '../base/options.ts'
import type { RequestScope } from '../core/entry.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type {
  DeadLetters,
  DeadMessage,
  MessageRecord,
  Messages,
  MessageSelection,
  ReplaySelection,
} from '../inbox/dead-letters.ts'
import { idWithSeq, seqOf } from '../inbox/delivery-id.ts'
import { laneOf } from '../inbox/receipts.ts'
import type { DeadLetter, Inbox, InboxMessage, ListedMessage, Selection, Waiting } from '../inbox/inbox.ts'

type ReadMessage = (message: InboxMessage) => FleetEvent | MalformedBody

/** Reads dead letters, with the event instead of the text. */
interface DeadLetterReader extends Pick<DeadLetters, 'list' | 'get'> {
  ids(which: MessageSelection): Promise<readonly string[]>
}

const pageSize = 500

/** What a query of the inbox finds, in pages of `limit`, from the first one after `behind`. */
async function* pagesOf<Found extends { readonly id: string }>(
  find: (which: Selection) => Promise<readonly Found[]>,
  which: Omit<Selection, 'after'>,
  behind?: string,
): AsyncGenerator<readonly Found[]> {
  for (let after = behind; ;) {
    const found = await find(after === undefined ? which : { ...which, after })
    yield found
    after = found.at(-1)?.id
    if (after === undefined || found.length < which.limit) return
  }
}

export function createDeadLetterReader(
  inbox: Pick<Inbox, 'deadLetters' | 'findDeadLetter'>,
  read: ReadMessage,
): DeadLetterReader {
  async function* pages(
    { topic, ...which }: MessageSelection,
    size: number,
    behind?: string,
  ): AsyncGenerator<readonly DeadMessage[]> {
    for await (const found of pagesOf(
      (selection) => inbox.deadLetters(selection),
      { ...selectionOf(which), limit: size },
      behind,
    )) {
      const messages = found.map((letter) => deadMessage(letter, read))
      yield topic === undefined ? messages : messages.filter(({ event }) => event.topic === topic)
    }
  }

  return {
    async list({ limit = 100, after, ...which } = {}) {
      checkOption('deadLetters.list', 'limit', limit, wholeNumber(1))
      const found: DeadMessage[] = []
      for await (const page of pages(which, Math.min(limit, pageSize), after)) {
        found.push(...page)
        if (found.length >= limit) break
      }
      return found.slice(0, limit)
    },

    async get(id) {
      const letter = await inbox.findDeadLetter(id)
      return letter && deadMessage(letter, read)
    },

    async ids(which) {
      const found: string[] = []
      for await (const page of pages(which, pageSize)) for (const { id } of page) found.push(id)
      return found
    },
  }
}

export function createMessages(inbox: Pick<Inbox, 'messages'>, read: ReadMessage): Messages {
  const list: Required<typeof inbox>['messages'] = (which) => inbox.messages?.(which) ?? noList()
  const record = ({ message, state, reason }: ListedMessage): MessageRecord => ({
    id: message.id,
    event: readable(message, read),
    state,
    ...(reason === undefined ? {} : { death: { ...reason, diedAt: new Date(reason.diedAt) } }),
  })
  return {
    async list({ limit = 100, before, topic, ...which } = {}) {
      checkOption('messages.list', 'limit', limit, wholeNumber(1))
      const found: MessageRecord[] = []
      const size = Math.min(limit, pageSize)
      for (let last = before; found.length < limit;) {
        const page = await list({ ...selectionOf(which), limit: size, ...(last === undefined ? {} : { before: last }) })
        found.push(...page.map(record).filter(({ event }) => topic === undefined || event.topic === topic))
        last = page.at(-1)?.message.id
        if (last === undefined || page.length < size) break
      }
      return found.slice(0, limit)
    },

    async get(id) {
      const seq = seqOf(id)
      if (Number.isNaN(seq)) return undefined
      const [found] = await list({ limit: 1, before: idWithSeq(id, seq + 1) })
      return found?.message.id === id ? record(found) : undefined
    },
  }
}

async function noList(): Promise<never> {
  throw new FleethookError('inbox_unavailable', 'This inbox has no list of its messages.', {
    hint: 'Look at the platform that keeps them, or at the dead letters.',
  })
}

interface ReplaysOptions {
  readonly inbox: Inbox
  readonly open: () => Promise<void>
  readonly read: ReadMessage
  readonly isDraining: () => boolean
  /** A message waits in the inbox again. Resolves when its handlers are done. */
  readonly revived: (message: Waiting, scope: RequestScope) => Promise<void>
}

/** The dead letters and handled messages that the inbox still keeps: to look at, and to replay. */
export interface Replays {
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number>
}

/** Replayed at once. The next ones follow when these are handled, so that live messages run in between. */
const atOnce = 100

export function createReplays({ inbox, open, read, isDraining, revived }: ReplaysOptions): Replays {
  const reader = createDeadLetterReader(inbox, read)

  /** Replays messages in the order given. All ids are known before the first one, so no message is replayed twice. */
  async function revive(ids: readonly string[], { env, context }: Partial<RequestScope> = {}): Promise<number> {
    let count = 0
    for (let start = 0; start < ids.length; start += atOnce) {
      const handled: Promise<void>[] = []
      for (const id of ids.slice(start, start + atOnce)) {
        // Checked for each message: during a drain, a message is safer as it is than waiting.
        refuseWhileDraining(count)
        const message = await inbox.revive(id)
        if (message === undefined) continue
        count += 1
        handled.push(revived(message, { env, context }))
      }
      if (start + atOnce < ids.length) await Promise.all(handled)
    }
    return count
  }

  function refuseWhileDraining(count: number): void {
    if (!isDraining()) return
    throw new FleethookError(
      'inbox_unavailable',
      `The receiver is draining and replays no more messages; it replayed ${count}.`,
    )
  }

  async function settledIds({ topic, ...which }: ReplaySelection): Promise<readonly string[]> {
    const ids: string[] = []
    for await (const page of pagesOf((selection) => inbox.settled(selection), {
      ...selectionOf(which),
      limit: pageSize,
    }))
      for (const message of page)
        if (message.kind === 'wire' && (topic === undefined || readable(message, read).topic === topic))
          ids.push(message.id)
    return ids
  }

  const opened =
    <About extends unknown[], Found>(read: (...about: About) => Promise<Found>) =>
    async (...about: About): Promise<Found> => {
      await open()
      return read(...about)
    }

  const kept = createMessages(inbox, read)
  return {
    messages: { list: opened(kept.list), get: opened(kept.get) },
    deadLetters: {
      list: opened(reader.list),
      get: opened(reader.get),
      async replay(which, from) {
        refuseWhileDraining(0)
        await open()
        if (typeof which === 'string') {
          // The inbox can also revive handled messages, but this method is for dead letters only.
          return (await inbox.findDeadLetter(which)) === undefined ? 0 : revive([which], from)
        }
        const ids = await reader.ids(which)
        return which.dryRun === true ? ids.length : revive(ids, from)
      },
      async discard(which) {
        await open()
        if (typeof which === 'string') return Number(await inbox.discard(which))
        const ids = await reader.ids(which)
        if (which.dryRun === true) return ids.length
        let count = 0
        for (const id of ids) if (await inbox.discard(id)) count += 1
        return count
      },
    },

    async replay(which, from) {
      refuseWhileDraining(0)
      await open()
      const ids = await settledIds(which)
      return which.dryRun === true ? ids.length : revive(ids, from)
    },
  }
}

/** What an inbox can search by: a topic is known only after reading. Throws `option_invalid` for invalid times. */
function selectionOf({ vin, from, to }: MessageSelection): Omit<Selection, 'limit' | 'after'> {
  return {
    ...(vin === undefined ? {} : { lane: laneOf(vin) }),
    ...(from === undefined ? {} : { fromMs: msOf('from', from) }),
    ...(to === undefined ? {} : { toMs: msOf('to', to) }),
  }
}

/** Throws `option_invalid` for an invalid time. */
export function msOf(name: string, time: Date): number {
  const ms = time.getTime()
  if (Number.isNaN(ms)) throw new FleethookError('option_invalid', `\`${name}\` must be a valid Date.`)
  return ms
}

/** The longest part shown of a text that cannot be read, in characters. */
const shownLength = 4096

export function deadMessage({ id, message, error, attempts, diedAt }: DeadLetter, read: ReadMessage): DeadMessage {
  return { id, event: readable(message, read), error, attempts, diedAt: new Date(diedAt) }
}

/** The event of a message, or what can be shown of a message that cannot be read. */
function readable(message: InboxMessage, read: ReadMessage): FleetEvent | MalformedBody {
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
