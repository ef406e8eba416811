import type { DeadLetters, ReplaySelection } from '../inbox/dead-letters.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Inbox, InboxMessage, Waiting } from '../inbox/inbox.ts'
import { createLetters, readable, selectionOf } from './letters.ts'
import type { Surroundings } from '../dispatch/work.ts'

export interface ReplaysOptions {
  readonly inbox: Inbox
  /** Opens the inbox, if it is not open yet. */
  readonly open: () => Promise<void>
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly isDraining: () => boolean
  /** It is a message again and wants its handlers. Resolves when they are done. */
  readonly revived: (message: Waiting, surroundings: Surroundings) => Promise<void>
}

/** What was given up, and what was handled, as far as the inbox still has it: to look at, and to be handled once more. */
export interface Replays {
  readonly deadLetters: DeadLetters
  replay(which: ReplaySelection, from?: Partial<Surroundings>): Promise<number>
}

/** So many are put back at once; the next when their handlers are done, so that live messages get in between. */
const atOnce = 100

/** How many of what was handled are looked at in one step. */
const pageSize = 500

export function createReplays({ inbox, open, read, isDraining, revived }: ReplaysOptions): Replays {
  const letters = createLetters({
    deadLetters: (which) => inbox.deadLetters(which),
    findDeadLetter: (id) => inbox.findDeadLetter(id),
    read,
  })

  /** Puts messages back in the order given. They are known before the first is: none comes twice, whatever becomes of it. */
  async function revive(ids: readonly string[], { env, context }: Partial<Surroundings> = {}): Promise<number> {
    let count = 0
    for (let start = 0; start < ids.length; start += atOnce) {
      const handled: Promise<void>[] = []
      for (const id of ids.slice(start, start + atOnce)) {
        // It would be lost where it now is safe.
        if (isDraining()) throw draining(count)
        const message = await inbox.revive(id)
        if (message === undefined) continue
        count += 1
        handled.push(revived(message, { env, context }))
      }
      if (start + atOnce < ids.length) await Promise.all(handled)
    }
    return count
  }

  async function settledIds({ topic, ...which }: ReplaySelection): Promise<readonly string[]> {
    const ids: string[] = []
    const selection = { ...selectionOf(which), limit: pageSize }
    for (let after: string | undefined; ;) {
      const found = await inbox.settled(after === undefined ? selection : { ...selection, after })
      for (const message of found)
        if (message.kind === 'wire' && (topic === undefined || readable(message, read).topic === topic))
          ids.push(message.id)
      after = found.at(-1)?.id
      if (after === undefined || found.length < pageSize) return ids
    }
  }

  return {
    deadLetters: {
      async list(which) {
        await open()
        return letters.list(which)
      },
      async get(id) {
        await open()
        return letters.get(id)
      },
      async replay(which, from) {
        if (isDraining()) throw draining(0)
        await open()
        if (typeof which === 'string') {
          // What was handled can be revived too, and is not meant.
          return (await inbox.findDeadLetter(which)) === undefined ? 0 : revive([which], from)
        }
        const ids = await letters.ids(which)
        return which.dryRun === true ? ids.length : revive(ids, from)
      },
      async discard(which) {
        await open()
        if (typeof which === 'string') return Number(await inbox.discard(which))
        const ids = await letters.ids(which)
        if (which.dryRun === true) return ids.length
        let count = 0
        for (const id of ids) if (await inbox.discard(id)) count += 1
        return count
      },
    },

    async replay(which, from) {
      if (isDraining()) throw draining(0)
      await open()
      const ids = await settledIds(which)
      return which.dryRun === true ? ids.length : revive(ids, from)
    },
  }
}

function draining(count: number): FleethookError {
  return new FleethookError(
    'inbox_unavailable',
    `The receiver is draining and replays nothing more; ${count} messages were put back.`,
  )
}
