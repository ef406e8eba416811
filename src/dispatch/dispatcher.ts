import type { Clock } from '../clock.ts'
import { FleethookError } from '../errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Inbox, InboxMessage, Waiting } from '../inbox/inbox.ts'
import type { Log } from '../log.ts'
import type { Ack } from '../options.ts'
import { createPassingMap } from '../passing-map.ts'
import { type AttemptCounts, type AttemptEvents, createAttempt } from './attempt.ts'
import { createDrain, type DrainResult } from './drain.ts'
import { createGiveUp } from './give-up.ts'
import { createHeld, heldWorkMs } from './held.ts'
import { createLanes } from './lanes.ts'
import type { Registry } from './registry.ts'
import type { Retry } from './retry.ts'
import { createRunner } from './run.ts'
import { createTasks } from './tasks.ts'
import { type Batch, createBatch, gateInto, type Surroundings, type Work } from './work.ts'

/** What the dispatcher tells the receiver about. */
export interface DispatchEvents extends AttemptEvents {
  /** The inbox itself failed. */
  inboxFailed(error: unknown): void
  /** So many acknowledged messages were given up, because a drain reached its deadline or the runtime ended their request. */
  lost(messages: number): void
  /** A message of this lane, taken in at or after `sinceMs`, was given up while the receiver goes on. */
  missed(lane: string, sinceMs: number): void
  /** The inbox has room again; `surroundings` are those of the message that made it. */
  roomy(surroundings: Surroundings): void
}

export interface DispatchCounts extends AttemptCounts {
  lost: number
}

/** Takes messages from the inbox through their handlers: in order per lane, so many at once, again when they fail. */
export interface Dispatcher {
  /** Gives messages their places, before the inbox has them: however long that takes, order is that of these calls. */
  add(messages: readonly Waiting[], surroundings: Surroundings): Batch
  /** The inbox keeps them: their handlers start in a task of their own, after the answer. */
  start(batch: Batch): void
  /** The inbox does not keep them. */
  cancel(batch: Batch): void
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
  readonly retry: Retry
  readonly timeoutMs: number
  /** Reads a message that only its text is left of. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly events: DispatchEvents
}

/** How long work rests when the inbox failed under it. */
const inboxRestMs = 5_000

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { inbox, clock, concurrency, events } = options
  const counts: DispatchCounts = { handled: 0, retried: 0, deadLettered: 0, lost: 0 }
  const runner = createRunner(options)
  const attempt = createAttempt({ ...options, runner, counts, stopped: () => drain.stopped })
  const giveUp = createGiveUp({ inbox, counts, events })
  const lanes = createLanes<Work>()
  const tasks = createTasks(clock, turn)
  const held = createHeld(clock, expire)
  // Messages that are merged are merged into the first of their lane, so those behind it have to wait for it.
  const inLanes = options.order === 'vin' || options.overflow === 'conflate'
  /** What can be merged by its id. An answer that waits for a message needs the place that the message has. */
  const mergeable =
    options.overflow === 'conflate' && options.ack !== 'handled' ? createPassingMap<string, Work>() : undefined
  let arrivals: Work[] = []
  let running = 0
  let expected = 0
  const drain = createDrain({
    ...options,
    lanes,
    runner,
    counts,
    isIdle: () => lanes.size === 0 && expected === 0,
    isQuiet: () => running === 0,
    giveUp,
  })

  function turn(): void {
    const arrived = arrivals
    arrivals = []
    for (const work of arrived) lanes.ready(work)
    pump()
  }

  function pump(): void {
    while (lanes.waiting && running < concurrency && !drain.stopped && tasks.goOn()) {
      const work = lanes.take()
      if (work === undefined) break
      running += 1
      work.state = 'running'
      if (work.gate === undefined) step(work)
      else work.gate()
    }
    drain.check()
  }

  function step(work: Work): void {
    if (work.state !== 'running') return
    attempt(work).then(
      (restMs) => leave(work, restMs),
      (error: unknown) => {
        events.inboxFailed(error)
        leave(work, inboxRestMs)
      },
    )
  }

  /** Its turn has ended: for good, or with a rest in which it holds its lane but no place among the running. */
  function leave(work: Work, restMs: number | undefined): void {
    if (work.state !== 'running') return
    running -= 1
    if (restMs === undefined) {
      end(work)
      events.roomy(work.batch)
      work.batch.finish()
    } else {
      work.state = 'waiting'
      lanes.back(work)
      if (!drain.stopped) rest(work, restMs)
    }
    pump()
  }

  function rest(work: Work, restMs: number): void {
    work.rest = clock.after(restMs, () => {
      work.rest = undefined
      if (work.batch.held) work.gate = gateInto(() => step(work))
      lanes.ready(work)
      pump()
    })
  }

  function end(work: Work): void {
    work.state = 'over'
    work.rest?.cancel()
    lanes.remove(work)
    mergeable?.delete(work.id)
  }

  /** The request's surroundings are about to end, or have ended: what is not finished now never will be. */
  function expire(batch: Batch, sinceMs: number): void {
    runner.abort(
      new FleethookError('drain_deadline', `The runtime ends the work of a request and ${heldWorkMs} ms were over.`, {
        hint: 'Use an inbox that outlives the request, or make the handlers faster.',
      }),
      batch,
    )
    const unfinished = batch.works.filter((work) => work.state !== 'over')
    for (const work of unfinished) {
      if (work.state === 'running') running -= 1
      end(work)
    }
    void giveUp(unfinished).then((lost) => lost.forEach(({ from }) => events.missed(from, sinceMs)))
    pump()
  }

  return {
    add(messages, surroundings) {
      const batch = createBatch(messages, surroundings)
      for (const work of batch.works) {
        if (batch.held) work.gate = gateInto(() => step(work))
        lanes.add(inLanes ? work.from : work.id, work)
        if (!batch.held) mergeable?.set(work.id, work)
      }
      return batch
    },

    start(batch) {
      if (batch.held) held.hold(batch)
      arrivals.push(...batch.works)
      tasks.later(batch.held)
    },

    cancel(batch) {
      for (const work of batch.works) {
        end(work)
        batch.finish()
      }
      pump()
    },

    merged(ids) {
      for (const id of ids) {
        const work = mergeable?.get(id)
        if (work?.state !== 'waiting') continue
        end(work)
        work.batch.finish()
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
      return running
    },
    get lanes() {
      return lanes.size
    },
  }
}
