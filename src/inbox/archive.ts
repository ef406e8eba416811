import { FleethookError } from '../base/errors.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type {
  DeadLetters,
  DeadMessage,
  MessageRecord,
  Messages,
  MessageSelection,
  Replayed,
  ReplayPage,
  ReplaySelection,
} from './dead-letters.ts'
import { laneOf } from './receipts.ts'
import { bytesOfMessage, firstPage, largestPage, pagesOf } from './pages.ts'
import type { Archive, DeadLetter, InboxMessage, ListedMessage, Selection, Waiting } from './inbox.ts'

type ReadMessage = (message: InboxMessage) => FleetEvent | MalformedBody

/** For an inbox without a receiver. */
export const readsNothing: ReadMessage = () => {
  throw new FleethookError('message_unreadable', 'Only a receiver reads messages.')
}

/** Reads dead letters, with the event instead of the text. */
interface DeadLetterReader extends Pick<DeadLetters, 'list' | 'get'> {
  ids(which: MessageSelection): Promise<readonly string[]>
}

export function createDeadLetterReader(archive: Pick<Archive, 'list'>, read: ReadMessage): DeadLetterReader {
  async function* list(
    { topic, after, ...which }: MessageSelection & { readonly after?: string | undefined },
    size: number,
  ): AsyncGenerator<DeadMessage> {
    const selection = selectionOf(which)
    const following = (last: ListedMessage | undefined, limit: number): Promise<readonly ListedMessage[]> =>
      archive.list('dead', { ...selection, limit, after: last?.message.id ?? after })
    for await (const page of pagesOf(following, size, bytesOfMessage))
      for (const letter of page.flatMap(letterIn)) {
        const message = deadMessage(letter, read)
        if (topic === undefined || message.event.topic === topic) yield message
      }
  }

  return {
    list: (which = {}) => list(which, firstPage),

    async get(id) {
      const [letter] = (await archive.list('dead', { id, limit: 1 })).flatMap(letterIn)
      return letter && deadMessage(letter, read)
    },

    async ids(which) {
      const found: string[] = []
      for await (const { id } of list(which, largestPage)) found.push(id)
      return found
    },
  }
}

const letterIn = ({ message, reason }: ListedMessage): readonly DeadLetter[] =>
  reason === undefined ? [] : [{ id: message.id, message, ...reason }]

export function createMessages(archive: Pick<Archive, 'list'>, read: ReadMessage): Messages {
  const record = ({ message, state, reason }: ListedMessage): MessageRecord => ({
    id: message.id,
    event: readable(message, read),
    bytes: message.bytes,
    state,
    ...(reason === undefined ? {} : { death: { ...reason, diedAt: new Date(reason.diedAt) } }),
  })
  return {
    async *list({ after, topic, ...which } = {}) {
      const selection = selectionOf(which)
      const older = async (last: ListedMessage | undefined, limit: number): Promise<readonly ListedMessage[]> =>
        archive.list('all', { ...selection, limit, after: last?.message.id ?? after })
      for await (const page of pagesOf(older, firstPage, bytesOfMessage))
        for (const listed of page) {
          const found = record(listed)
          if (topic === undefined || found.event.topic === topic) yield found
        }
    },

    async get(id) {
      const [found] = await archive.list('all', { id, limit: 1 })
      return found && record(found)
    },
  }
}

/** Of an inbox without an archive. */
export const noArchive: Archive = { list: noList, revive: noList, discard: noList }

async function noList(): Promise<never> {
  throw new FleethookError('inbox_unavailable', 'This inbox has no list of its messages.', {
    hint: 'Look at the platform that keeps them, or at the dead letters.',
  })
}

interface ReplaysOptions {
  readonly archive: Archive | undefined
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
  /** Resolves when their handlers are done, so that the next part does not crowd out live messages. */
  replaySome(which: ReplayPage): Promise<Replayed>
}

/** Replayed at once. The next ones follow when these are handled, so that live messages run in between. */
const atOnce = 100

export function createReplays({ archive = noArchive, open, read, isDraining, revived }: ReplaysOptions): Replays {
  const reader = createDeadLetterReader(archive, read)

  /** Replays messages in the order given. All ids are known before the first one, so no message is replayed twice. */
  async function revive(
    ids: readonly string[],
    { env, context }: Partial<RequestScope> = {},
    waits = false,
  ): Promise<number> {
    let count = 0
    for (let start = 0; start < ids.length; start += atOnce) {
      const handled: Promise<void>[] = []
      for (const id of ids.slice(start, start + atOnce)) {
        // Checked for each message: during a drain, a message is safer as it is than waiting.
        refuseWhileDraining(count)
        const message = await archive.revive(id)
        if (message === undefined) continue
        count += 1
        handled.push(revived(message, { env, context }))
      }
      if (waits || start + atOnce < ids.length) await Promise.all(handled)
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

  const kept = createMessages(archive, read)
  return {
    messages: listedAfter(open, kept),
    deadLetters: {
      ...listedAfter(open, reader),
      async replay(which, from) {
        refuseWhileDraining(0)
        await open()
        if (typeof which === 'string') {
          // The inbox can also revive handled messages, but this method is for dead letters only.
          return (await reader.get(which)) === undefined ? 0 : revive([which], from)
        }
        const ids = await reader.ids(which)
        return which.dryRun === true ? ids.length : revive(ids, from)
      },
      async discard(which) {
        await open()
        if (typeof which === 'string') return Number(await archive.discard(which))
        const ids = await reader.ids(which)
        if (which.dryRun === true) return ids.length
        let count = 0
        for (const id of ids) if (await archive.discard(id)) count += 1
        return count
      },
    },

    async replay(which, from) {
      refuseWhileDraining(0)
      await open()
      const ids: string[] = []
      for await (const { id } of replayable(archive, which, read)) ids.push(id)
      return which.dryRun === true ? ids.length : revive(ids, from)
    },

    async replaySome(which) {
      refuseWhileDraining(0)
      await open()
      const page = await pageOf(replayable(archive, which, read), which.limit)
      return {
        messages: await revive(
          page.found.map(({ id }) => id),
          {},
          page.next !== null,
        ),
        next: page.next,
      }
    },
  }
}

/** The first ones. `next`: the last of them, when there may be more. */
export async function pageOf(
  messages: AsyncIterable<InboxMessage>,
  limit: number,
): Promise<{ readonly found: readonly InboxMessage[]; readonly next: string | null }> {
  const found: InboxMessage[] = []
  for await (const message of messages) {
    found.push(message)
    if (found.length === limit) return { found, next: message.id }
  }
  return { found, next: null }
}

/** The handled messages that a replay is for, oldest first. */
export async function* replayable(
  archive: Pick<Archive, 'list'>,
  { topic, after, ...which }: ReplaySelection & Partial<Pick<ReplayPage, 'after'>>,
  read: ReadMessage,
): AsyncGenerator<InboxMessage> {
  const selection = selectionOf(which)
  const following = (last: ListedMessage | undefined, limit: number): Promise<readonly ListedMessage[]> =>
    archive.list('settled', { ...selection, limit, after: last?.message.id ?? after })
  for await (const page of pagesOf(following, largestPage, bytesOfMessage))
    for (const { message } of page)
      if (message.kind === 'wire' && (topic === undefined || readable(message, read).topic === topic)) yield message
}

/** Looks into a list only when `ready` has resolved. */
export function listedAfter<Which, Found, One>(
  ready: () => Promise<unknown>,
  { list, get }: { list(which?: Which): AsyncIterable<Found>; get(id: string): Promise<One> },
): { list(which?: Which): AsyncIterable<Found>; get(id: string): Promise<One> } {
  return {
    async *list(which) {
      await ready()
      yield* list(which)
    },
    async get(id) {
      await ready()
      return get(id)
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
  return { id, event: readable(message, read), bytes: message.bytes, error, attempts, diedAt: new Date(diedAt) }
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
