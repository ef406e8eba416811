import type { Clock } from '../../base/clock.ts'
import { builtInFields } from '../../events/fields.ts'
import type { Alert, VehicleError } from '../../events/event.ts'
import { type Encodable, encode } from '../../wire/encode.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import type { SimulatedMessage } from '../fleet/messages.ts'
import { syntheticVin } from '../fleet/vin.ts'
import { type Car, createCar } from './car.ts'
import { createDeliveries, type Deliveries } from './deliveries.ts'
import type { KeptFields, KeptVehicle, KeptWebhook, SandboxSettings, SandboxState } from './options.ts'
import { createSseHub, type SseHub } from './sse.ts'

/** A vehicle that is shared with the business. */
export interface SharedVehicle {
  readonly vin: string
  readonly car: Car
  readonly memory: VehicleMemory
  kept: KeptVehicle
  /** The number of next command attempts that do not reach the vehicle. */
  failures: number
}

/** The state behind the endpoints: settings, vehicles, and their messages. */
export interface World {
  readonly settings: SandboxSettings
  readonly deliveries: Deliveries
  readonly sse: SseHub
  now(): number
  webhook(): KeptWebhook | undefined
  setWebhook(webhook: KeptWebhook | undefined): void
  defaultFields(): KeptFields | null
  setDefaultFields(fields: KeptFields): void
  /** The vehicle with this VIN, or `undefined` when it is not shared. */
  vehicle(vin: string): SharedVehicle | undefined
  vehicles(): readonly SharedVehicle[]
  setFields(vehicle: SharedVehicle, fields: KeptFields | undefined): void
  /** A customer shares this vehicle, or the next one that was never shared. `undefined` when there is no such vehicle. */
  share(vin: string | undefined, customer: KeptVehicle['customer'] | undefined): SharedVehicle | undefined
  unshare(vehicle: SharedVehicle): void
  /** Sends a message to the webhook and to streams. */
  publish(vin: string | undefined, event: Encodable): void
  /** As `publish`, for messages of the vehicle itself. A vehicle without a config sends nothing. */
  publishFrom(vehicle: SharedVehicle, messages: readonly SimulatedMessage[]): void
  /** Runs the vehicles until now. */
  run(): void
  /** Lets time pass. Resolves when the messages of that time are posted. */
  advance(ms: number): Promise<void>
}

const mostVehicles = 1_000
const stepMs = 60_000

/** Starts from the stored state, or from the options when there is none. */
export function createWorld(settings: SandboxSettings): World {
  const { clock, store, seed, startAt, speed, post } = settings
  const timeline = createTimeline(clock, startAt, speed)
  const deliveries = createDeliveries(post, clock, () => state.webhook)
  const sse = createSseHub(clock)
  const shared = new Map<string, SharedVehicle>()
  let state: SandboxState = store.load() ?? { defaultFields: null, vehicles: {} }

  /** Changes the state only after the store has kept the change. */
  const keep = (change: Partial<SandboxState>): void => {
    const next = { ...state, ...change }
    store.save(next)
    state = next
  }
  const keepVehicle = (vin: string, kept: KeptVehicle): void => keep({ vehicles: { ...state.vehicles, [vin]: kept } })

  function add(vin: string, kept: KeptVehicle): SharedVehicle {
    const car = createCar(kept.index, seed, timeline.now())
    car.stream(kept.fields)
    const vehicle = { vin, car, memory: createVehicleMemory(), kept, failures: 0 }
    shared.set(vin, vehicle)
    return vehicle
  }

  function share(vin: string | undefined, customer: KeptVehicle['customer'] | undefined, initial?: KeptFields) {
    const index = indexOf(vin, state)
    if (index === undefined) return undefined
    const id = syntheticVin(index)
    const already = shared.get(id)
    if (already !== undefined) return already
    const before = state.vehicles[id]
    const fields = before?.fields ?? initial ?? state.defaultFields ?? undefined
    const kept: KeptVehicle = {
      index,
      shared: true,
      grantedAt: new Date(timeline.now()).toISOString(),
      customer: customer ?? before?.customer ?? { id: `customer-${index + 1}`, ref: null },
      fields,
    }
    keepVehicle(id, kept)
    return add(id, kept)
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
        shared.get(vin)?.memory.remember(event)
        sse.publish(vin, event)
      }
      const { webhook } = state
      if (webhook?.enabled === true) deliveries.send(event, webhook, timeline.now())
    },
    publishFrom(vehicle, messages) {
      if (vehicle.kept.fields === undefined) return
      for (const { event } of messages) world.publish(vehicle.vin, event)
    },
    run() {
      const until = timeline.now()
      const messages = [...shared.values()].flatMap((vehicle) =>
        vehicle.car.run(until).map((message) => ({ vehicle, message })),
      )
      messages.sort((a, b) => a.message.at - b.message.at)
      for (const { vehicle, message } of messages) world.publishFrom(vehicle, [message])
    },
    async advance(ms) {
      for (let left = ms; left > 0; left -= stepMs) {
        timeline.advance(Math.min(left, stepMs))
        world.run()
        await deliveries.settled()
      }
    },
  }

  for (const [vin, kept] of Object.entries(state.vehicles)) if (kept.shared) add(vin, kept)
  if (Object.keys(state.vehicles).length === 0) {
    const fields = settings.config === undefined ? undefined : knownFields(settings.config.fields)
    for (let index = 0; index < settings.vehicles; index += 1) share(syntheticVin(index), undefined, fields)
  }
  return world
}

/** The fields that are in the catalogue. */
export function knownFields(fields: { readonly [name: string]: KeptFields[string] | null | undefined }): KeptFields {
  const known: Record<string, KeptFields[string]> = {}
  for (const [name, setting] of Object.entries(fields)) {
    if (setting !== undefined && setting !== null && Object.hasOwn(builtInFields, name)) known[name] = setting
  }
  return known
}

/** The index of the simulated vehicle with this VIN, or of the first one that was never shared. */
function indexOf(vin: string | undefined, { vehicles }: SandboxState): number | undefined {
  if (vin !== undefined) {
    const index = Number(vin.slice(-6))
    return Number.isInteger(index) && index >= 0 && index < mostVehicles && syntheticVin(index) === vin
      ? index
      : undefined
  }
  const taken = new Set(Object.values(vehicles).map(({ index }) => index))
  for (let index = 0; index < mostVehicles; index += 1) if (!taken.has(index)) return index
  return undefined
}

/** What the service remembers of a vehicle's messages. Some reads are answered from it. */
interface VehicleMemory {
  remember(event: Encodable): void
  /** The last value of each field, in the shape of a `data` message. */
  telemetry(vin: string): JsonObject
  readonly alerts: readonly Alert[]
  readonly errors: readonly VehicleError[]
}

const mostEntries = 100

function createVehicleMemory(): VehicleMemory {
  let data: JsonObject = {}
  let createdAt: string | undefined
  const alerts: Alert[] = []
  const errors: VehicleError[] = []
  return {
    remember(event) {
      if (event.topic === 'data') {
        const sent = encode(event, 'service')['data']
        data = { ...data, ...(isJsonObject(sent) ? sent : {}) }
        createdAt = event.createdAt
      } else if (event.topic === 'alerts') {
        alerts.unshift(...event.alerts)
        alerts.splice(mostEntries)
      } else if (event.topic === 'errors') {
        errors.unshift(...event.errors)
        errors.splice(mostEntries)
      }
    },
    telemetry: (vin) => ({ data, createdAt: createdAt ?? null, vin }),
    alerts,
    errors,
  }
}

/** The vehicles' time. It runs at the pace of the clock times `speed`, plus what it was advanced by. */
interface Timeline {
  now(): number
  advance(ms: number): void
}

function createTimeline(clock: Clock, startAt: number, speed: number): Timeline {
  const began = clock.now()
  let advancedMs = 0
  return {
    now: () => Math.round(startAt + advancedMs + (clock.now() - began) * speed),
    advance: (ms) => void (advancedMs += ms),
  }
}
