import type { DrainResult } from '../hosting/drainable.ts'
import { createDispatcher } from '../dispatch/dispatcher.ts'
import type { Surroundings } from '../dispatch/work.ts'
import { createGaps } from './gaps.ts'
import { deadMessage } from './letters.ts'
import type { Registry } from '../dispatch/registry.ts'
import { createReplays } from './replay.ts'
import { guardedLog } from '../base/log.ts'
import type { InboxFactory } from '../inbox/inbox.ts'
import { createIntake, nowhere } from './intake.ts'
import type { Ack, Durability } from '../hosting/drainable.ts'
import { FleethookError } from '../base/errors.ts'
import type { Settings } from '../receiver/options.ts'
import { type Receipts, vinOf } from '../inbox/receipts.ts'
import type { Reports } from '../receiver/reports.ts'
import type { Backend } from './backend.ts'

export interface EngineOptions {
  readonly settings: Settings
  readonly inbox: InboxFactory
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
  /** Those of what no request brings: what the inbox finds, and gaps. Default: none. */
  readonly surroundings?: Surroundings
}

/** What keeps messages and takes them to their handlers: an inbox and all that works on it. */
export function createEngine(options: EngineOptions): Backend {
  const { settings, inbox: createInbox, registry, receipts, reports, surroundings = nowhere } = options
  const { clock, limits, log, overflow } = settings
  let draining: Promise<DrainResult> | undefined
  const inbox = createInbox({
    pendingMessages: limits.pendingMessages,
    pendingBytes: limits.pendingBytes,
    overflow,
    clock,
    // It must not stop between what it has written and what it tells of that.
    log: guardedLog(log),
    onConflated(ids) {
      reports.noteConflated(ids.length)
      dispatcher.merged(ids)
    },
    onFailure: (error) => reports.dispatch.inboxFailed(error),
    onCapacity: () => intake.emitGap(surroundings),
    get operator() {
      return replays
    },
    onGap({ reason, fromMs }) {
      gaps.note(undefined, reason, fromMs)
      intake.emitGap(surroundings)
    },
  })
  const ack = chooseAck(settings.ack, inbox.durability)
  const gaps = createGaps()
  const dispatcher = createDispatcher({
    ...settings,
    ack,
    inbox,
    registry,
    read: receipts.reread,
    events: {
      ...reports.dispatch,
      died: (letter, dropped) => reports.noteDead(deadMessage(letter, receipts.reread), dropped),
      missed: (lane, sinceMs) => gaps.note(vinOf(lane), 'deadline', sinceMs),
      onCapacity: (from) => intake.emitGap(from),
    },
  })
  const intake = createIntake({ inbox, ack, dispatcher, gaps, receipts, reports, clock, surroundings })

  const replays = createReplays({
    inbox,
    open: intake.open,
    read: receipts.reread,
    isDraining: () => draining !== undefined,
    async revived(message, from) {
      reports.noteReplayed(message)
      const arrival = dispatcher.add([message], from, true)
      dispatcher.start(arrival)
      await arrival.settled()
    },
  })

  async function drain(deadlineMs: number): Promise<DrainResult> {
    intake.emitGap(surroundings)
    const result = await dispatcher.drain(deadlineMs)
    reports.noteUntold(gaps.size)
    await inbox.close()
    return result
  }

  return {
    ack,
    durability: inbox.durability,
    enter: () => dispatcher.enter(),
    leave: () => dispatcher.leave(),
    get isReady() {
      return intake.isReady
    },
    becomeReady: () => intake.becomeReady(),
    take: (messages, from) => intake.take(messages, from),
    putInternal: async (message, from) => (await intake.putInternal(message, from)) !== undefined,
    refusing: () => inbox.refusing(),
    open: () => intake.open(),
    state: () => ({
      ...dispatcher.counts,
      pending: inbox.usage(),
      running: dispatcher.running,
      lanes: dispatcher.lanes,
      openGaps: gaps.size,
    }),
    ...replays,
    get draining() {
      return draining !== undefined
    },
    drain: (deadlineMs) => (draining ??= drain(deadlineMs)),
  }
}

/** Which promise the 2xx makes, by the inbox. Throws `ack_unavailable` for one that the inbox cannot keep. */
function chooseAck(ack: Ack | undefined, durability: Durability): Ack {
  if (ack === 'stored' && durability === 'memory') {
    throw new FleethookError(
      'ack_unavailable',
      "Option `ack` is 'stored' and the inbox keeps messages in memory only.",
      { hint: "Use a durable inbox, or ack: 'received' or 'handled'." },
    )
  }
  return ack ?? (durability === 'memory' ? 'received' : 'stored')
}
