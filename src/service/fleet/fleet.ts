import FlatQueue from 'flatqueue'
import { life } from './life.ts'
import type { SimulatedMessages, SimulatedMessage, Steps } from './messages.ts'
import { between, chance, randomFrom, type Random } from './random.ts'
import { fleetFields } from './signals.ts'
import { streamingOf } from './streaming.ts'
import { type Firmware, Vehicle } from './vehicle.ts'

interface FleetOptions {
  /** The number of vehicles: 1 to 1,000,000. */
  readonly vins: number
  /** A whole number. The same seed and start give the same messages. */
  readonly seed: number
  /** When the first vehicles wake up, in milliseconds since the epoch. */
  readonly startAt: number
  /** `'today'`: values have their types. `'old'`: most are text. `'mixed'`: every third vehicle is old. Default `'today'`. */
  readonly firmware?: Firmware
}

/**
 * The messages of a simulated fleet with all that is hard for receivers: bursts of old messages, duplicates, fast
 * clocks. They come in the order of posting and never end. Memory grows with vehicles, not with time. VINs belong to
 * nobody.
 */
export function* createFleet({ vins, seed, startAt, firmware }: FleetOptions): SimulatedMessages {
  const lives: SimulatedMessages[] = []
  // Ordered by each vehicle's next message. A vehicle makes its next message only when the one before is taken.
  const queue = new FlatQueue()
  const upcoming = []
  const seeds = randomFrom(seed)
  for (let index = 0; index < vins; index++) {
    const vehicle = new Vehicle(index, seeds.next(), startAt, firmware)
    vehicle.link.streaming = streamingOf(fleetFields)
    const messages = withDuplicates(messagesOf(life(vehicle)), randomFrom(seeds.next()))
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

function* messagesOf(steps: Steps): SimulatedMessages {
  for (const message of steps) if (message) yield message
}

/** Repeats a message now and then, some seconds later. Most of the copies are marked as such, not all. */
function* withDuplicates(messages: SimulatedMessages, random: Random): SimulatedMessages {
  let copy: SimulatedMessage | undefined
  for (const message of messages) {
    if (copy && copy.at <= message.at) {
      yield copy
      copy = undefined
    }
    yield message
    if (!copy && message.event.topic !== 'connectivity' && chance(random, 0.006)) {
      const event = chance(random, 0.75)
        ? { ...message.event, meta: { ...message.event.meta, isResend: true } }
        : message.event
      copy = { at: Math.round(message.at + between(random, 800, 30_000)), event }
    }
  }
}
