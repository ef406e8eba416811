import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { DrainOptions, DrainResult } from '../hosting/drainable.ts'
import { endedAttempts, type RunningCore } from './batches.ts'
import type { Entry, RequestWork } from './entry.ts'
import type { CoreEvents } from './events.ts'

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
  core: RunningCore,
  { deadlineMs = 25_000, handlerGraceMs = 2_000, takeUntil }: DrainOptions,
): Promise<DrainResult> {
  const { counts, lanes, lifecycle } = core
  const { inbox, clock } = core.options
  const endsAtMs = elapsedMs(clock) + deadlineMs
  const handledBefore = counts.handled + counts.deadLettered
  const lostBefore = counts.lost
  const isDurable = inbox.durability !== 'memory'
  let left = 0
  lifecycle.beginDrain()
  if (isDurable) {
    lifecycle.stop()
    core.stopTimers()
    await lifecycle.until(() => lifecycle.running === 0, Math.min(handlerGraceMs, deadlineMs))
    left += await breakOffAll(core, handlerGraceMs)
  }
  await resolvedOr(takeUntil, clock, endsAtMs - elapsedMs(clock))
  core.pump()
  const isIdle = (): boolean => lifecycle.isQuiet && (isDurable || lanes.size === 0)
  const untilIdle = (): Promise<void> => lifecycle.until(isIdle, Math.max(0, endsAtMs - elapsedMs(clock)))
  await untilIdle()
  // A durable inbox has the next process tell what is due.
  while (!isDurable && elapsedMs(clock) < endsAtMs && (await core.last())) await untilIdle()
  lifecycle.stop()
  core.stopTimers()
  left += await breakOffAll(core, deadlineMs)
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
async function breakOffAll(core: RunningCore, afterMs: number): Promise<number> {
  const { lanes, lifecycle } = core
  core.runner.abort(
    new FleethookError('drain_deadline', `The receiver is stopping, and handlers had ${afterMs} ms to finish.`),
  )
  for (const { trouble } of lanes.all()) trouble?.rest?.cancel()
  // Aborted runs end at once. Only the inbox takes time, to write that down.
  let isNoted = false
  void noteBrokenOff(core).then(() => {
    isNoted = true
    lifecycle.onChange?.()
  })
  await lifecycle.until(() => isNoted && lifecycle.running === 0, inboxGraceMs)
  const unfinished = [...lanes.all()]
  for (const entry of unfinished) entry.end()
  lanes.clear()
  await giveUp(unfinished, core)
  return unfinished.filter(({ counts }) => counts).length
}

/** A turn that did not end does not count as an attempt, and a claim without a turn does not count as a crash. */
async function noteBrokenOff(core: RunningCore): Promise<void> {
  const noting: Promise<void>[] = []
  for (const entry of core.lanes.all()) {
    // What runs writes that itself.
    if (entry.claim === undefined || entry.state === 'running') continue
    noting.push(
      core.later(entry, endedAttempts(entry), 0).catch((error: unknown) => core.options.events.inboxFailed(error)),
    )
  }
  await Promise.all(noting)
}

/** Gives up entries, and resolves to what is lost: a durable inbox keeps them for a later process. Never rejects. */
export async function giveUp(entries: readonly Entry[], core: RunningCore): Promise<readonly Entry[]> {
  const { inbox, events } = core.options

  async function isLost(entry: Entry): Promise<boolean> {
    try {
      // One that is settled meanwhile is no longer in the inbox.
      if (inbox.durability !== 'memory' || (await inbox.claim(entry.id)) === undefined) return false
      await inbox.settle(entry.id)
    } catch (error) {
      events.inboxFailed(error)
    }
    return entry.counts
  }

  const lost: Entry[] = []
  await Promise.all(
    entries.map(async (entry) => {
      if (await isLost(entry)) {
        core.counts.lost += 1
        lost.push(entry)
        core.reportSettled(entry, 'lost')
      }
    }),
  )
  if (lost.length > 0) events.lost(lost.length)
  // An answer must not wait for its handlers any more, even if a later process runs them.
  for (const { request } of entries) request.oneIsOver(true)
  return lost
}

/** How long the work of a request may go on after it began. Workers cut off what `waitUntil` holds at 30 seconds. */
const requestWorkMs = 25_000

/** When the last line about a request has to be written, counted from its beginning. */
const requestEndMs = 28_000

interface Held {
  readonly sinceMs: number
  timer: Timer | undefined
}

/** Follows the requests whose work the runtime ends by itself, with or without notice. */
export class RequestDeadlines {
  readonly #clock: Clock
  readonly #events: Pick<CoreEvents, 'requestEnds'>
  readonly #expire: (request: RequestWork, sinceMs: number) => void
  readonly #held = new Map<RequestWork, Held>()
  /** When each request began, as far as it is known: the runtime counts from then. */
  readonly #began = new WeakMap<object, number>()

  constructor(
    clock: Clock,
    events: Pick<CoreEvents, 'requestEnds'>,
    expire: (request: RequestWork, sinceMs: number) => void,
  ) {
    this.#clock = clock
    this.#events = events
    this.#expire = expire
  }

  /** Keeps the request's work alive until its messages are settled. */
  hold(request: RequestWork): void {
    const now = this.#clock.now()
    // The timer of a request is gone when the runtime has ended the request. The requests are nearly in order of age, so this
    // looks at a few at most.
    for (const [other, { sinceMs }] of this.#held) {
      if (now - sinceMs <= requestWorkMs) break
      this.#end(other, sinceMs)
    }
    const { context } = request
    if (context === undefined) return
    const sinceMs = this.#began.get(context) ?? now
    this.#began.set(context, sinceMs)
    const held: Held = { sinceMs, timer: undefined }
    this.#held.set(request, held)
    context.waitUntil(request.settled().then(() => this.#settled(request, held)))
  }

  /** Its handlers have started and are not done: calls `expire` when they take too long. */
  watch(request: RequestWork): void {
    const held = this.#held.get(request)
    if (held === undefined) return
    const leftMs = held.sinceMs + requestWorkMs - this.#clock.now()
    held.timer = this.#clock.after(Math.max(0, leftMs), () => this.#end(request, held.sinceMs))
  }

  #end(request: RequestWork, sinceMs: number): void {
    if (this.#held.delete(request)) this.#expire(request, sinceMs)
  }

  #settled(request: RequestWork, { sinceMs, timer }: Held): Promise<void> | undefined {
    timer?.cancel()
    this.#held.delete(request)
    return this.#events.requestEnds(Math.max(0, sinceMs + requestEndMs - this.#clock.now()))
  }
}
