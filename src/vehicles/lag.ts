import type { EdgeTimer } from './edge.ts'

/**
 * How late the messages of a vehicle come. A time in a rule is up when the vehicle's own time is there, and that is known only from its
 * messages: what it sent before may still be on its way. So a time that is up by the receiver's clock waits until the messages have caught up.
 */
export interface Lag {
  /** How long before its receipt the last message was sent, in milliseconds. */
  readonly ms: number
  /** When that message was received. */
  readonly atMs: number
  /** The vehicle's clock is slow by this: its messages stayed behind by the same time. An upload that is later still does not change that. */
  readonly slowMs: number | undefined
}

/** A vehicle that uploads late sends its next message within this time, in milliseconds. Messages that are less late are not uploads. */
export const quietMs = 5_000

/** Ignore a smaller lag. */
const leastMs = 1_000

/**
 * A clock that says more was never set: it counts from 1970, or is 1,024 weeks back. What is younger may be true: a vehicle uploads after months
 * in a garage, and history is read again years later.
 */
const mostMs = 3_652 * 86_400_000

/** By how much the lag of a slow clock may differ from message to message. */
const jitterMs = 2_000

/** A vehicle's time in a message, or its receipt where the vehicle's clock says nothing. */
export const credibleMs = (sentMs: number, arrivedMs: number): number =>
  arrivedMs - sentMs > mostMs ? arrivedMs : sentMs

/** The lag after a message that was sent at a {@link credibleMs}. `undefined`: none. */
export function lagAfter(before: Lag | undefined, sentMs: number, atMs: number): Lag | undefined {
  const ms = atMs - sentMs
  if (ms <= leastMs) return undefined
  const { slowMs } = before ?? {}
  const isSlow =
    isAbout(ms, slowMs) || (before !== undefined && isAbout(ms, before.ms) && atMs - before.atMs >= quietMs)
  // No message is less late than its clock is slow.
  return { ms, atMs, slowMs: isSlow ? ms : slowMs !== undefined && ms < slowMs ? undefined : slowMs }
}

const isAbout = (ms: number, otherMs: number | undefined): boolean =>
  otherMs !== undefined && Math.abs(ms - otherMs) <= jitterMs

/** When a timer is up, by the receiver's clock, if no other message comes. `undefined`: it waits for a message. */
export function wakeMs(
  { due, byArrival }: EdgeTimer,
  lag: Lag | undefined,
  quiet: number = quietMs,
): number | undefined {
  if (due === null) return undefined
  if (lag === undefined || byArrival === true) return due
  const { ms, atMs, slowMs = 0 } = lag
  return ms === slowMs || ms <= quiet ? due + ms : Math.max(due + slowMs, atMs + quiet)
}
