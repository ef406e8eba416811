import type { Clock } from '../../base/clock.ts'
import type { Alert, VehicleError } from '../../events/event.ts'
import type { Encodable } from '../../wire/encode.ts'
import { wireTopics } from '../../wire/envelope.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { type SimulatedMessage, wireMessage } from '../fleet/messages.ts'
import { syntheticVin } from '../fleet/vin.ts'
import { type Activity, createActivity } from './activity.ts'
import { type Car, createCar } from './car.ts'
import { createDeliveries, type Deliveries } from './deliveries.ts'
import { createSites, type EnergySite, energyTotals, liveStatus, siteInfo } from './energy-site.ts'
import { createFaults, type Faults } from './faults.ts'
import {
  type KeptFields,
  type KeptVehicle,
  type KeptWebhook,
  readSettings,
  type SandboxSettings,
  type SandboxState,
} from './options.ts'
import { createSseHub, type SseHub, type ProductMessage } from './sse.ts'

/** A vehicle that is shared with the business. */
export interface SharedVehicle {
  readonly vin: string
  readonly car: Car
  readonly memory: VehicleMemory
  kept: KeptVehicle
  /** The number of command attempts, from the next one on, that do not reach the vehicle. */
  failures: number
  /** The number of commands that reached it. */
  commands: number
}

/** The state behind the endpoints: settings, vehicles, and their messages. */
export interface World {
  readonly settings: SandboxSettings
  readonly deliveries: Deliveries
  readonly sse: SseHub
  readonly faults: Faults
  readonly activity: Activity
  now(): number
  webhook(): KeptWebhook | undefined
  setWebhook(webhook: KeptWebhook | undefined): void
  defaultFields(): KeptFields | null
  setDefaultFields(fields: KeptFields): void
  /** The vehicle with this VIN, or `undefined` when it is not shared. */
  vehicle(vin: string): SharedVehicle | undefined
  vehicles(): readonly SharedVehicle[]
  /** The energy site with this id, or `undefined` when it is not shared. */
  site(id: string): EnergySite | undefined
  sites(): readonly EnergySite[]
  changeSite(site: EnergySite, settings: EnergySite['settings']): void
  /** Sets what a vehicle streams, and returns whether that changed. */
  setFields(vehicle: SharedVehicle, fields: KeptFields | undefined): boolean
  /** A customer shares this vehicle, or the next one that was never shared. `undefined` when there is no such vehicle. */
  share(vin: string | undefined, customer: KeptVehicle['customer'] | undefined): SharedVehicle | undefined
  unshare(vehicle: SharedVehicle): void
  /** Sends a message to the webhook and to streams. */
  publish(product: string | undefined, event: Encodable): void
  /** Sends a message to streams only. */
  stream(product: string, topic: string, members: JsonObject): void
  /** What the service knows about a product, as the first messages of its stream. Each has `isCache`. */
  snapshot(product: string): readonly ProductMessage[]
  /** As `publish`, for messages of the vehicle itself. A vehicle without a config sends nothing. */
  publishFrom(vehicle: SharedVehicle, messages: readonly SimulatedMessage[]): void
  /** Runs the vehicles until now. */
  run(): void
  /** Lets time pass. Resolves when the messages of that time are posted. */
  advance(ms: number): Promise<void>
}

const mostVehicles = 1_000
const stepMs = 60_000
/** The intervals at which the stream of an energy site has its live status, and the energy of the day. */
const liveMs = 60_000
const totalsMs = 300_000

/** Starts from the stored state, or from the options when there is none. */
export function createWorld(settings: SandboxSettings): World {
  const { clock, store, seed, startAt, speed, post } = settings
  const timeline = createTimeline(clock, startAt, speed)
  const secretsOf = (): readonly string[] => [...settings.apiKeys, state.webhook?.auth ?? '']
  const activity = createActivity(settings.show, secretsOf)
  const deliveries = createDeliveries(post, clock, activity, () => state.webhook)
  const { namedItems } = settings
  const sse = createSseHub({ clock, activity, namedItems, streamMs: settings.streamMinutes * 60_000 })
  const faults = createFaults(clock, settings.rateLimit)
  const shared = new Map<string, SharedVehicle>()
  const sites = createSites(settings.energySites)
  let sitesAt = startAt
  let state = renamed(store.load() ?? { defaultFields: null, vehicles: {} })

  /** Changes the state only after the store has kept the change. */
  const keep = (change: Partial<SandboxState>): void => {
    const next = { ...state, ...change }
    store.save(next)
    state = next
  }
  const keepVehicle = (vin: string, kept: KeptVehicle): void => keep({ vehicles: { ...state.vehicles, [vin]: kept } })

  function add(vin: string, kept: KeptVehicle): SharedVehicle {
    const car = createCar(kept.index, seed, timeline.now(), settings.firmware)
    car.stream(kept.fields)
    const memory = createVehicleMemory(vin, new Date(timeline.now()).toISOString())
    const vehicle = { vin, car, memory, kept, failures: 0, commands: 0 }
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
      customer: customer ?? before?.customer ?? { id: `customer-${index + 1}`, ref: `our-${index + 1}` },
      fields,
    }
    keepVehicle(id, kept)
    return add(id, kept)
  }

  /** The messages that the streams of energy sites get between two moments. */
  function runSites(until: number): void {
    for (const site of sites) {
      if (!sse.isOpen(site.id)) continue
      const passed = (everyMs: number): boolean => Math.floor(until / everyMs) > Math.floor(sitesAt / everyMs)
      if (passed(liveMs)) world.stream(site.id, 'live_status', { live_status: liveStatus(site, until) })
      if (passed(totalsMs)) world.stream(site.id, 'energy_totals', totalsOf(site, until))
    }
    sitesAt = until
  }

  const world: World = {
    settings,
    deliveries,
    sse,
    faults,
    activity,
    now: timeline.now,
    webhook: () => state.webhook,
    setWebhook: (webhook) => keep({ webhook }),
    defaultFields: () => state.defaultFields,
    setDefaultFields: (fields) => keep({ defaultFields: fields }),
    vehicle: (vin) => shared.get(vin),
    vehicles: () => [...shared.values()],
    site: (id) => sites.find((site) => site.id === id),
    sites: () => sites,
    changeSite(site, changed) {
      const hasNewTariff = changed.tariff !== site.settings.tariff
      site.settings = changed
      world.stream(site.id, 'site_info', { site_info: siteInfo(site) })
      if (hasNewTariff) world.stream(site.id, 'tariff_content_v2', { tariff_content_v2: changed.tariff })
    },
    setFields(vehicle, fields) {
      if (isSame(vehicle.kept.fields, fields)) return false
      const kept = { ...vehicle.kept, fields }
      keepVehicle(vehicle.vin, kept)
      vehicle.kept = kept
      vehicle.car.stream(fields)
      world.stream(vehicle.vin, 'config', { config: { fields: fields ?? {} } })
      return true
    },
    share,
    unshare(vehicle) {
      keepVehicle(vehicle.vin, { ...vehicle.kept, shared: false })
      shared.delete(vehicle.vin)
      sse.end(vehicle.vin)
    },
    publish(product, event) {
      if (product !== undefined) {
        const vehicle = shared.get(product)
        const sent = streamMessage(event)
        vehicle?.memory.remember(event, sent)
        sse.publish(product, sent)
      }
      const { webhook } = state
      if (webhook?.enabled === true) deliveries.send(event, webhook, timeline.now())
    },
    stream(product, topic, members) {
      const createdAt = new Date(timeline.now()).toISOString()
      const named = shared.has(product) ? { vin: product } : topic === 'energy_totals' ? {} : { site_id: product }
      sse.publish(product, { topic, message: { ...members, createdAt, ...named } })
    },
    snapshot(product) {
      const site = world.site(product)
      if (site === undefined) return shared.get(product)?.memory.snapshot() ?? []
      const now = timeline.now()
      const cached = { createdAt: new Date(now).toISOString(), site_id: product, isCache: true }
      return [
        { topic: 'live_status', message: { live_status: liveStatus(site, now), ...cached } },
        { topic: 'site_info', message: { site_info: siteInfo(site), ...cached } },
        { topic: 'tariff_content_v2', message: { tariff_content_v2: site.settings.tariff, ...cached } },
        {
          topic: 'energy_totals',
          message: { ...totalsOf(site, now), createdAt: cached.createdAt, isCache: true },
        },
      ]
    },
    publishFrom(vehicle, messages) {
      for (const { event } of messages) {
        if (vehicle.kept.fields !== undefined) world.publish(vehicle.vin, event)
        // The service knows the state of a vehicle that streams nothing.
        else if (event.topic === 'state') vehicle.memory.remember(event, streamMessage(event))
      }
    },
    run() {
      const until = timeline.now()
      const messages = [...shared.values()].flatMap((vehicle) =>
        vehicle.car.run(until).map((message) => ({ vehicle, message })),
      )
      messages.sort((a, b) => a.message.at - b.message.at)
      for (const { vehicle, message } of messages) world.publishFrom(vehicle, [message])
      runSites(until)
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
    const fields = settings.config === undefined ? undefined : readSettings(settings.config.fields).known
    for (let index = 0; index < settings.vehicles; index += 1) share(syntheticVin(index), undefined, fields)
  }
  return world
}

/** The members of a message of the topic `energy_totals`. */
function totalsOf(site: EnergySite, now: number): JsonObject {
  const url = `/api/1/energy_sites/${site.id}/calendar_history?kind=energy&period=day`
  return { id: site.id, product_type: 'energy_site', url, totals: energyTotals(site, now) }
}

/** A message as streams have it: alerts and errors are lists. */
function streamMessage(event: Encodable): ProductMessage {
  const message = wireMessage(event, 'service')
  if (event.topic === 'alerts') return { topic: 'alerts', message: { ...message, alerts: event.alerts } }
  if (event.topic === 'errors') return { topic: 'errors', message: { ...message, errors: event.errors } }
  const topic =
    event.topic === 'unknown' ? (streamTopics.find((name) => Object.hasOwn(message, name)) ?? 'unknown') : event.topic
  return { topic, message }
}

/** The topics that streams can have. */
export const streamTopics: readonly string[] = [
  ...wireTopics,
  ...['config', 'credits', 'live_status', 'site_info', 'tariff_content_v2', 'energy_totals'],
]

/** The state with today's VINs: a file of an earlier version has others for the same vehicles. */
function renamed(state: SandboxState): SandboxState {
  const vehicles = Object.values(state.vehicles).map((kept): [string, KeptVehicle] => [syntheticVin(kept.index), kept])
  return { ...state, vehicles: Object.fromEntries(vehicles) }
}

/** Whether two configs have the same settings. */
function isSame(before: KeptFields | undefined, after: KeptFields | undefined): boolean {
  if (before === undefined || after === undefined) return before === after
  const names = Object.keys(after)
  return (
    names.length === Object.keys(before).length &&
    names.every((name) => Object.hasOwn(before, name) && JSON.stringify(before[name]) === JSON.stringify(after[name]))
  )
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

/** What the service remembers of a vehicle's messages, to answer some reads. */
interface VehicleMemory {
  remember(event: Encodable, sent: ProductMessage): void
  /** The last value of each field, in the shape of a `data` message. */
  telemetry(): JsonObject
  snapshot(): readonly ProductMessage[]
  readonly alerts: readonly Alert[]
  readonly errors: readonly VehicleError[]
}

const mostEntries = 100

function createVehicleMemory(vin: string, sharedAt: string): VehicleMemory {
  let data: JsonObject = {}
  let state: JsonObject = { state: 'asleep', createdAt: sharedAt, vin }
  let lastConnection: JsonObject | undefined
  const connections = new Map<string, JsonObject>()
  const alerts: Alert[] = []
  const errors: VehicleError[] = []
  const times: { [topic: string]: string } = {}

  function rememberConnection(id: string, isOpen: boolean, message: JsonObject): void {
    lastConnection = message
    if (isOpen) connections.set(id, message)
    else connections.delete(id)
  }

  return {
    remember(event, { message }) {
      if (event.topic === 'unknown') return
      times[event.topic] = event.createdAt
      if (event.topic === 'data') {
        data = { ...data, ...(isJsonObject(message['data']) ? message['data'] : {}) }
      } else if (event.topic === 'alerts') {
        alerts.unshift(...event.alerts)
        alerts.splice(mostEntries)
      } else if (event.topic === 'errors') {
        errors.unshift(...event.errors)
        errors.splice(mostEntries)
      } else if (event.topic === 'state') state = message
      else if (event.topic === 'connectivity') {
        rememberConnection(event.connectionId ?? '', event.status === 'connected', message)
      }
    },
    telemetry: () => ({ data, createdAt: times['data'] ?? null, vin }),
    snapshot() {
      const of = (topic: string, members: JsonObject): ProductMessage => ({
        topic,
        message: { createdAt: times[topic] ?? sharedAt, vin, ...members, isCache: true },
      })
      const open =
        connections.size > 0 ? [...connections.values()] : lastConnection === undefined ? [] : [lastConnection]
      return [
        of('state', state),
        ...(times['data'] === undefined ? [] : [of('data', { data })]),
        ...open.map((message) => of('connectivity', message)),
        of('alerts', { alerts }),
        of('errors', { errors }),
      ]
    },
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
