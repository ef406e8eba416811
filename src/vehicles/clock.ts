import type { FleetEvent } from '../events/event.ts'
import { driftMs, msOfSeq } from '../inbox/delivery-id.ts'

/**
 * A time of the wire can be late, fast, unset or set back. So no time is compared without knowing whether its clock was ahead of the
 * receipt, and where two times say nothing about the order, the message that arrived last is newer.
 */
export interface Sent {
  /** When the message was sent, but never later than its receipt. In milliseconds since the epoch, as all times here. */
  readonly atMs: number
  /** What the clock said, if that was later than the receipt. Then `atMs` only says that it was sent before. 0: it was not. */
  readonly aheadMs: number
  /** If so: it was not sent before this time. */
  readonly fromMs: number
}

/** A {@link Sent} as it is stored. A number: the clock was not ahead. */
export type Stamp = number | Sent

export const neverSent: number = -Infinity

/** A clock that is ahead after waking is right within this time. */
const longestAheadMs = 300_000

/** Clocks of two machines that are both right differ by less than this. So a time that is ahead by less may be right. */
const differMs = 5_000

const leadMs = ({ aheadMs, atMs }: Pick<Sent, 'aheadMs' | 'atMs'>): number => (aheadMs === 0 ? 0 : aheadMs - atMs)

/** Whether the clock was certainly wrong. */
export const isFarAhead = (sent: Pick<Sent, 'aheadMs' | 'atMs'>): boolean => leadMs(sent) > differMs

export function sentOf(stamp: Stamp): Sent {
  return typeof stamp === 'number' ? { atMs: stamp, aheadMs: 0, fromMs: stamp } : stamp
}

/** The time of a message by a clock that said `stampMs`, after a message that was sent at `newestMs`. */
export function sentAt(stampMs: number, arrivedMs: number, newestMs: number): Sent {
  if (stampMs <= arrivedMs) return sentOf(stampMs)
  // Rather the receiver's clock is behind a little, and the message came at once.
  const mostLateMs = stampMs - arrivedMs <= driftMs ? differMs : longestAheadMs
  return { atMs: arrivedMs, aheadMs: stampMs, fromMs: Math.max(newestMs, arrivedMs - mostLateMs) }
}

export const stampOf = (sent: Sent): Stamp => (sent.aheadMs === 0 ? sent.atMs : sent)

/** Whether a clock that was far ahead is not any more. It may still be ahead of the receiver's by as much as two right clocks differ. */
export function isCorrected(sent: Pick<Sent, 'aheadMs' | 'atMs'>, known: Pick<Sent, 'aheadMs' | 'atMs'>): boolean {
  return !isFarAhead(sent) && leadMs(known) - leadMs(sent) > differMs
}

/**
 * Whether a message was certainly sent before a message that arrived earlier. Two times of a clock that was ahead are in its own order.
 * If only the earlier one was ahead, the clock was corrected, or the message is late: it is older only if the other cannot be.
 */
export function isOlder(sent: Sent, known: Stamp): boolean {
  if (typeof known === 'number') return sent.atMs < known
  return sent.aheadMs > 0 && !isCorrected(sent, known) ? sent.aheadMs < known.aheadMs : sent.atMs < known.fromMs
}

/** What is known of a vehicle's clock that is wrong, or may be. */
export interface ClockMemory {
  /** The newest time that it said while it was ahead of the receipt, and the `seq` of that message. */
  readonly ahead?: { readonly ms: number; readonly seq: number } | undefined
  /** It was set back by this much, and did not come back. */
  readonly behindMs?: number | undefined
  /** Messages in a row that seem to be older than an earlier one. */
  readonly older?: OlderRun | undefined
}

/** Messages that came live, one after another, from a clock that is this much later at the receiver. */
interface OlderRun {
  readonly messages: number
  /** When the first one was received. */
  readonly sinceMs: number
  /** The time from the clock's to the receipt: of the first one, and the least. */
  readonly firstMs?: number
  readonly lagMs: number
}

/** This many messages in a row, in at least this time, say that a clock was set back. */
const enoughMessages = 5
const enoughMs = 60_000

/** Messages overtake each other by less: a message that is older by this much begins such a row. */
const leastBackMs = 60_000

/** How much the time from sending to receipt differs between messages that come live. In an upload of old ones it differs by all their time. */
const liveMs = 10_000

/** What a message says of its vehicle's clock. */
export interface ClockReading {
  readonly sent: Sent
  readonly newestMs: number
  readonly memory: ClockMemory | undefined
  /** Its clock turned out to be set back, so what is known was compared with the wrong times. */
  readonly isSetBack: boolean
}

/**
 * Reads the time of a message by the clock of its vehicle. Messages that seem to be older than an earlier one are mostly late. But when
 * they come one after another as live messages do, and none that is newer comes between, the clock was set back.
 */
export function readClock(
  { newestMs, clock = {} }: { readonly newestMs: number; readonly clock: ClockMemory | undefined },
  event: FleetEvent,
  seq: number,
): ClockReading {
  const arrived = arrivedMs(event, seq)
  const { older, behindMs = 0 } = clock
  const ahead = clock.ahead !== undefined && clock.ahead.ms > arrived ? clock.ahead : undefined
  const saidMs = event.at.getTime()
  // The receiver's own time.
  if (event.meta.createdAtMissing === true)
    return { sent: sentOf(arrived), newestMs: arrived, memory: memoryOf(clock), isSetBack: false }
  // A message from before the clock was set back, or from after it was set right.
  const isByItself = behindMs === 0 || saidMs + behindMs > arrived + liveMs
  const stampMs = isByItself ? saidMs : saidMs + behindMs
  const isAhead = stampMs > arrived
  const read = (stamp: number, memory: ClockMemory, isSetBack = false): ClockReading => {
    const sent = sentAt(stamp, arrived, newestMs)
    return { sent, newestMs: Math.max(sent.fromMs, newestMs), memory: memoryOf(memory), isSetBack }
  }
  const isNewestAhead = isAhead && stampMs >= (ahead?.ms ?? neverSent)
  if (isNewestAhead || (stampMs >= newestMs && !isFarAhead({ aheadMs: stampMs, atMs: arrived }))) {
    const isRightAgain = isByItself && (!isAhead || stampMs - arrived <= longestAheadMs)
    return read(stampMs, {
      ahead: isNewestAhead ? { ms: stampMs, seq } : ahead,
      behindMs: isRightAgain ? undefined : clock.behindMs,
    })
  }
  const newest = Math.max(newestMs, ahead?.ms ?? neverSent)
  if (older === undefined && newest - stampMs < leastBackMs) return read(stampMs, { ahead, behindMs: clock.behindMs })
  const run = withMessage(older, arrived, arrived - stampMs)
  if (run.messages < enoughMessages || arrived - run.sinceMs < enoughMs)
    return read(stampMs, { ahead, behindMs: clock.behindMs, older: run })
  if (isAhead) return read(stampMs, { ahead: { ms: stampMs, seq }, behindMs: clock.behindMs }, true)
  const byMs = (isByItself ? 0 : behindMs) + run.lagMs
  return read(Math.min(saidMs + byMs, arrived), { behindMs: byMs }, true)
}

/** In an upload the time shrinks step by step. So each message is compared with the first one, and not with the one before. */
function withMessage(run: OlderRun | undefined, arrived: number, lagMs: number): OlderRun {
  const firstMs = run?.firstMs ?? run?.lagMs ?? Infinity
  if (run === undefined || lagMs < firstMs - liveMs) return { messages: 1, sinceMs: arrived, firstMs: lagMs, lagMs }
  if (lagMs > firstMs + liveMs) return run
  return { messages: run.messages + 1, sinceMs: run.sinceMs, firstMs, lagMs: Math.min(run.lagMs, lagMs) }
}

/** `undefined`: the clock is right as far as anybody knows. */
function memoryOf({ ahead, behindMs, older }: ClockMemory): ClockMemory | undefined {
  return ahead === undefined && behindMs === undefined && older === undefined ? undefined : { ahead, behindMs, older }
}

/** When a message was received. A clock that is set back does not make it earlier, because its `seq` goes on. */
export function arrivedMs({ receivedAt }: FleetEvent, seq: number): number {
  return Math.max(receivedAt.getTime(), msOfSeq(seq))
}
