import { elapsedMs, resolvedOr } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { DrainOptions, DrainResult } from '../hosting/drainable.ts'
import type { Core } from './core.ts'

/** How long the inbox may take to write down what was aborted, in milliseconds. */
const inboxGraceMs = 1_000

/**
 * Ends the work of a core. Messages still come until `takeUntil` resolves.
 *
 * |                       | in memory                 | durable                |
 * | --------------------- | ------------------------- | ---------------------- |
 * | handlers start        | until the lanes are empty | no more                |
 * | handlers are aborted  | at `deadlineMs`           | after `handlerGraceMs` |
 * | anything unfinished   | is lost                   | waits in the inbox     |
 */
export async function drain(
  core: Core,
  { deadlineMs = 25_000, handlerGraceMs = 2_000, takeUntil }: DrainOptions,
): Promise<DrainResult> {
  const { counts, lanes, lifecycle } = core
  const { inbox, clock } = core.options
  const endsAtMs = elapsedMs(clock) + deadlineMs
  const handledBefore = counts.handled + counts.deadLettered
  const lostBefore = counts.lost
  const isDurable = inbox.durability !== 'memory'
  const graceMs = Math.min(handlerGraceMs, deadlineMs)
  let left = 0
  const breakOff = async (afterMs: number): Promise<void> => {
    left += await breakOffAll(core, afterMs)
  }
  lifecycle.isDraining = true
  if (inbox.shared?.finish !== undefined) await inbox.shared.finish(graceMs, () => breakOff(handlerGraceMs))
  else if (isDurable) {
    core.startNoMore()
    await lifecycle.until(() => lifecycle.running === 0, graceMs)
    await breakOff(handlerGraceMs)
  }
  await resolvedOr(takeUntil, clock, endsAtMs - elapsedMs(clock))
  core.pump()
  const isIdle = (): boolean => lifecycle.expected === 0 && (isDurable || lanes.size === 0)
  const untilIdle = (): Promise<void> => lifecycle.until(isIdle, Math.max(0, endsAtMs - elapsedMs(clock)))
  await untilIdle()
  // A durable inbox has the next process tell what is due.
  while (!isDurable && elapsedMs(clock) < endsAtMs && (await core.options.vehicles?.timers.tellDue()) === true)
    await untilIdle()
  await breakOff(deadlineMs)
  return {
    handled: counts.handled + counts.deadLettered - handledBefore,
    left: isDurable ? left : 0,
    lost: counts.lost - lostBefore,
  }
}

/** Aborts what runs and gives up what waits. Resolves to the number of messages that came over the wire and are not done. */
async function breakOffAll(core: Core, afterMs: number): Promise<number> {
  const { lanes, lifecycle } = core
  core.startNoMore()
  core.runner.abort(
    new FleethookError('drain_deadline', `The receiver is stopping, and handlers had ${afterMs} ms to finish.`),
  )
  for (const { trouble } of lanes.all()) trouble?.rest?.cancel()
  // Aborted runs end at once. Only the inbox takes time, to write that down. A turn that did not end does not count as an attempt, and a claim without
  // a turn does not count as a crash. What runs writes that itself.
  let isNoted = false
  const claimed = [...lanes.all()].filter(({ claim, state }) => claim !== undefined && state !== 'running')
  void Promise.all(claimed.map((message) => core.tryLater(message, 0))).then(() => {
    isNoted = true
    lifecycle.onChange?.()
  })
  await lifecycle.until(() => isNoted && lifecycle.running === 0, inboxGraceMs)
  const unfinished = [...lanes.all()]
  for (const message of unfinished) {
    message.end()
    lanes.remove(message)
  }
  await core.giveUp(unfinished)
  return unfinished.filter(({ counts }) => counts).length
}
