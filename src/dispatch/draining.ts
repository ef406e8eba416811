import { FleethookError } from '../base/errors.ts'
import type { DrainResult } from '../hosting/drainable.ts'
import type { Inbox } from '../inbox/inbox.ts'
import type { DispatchCounts, DispatchEvents, Outcome } from './attempt.ts'
import type { Backlog } from './backlog.ts'
import type { Lanes } from './lanes.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Runner } from './running.ts'
import { endWork, type Work } from './work.ts'

/** What a drain ends. */
export interface Drained {
  readonly inbox: Inbox
  readonly lifecycle: Lifecycle
  readonly lanes: Lanes<Work>
  readonly backlog: Backlog
  readonly runner: Runner
  readonly outcome: Outcome
  readonly counts: DispatchCounts
  readonly events: DispatchEvents
  /** Starts batches that are not full. */
  readonly flush: () => void
  /** Stops the timers of batches and resting handlers. */
  readonly stopTimers: () => void
}

/** How long after the deadline the inbox may take to note what was aborted, in milliseconds. */
const inboxGraceMs = 1_000

/** Waits until nothing is left to do, at most until the deadline; then aborts what runs and gives up what waits. */
export async function drain(drained: Drained, deadlineMs: number): Promise<DrainResult> {
  const { inbox, lifecycle, lanes, backlog, runner, counts, flush, stopTimers } = drained
  const handledBefore = counts.handled + counts.deadLettered
  const lostBefore = counts.lost
  lifecycle.beginDrain()
  flush()
  await lifecycle.until(() => lanes.size === 0 && backlog.size === 0 && lifecycle.isQuiet, deadlineMs)
  lifecycle.stop()
  stopTimers()
  runner.abort(new FleethookError('drain_deadline', `The drain reached its deadline of ${deadlineMs} ms.`))
  for (const work of lanes.all()) work.rest?.cancel()
  // Aborted runs end at once. What takes time is the inbox, which notes them.
  let isNoted = false
  void noteBrokenOff(drained).then(() => {
    isNoted = true
    lifecycle.onChange?.()
  })
  await lifecycle.until(() => isNoted && lifecycle.running === 0, inboxGraceMs)
  const unfinished = [...lanes.all()]
  const shelved = lanes.folded + backlog.size
  for (const work of unfinished) endWork(work)
  lanes.clear()
  backlog.clear()
  await giveUp(unfinished, drained)
  return {
    handled: counts.handled + counts.deadLettered - handledBefore,
    left: inbox.durability === 'memory' ? 0 : unfinished.filter((work) => work.counts).length + shelved,
    lost: counts.lost - lostBefore,
  }
}

/** Messages that were handed out, and whose turn had no end, were not tried. */
async function noteBrokenOff({ lanes, outcome, events }: Drained): Promise<void> {
  const noting: Promise<void>[] = []
  for (const work of lanes.all()) {
    const { opened, state, attempt, batch } = work
    if (opened === undefined || batch?.isResting === true || (state !== 'gathered' && state !== 'parked')) continue
    const attempts = state === 'gathered' ? attempt - 1 : attempt
    noting.push(outcome.breakOff(work, attempts).catch(events.inboxFailed))
  }
  await Promise.all(noting)
}

/**
 * Gives up work that will not be handled here, and resolves to what is lost. A durable inbox keeps it for a later process;
 * an inbox in memory forgets it, and it counts as lost. Never rejects.
 */
export async function giveUp(
  works: readonly Work[],
  { inbox, counts, events }: Pick<Drained, 'inbox' | 'counts' | 'events'>,
): Promise<readonly Work[]> {
  async function isLost(work: Work): Promise<boolean> {
    try {
      // A message that was merged into another one is no longer there.
      if (inbox.durability !== 'memory' || (await inbox.claim(work.id)) === undefined) return false
      await inbox.settle(work.id)
    } catch (error) {
      events.inboxFailed(error)
    }
    return work.counts
  }

  const lost: Work[] = []
  await Promise.all(
    works.map(async (work) => {
      const isGone = await isLost(work)
      if (isGone) {
        counts.lost += 1
        lost.push(work)
      }
      work.request.oneIsOver(isGone)
    }),
  )
  if (lost.length > 0) events.lost(lost.length)
  return lost
}
