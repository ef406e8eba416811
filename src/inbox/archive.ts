import { FleethookError } from '../base/errors.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type {
  DeadLetters,
  DeadMessage,
  MessageRecord,
  Messages,
  MessageSelection,
  ReplayPage,
  ReplaySelection,
} from '../observe/dead-letters.ts'
import type { Asked } from '../observe/observer.ts'
import { deadMessage, laneOf, readable } from './receipts.ts'
import { bytesOfMessage, firstPage, largestPage, pagesOf } from '../base/pages.ts'
import type { Archive, InboxMessage, ListedMessage, ReadMessage, Waiting } from './inbox.ts'

type Selected = MessageSelection & { readonly after?: string | undefined }

/** What is kept and matches, in the order of the archive's list, with its event: a topic is known only after reading. */
async function* kept(
  archive: Pick<Archive, 'list'>,
  what: Parameters<Archive['list']>[0],
  { vin, from, to, topic, after }: Selected,
  read: ReadMessage,
  size: number = firstPage,
): AsyncGenerator<ListedMessage> {
  const lane = vin === undefined ? undefined : laneOf(vin)
  const [fromMs, toMs] = [from && msOf('from', from), to && msOf('to', to)]
  const following = (last: ListedMessage | undefined, limit: number): Promise<readonly ListedMessage[]> =>
    archive.list(what, { lane, fromMs, toMs, limit, after: last?.message.id ?? after })
  for await (const page of pagesOf(following, size, bytesOfMessage))
    for (const listed of page) {
      const event = readable(listed.message, read)
      if (topic === undefined || event.topic === topic) yield { ...listed, message: { ...listed.message, event } }
    }
}

interface Reader<Shown> {
  list(which?: Selected): AsyncIterable<Shown>
  get(id: string): Promise<Shown | undefined>
}

function readerOf<Shown>(
  archive: Pick<Archive, 'list'>,
  what: 'dead' | 'all',
  read: ReadMessage,
  shown: (listed: ListedMessage) => Shown,
): Reader<Shown> {
  return {
    async *list(which = {}) {
      for await (const listed of kept(archive, what, which, read)) yield shown(listed)
    },
    get: async (id) => (await archive.list(what, { id, limit: 1 })).map(shown)[0],
  }
}

export const createDeadLetterReader = (archive: Pick<Archive, 'list'>, read: ReadMessage): Reader<DeadMessage> =>
  readerOf(archive, 'dead', read, ({ message, reason = { error: '', attempts: 0, diedAt: 0 } }) =>
    deadMessage({ id: message.id, message, ...reason }, read),
  )

export const createMessages = (archive: Pick<Archive, 'list'>, read: ReadMessage): Messages =>
  readerOf<MessageRecord>(archive, 'all', read, ({ message, state, reason }) => {
    const death = reason && { ...reason, diedAt: new Date(reason.diedAt) }
    const { id, text, bytes } = message
    return { id, event: readable(message, read), text, bytes, state, death }
  })

/** The dead letters of an inbox, by their ids. */
export interface DeadLetterStore extends Pick<Archive, 'list'> {
  /** Makes them waiting messages again, in the order given. Resolves to their number. */
  replay(ids: readonly string[], from?: Partial<RequestScope>): Promise<number>
  discard(ids: readonly string[]): Promise<number>
}

/** What `receiver.deadLetters` does with them. */
export function deadLettersOf(store: DeadLetterStore, read: ReadMessage): DeadLetters {
  const reader = createDeadLetterReader(store, read)
  async function each(
    which: Parameters<DeadLetters['replay']>[0],
    run: (ids: readonly string[]) => Promise<number>,
  ): Promise<number> {
    // An inbox may also revive handled messages by their ids.
    if (typeof which === 'string') return (await reader.get(which)) === undefined ? 0 : run([which])
    const ids: string[] = []
    for await (const { message } of kept(store, 'dead', which, read, largestPage)) ids.push(message.id)
    return which.dryRun === true ? ids.length : run(ids)
  }
  return {
    list: reader.list,
    get: reader.get,
    replay: (which, from) => each(which, (ids) => store.replay(ids, from)),
    discard: (which) => each(which, (ids) => store.discard(ids)),
  }
}

/** For an inbox without an archive. */
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

/** Replayed at once. The next ones follow when these are handled, so that live messages run in between. */
const atOnce = 100

/** The dead letters and handled messages that the inbox still keeps: to look at, and to replay, once it is open. */
export function createReplays({ archive: given = noArchive, open, read, isDraining, revived }: ReplaysOptions): Asked {
  const archive: Archive = {
    list: (what, which) => open().then(() => given.list(what, which)),
    revive: (id) => open().then(() => given.revive(id)),
    discard: (id) => open().then(() => given.discard(id)),
  }

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
        // During a drain, a message is safer as it is than waiting.
        if (isDraining())
          throw new FleethookError(
            'inbox_unavailable',
            `The receiver is draining and replays no more messages; it replayed ${count}.`,
          )
        const message = await archive.revive(id)
        if (message === undefined) continue
        count += 1
        handled.push(revived(message, { env, context }))
      }
      if (waits || start + atOnce < ids.length) await Promise.all(handled)
    }
    return count
  }

  async function discard(ids: readonly string[]): Promise<number> {
    let count = 0
    for (const id of ids) if (await archive.discard(id)) count += 1
    return count
  }

  return {
    messages: createMessages(archive, read),
    deadLetters: deadLettersOf({ list: (what, which) => archive.list(what, which), replay: revive, discard }, read),
    async replay(which, from) {
      const ids: string[] = []
      for await (const { id } of replayable(archive, which, read)) ids.push(id)
      return which.dryRun === true ? ids.length : revive(ids, from)
    },
    // Resolves when their handlers are done, so that the next part does not crowd out live messages.
    async replaySome(which) {
      const { found, next } = await partOf(archive, which, read)
      const ids = found.map(({ id }) => id)
      return { messages: await revive(ids, {}, next !== null), next }
    },
  }
}

/** The messages of one part of a replay. `next`: the last of them, when there may be more. */
export async function partOf(
  archive: Pick<Archive, 'list'>,
  which: ReplayPage,
  read: ReadMessage,
): Promise<{ readonly found: readonly InboxMessage[]; readonly next: string | null }> {
  const found: InboxMessage[] = []
  for await (const message of replayable(archive, which, read))
    if (found.push(message) === which.limit) return { found, next: message.id }
  return { found, next: null }
}

/** The handled messages that a replay is for, oldest first. */
export async function* replayable(
  archive: Pick<Archive, 'list'>,
  which: ReplaySelection & Partial<Pick<ReplayPage, 'after'>>,
  read: ReadMessage,
): AsyncGenerator<InboxMessage> {
  for await (const { message } of kept(archive, 'settled', which, read, largestPage))
    if (message.kind === 'wire') yield message
}

/** Throws `option_invalid` for an invalid time. */
export function msOf(name: string, time: Date): number {
  const ms = time.getTime()
  if (Number.isNaN(ms)) throw new FleethookError('option_invalid', `\`${name}\` must be a valid Date.`)
  return ms
}
