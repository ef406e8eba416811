import * as z from 'zod/mini'
import { isJsonObject } from '../../wire/record.ts'
import { type Call, checkBody, get, readBytes, segment, send } from './call.ts'
import type { CallOptions, ReadOptions, ServiceRequest } from './connection.ts'

/**
 * A vehicle or an energy site that a customer shares with the business.
 *
 * Specification: "Consented products", which does not show the shape. See reading 29 in docs/decisions/0021-interface.md.
 */
export interface Product {
  readonly product_type: 'vehicle' | 'energy' | (string & {})
  /** The VIN, or the id of the energy site. */
  readonly product_id: string
  /** Where the maker keeps the product, as the service writes it. Compare it without case. */
  readonly region?: 'NA' | 'EU' | (string & {})
  /** The customer who shares it. */
  readonly customer?: {
    /** Identifies the customer. It stays the same for this business. */
    readonly id: string
    /** The business's own name for the customer. */
    readonly ref?: string | null
    readonly [key: string]: unknown
  }
  /** ISO 8601. */
  readonly granted_at?: string
  readonly [key: string]: unknown
}

/** A JSON object from the maker, as the service returned it. The specification does not show its members. */
export interface Document {
  readonly [key: string]: unknown
}

/**
 * A vehicle, as `vehicle(vin).summary()` and `wakeUp` return it. Members that are not named here are kept as they came.
 *
 * Specification: "Vehicles", which does not show the members. See reading 20 in docs/decisions/0021-interface.md.
 */
export interface VehicleSummary {
  readonly vin?: string
  readonly state?: 'online' | 'offline' | 'asleep' | 'driving' | (string & {})
  readonly [key: string]: unknown
}

/** An image, as the service answered it. */
export interface VehicleImage {
  readonly bytes: Uint8Array<ArrayBuffer>
  /** For instance `image/png`. Empty when the answer does not say. */
  readonly contentType: string
}

/** The vehicle commands that the specification names. Others are allowed too. */
export type VehicleCommand = 'charge_start' | 'wake_up' | (string & {})

/** The energy site commands that the specification names. Others are allowed too. */
export type EnergyCommand = 'backup' | 'operation' | 'storm_mode' | 'grid_import_export' | (string & {})

/** The answer to a command that reached its product. */
export interface CommandResult {
  /** `false`: the product received the command and refused it. `reason` says why. */
  readonly result?: boolean
  readonly reason?: string
  readonly [key: string]: unknown
}

/**
 * The reads of one shared vehicle: `client.vehicle(vin)`. Each resolves to the `response` of the maker's answer, unchanged.
 *
 * A read does not wake the vehicle. `data` and others reject with `vehicle_unavailable` while it is asleep or offline, and every
 * read rejects with `business_product_not_consented` when the vehicle is not shared with your business.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
 * const { state } = await client.vehicle('0FLEETV14T0000004').summary()
 * if (state === 'online') console.log(await client.vehicle('0FLEETV14T0000004').data())
 * ```
 *
 * Specification: "Vehicles".
 */
export interface VehicleResource {
  readonly vin: string
  /** `/api/1/vehicles/{vin}`: what the service knows about the vehicle. It answers in every state of the vehicle. */
  summary(options?: ReadOptions): Promise<VehicleSummary>
  /**
   * `…/vehicle_data`: the full document, as in a `vehicle_data` event. `endpoints` names the sections that you want, for instance
   * `['charge_state', 'location_data']`. `location_data` is there only when you name it.
   */
  data(options?: ReadOptions & { readonly endpoints?: readonly string[] }): Promise<Document>
  /** `…/charge_history`, which the service wants by `POST`. It changes nothing, so it is retried like every read. */
  chargeHistory(options?: ReadOptions): Promise<unknown>
  /** `/api/image/{vin}` */
  image(options?: CallOptions): Promise<VehicleImage>
  /** Any other path below `/api/1/vehicles/{vin}/`, for instance `recent_alerts`, `telemetry` or `nearby_charging_sites`. */
  get(path: string, options?: ReadOptions): Promise<unknown>
}

/**
 * The reads and settings of one shared energy site: `client.energySite(id)`. Each read resolves to the `response` of the maker's
 * answer, unchanged, and rejects with `business_product_not_consented` when the site is not shared with your
 * business.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
 * const site = client.energySite(12345)
 * console.log(await site.liveStatus())
 * await site.command('backup', { backup_reserve_percent: 20 })
 * ```
 *
 * Specification: "Energy sites", "Commands".
 */
export interface EnergySiteResource {
  readonly id: string
  /** `…/site_info` */
  siteInfo(options?: ReadOptions): Promise<unknown>
  /** `…/live_status` */
  liveStatus(options?: ReadOptions): Promise<unknown>
  /** Any other path below `/api/1/energy_sites/{id}/`, for instance `calendar_history`. */
  get(path: string, options?: ReadOptions): Promise<unknown>
  /** Changes a setting. Sent once, never retried. Rejects with `insufficient_scope` without command access. */
  command(name: EnergyCommand, body?: object, options?: CallOptions): Promise<CommandResult>
}

const text: z.ZodMiniType<string> = z.pipe(z.union([z.string(), z.number()]), z.transform(String))
const known: z.ZodMiniType<Product> = z.looseObject({
  product_type: z.string(),
  product_id: text,
  region: z.exactOptional(z.string()),
  customer: z.exactOptional(z.looseObject({ id: text, ref: z.exactOptional(z.nullable(text)) })),
  granted_at: z.exactOptional(z.string()),
})
/** The specification does not show the shape, so what may be left out may be `null` as well. */
const product: z.ZodMiniType<Product> = z.pipe(
  z.transform((value: unknown) => {
    if (!isJsonObject(value)) return value
    const isLeftOut = ([name, member]: readonly [string, unknown]): boolean =>
      member === null && ['region', 'customer', 'granted_at'].includes(name)
    return Object.fromEntries(Object.entries(value).filter((member) => !isLeftOut(member)))
  }),
  known,
)
const document: z.ZodMiniType<Document> = z.record(z.string(), z.unknown())
/** An answer without a body still means that the product received the command. */
const commandResult: z.ZodMiniType<CommandResult> = z._default(
  z.looseObject({ result: z.exactOptional(z.boolean()), reason: z.exactOptional(z.string()) }),
  {},
)
const summary: z.ZodMiniType<VehicleSummary> = z._default(
  z.looseObject({ vin: z.exactOptional(z.string()), state: z.exactOptional(z.string()) }),
  {},
)

export function listProducts(call: Call, options?: CallOptions): Promise<readonly Product[]> {
  return send(call, get('/api/business/products', options), z.array(product))
}

/** The products that can be read, and the number of the others: an unreadable product does not hide the rest. */
export async function listReadableProducts(
  call: Call,
  options?: CallOptions,
): Promise<{ readonly products: readonly Product[]; readonly unreadable: number }> {
  const request = get('/api/business/products', options)
  const rows = await send(call, request, z.array(z.unknown()))
  const products = rows.flatMap((row) => product.safeParse(row).data ?? [])
  // An answer in another shape says nothing about who shares a vehicle.
  if (products.length === 0) checkBody(z.array(product), rows, request)
  return { products, unreadable: rows.length - products.length }
}

export function vinsOf(products: readonly Product[]): readonly string[] {
  return [...new Set(products.filter((item) => item.product_type === 'vehicle').map((item) => item.product_id))]
}

export function createVehicleResource(call: Call, vin: string): VehicleResource {
  const base = vehiclePath(vin)
  const read = createReader(call, base)

  return {
    vin,
    summary: (options) => send(call, get(base, options), summary),
    data: ({ endpoints, query, ...options } = {}) =>
      send(
        call,
        get(`${base}/vehicle_data`, { ...options, query: { endpoints: endpoints?.join(';'), ...query } }),
        document,
      ),
    chargeHistory: (options) => send(call, { ...get(`${base}/charge_history`, options), method: 'POST' }, z.unknown()),
    image(options) {
      const request = { ...get(`/api/image/${segment('The VIN', vin)}`, options), headers: { accept: 'image/*' } }
      return call(request, async (answer) => ({
        bytes: await readBytes(answer, request),
        contentType: answer.headers.get('content-type') ?? '',
      }))
    },
    get: read,
  }
}

export function createEnergySiteResource(call: Call, siteId: string | number): EnergySiteResource {
  const id = segment('The energy site id', siteId)
  const base = `/api/1/energy_sites/${id}`
  const read = createReader(call, base)
  return {
    id,
    siteInfo: (options) => read('site_info', options),
    liveStatus: (options) => read('live_status', options),
    get: read,
    command: async (name, body = {}, options = {}) =>
      send(call, commandRequest(`${base}/${segment('The command', name)}`, body, options), commandResult),
  }
}

export async function commandVehicle(
  call: Call,
  vin: string,
  name: VehicleCommand,
  body: object,
  options: CallOptions,
): Promise<CommandResult> {
  const path = `${vehiclePath(vin)}/command/${segment('The command', name)}`
  return send(call, commandRequest(path, body, options), commandResult)
}

/** Waking a vehicle has a path of its own, in the service's interface and in the maker's. */
export async function wakeVehicle(call: Call, vin: string, options: CallOptions): Promise<VehicleSummary> {
  return send(call, commandRequest(`${vehiclePath(vin)}/wake_up`, {}, options), summary)
}

/** A command is sent once. The service wakes the vehicle first and retries a command that failed. */
function commandRequest(path: string, body: object, { signal }: CallOptions): ServiceRequest {
  return { method: 'POST', path, body, idempotent: false, signal }
}

function createReader(call: Call, base: string): (path: string, options?: ReadOptions) => Promise<unknown> {
  return async (path, options) => {
    const segments = path.replace(/^\//, '').split('/')
    const request = get(`${base}/${segments.map((part) => segment('The path', part)).join('/')}`, options)
    return send(call, request, z.unknown())
  }
}

function vehiclePath(vin: string): string {
  return `/api/1/vehicles/${segment('The VIN', vin)}`
}
