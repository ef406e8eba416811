import type { BuiltInFields, ExtendedBy, FieldCatalogue } from '../../events/fields.ts'
import { createNormalizer } from '../../wire/normalizer.ts'
import { createCall } from './call.ts'
import {
  type ConfigResource,
  createConfigResource,
  createDefaultConfigResource,
  type DefaultConfigResource,
} from './config.ts'
import { type CallOptions, type ClientOptions, readConnection } from './connection.ts'
import { createCustomers, type Customers } from './customers.ts'
import {
  type CommandResult,
  commandVehicle,
  createEnergySiteResource,
  createVehicleResource,
  type EnergySiteResource,
  listProducts,
  type Product,
  type VehicleCommand,
  type VehicleResource,
  type VehicleSummary,
  wakeVehicle,
} from './products.ts'
import { byRegion } from './regions.ts'
import { createMissing, type Hearing, type MissingOptions, type MissingVehicles } from './missing.ts'
import { createRefill, type Refill, type Refillable, type RefillOptions } from './refill.ts'
import { createStream, type EventStream, type StreamOptions } from './stream.ts'
import { createWebhookResource, type WebhookResource } from './webhook.ts'

/**
 * The whole interface of the service. Each call rejects with a `ServiceError`, or with the reason of the caller's signal. See
 * {@link createClient}.
 */
export interface Client<Fields extends FieldCatalogue = BuiltInFields> {
  /** The one webhook of the business. */
  readonly webhook: WebhookResource
  /** The config that a vehicle gets at the moment a customer shares it. */
  readonly defaultConfig: DefaultConfigResource<Fields>
  /** The streaming config of one vehicle. Throws `invalid_request` when `vin` cannot be part of a path. */
  config(vin: string): ConfigResource<Fields>
  /** The reads of one vehicle. Throws `invalid_request` when `vin` cannot be part of a path. */
  vehicle(vin: string): VehicleResource
  /** The reads and settings of one energy site. Throws `invalid_request` when `id` cannot be part of a path. */
  energySite(id: string | number): EnergySiteResource
  /** Everything that customers share with the business, with the customer of each product. */
  products(options?: CallOptions): Promise<readonly Product[]>
  /**
   * A list of the customers of vehicles for handlers: in memory, and read again for a vehicle that it does not have (at most once a minute)
   * and after an hour. It asks nothing before the first `of`.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   * import { createClient } from 'fleethook/client'
   *
   * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
   * const customers = client.customers()
   * createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('alerts', async ({ vin, alerts }) => {
   *   const customer = await customers.of(vin)
   *   console.log(customer?.ref ?? vin, alerts[0]?.name)
   * })
   * ```
   *
   * Specification: "Consented products".
   */
  customers(): Customers
  /**
   * The shared vehicles that a receiver does not hear, each with its reason and what to do. Needs the receiver's part `vehicles`. A vehicle counts
   * as heard when it is online and a message has come within the last hour (`silentMs`).
   *
   * The service is asked only about vehicles that are not heard: up to three requests for each, at most ten in a second, and none about vehicles
   * that said within the last day that they sleep. It throws when the service cannot be asked at all.
   *
   * @example
   * ```ts
   * import { createReceiver, vehicles } from 'fleethook'
   * import { createClient } from 'fleethook/client'
   *
   * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
   * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, parts: [vehicles({ fields: ['Gear'] })] })
   * for await (const { vin, reason, hint } of client.missing(receiver)) console.log(vin, reason, hint)
   * ```
   *
   * Specification: "Consented products", "Vehicles", "Per-vehicle streaming config".
   */
  missing(receiver: Hearing, options?: MissingOptions): MissingVehicles
  /**
   * Sends a command to a vehicle, once: the service wakes the vehicle first and retries a command that failed. Also resolves when
   * the vehicle refused the command (`result` is false). Rejects with `insufficient_scope` without command access, with
   * `invalid_command` when the command does not exist or lacks a parameter, and with `vehicle_unavailable` when it did not reach
   * the vehicle.
   *
   * Specification: "Commands".
   */
  command(vin: string, name: VehicleCommand, body?: object, options?: CallOptions): Promise<CommandResult>
  /** Wakes a vehicle. Resolves to the vehicle: its `state` says whether it is awake already. Rejects as `command` does. */
  wakeUp(vin: string, options?: CallOptions): Promise<VehicleSummary>
  /**
   * Streams a vehicle or an energy site as Server-Sent Events, which become the same events that handlers get. Takes the VIN, or the
   * id of the site. Connects when it is iterated, and reconnects until the signal is aborted or the loop ends. Throws errors that
   * waiting does not fix: a wrong key, a product that is not shared.
   *
   * @example
   * ```ts
   * import { createClient } from 'fleethook/client'
   *
   * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
   * for await (const event of client.stream('0FLEETV14T0000004', { topics: ['data', 'state'] })) {
   *   if (event.topic === 'data') console.log(event.data.BatteryLevel)
   * }
   * ```
   *
   * Specification: "Streaming by SSE".
   */
  stream(product: string | number, options?: StreamOptions<Fields>): EventStream<Fields>
  /**
   * Closes a gap: fetches the full state of the vehicle concerned as a `vehicle_data` event. When the gap names no vehicle, it
   * fetches all shared vehicles. When the gap is one of an energy site, it fetches nothing, because the site's stream sends whole
   * documents.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   * import { createClient } from 'fleethook/client'
   *
   * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
   * createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('gap', async (gap, { signal }) => {
   *   for await (const event of client.refill(gap, { signal })) console.log(event.vin, event.vehicleData)
   * })
   * ```
   *
   * Specification: "Vehicles", "Consented products".
   */
  refill(gap: Refillable, options?: RefillOptions): Refill
}

/**
 * Creates a client of the service's own interface. It runs wherever `fetch` does.
 *
 * Throws a `FleethookError` with the code `option_invalid` when an option is missing or wrong.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
 * await client.webhook.set({ url: 'https://example.com/telemetry', format: 'service', auth: process.env.WEBHOOK_SECRET })
 * const { updatedVehicles, ignoredFields } = await client.config('0FLEETV14T0000004').patch({
 *   fields: { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 }, Location: null },
 * })
 * console.log(updatedVehicles, ignoredFields)
 * ```
 *
 * Specification: "Endpoints", "Authentication".
 */
export function createClient<const Fields extends FieldCatalogue = FieldCatalogue>(
  options: ClientOptions<Fields>,
): Client<ExtendedBy<Fields>> {
  const given = readConnection(options)
  const connection = byRegion(given.connection, given.addresses)
  const call = createCall(connection)
  const normalizer = createNormalizer<Fields>(options.fields === undefined ? {} : { fields: options.fields })

  return {
    webhook: createWebhookResource(call),
    defaultConfig: createDefaultConfigResource(connection, call),
    config: (vin) => createConfigResource(connection, call, vin),
    vehicle: (vin) => createVehicleResource(call, vin),
    energySite: (id) => createEnergySiteResource(call, id),
    products: (given) => listProducts(call, given),
    customers: () => createCustomers(connection),
    missing: (receiver, given) => createMissing(connection, receiver, given),
    command: (vin, name, body = {}, given = {}) => commandVehicle(call, vin, name, body, given),
    wakeUp: (vin, given = {}) => wakeVehicle(call, vin, given),
    stream: (product, given = {}) => createStream(connection, normalizer, product, given),
    refill: (gap, given = {}) => createRefill(connection, call, createNormalizer(), gap, given),
  }
}
