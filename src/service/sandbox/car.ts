import { type StartActivity, goOn, life, sleep, wake } from '../fleet/life.ts'
import type { SimulatedMessage, Steps } from '../fleet/messages.ts'
import { streamingOf } from '../fleet/streaming.ts'
import { Vehicle } from '../fleet/vehicle.ts'
import type { KeptFields } from './options.ts'

const activities: readonly StartActivity[] = ['leave', 'charge', 'stand', 'leave', 'sleep']

/** A simulated vehicle that can be controlled. The same seed gives the same vehicle. */
export class Car {
  readonly vehicle: Vehicle
  /** Set by a control: it has no network until this is `false` again. */
  isCutOff = false
  #steps: Steps
  #due: SimulatedMessage[] = []

  constructor(index: number, seed: number, startAt: number) {
    this.vehicle = new Vehicle(index, seed * 1_000_003 + index, startAt)
    this.#steps = life(this.vehicle, activities[index % activities.length])
  }

  /** Runs until this moment. Returns the messages that arrive until then, in order. */
  run(until: number): readonly SimulatedMessage[] {
    this.#due.push(...this.#stepWhile(() => this.vehicle.now < until))
    const arrived = this.#due.filter(({ at }) => at <= until)
    this.#due = this.#due.filter(({ at }) => at > until)
    return arrived
  }

  /** Sets what it streams from now on. `undefined` stops it. */
  stream(fields: KeptFields | undefined): void {
    this.vehicle.link.streaming = streamingOf(fields ?? {}, this.vehicle.link.streaming)
  }

  /** Wakes it. Returns the messages that arrive at once: its connection and its state. */
  wake(now: number): readonly SimulatedMessage[] {
    const { vehicle } = this
    if (vehicle.state !== 'asleep') return []
    vehicle.now = now
    this.#steps = wakeUp(vehicle)
    return this.#stepWhile(() => vehicle.state === 'asleep')
  }

  /** Parks it and puts it to sleep until it is woken. Returns the messages that arrive at once. */
  sleep(now: number): readonly SimulatedMessage[] {
    const { vehicle } = this
    vehicle.now = now
    Object.assign(vehicle.drive, { gear: 'P', trip: undefined, metersPerSecond: 0 })
    Object.assign(vehicle.battery, { charging: undefined, portOpen: false })
    Object.assign(vehicle.cabin, {
      climateOn: false,
      occupied: false,
      driverDoorOpen: false,
      trunkOpen: false,
      locked: true,
    })
    this.#steps = sleep(vehicle, Infinity)
    // Its state changes in the first step, so the caller sees it asleep.
    const message = this.#steps.next().value
    return message === undefined ? [] : [message]
  }

  isReachable(now: number): boolean {
    return this.vehicle.state !== 'asleep' && this.#hasNetwork(now)
  }

  state(now: number): 'online' | 'asleep' | 'driving' | 'offline' {
    const { state } = this.vehicle
    return state === 'asleep' || this.#hasNetwork(now) ? state : 'offline'
  }

  #hasNetwork(now: number): boolean {
    return !this.isCutOff && this.vehicle.link.offlineUntil <= now
  }

  #stepWhile(isGoing: () => boolean): SimulatedMessage[] {
    const messages: SimulatedMessage[] = []
    while (isGoing()) {
      const { value, done } = this.#steps.next()
      if (done) break
      if (value !== undefined) messages.push(value)
    }
    return messages
  }
}

function* wakeUp(vehicle: Vehicle): Steps {
  yield* wake(vehicle)
  yield* goOn(vehicle)
}
