import type { Ack, DrainResult } from '../hosting/drainable.ts'
import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Inbox, InboxMessage, Waiting } from '../inbox/inbox.ts'
import type { Log } from '../base/log.ts'
import { createPassingMap } from '../base/passing-map.ts'
import { createBacklog } from './backlog.ts'
import { createDrain } from './drain.ts'
import type { Dedupe } from './duplicates.ts'
import { createGiveUp } from './give-up.ts'
import { createHeld, heldWorkMs } from './held.ts'
import { createLanes, type Lanes } from './lanes.ts'
import type { AttemptCounts, AttemptEvents } from './outcome.ts'
import type { Registry } from './registry.ts'
import type { RetryOptions } from './retry.ts'
import { createRunner } from './run.ts'
import { createTurns } from './turns.ts'
import { type Arrival, createArrival, type Surroundings, type Work } from './work.ts'

/** What the dispatcher tells the receiver about. */
export interface DispatchEvents extends AttemptEvents {
  /** The inbox itself failed. */
  inboxFailed(error: unknown): void
  /** So many acknowledged messages were given up, because a drain reached its deadline or the runtime ended their request. */
  lost(messages: number): void
  /** A message of this lane, taken in at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The inbox has room again; `surroundings` are those of the message that made it. */
  onCapacity(surroundings: Surroundings): void
}

export interface DispatchCounts extends AttemptCounts {
  lost: number
}

/** Takes messages from the inbox through their handlers: in order per lane, so many at once, again when they fail. */
export interface Dispatcher {
  /**
   * Gives messages their places, before the inbox has them: however long that takes, order is that of these calls. Only of a
   * arrival that is `watched` it can be waited for that it is settled.
   */
  add(messages: readonly Waiting[], surroundings: Surroundings, watched?: boolean): Arrival
  /** The inbox keeps them: their handlers start in a task of their own, after the answer. */
  start(arrival: Arrival): void
  /** The inbox does not keep them. */
  cancel(arrival: Arrival): void
  /** Messages were merged into others of their lanes and have no turn of their own. */
  merged(ids: readonly string[]): void
  /** Until as many times `leave` more may come, and a drain waits for it. */
  enter(): void
  leave(): void
  /** Resolves when nothing is left to do, or at the deadline. */
  drain(deadlineMs: number): Promise<DrainResult>
  /** Whether a drain has ended: nothing is handled any more. */
  readonly stopped: boolean
  readonly counts: Readonly<DispatchCounts>
  readonly running: number
  readonly lanes: number
}

export interface DispatcherOptions {
  readonly inbox: Inbox
  readonly registry: Registry
  readonly clock: Clock
  readonly log: Log
  readonly concurrency: number
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
  readonly ack: Ack
  readonly retry: RetryOptions
  readonly dedupe: Dedupe | undefined
  readonly timeoutMs: number
  /** Reads a message that only its text is left of. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly events: DispatchEvents
}

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { inbox, clock, events } = options
  const counts: DispatchCounts = { handled: 0, retried: 0, deadLettered: 0, duplicates: 0, lost: 0 }
  const runner = createRunner(options)
  const backlog = createBacklog({ ...options, lanes: () => lanes })
  const lanes: Lanes<Work> = createLanes(backlog.unfold)
  const turns = createTurns({ ...options, counts, runner, lanes, backlog, drain: () => drain, ended })
  const giveUp = createGiveUp({ inbox, counts, events })
  const held = createHeld(clock, expire)
  // Messages that are merged are merged into the first of their lane, so those behind it have to wait for it.
  const inLanes = options.order === 'vin' || options.overflow === 'conflate'
  /** What can be merged by its id. An answer that waits for a message needs the place that the message has. */
  const mergeable =
    options.overflow === 'conflate' && options.ack !== 'handled' ? createPassingMap<string, Work>() : undefined
  let expected = 0
  const drain = createDrain({
    ...{ ...options, lanes, backlog, runner, counts, giveUp, outcome: turns.outcome },
    isIdle: () => lanes.size === 0 && backlog.size === 0 && expected === 0,
    isQuiet: () => turns.running === 0,
    begun: turns.pump,
    stop: turns.stop,
  })

  function ended(work: Work): void {
    mergeable?.delete(work.id)
    const next = backlog.next()
    if (next === undefined) return
    lanes.add(next.id, next)
    lanes.ready(next)
  }

  /** The request's surroundings are about to end, or have ended: what is not finished now never will be. */
  function expire(arrival: Arrival, sinceMs: number): void {
    runner.abort(
      new FleethookError('drain_deadline', `The runtime ends the work of a request and ${heldWorkMs} ms were over.`, {
        hint: 'Use an inbox that outlives the request, or make the handlers faster.',
      }),
      arrival,
    )
    const unfinished = arrival.works.filter((work) => work.state !== 'over')
    turns.end(unfinished)
    void giveUp(unfinished).then((lost) => lost.forEach(({ from }) => events.missed(from, sinceMs)))
    turns.pump()
  }

  return {
    add(messages, surroundings, watched = false) {
      const arrival = createArrival(messages, surroundings, watched)
      for (const work of arrival.works) {
        turns.bind(work)
        lanes.add(inLanes ? work.from : work.id, work)
        if (!arrival.held) mergeable?.set(work.id, work)
      }
      return arrival
    },

    start(arrival) {
      if (arrival.held) held.hold(arrival)
      turns.arrive(arrival.works, arrival.held)
      // Who holds a request has to know what it is held for; nobody else needs them any more.
      if (!arrival.held) arrival.works = []
    },

    cancel(arrival) {
      turns.end(arrival.works)
      arrival.works.forEach(() => arrival.finish())
      turns.pump()
    },

    merged(ids) {
      for (const id of ids) {
        const work = mergeable?.get(id)
        if (work?.state !== 'waiting') continue
        turns.end([work])
        work.arrival.finish()
      }
    },

    enter() {
      expected += 1
    },

    leave() {
      expected -= 1
      drain.check()
    },

    drain: (deadlineMs) => drain.begin(deadlineMs),
    get stopped() {
      return drain.stopped
    },
    counts,
    get running() {
      return turns.running
    },
    get lanes() {
      return lanes.size + backlog.size
    },
  }
}
