import type { Ack } from '../hosting/drainable.ts'
import type { Clock } from '../base/clock.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import type { Gaps } from './gaps.ts'
import type { Arrival, Surroundings } from '../dispatch/work.ts'
import { FleethookError } from '../base/errors.ts'
import type { Refusal } from '../http/answers.ts'
import { isHeld } from '../hosting/execution-context.ts'
import type { Inbox, InboxMessage } from '../inbox/inbox.ts'
import { type Receipts, vinOf } from '../inbox/receipts.ts'
import type { Reports } from '../receiver/reports.ts'

/** Where messages go into the inbox, and from there to their handlers. */
export interface Intake {
  /** Keeps messages and starts their handlers. Resolves when the answer may leave, to why it must be a refusal. */
  take(messages: readonly InboxMessage[], from: Surroundings): Promise<Refusal | undefined>
  /** Keeps what the receiver made itself, if there is room: it stands for nothing that was acknowledged. */
  putInternal(message: InboxMessage, from: Surroundings): Promise<Arrival | undefined>
  /**
   * Opens the inbox and goes on with what an earlier process left: once, and before anything new is put. Resolves when the
   * inbox is open. Rejects when it cannot be opened; the next call tries again.
   */
  readonly open: () => Promise<void>
  /** Whether messages may be read and taken: all that an earlier process left has its place. */
  readonly isReady: boolean
  /** Resolves to whether it is ready now, which takes an inbox that can be opened. */
  becomeReady(): Promise<boolean>
  /** There may be room again: tells of the holes, the oldest first, so that a business can fetch what it missed. */
  emitGap(from: Surroundings): void
}

export interface IntakeOptions {
  readonly inbox: Inbox
  readonly ack: Ack
  readonly dispatcher: Dispatcher
  readonly gaps: Gaps
  readonly receipts: Receipts
  readonly reports: Reports
  readonly clock: Clock
  /** Those of what no request brings. */
  readonly surroundings: Surroundings
}

/** Gaps that are in the inbox at the same time at most: they must not take the room that messages need. */
const gapsAtOnce = 16

/** Work that no request brought. */
export const nowhere: Surroundings = { env: undefined, context: undefined }

export function createIntake(options: IntakeOptions): Intake {
  const { inbox, ack, dispatcher, gaps, receipts, reports, clock, surroundings } = options
  const durable = inbox.durability !== 'memory'
  let opened: Promise<void> | undefined
  let recovered: Promise<void> | undefined
  let readiness: Promise<boolean> | undefined
  let isReady = false
  /** How many wait for it, and have not gone on yet. */
  let waiters = 0
  let telling = 0

  async function store(messages: readonly InboxMessage[], from: Surroundings): Promise<Arrival | Refusal> {
    if (dispatcher.stopped) return { error: 'draining' }
    const arrival = dispatcher.add(messages, from)
    try {
      await inbox.put(messages)
    } catch (error) {
      dispatcher.cancel(arrival)
      const reason = error instanceof FleethookError && error.code === 'inbox_full' ? error.code : 'inbox_unavailable'
      if (reason === 'inbox_unavailable') reports.dispatch.inboxFailed(error)
      for (const { lane, receivedAt } of messages) gaps.note(vinOf(lane), reason, receivedAt)
      return { error: reason }
    }
    reports.noteAccepted(messages)
    dispatcher.start(arrival)
    emitGap(from)
    return arrival
  }

  async function putInternal(message: InboxMessage, from: Surroundings): Promise<Arrival | undefined> {
    if (dispatcher.stopped) return undefined
    const arrival = dispatcher.add([message], from)
    try {
      await inbox.put([message])
    } catch {
      dispatcher.cancel(arrival)
      return undefined
    }
    dispatcher.start(arrival)
    return arrival
  }

  function open(): Promise<void> {
    opened ??= begin().catch((error: unknown) => {
      opened = undefined
      recovered = undefined
      throw error
    })
    return opened
  }

  async function begin(): Promise<void> {
    const { lastId, gaps: found = [], waiting } = await inbox.open()
    if (lastId !== undefined) receipts.follow(lastId)
    for (const { reason, fromMs } of found) gaps.note(undefined, reason, fromMs, 0)
    recovered = during(async () => {
      try {
        for await (const page of waiting) {
          reports.noteRecovered(page)
          dispatcher.start(dispatcher.add(page, surroundings))
        }
      } catch (error) {
        reports.dispatch.inboxFailed(error)
      }
      isReady = true
      emitGap(surroundings)
    })
  }

  async function prepare(): Promise<boolean> {
    try {
      await open()
      await recovered
      return true
    } catch (error) {
      readiness = undefined
      reports.dispatch.inboxFailed(error)
      return false
    }
  }

  /** One promise for all, so that they go on in the order in which they came, and nobody overtakes them meanwhile. */
  function becomeReady(): Promise<boolean> {
    waiters += 1
    const sinceMs = clock.now()
    const shared = (readiness ??= prepare())
    void shared.then((ready) => {
      if (!ready) gaps.note(undefined, 'inbox_unavailable', sinceMs)
      // By then those have gone on that waited for the same promise.
      queueMicrotask(() => (waiters -= 1))
    })
    return shared
  }

  function emitGap(from: Surroundings): void {
    if (gaps.size === 0 || !isReady || telling >= gapsAtOnce || dispatcher.stopped) return
    const gap = gaps.take(clock.now())
    if (gap === undefined) return
    telling += 1
    hold(from, async () => {
      const arrival = await putInternal(receipts.gap(gap), from)
      if (arrival === undefined) gaps.putBack(gap)
      else {
        // Where one found room there may be room for another.
        emitGap(from)
        await arrival.settled()
      }
      telling -= 1
      if (arrival !== undefined && !isHeld(from.context)) emitGap(from)
    })
  }

  async function during(run: () => Promise<void>): Promise<void> {
    dispatcher.enter()
    try {
      await run()
    } finally {
      dispatcher.leave()
    }
  }

  /** Work that no answer waits for. A drain does, and so does a runtime that would end it with its request. */
  function hold({ context }: Surroundings, run: () => Promise<void>): void {
    const done = during(run)
    if (isHeld(context)) context.waitUntil(done)
  }

  return {
    async take(messages, from) {
      if (messages.length === 0) return undefined
      const stored = store(messages, from)
      if (durable && ack === 'received') {
        from.context?.watch?.(stored.then((arrival) => ('error' in arrival ? undefined : arrival.settled())))
        hold(from, async () => {
          if ('error' in (await stored)) reports.noteLost(messages)
        })
        return undefined
      }
      const arrival = await stored
      if ('error' in arrival) return arrival
      from.context?.watch?.(arrival.settled())
      if (ack !== 'handled') return undefined
      await arrival.settled()
      if (arrival.lost === 0) return undefined
      return { error: dispatcher.stopped ? 'draining' : 'inbox_unavailable' }
    },
    putInternal,
    open,
    becomeReady,
    get isReady() {
      return isReady && waiters === 0
    },
    emitGap,
  }
}
