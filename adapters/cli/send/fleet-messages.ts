import type { SimulatedMessage } from '../../../src/service/fleet/messages.ts'
import { createFleet } from '../../../src/service/fleet/fleet.ts'
import type { SendOptions } from './options.ts'

// As far as it is looked ahead to let the fleet begin so early that it ends now.
const lookAhead = 200_000

/** When the fleet wakes up, and what it says of the topics asked for. */
export interface FleetMessages {
  readonly startAt: number
  readonly messages: Iterator<SimulatedMessage>
}

/**
 * The messages to be sent. A rate that is higher than what so many vehicles say makes their time pass faster than ours: the
 * fleet then begins in the past, so that its last message is from now and none is from the future.
 */
export function fleetMessages(options: SendOptions, now: number): FleetMessages {
  const startAt = options.startAt ?? now - Math.max(0, fleetMs(options, now) - sendingMs(options))
  return { startAt, messages: said(options, startAt) }
}

function sendingMs({ count, ratePerSecond }: SendOptions): number {
  return (1_000 * Math.min(count, lookAhead)) / ratePerSecond
}

function fleetMs(options: SendOptions, startAt: number): number {
  if (!Number.isFinite(options.count)) return 0
  let last = startAt
  let seen = 0
  for (const { at } of said(options, startAt)) {
    last = at
    if (++seen >= Math.min(options.count, lookAhead)) break
  }
  return last - startAt
}

function* said({ vins, seed, topics }: SendOptions, startAt: number): Generator<SimulatedMessage, void, undefined> {
  for (const message of createFleet({ vins, seed, startAt })) {
    if (topics.includes(message.event.topic)) yield message
  }
}
