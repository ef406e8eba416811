import { type StartActivity, goOn, life, sleep, wake } from '../fleet/life.ts'
import { connect, disconnect, type SimulatedMessage, type Steps } from '../fleet/messages.ts'
import { streamingOf } from '../fleet/streaming.ts'
import { Vehicle } from '../fleet/vehicle.ts'
import type { KeptFields } from './options.ts'

/** The most messages that a vehicle keeps while it has no network. It drops the oldest. */
const mostHeld = 5_000

/** A simulated vehicle that can be controlled. */
export interface Car {
  readonly vehicle: Vehicle
  /** Runs until this moment. Returns the messages that arrive until then, in order. */
  run(until: number): SimulatedMessage[]
  /** Sets what it streams from now on. `undefined` stops it. */
  stream(fields: KeptFields | undefined): void
  /** Wakes it. Returns the messages that arrive at once: its connection and its state, when it has a network. */
  wake(now: number): SimulatedMessage[]
  /** Puts it to sleep until it is woken. Returns the messages that arrive at once. */
  sleep(now: number): SimulatedMessage[]
  /** Cuts or restores its network. With the network back, it uploads what it kept. Returns the messages that arrive at once. */
  connect(connected: boolean, now: number): SimulatedMessage[]
  /** Whether the network reaches it, awake or asleep. */
  hasNetwork(now: number): boolean
  isReachable(now: number): boolean
  state(now: number): 'online' | 'asleep' | 'driving' | 'offline'
}

const activities: readonly StartActivity[] = ['leave', 'charge', 'stand', 'leave', 'sleep']

/** The vehicle with this index. The same seed gives the same vehicle. */
export function createCar(index: number, seed: number, startAt: number): Car {
  const vehicle = new Vehicle(index, seed * 1_000_003 + index, startAt)
  vehicle.stepSeconds = 1
  let steps: Steps = life(vehicle, activities[index % activities.length] ?? 'leave')
  let due: SimulatedMessage[] = []
  let held: SimulatedMessage[] = []
  let cut = false

  const switchTo = (next: Steps, now: number): void => {
    vehicle.now = now
    steps = next
  }

  const stepWhile = (isGoing: () => boolean): SimulatedMessage[] => {
    const messages: SimulatedMessage[] = []
    while (isGoing()) {
      const { value, done } = steps.next()
      if (done) break
      if (value !== undefined) messages.push(value)
    }
    return messages
  }

  /** The messages that arrive. Without a network they wait. */
  const arriving = (messages: SimulatedMessage[]): SimulatedMessage[] => {
    if (!cut) return messages
    held.push(...messages)
    if (held.length > mostHeld) held = held.slice(-mostHeld)
    return []
  }
  const hasNetwork = (now: number): boolean => !cut && vehicle.offlineUntil <= now

  return {
    vehicle,
    run(until) {
      due.push(...stepWhile(() => vehicle.now < until))
      const arrived = due.filter(({ at }) => at <= until)
      due = due.filter(({ at }) => at > until)
      return arriving(arrived)
    },
    stream(fields) {
      vehicle.streaming = streamingOf(fields ?? {}, vehicle.streaming)
    },
    wake(now) {
      if (vehicle.state !== 'asleep') return []
      switchTo(wakeUp(vehicle), now)
      return arriving(stepWhile(() => vehicle.state === 'asleep'))
    },
    sleep(now) {
      stop(vehicle)
      switchTo(sleep(vehicle, Infinity), now)
      // Its state changes in the first step, so the caller sees it asleep.
      const message = steps.next().value
      return message === undefined ? [] : arriving([message])
    },
    connect(connected, now) {
      if (cut !== connected) return []
      cut = !connected
      if (cut) return [disconnect(vehicle, now)]
      vehicle.offlineUntil = 0
      const back = connect(vehicle, vehicle.networkInterface, now)
      const burst = [back, ...held.filter(({ event }) => event.topic !== 'connectivity')]
      held = []
      due = [...burst.map(({ event }, index) => ({ at: now + index, event })), ...due]
      vehicle.postedAt = Math.max(vehicle.postedAt, now + burst.length)
      return []
    },
    hasNetwork,
    isReachable: (now) => vehicle.state !== 'asleep' && hasNetwork(now),
    state: (now) => (vehicle.state === 'asleep' || hasNetwork(now) ? vehicle.state : 'offline'),
  }
}

function* wakeUp(vehicle: Vehicle): Steps {
  yield* wake(vehicle)
  yield* goOn(vehicle)
}

/** Ends its activity: parks, locks and unplugs it. */
function stop(vehicle: Vehicle): void {
  Object.assign(vehicle, { gear: 'P', trip: undefined, metersPerSecond: 0, acceleration: 0, watts: 0, lateral: 0 })
  Object.assign(vehicle, { charging: undefined, portOpen: false, climateOn: false, occupied: false, buckled: false })
  Object.assign(vehicle, { driverDoorOpen: false, trunkOpen: false, passengerBuckled: false, locked: true })
}
