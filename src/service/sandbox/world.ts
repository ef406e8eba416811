import type { Alert, VehicleError } from '../../events/event.ts'
import type { Encodable } from '../../wire/encode.ts'
import { wireTopics } from '../../wire/envelope.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { type SimulatedMessage, wireMessage } from '../fleet/messages.ts'
import { syntheticVin } from '../fleet/vin.ts'
import { Activity } from './activity.ts'
import { Car } from './car.ts'
import { Deliveries } from './deliveries.ts'
import { createSites, type EnergySite, energyTotals, liveStatus } from './energy-sites.ts'
import { type KeptFields, type KeptWebhook, readSettings, type SandboxSettings } from './options.ts'
import { type ProductMessage, SseHub } from './sse.ts'

export interface Customer {
  readonly id: string
  readonly ref: string | null
}

/**
 * Why nothing comes from a vehicle that is shared, as a control sets it. The first two are also the code of every refusal about the vehicle.
 */
export const vehicleFaults = [
  'customer_reconnect_required',
  'customer_scope_missing',
  'key_not_installed',
  'config_not_synced',
  'stream_limit_reached',
  'offline',
  'silent',
] as const

export type VehicleFault = (typeof vehicleFaults)[number]

/** What the service thinks of the business and its key, as a control sets it. */
export interface Standing {
  readonly active: boolean
  readonly permissions: readonly string[]
  /** Until then, on the sandbox's clock, keys cannot be checked. */
  readonly unavailableUntil: number
}

/** A vehicle that is or was shared. It keeps its config, because other businesses may stream from it. */
export interface SharedVehicle {
  readonly vin: string
  readonly car: Car
  readonly memory: VehicleMemory
  readonly customer: Customer
  /** ISO 8601. */
  readonly grantedAt: string
  isShared: boolean
  fault: VehicleFault | undefined
  /** `undefined` while the vehicle does not stream. */
  fields: KeptFields | undefined
  commands: number
}

/** What a key can be allowed to do. */
export const permissions: readonly string[] = ['data:read', 'streaming:write']

const mostVehicles = 1_000
const stepMs = 60_000
/** The intervals at which the stream of an energy site has its live status, and the energy of the day. */
const liveMs = 60_000
const totalsMs = 300_000

/** The state behind the endpoints: settings, vehicles, and their messages. */
export class World {
  readonly settings: SandboxSettings
  readonly activity: Activity
  readonly deliveries: Deliveries
  readonly sse: SseHub
  readonly sites: readonly EnergySite[]
  webhook: KeptWebhook | undefined
  standing: Standing = { active: true, permissions, unavailableUntil: 0 }
  defaultFields: KeptFields | null = null
  readonly #vehicles = new Map<string, SharedVehicle>()
  readonly #beganAt: number
  #advancedMs = 0
  #sitesAt: number

  constructor(settings: SandboxSettings) {
    const { clock, post, startAt, streamMinutes } = settings
    this.settings = settings
    this.activity = new Activity(settings.show, () => [settings.apiKey, this.webhook?.auth ?? ''])
    this.deliveries = new Deliveries(post, clock, this.activity, () => this.webhook)
    this.sse = new SseHub(clock, this.activity, streamMinutes * 60_000)
    this.sites = createSites(settings.energySites)
    this.#beganAt = clock.now()
    this.#sitesAt = startAt
    const fields = settings.config === undefined ? undefined : readSettings(settings.config.fields).known
    for (let index = 0; index < settings.vehicles; index += 1) this.share(syntheticVin(index), { initial: fields })
  }

  /** The vehicles' time. It runs at the pace of the clock times `speed`, plus what it was advanced by. */
  now(): number {
    const { clock, startAt, speed } = this.settings
    return Math.round(startAt + this.#advancedMs + (clock.now() - this.#beganAt) * speed)
  }

  /** The vehicle with this VIN, or `undefined` when it is not shared. */
  vehicle(vin: string): SharedVehicle | undefined {
    const vehicle = this.#vehicles.get(vin)
    return vehicle?.isShared === true ? vehicle : undefined
  }

  vehicles(): readonly SharedVehicle[] {
    return [...this.#vehicles.values()].filter(({ isShared }) => isShared)
  }

  site(id: string): EnergySite | undefined {
    return this.sites.find((site) => site.id === id)
  }

  changeSite(site: EnergySite, change: JsonObject): void {
    site.info = { ...site.info, ...change }
    this.stream(site.id, 'site_info', { site_info: site.info })
    const { tariff_content_v2: tariff } = change
    if (tariff !== undefined) this.stream(site.id, 'tariff_content_v2', { tariff_content_v2: tariff })
  }

  /** Sets what a vehicle streams, and returns whether that changed. */
  setFields(vehicle: SharedVehicle, fields: KeptFields | undefined): boolean {
    if (isSame(vehicle.fields, fields)) return false
    vehicle.fields = fields
    vehicle.car.stream(fields)
    this.stream(vehicle.vin, 'config', { config: { fields: fields ?? {} } })
    return true
  }

  /** A customer shares this vehicle, or by default the next vehicle that was never shared. `undefined` when there is no such vehicle. */
  share(
    vin: string | undefined,
    { customer, initial }: { readonly customer?: Customer | undefined; readonly initial?: KeptFields | undefined },
  ): SharedVehicle | undefined {
    let index = vin === undefined ? this.#vehicles.size : Number(/\d{6}$/.exec(vin)?.[0])
    while (vin === undefined && this.#vehicles.has(syntheticVin(index))) index += 1
    if (!(index < mostVehicles)) return undefined
    const id = syntheticVin(index)
    if (vin !== undefined && vin !== id) return undefined
    const before = this.#vehicles.get(id)
    if (before?.isShared === true) return before
    const grantedAt = new Date(this.now()).toISOString()
    const vehicle: SharedVehicle = {
      vin: id,
      car: new Car(index, this.settings.seed, this.now()),
      memory: new VehicleMemory(id, grantedAt),
      isShared: true,
      fault: undefined,
      customer: customer ?? before?.customer ?? { id: `customer-${index + 1}`, ref: `our-${index + 1}` },
      grantedAt,
      fields: before?.fields ?? initial ?? this.defaultFields ?? undefined,
      commands: 0,
    }
    vehicle.car.stream(vehicle.fields)
    this.#vehicles.set(id, vehicle)
    return vehicle
  }

  /** From now on nothing comes from a vehicle, or all does again. */
  setFault(vehicle: SharedVehicle, fault: VehicleFault | undefined): void {
    vehicle.fault = fault
    vehicle.car.isCutOff = fault === 'offline'
    if (fault !== undefined) this.sse.end(vehicle.vin)
  }

  unshare(vehicle: SharedVehicle): void {
    vehicle.isShared = false
    this.sse.end(vehicle.vin)
  }

  /** Sends a message to the webhook and to streams. */
  publish(product: string | undefined, given: Encodable): void {
    const event = withFractions(given)
    if (product !== undefined) {
      const sent = streamMessage(event)
      this.vehicle(product)?.memory.remember(event, sent)
      this.sse.publish(product, sent)
    }
    if (this.webhook?.enabled === true) this.deliveries.send(event, this.webhook, this.now())
  }

  /** Sends a message to streams only. */
  stream(product: string, topic: string, members: JsonObject): void {
    const createdAt = new Date(this.now()).toISOString()
    const named =
      this.vehicle(product) !== undefined ? { vin: product } : topic === 'energy_totals' ? {} : { site_id: product }
    this.sse.publish(product, { topic, message: { ...members, createdAt, ...named } })
  }

  /** What the service knows about a product, as the first messages of its stream. Each has `isCache`. */
  snapshot(product: string): readonly ProductMessage[] {
    const site = this.site(product)
    if (site === undefined) return this.vehicle(product)?.memory.snapshot() ?? []
    const now = this.now()
    const cached = { createdAt: new Date(now).toISOString(), site_id: product, isCache: true }
    return [
      { topic: 'live_status', message: { live_status: liveStatus(now), ...cached } },
      { topic: 'site_info', message: { site_info: site.info, ...cached } },
      { topic: 'tariff_content_v2', message: { tariff_content_v2: site.info['tariff_content_v2'], ...cached } },
      {
        topic: 'energy_totals',
        message: { ...totalsOf(site), createdAt: cached.createdAt, isCache: true },
      },
    ]
  }

  /** As `publish`, for messages of the vehicle itself. A vehicle without a config sends nothing. */
  publishFrom(vehicle: SharedVehicle, messages: readonly SimulatedMessage[]): void {
    for (const { event } of vehicle.fault === undefined ? messages : []) {
      if (vehicle.fields !== undefined) this.publish(vehicle.vin, event)
      // The service knows the state of a vehicle that streams nothing.
      else if (event.topic === 'state') {
        const dated = withFractions(event)
        vehicle.memory.remember(dated, streamMessage(dated))
      }
    }
  }

  run(): void {
    const until = this.now()
    const messages = this.vehicles().flatMap((vehicle) =>
      vehicle.car.run(until).map((message) => ({ vehicle, message })),
    )
    messages.sort((a, b) => a.message.at - b.message.at)
    for (const { vehicle, message } of messages) this.publishFrom(vehicle, [message])
    this.#runSites(until)
  }

  /** Lets time pass. Resolves when the messages of that time are posted. */
  async advance(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= stepMs) {
      this.#advancedMs += Math.min(left, stepMs)
      this.run()
      await this.deliveries.settled()
    }
  }

  /** The messages that the streams of energy sites get between two moments. */
  #runSites(until: number): void {
    for (const site of this.sites) {
      if (!this.sse.isOpen(site.id)) continue
      const passed = (everyMs: number): boolean => Math.floor(until / everyMs) > Math.floor(this.#sitesAt / everyMs)
      if (passed(liveMs)) this.stream(site.id, 'live_status', { live_status: liveStatus(until) })
      if (passed(totalsMs)) this.stream(site.id, 'energy_totals', totalsOf(site))
    }
    this.#sitesAt = until
  }
}

function totalsOf(site: EnergySite): JsonObject {
  const url = `/api/1/energy_sites/${site.id}/calendar_history?kind=energy&period=day`
  return { id: site.id, product_type: 'energy_site', url, totals: energyTotals }
}

/** The service always sends `createdAt` with a fraction, and clients of it cannot read one without. Vehicles and tests make both. */
function withFractions(event: Encodable): Encodable {
  if (event.topic === 'unknown') return { ...event, raw: withOwnFraction(event.raw) }
  const createdAt = withFraction(event.createdAt)
  if (event.topic === 'errors') return { ...event, createdAt, errors: event.errors.map(withOwnFraction) }
  return { ...event, createdAt }
}

const withFraction = (time: string): string => time.replace(/(T\d\d:\d\d:\d\d)(?=[Z+-]|$)/, '$1.000')

function withOwnFraction<Dated extends { readonly createdAt?: unknown }>(one: Dated): Dated {
  return typeof one.createdAt === 'string' ? { ...one, createdAt: withFraction(one.createdAt) } : one
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

export const streamTopics: readonly string[] = [
  ...wireTopics,
  ...['config', 'credits', 'live_status', 'site_info', 'tariff_content_v2', 'energy_totals'],
]

function isSame(before: KeptFields | undefined, after: KeptFields | undefined): boolean {
  if (before === undefined || after === undefined) return before === after
  const names = Object.keys(after)
  return (
    names.length === Object.keys(before).length &&
    names.every((name) => Object.hasOwn(before, name) && JSON.stringify(before[name]) === JSON.stringify(after[name]))
  )
}

const mostEntries = 100

/** What the service remembers of a vehicle's messages, to answer some reads. */
class VehicleMemory {
  readonly alerts: Alert[] = []
  readonly errors: VehicleError[] = []
  readonly #vin: string
  readonly #sharedAt: string
  #data: JsonObject = {}
  #state: JsonObject
  #lastConnection: JsonObject | undefined
  readonly #connections = new Map<string, JsonObject>()
  readonly #times: { [topic: string]: string } = {}

  constructor(vin: string, sharedAt: string) {
    this.#vin = vin
    this.#sharedAt = sharedAt
    this.#state = { state: 'asleep', createdAt: sharedAt, vin }
  }

  remember(event: Encodable, { message }: ProductMessage): void {
    if (event.topic === 'unknown') return
    this.#times[event.topic] = event.createdAt
    if (event.topic === 'data') {
      this.#data = { ...this.#data, ...(isJsonObject(message['data']) ? message['data'] : {}) }
    } else if (event.topic === 'alerts') {
      this.alerts.unshift(...event.alerts)
      this.alerts.splice(mostEntries)
    } else if (event.topic === 'errors') {
      this.errors.unshift(...event.errors)
      this.errors.splice(mostEntries)
    } else if (event.topic === 'state') this.#state = message
    else if (event.topic === 'connectivity') {
      const { connectionId = '', status } = event
      this.#lastConnection = message
      if (status === 'connected') this.#connections.set(connectionId, message)
      else this.#connections.delete(connectionId)
    }
  }

  /** The last value of each field, in the shape of a `data` message. */
  telemetry(): JsonObject {
    return { data: this.#data, createdAt: this.#times['data'] ?? null, vin: this.#vin }
  }

  snapshot(): readonly ProductMessage[] {
    const of = (topic: string, members: JsonObject): ProductMessage => ({
      topic,
      message: { createdAt: this.#times[topic] ?? this.#sharedAt, vin: this.#vin, ...members, isCache: true },
    })
    const last = this.#lastConnection === undefined ? [] : [this.#lastConnection]
    const open = this.#connections.size > 0 ? [...this.#connections.values()] : last
    return [
      of('state', this.#state),
      ...(this.#times['data'] === undefined ? [] : [of('data', { data: this.#data })]),
      ...open.map((message) => of('connectivity', message)),
      of('alerts', { alerts: this.alerts }),
      of('errors', { errors: this.errors }),
    ]
  }
}
