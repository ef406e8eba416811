import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { DrainOptions, DrainResult } from '../hosting/drainable.ts'
import { type AttemptsOptions, reportSettled } from './attempt.ts'
import type { Backlog } from './backlog.ts'
import type { Lanes } from './lanes.ts'
import { endWork, type Work } from './work.ts'

/** What a drain ends. */
export interface Drained extends Pick<
  AttemptsOptions,
  'clock' | 'inbox' | 'lifecycle' | 'runner' | 'outcome' | 'counts' | 'events'
> {
  readonly lanes: Lanes<Work>
  readonly backlog: Backlog
  /** Starts batches that are not full. */
  readonly flush: () => void
  /** Stops the timers of batches and resting handlers. */
  readonly stopTimers: () => void
}

/** How long the inbox may take to write down what was aborted, in milliseconds. */
const inboxGraceMs = 1_000

/**
 * Ends the work of a scheduler.
 *
 * With an inbox in memory, handlers run until every message is handled, or until the deadline. With a durable inbox the next
 * process goes on: no handler starts, and those that run get `handlerGraceMs`. Messages still come until `takeUntil`
 * resolves.
 */
export async function drain(
  drained: Drained,
  { deadlineMs = 25_000, handlerGraceMs = 2_000, takeUntil }: DrainOptions,
): Promise<DrainResult> {
  const { inbox, clock, lifecycle, lanes, backlog, counts, flush, stopTimers } = drained
  const endsAtMs = elapsedMs(clock) + deadlineMs
  const handledBefore = counts.handled + counts.deadLettered
  const lostBefore = counts.lost
  const isDurable = inbox.durability !== 'memory'
  let left = 0
  lifecycle.beginDrain()
  if (isDurable) {
    lifecycle.stop()
    stopTimers()
    await lifecycle.until(() => lifecycle.running === 0, Math.min(handlerGraceMs, deadlineMs))
    left += await breakOffAll(drained, handlerGraceMs)
  }
  await resolvedOr(takeUntil, clock, endsAtMs - elapsedMs(clock))
  flush()
  const isIdle = (): boolean => lifecycle.isQuiet && (isDurable || (lanes.size === 0 && backlog.size === 0))
  await lifecycle.until(isIdle, Math.max(0, endsAtMs - elapsedMs(clock)))
  lifecycle.stop()
  stopTimers()
  left += await breakOffAll(drained, deadlineMs)
  return {
    handled: counts.handled + counts.deadLettered - handledBefore,
    left: isDurable ? left : 0,
    lost: counts.lost - lostBefore,
  }
}

/** Resolves when the promise settles, or when the time has passed. */
export async function resolvedOr(promise: Promise<unknown> | undefined, clock: Clock, atMostMs: number): Promise<void> {
  if (promise === undefined) return
  let timer: Timer | undefined
  const timeIsUp = new Promise<void>((resolve) => {
    timer = clock.after(Math.max(0, atMostMs), resolve)
  })
  await Promise.race([timeIsUp, promise.catch(() => {})])
  timer?.cancel()
}

/** Aborts what runs and gives up what waits. Resolves to the number of messages that came over the wire and are not done. */
async function breakOffAll(drained: Drained, afterMs: number): Promise<number> {
  const { lifecycle, lanes, backlog, runner } = drained
  runner.abort(
    new FleethookError('drain_deadline', `The receiver is stopping, and handlers had ${afterMs} ms to finish.`),
  )
  for (const work of lanes.all()) work.rest?.cancel()
  // Aborted runs end at once. Only the inbox takes time, to write that down.
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
  return unfinished.filter((work) => work.counts).length + shelved
}

/** A turn that did not end does not count as an attempt. */
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
      // A message that was merged into another is no longer in the inbox.
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
        reportSettled(events, work, 'lost')
      }
      // An answer must not wait for its handlers any more, even if a later process runs them.
      work.request.oneIsOver(true)
    }),
  )
  if (lost.length > 0) events.lost(lost.length)
  return lost
}
