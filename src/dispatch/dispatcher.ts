import type { Clock, Timer } from '../clock.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { FleethookError } from '../errors.ts'
import type { ExecutionContext } from '../http/execution-context.ts'
import type { Claim, DeadLetter, Inbox, InboxMessage } from '../inbox/inbox.ts'
import { type Batch, createBatch, gated, heldWorkMs, isHeld, type Work } from './batch.ts'
import { createLanes, type Lane } from './lanes.ts'
import type { AnyHandler, Registry } from './registry.ts'
import { backoffMs, type Retry } from './retry.ts'
import { createRunner } from './run.ts'
import type { Log } from '../log.ts'

/** What a drain came to. Counts are of messages, from the call of `drain` on. */
export interface DrainResult {
  /** Handled, or given up as dead letters, before the deadline. */
  readonly handled: number
  /** Still waiting in a durable inbox: a later process handles them. */
  readonly left: number
  /** Gone with the process: not handled at the deadline, and the inbox was in memory. */
  readonly lost: number
}

/** What the dispatcher tells the receiver about. */
export interface DispatchEvents {
  /** A run of a handler failed. */
  failed(
    error: unknown,
    event: FleetEvent | MalformedBody,
    delivery: { readonly id: string; readonly attempt: number },
  ): void
  /** A message was given up; `dropped`: an older dead letter had to make room for it. */
  died(letter: DeadLetter, dropped: boolean): void
  /** The inbox itself failed. */
  inboxFailed(error: unknown): void
  /** Messages were given up because their runtime ends work, or because a drain reached its deadline. */
  lost(messages: number, reason: 'deadline'): void
  /** The inbox has room again. */
  roomy(): void
}

export interface DispatchCounts {
  handled: number
  retried: number
  deadLettered: number
  lost: number
}

/** Takes messages from the inbox through their handlers: in order per lane, so many at once, again when they fail. */
export interface Dispatcher {
  /** Begins with messages that the inbox keeps. Their handlers start in a task of their own, after the answer. */
  start(messages: readonly Startable[], env: unknown, context: ExecutionContext | undefined): Batch
  /** Resolves when nothing is left to do, or at the deadline. */
  drain(deadlineMs: number): Promise<DrainResult>
  readonly counts: Readonly<DispatchCounts>
  readonly running: number
  readonly lanes: number
}

/** What has to be known of a message to give it its turn. */
export type Startable = Pick<InboxMessage, 'id' | 'lane' | 'kind'>

export interface DispatcherOptions {
  readonly inbox: Inbox
  readonly registry: Registry
  readonly clock: Clock
  readonly log: Log
  readonly concurrency: number
  readonly order: 'vin' | 'none'
  readonly retry: Retry
  readonly timeoutMs: number
  /** Reads a message that an earlier process left. */
  readonly read: (message: InboxMessage) => FleetEvent | MalformedBody
  readonly events: DispatchEvents
}

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { inbox, registry, clock, concurrency, order, retry, events } = options
  const runner = createRunner(options)
  const lanes = createLanes<Work>()
  const held = new Set<Batch>()
  const counts: DispatchCounts = { handled: 0, retried: 0, deadLettered: 0, lost: 0 }
  let running = 0
  let pumping = false
  let stopped = false
  let whenIdle: (() => void) | undefined
  let whenQuiet: (() => void) | undefined
  const resting = new Set<Timer>()

  function pump(): void {
    while (running < concurrency && !stopped) {
      const lane = lanes.take()
      if (lane === undefined) break
      const { work } = lane.head
      running += 1
      work.running = lane
      if (work.over) finish(work)
      else work.enter(lane)
    }
    if (lanes.size === 0) whenIdle?.()
    if (running === 0) whenQuiet?.()
  }

  /** In a new task: a handler that burns CPU must not delay an answer that is about to leave. */
  function pumpLater(context: ExecutionContext | undefined): void {
    if (isHeld(context)) {
      // A timer dies with its request here, so no request may rely on another's.
      setTimeout(pump, 0)
    } else if (!pumping) {
      pumping = true
      setTimeout(() => {
        pumping = false
        pump()
      }, 0)
    }
  }

  function step(lane: Lane<Work>): void {
    const { work } = lane.head
    attempt(work).then(
      (rest) => proceed(work, rest),
      (error: unknown) => {
        events.inboxFailed(error)
        proceed(work, retry.maxMs)
      },
    )
  }

  function proceed(work: Work, restMs: number | undefined): void {
    if (work.running === undefined) return
    if (restMs === undefined) {
      finish(work)
      pump()
      return
    }
    const lane = work.running
    work.running = undefined
    running -= 1
    if (!stopped) {
      const timer = clock.after(restMs, () => {
        resting.delete(timer)
        if (isBound(work)) work.enter = gated(step)
        lanes.again(lane)
        pump()
      })
      resting.add(timer)
    }
    pump()
  }

  function finish(work: Work): void {
    const lane = work.running
    if (lane === undefined) return
    work.running = undefined
    running -= 1
    lanes.done(lane)
    if (work.over) return
    work.over = true
    work.batch.finish()
    events.roomy()
  }

  /** Runs the handlers that are still to succeed. Resolves to a wait before the next attempt, or to nothing. */
  async function attempt(work: Work): Promise<number | undefined> {
    const claim = await inbox.claim(work.id)
    if (claim === undefined) return undefined
    const event = claim.message.event ?? options.read(claim.message)
    work.attempt += 1
    work.pending ??= registry.matching(event)
    const failed: AnyHandler[] = []
    let error: unknown
    for (const handler of work.pending) {
      const failure = await runner.run(handler, event, {
        env: work.batch.env,
        owner: work.batch,
        delivery: deliveryOf(work, claim),
      })
      if (failure === undefined) continue
      failed.push(handler)
      error = failure.error
      if (!stopped) events.failed(error, event, { id: work.id, attempt: work.attempt })
    }
    if (work.over) return undefined
    if (failed.length === 0) {
      await inbox.settle(work.id)
      if (work.counts) counts.handled += 1
      return undefined
    }
    work.pending = failed
    if (work.attempt < retry.attempts || stopped) {
      await inbox.reschedule(work.id)
      if (!stopped) counts.retried += 1
      return backoffMs(retry, work.attempt)
    }
    if (work.counts) counts.deadLettered += 1
    const reason = { error: describe(error), attempts: work.attempt, diedAt: clock.now() }
    const dropped = await inbox.deadLetter(work.id, reason)
    events.died({ id: work.id, message: claim.message, ...reason }, dropped !== undefined)
    return undefined
  }

  /** The request's surroundings are about to end, or have ended: what is not finished now never will be. */
  function expire(batch: Batch): void {
    held.delete(batch)
    const unfinished = batch.works.filter((work) => !work.over)
    if (unfinished.length === 0) return
    const lost = inbox.durability === 'memory' ? unfinished.filter((work) => work.counts).length : 0
    runner.abort(
      new FleethookError('drain_deadline', `The runtime ends the work of a request and ${heldWorkMs} ms were over.`, {
        hint: 'Use an inbox that outlives the request, or make the handlers faster.',
      }),
      batch,
    )
    for (const work of unfinished) {
      work.over = true
      batch.finish()
      if (inbox.durability === 'memory') inbox.settle(work.id).catch(events.inboxFailed)
      const lane = work.running
      if (lane !== undefined) finish(work)
    }
    counts.lost += lost
    if (lost > 0) events.lost(lost, 'deadline')
    pump()
  }

  return {
    start(messages, env, context) {
      const batch = createBatch(messages.length, env, context, clock)
      const bound = isHeld(context)
      for (const { id, lane, kind } of messages) {
        const work: Work = {
          id,
          batch,
          counts: kind === 'wire',
          attempt: 0,
          pending: undefined,
          running: undefined,
          over: false,
          enter: bound ? gated(step) : step,
        }
        if (bound) batch.works.push(work)
        lanes.add(order === 'vin' ? lane : id, work)
      }
      if (bound) {
        for (const other of held) if (clock.now() > other.expiresAt) expire(other)
        held.add(batch)
        const timer = clock.after(heldWorkMs, () => expire(batch))
        void batch.settled.then(() => {
          timer.cancel()
          held.delete(batch)
        })
      }
      pumpLater(context)
      return batch
    },

    async drain(deadlineMs) {
      const before = counts.handled + counts.deadLettered
      await new Promise<void>((resolve) => {
        const timer = clock.after(deadlineMs, resolve)
        whenIdle = () => {
          timer.cancel()
          resolve()
        }
        pump()
      })
      stopped = true
      for (const timer of resting) timer.cancel()
      runner.abort(new FleethookError('drain_deadline', `The drain reached its deadline of ${deadlineMs} ms.`))
      // Aborted runs end at once; what is waited for here is the inbox taking note of them.
      await new Promise<void>((resolve) => {
        whenQuiet = resolve
        pump()
      })
      const unfinished = [...lanes.all()].filter((work) => !work.over && work.counts).length
      const handled = counts.handled + counts.deadLettered - before
      if (inbox.durability !== 'memory') return { handled, left: unfinished, lost: 0 }
      counts.lost += unfinished
      if (unfinished > 0) events.lost(unfinished, 'deadline')
      return { handled, left: 0, lost: unfinished }
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

function isBound(work: Work): boolean {
  return work.batch.expiresAt !== Number.POSITIVE_INFINITY
}

function deliveryOf(
  work: Work,
  claim: Claim,
): { id: string; attempt: number; redelivered: boolean; replayed: boolean } {
  return {
    id: work.id,
    attempt: work.attempt,
    redelivered: work.attempt > 1 || claim.deliveries > 0,
    replayed: claim.replayed,
  }
}

/** A handler's error as text for the dead letters, where a person reads it. */
function describe(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
  return text.length > 500 ? `${text.slice(0, 500)}…` : text
}
