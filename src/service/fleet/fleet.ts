import FlatQueue from 'flatqueue'
import { FleethookError } from '../../base/errors.ts'
import { withDuplicates } from './duplicates.ts'
import { life } from './life.ts'
import { randomFrom } from './random.ts'
import type { Messages, Steps } from './simulated.ts'
import { createVehicle } from './vehicle.ts'
import { maxVins } from './vin.ts'

/** What a simulated fleet is made of. */
export interface FleetOptions {
  /** How many vehicles: 1 to 1,000,000. */
  readonly vins: number
  /** The same seed and the same start, the same fleet, message for message. A whole number. */
  readonly seed: number
  /** When the first vehicles wake up: milliseconds since the epoch. */
  readonly startAt: number
}

/**
 * A fleet of vehicles that do not exist, and everything that they say: trips along winding roads, charging, sleep, alerts,
 * tunnels followed by bursts of old messages, duplicates, clocks that are ahead.
 *
 * The messages come in the order in which the service would post them, without end. Memory grows with the number of
 * vehicles, not with time. VINs have a valid check digit and belong to nobody.
 *
 * @throws FleethookError `option_invalid` for a number out of range.
 *
 * @example
 * ```text
 * for (const { at, event } of createFleet({ vins: 10, seed: 1, startAt: Date.UTC(2026, 5, 1) })) {
 *   console.log(new Date(at), event.vin, event.topic)
 *   if (event.topic === 'alerts') break
 * }
 * ```
 */
export function createFleet({ vins, seed, startAt }: FleetOptions): Messages {
  if (!Number.isInteger(vins) || vins < 1 || vins > maxVins) {
    throw new FleethookError('option_invalid', `A fleet of ${vins} vehicles was asked for.`, {
      hint: `Give \`vins\` a whole number from 1 to ${maxVins}.`,
    })
  }
  if (!Number.isInteger(seed)) {
    throw new FleethookError('option_invalid', `The seed is ${seed}.`, { hint: 'Give `seed` a whole number.' })
  }
  if (!Number.isFinite(startAt)) {
    throw new FleethookError('option_invalid', `The fleet is to start at ${startAt}.`, {
      hint: 'Give `startAt` milliseconds since the epoch, as `Date.now()` does.',
    })
  }
  return inOrder(vins, seed, startAt)
}

function* inOrder(vins: number, seed: number, startAt: number): Messages {
  const lives: Messages[] = []
  // The vehicle whose next message is the earliest comes first. Its message is made when it is taken, not before.
  const queue = new FlatQueue()
  const upcoming = []
  const seeds = randomFrom(seed)
  for (let index = 0; index < vins; index++) {
    const vehicle = createVehicle(index, seeds.next(), startAt)
    const messages = withDuplicates(spoken(life(vehicle)), randomFrom(seeds.next()))
    lives.push(messages)
    const first = messages.next()
    if (first.done) continue
    upcoming[index] = first.value
    queue.push(index, first.value.at)
  }
  for (let index = queue.pop(); index !== undefined; index = queue.pop()) {
    const message = upcoming[index]
    const next = lives[index]?.next()
    if (next && !next.done) {
      upcoming[index] = next.value
      queue.push(index, next.value.at)
    }
    if (message) yield message
  }
}

function* spoken(steps: Steps): Messages {
  for (const message of steps) if (message) yield message
}
