import type { Inbox } from '../inbox/inbox.ts'
import type { DispatchCounts, DispatchEvents } from './dispatcher.ts'
import type { Work } from './work.ts'

/** Gives up work that will never be handled here, and resolves to what is lost by it. Never rejects. */
export type GiveUp = (works: readonly Work[]) => Promise<readonly Work[]>

/** What an inbox keeps beyond this process is left there; what it does not is forgotten, and counted as lost. */
export function createGiveUp(options: {
  readonly inbox: Inbox
  readonly counts: DispatchCounts
  readonly events: Pick<DispatchEvents, 'inboxFailed' | 'lost'>
}): GiveUp {
  const { inbox, counts, events } = options

  async function isLost(work: Work): Promise<boolean> {
    try {
      // One that was merged into another is no longer there.
      if (inbox.durability !== 'memory' || (await inbox.claim(work.id)) === undefined) return false
      await inbox.settle(work.id)
    } catch (error) {
      events.inboxFailed(error)
    }
    return work.counts
  }

  async function giveUp(work: Work): Promise<readonly Work[]> {
    const lost = await isLost(work)
    if (lost) {
      counts.lost += 1
      work.arrival.lost += 1
    }
    work.arrival.finish()
    return lost ? [work] : []
  }

  return async (works) => {
    const lost = (await Promise.all(works.map(giveUp))).flat()
    if (lost.length > 0) events.lost(lost.length)
    return lost
  }
}
