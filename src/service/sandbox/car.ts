import { goOn, type Activity, life } from '../fleet/life.ts'
import { connect, disconnect } from '../fleet/messages.ts'
import { sleep, wake } from '../fleet/life.ts'
import type { SimulatedMessage, Steps } from '../fleet/messages.ts'
import { streamingOf } from '../fleet/streaming.ts'
import { createVehicle, type Vehicle } from '../fleet/vehicle.ts'
import type { KeptFields } from './store.ts'

/** As many messages as a vehicle keeps while it has no network. */
const mostHeld = 5_000

/** A vehicle of the simulated fleet that takes orders. */
export interface Car {
  readonly vehicle: Vehicle
  /** Lives until this moment; what it says until then, in the order in which it arrives. */
  run(until: number): SimulatedMessage[]
  /** What it streams from now on; nothing to stop it. */
  stream(fields: KeptFields | undefined): void
  /** Wakes it, wherever it is. What is said of it at once: its connection and its state, when it has a network. */
  wake(now: number): SimulatedMessage[]
  /** Puts it to sleep, wherever it is, until it is woken. What is said of it at once, when it has a network. */
  sleep(now: number): SimulatedMessage[]
  /** Cuts its network, or gives it back: it then uploads what it has said meanwhile. What is said of it at once. */
  connect(connected: boolean, now: number): SimulatedMessage[]
  /** Whether anything can reach it, be it asleep. */
  hasNetwork(now: number): boolean
  /** Whether data can be asked of it now. */
  isReachable(now: number): boolean
  /** Its state as the service knows it. */
  state(now: number): 'online' | 'asleep' | 'driving' | 'offline'
}

const activities: readonly Activity[] = ['leave', 'charge', 'stand', 'leave', 'sleep']

/** The vehicle with this index: the same seed, the same vehicle. */
export function createCar(index: number, seed: number, startAt: number): Car {
  const vehicle = createVehicle(index, seed * 1_000_003 + index, startAt)
  vehicle.stepSeconds = 1
  let steps: Steps = life(vehicle, activities[index % activities.length] ?? 'leave')
  let due: SimulatedMessage[] = []
  let held: SimulatedMessage[] = []
  let cut = false

  const begin = (next: Steps, now: number): void => {
    vehicle.now = now
    steps = next
  }

  /** What arrives of what it says: nothing without a network, where it waits. */
  const arriving = (said: SimulatedMessage[]): SimulatedMessage[] => {
    if (!cut) return said
    held.push(...said)
    if (held.length > mostHeld) held = held.slice(-mostHeld)
    return []
  }
  const hasNetwork = (now: number): boolean => !cut && vehicle.offlineUntil <= now

  return {
    vehicle,
    run(until) {
      while (vehicle.now < until) {
        const { value, done } = steps.next()
        if (done) break
        if (value !== undefined) due.push(value)
      }
      const arrived = due.filter(({ at }) => at <= until)
      due = due.filter(({ at }) => at > until)
      return arriving(arrived)
    },
    stream(fields) {
      vehicle.streaming = streamingOf(fields ?? {}, vehicle.streaming)
    },
    wake(now) {
      if (vehicle.state !== 'asleep') return []
      begin(awaken(vehicle), now)
      const said: SimulatedMessage[] = []
      while (vehicle.state === 'asleep') {
        const { value, done } = steps.next()
        if (done) break
        if (value !== undefined) said.push(value)
      }
      return arriving(said)
    },
    sleep(now) {
      stop(vehicle)
      begin(sleep(vehicle, Infinity), now)
      // Said at once: whoever puts it to sleep sees it asleep.
      const said = steps.next().value
      return said === undefined ? [] : arriving([said])
    },
    connect(connected, now) {
      if (cut !== connected) return []
      cut = !connected
      if (cut) return [disconnect(vehicle, now)]
      vehicle.offlineUntil = 0
      const back = connect(vehicle, vehicle.networkInterface, now)
      const burst = [back, ...held.filter(({ event }) => event.topic !== 'connectivity')]
      held = []
      due = [...burst.map(({ event }, place) => ({ at: now + place, event })), ...due]
      vehicle.postedAt = Math.max(vehicle.postedAt, now + burst.length)
      return []
    },
    hasNetwork,
    isReachable: (now) => vehicle.state !== 'asleep' && hasNetwork(now),
    state: (now) => (vehicle.state === 'asleep' || hasNetwork(now) ? vehicle.state : 'offline'),
  }
}

function* awaken(vehicle: Vehicle): Steps {
  yield* wake(vehicle)
  yield* goOn(vehicle)
}

/** Ends whatever it is at: parked, locked, unplugged. */
function stop(vehicle: Vehicle): void {
  Object.assign(vehicle, { gear: 'P', trip: undefined, metersPerSecond: 0, acceleration: 0, watts: 0 })
  Object.assign(vehicle, { charging: undefined, portOpen: false, climateOn: false, occupied: false, buckled: false })
  Object.assign(vehicle, { driverDoorOpen: false, trunkOpen: false, passengerBuckled: false, locked: true })
}
