import { builtInFields } from '../../events/fields.ts'
import type { SimulatedMessage } from '../fleet/simulated.ts'
import { syntheticVin } from '../fleet/vin.ts'
import type { Encodable } from '../../wire/encode.ts'
import { type Car, createCar } from './car.ts'
import { createDeliveries, type Deliveries } from './deliveries.ts'
import { createKnown, type Known } from './known.ts'
import type { SandboxSettings } from './options.ts'
import { createSseHub, type SseHub } from './sse-hub.ts'
import type { KeptFields, KeptVehicle, KeptWebhook, SandboxState } from './store.ts'
import { createTimeline } from './timeline.ts'

/** A vehicle that is shared with the business. */
export interface SharedVehicle {
  readonly vin: string
  readonly car: Car
  readonly known: Known
  kept: KeptVehicle
  /** How many of the next attempts of a command are to fail on their way. */
  failures: number
}

/** Everything behind the endpoints: settings, vehicles, and what they say. */
export interface World {
  readonly settings: SandboxSettings
  readonly deliveries: Deliveries
  readonly sse: SseHub
  now(): number
  webhook(): KeptWebhook | undefined
  setWebhook(webhook: KeptWebhook | undefined): void
  defaultFields(): KeptFields | null
  setDefaultFields(fields: KeptFields): void
  /** The shared vehicle; nothing when it is not shared. */
  vehicle(vin: string): SharedVehicle | undefined
  vehicles(): readonly SharedVehicle[]
  setFields(vehicle: SharedVehicle, fields: KeptFields | undefined): void
  /** A customer shares a vehicle: this one, or the next that was never shared. Nothing when there is no such vehicle. */
  share(vin: string | undefined, customer: KeptVehicle['customer'] | undefined): SharedVehicle | undefined
  unshare(vehicle: SharedVehicle): void
  /** Hands a message to the webhook and to streams. */
  publish(vin: string | undefined, event: Encodable): void
  /** The same for what the vehicle itself says: not while it does not stream. */
  say(vehicle: SharedVehicle, messages: readonly SimulatedMessage[]): void
  /** Lets the vehicles live until now. */
  run(): void
  /** Lets time pass, and everything that is said meanwhile be posted. */
  advance(ms: number): Promise<void>
}

const most = 1_000
const stepMs = 60_000

/** Begins where the store left off, or with the vehicles that the options ask for. */
export function createWorld(settings: SandboxSettings): World {
  const { clock, store, seed, startAt, speed, post } = settings
  const timeline = createTimeline(clock, startAt, speed)
  const deliveries = createDeliveries(post, clock, () => state.webhook)
  const sse = createSseHub(clock)
  const shared = new Map<string, SharedVehicle>()
  let state: SandboxState = store.load() ?? { defaultFields: null, vehicles: {} }

  /** Nothing changes that could not be kept. */
  const keep = (change: Partial<SandboxState>): void => {
    const next = { ...state, ...change }
    store.save(next)
    state = next
  }
  const keepVehicle = (vin: string, kept: KeptVehicle): void => keep({ vehicles: { ...state.vehicles, [vin]: kept } })

  function meet(vin: string, kept: KeptVehicle): SharedVehicle {
    const car = createCar(kept.index, seed, timeline.now())
    car.stream(kept.fields)
    const vehicle = { vin, car, known: createKnown(), kept, failures: 0 }
    shared.set(vin, vehicle)
    return vehicle
  }

  function share(vin: string | undefined, customer: KeptVehicle['customer'] | undefined, begins?: KeptFields) {
    const index = indexOf(vin, state)
    if (index === undefined) return undefined
    const id = syntheticVin(index)
    const already = shared.get(id)
    if (already !== undefined) return already
    const before = state.vehicles[id]
    const fields = before?.fields ?? begins ?? state.defaultFields ?? undefined
    const kept: KeptVehicle = {
      index,
      shared: true,
      grantedAt: new Date(timeline.now()).toISOString(),
      customer: customer ?? before?.customer ?? { id: `customer-${index + 1}`, ref: null },
      fields,
    }
    keepVehicle(id, kept)
    return meet(id, kept)
  }

  const world: World = {
    settings,
    deliveries,
    sse,
    now: timeline.now,
    webhook: () => state.webhook,
    setWebhook: (webhook) => keep({ webhook }),
    defaultFields: () => state.defaultFields,
    setDefaultFields: (fields) => keep({ defaultFields: fields }),
    vehicle: (vin) => shared.get(vin),
    vehicles: () => [...shared.values()],
    setFields(vehicle, fields) {
      const kept = { ...vehicle.kept, fields }
      keepVehicle(vehicle.vin, kept)
      vehicle.kept = kept
      vehicle.car.stream(fields)
    },
    share,
    unshare(vehicle) {
      keepVehicle(vehicle.vin, { ...vehicle.kept, shared: false })
      shared.delete(vehicle.vin)
      sse.end(vehicle.vin)
    },
    publish(vin, event) {
      if (vin !== undefined) {
        shared.get(vin)?.known.hear(event)
        sse.publish(vin, event)
      }
      const { webhook } = state
      if (webhook?.enabled === true) deliveries.send(event, webhook, timeline.now())
    },
    say(vehicle, messages) {
      if (vehicle.kept.fields === undefined) return
      for (const { event } of messages) world.publish(vehicle.vin, event)
    },
    run() {
      const until = timeline.now()
      const said = [...shared.values()].flatMap((vehicle) =>
        vehicle.car.run(until).map((message) => ({ vehicle, message })),
      )
      said.sort((a, b) => a.message.at - b.message.at)
      for (const { vehicle, message } of said) world.say(vehicle, [message])
    },
    async advance(ms) {
      for (let left = ms; left > 0; left -= stepMs) {
        timeline.advance(Math.min(left, stepMs))
        world.run()
        await deliveries.settled()
      }
    },
  }

  for (const [vin, kept] of Object.entries(state.vehicles)) if (kept.shared) meet(vin, kept)
  if (Object.keys(state.vehicles).length === 0) {
    const fields = settings.config === undefined ? undefined : knownFields(settings.config.fields)
    for (let index = 0; index < settings.vehicles; index += 1) share(syntheticVin(index), undefined, fields)
  }
  return world
}

/** Without the names that are not in the catalogue. */
export function knownFields(fields: { readonly [name: string]: KeptFields[string] | undefined }): KeptFields {
  const known: Record<string, KeptFields[string]> = {}
  for (const [name, setting] of Object.entries(fields)) {
    if (setting !== undefined && Object.hasOwn(builtInFields, name)) known[name] = setting
  }
  return known
}

/** Which simulated vehicle has this VIN; without one, the first that was never shared. */
function indexOf(vin: string | undefined, { vehicles }: SandboxState): number | undefined {
  if (vin !== undefined) {
    const index = Number(vin.slice(-6))
    return Number.isInteger(index) && index >= 0 && index < most && syntheticVin(index) === vin ? index : undefined
  }
  const taken = new Set(Object.values(vehicles).map(({ index }) => index))
  for (let index = 0; index < most; index += 1) if (!taken.has(index)) return index
  return undefined
}
