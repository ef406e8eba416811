import type { Clock } from './clock.ts'
import type { Dispatcher } from './dispatch/dispatcher.ts'
import type { Gaps } from './dispatch/gaps.ts'
import type { Batch, Startable, Surroundings } from './dispatch/work.ts'
import { FleethookError } from './errors.ts'
import type { Refusal } from './http/answers.ts'
import { isHeld } from './http/execution-context.ts'
import type { Inbox, InboxMessage } from './inbox/inbox.ts'
import type { Ack } from './options.ts'
import { type Receipts, vinOf } from './receipt.ts'
import type { Reports } from './reports.ts'

/** Where messages go into the inbox, and from there to their handlers. */
export interface Intake {
  /** Keeps messages and starts their handlers. Resolves when the answer may leave, to why it must be a refusal. */
  take(messages: readonly InboxMessage[], from: Surroundings): Promise<Refusal | undefined>
  /** Keeps what the receiver made itself, if there is room: it stands for nothing that was acknowledged. */
  takeOwn(message: InboxMessage, from: Surroundings): Promise<Batch | undefined>
  /** Goes on with what an earlier process left: once, and before anything new is put. */
  recover(): Promise<void>
  /** There may be room again: tells of the holes, the oldest first, so that a business can fetch what it missed. */
  tellOfGap(from: Surroundings): void
}

export interface IntakeOptions {
  readonly inbox: Inbox
  readonly ack: Ack
  readonly dispatcher: Dispatcher
  readonly gaps: Gaps
  readonly receipts: Receipts
  readonly reports: Reports
  readonly clock: Clock
}

/** Gaps that are in the inbox at the same time at most: they must not take the room that messages need. */
const gapsAtOnce = 16

/** What is recovered shares what is kept once for each batch: there may be a million of it. */
const recoveredAtOnce = 500

/** Work that no request brought. */
export const nowhere: Surroundings = { env: undefined, context: undefined }

export function createIntake(options: IntakeOptions): Intake {
  const { inbox, ack, dispatcher, gaps, receipts, reports, clock } = options
  const durable = inbox.durability !== 'memory'
  let recovered: Promise<void> | undefined
  let telling = 0

  async function store(messages: readonly InboxMessage[], from: Surroundings): Promise<Batch | Refusal> {
    if (durable) await recover()
    if (dispatcher.stopped) return { error: 'draining' }
    const batch = dispatcher.add(messages, from)
    try {
      await inbox.put(messages)
    } catch (error) {
      dispatcher.cancel(batch)
      const reason = error instanceof FleethookError && error.code === 'inbox_full' ? error.code : 'inbox_unavailable'
      if (reason === 'inbox_unavailable') reports.dispatch.inboxFailed(error)
      for (const { lane } of messages) gaps.note(vinOf(lane), reason, clock.now())
      return { error: reason }
    }
    reports.noteAccepted(messages)
    dispatcher.start(batch)
    tellOfGap(from)
    return batch
  }

  async function takeOwn(message: InboxMessage, from: Surroundings): Promise<Batch | undefined> {
    if (durable) await recover()
    if (dispatcher.stopped) return undefined
    const batch = dispatcher.add([message], from)
    try {
      await inbox.put([message])
    } catch {
      dispatcher.cancel(batch)
      return undefined
    }
    dispatcher.start(batch)
    return batch
  }

  function recover(): Promise<void> {
    recovered ??= during(async () => {
      let left: Startable[] = []
      const begin = (): void => {
        // Starting sets a timer, which Workers forbid while a module is loaded.
        if (left.length === 0) return
        dispatcher.start(dispatcher.add(left, nowhere))
        left = []
      }
      try {
        for await (const message of inbox.recover()) {
          reports.noteRecovered(message)
          left.push(message)
          if (left.length === recoveredAtOnce) begin()
        }
      } catch (error) {
        reports.dispatch.inboxFailed(error)
      }
      begin()
    })
    return recovered
  }

  function tellOfGap(from: Surroundings): void {
    if (gaps.size === 0 || telling >= gapsAtOnce || dispatcher.stopped) return
    const gap = gaps.take(clock.now())
    if (gap === undefined) return
    telling += 1
    hold(from, async () => {
      const batch = await takeOwn(receipts.gap(gap), from)
      if (batch === undefined) gaps.putBack(gap)
      else {
        // Where one found room there may be room for another.
        tellOfGap(from)
        await batch.settled()
      }
      telling -= 1
      if (batch !== undefined && !isHeld(from.context)) tellOfGap(from)
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
        from.context?.watch?.(stored.then((batch) => ('error' in batch ? undefined : batch.settled())))
        hold(from, async () => {
          if ('error' in (await stored)) reports.noteLost(messages)
        })
        return undefined
      }
      const batch = await stored
      if ('error' in batch) return batch
      from.context?.watch?.(batch.settled())
      if (ack !== 'handled') return undefined
      await batch.settled()
      if (batch.lost === 0) return undefined
      return { error: dispatcher.stopped ? 'draining' : 'inbox_unavailable' }
    },
    takeOwn,
    recover,
    tellOfGap,
  }
}
