import type { BuiltInFields, ExtendedBy, FieldCatalogue } from '../../events/fields.ts'
import { createNormalizer } from '../../wire/normalizer.ts'
import { createCall } from './call.ts'
import { type CommandResult, sendCommand, type VehicleCommand } from './command.ts'
import {
  type ConfigResource,
  createConfigResource,
  createDefaultConfigResource,
  type DefaultConfigResource,
} from './config.ts'
import { createEnergySiteResource, type EnergySiteResource } from './energy-site.ts'
import { type ClientOptions, readConnection } from './options.ts'
import { listProducts, type Product } from './product.ts'
import { createRefill, type Refill, type Refillable, type RefillOptions } from './refill.ts'
import { segment } from './segment.ts'
import { ServiceError } from './service-error.ts'
import { createStream, type EventStream, type StreamOptions } from './stream.ts'
import { createVehicleResource, type VehicleResource } from './vehicle.ts'
import { type CallOptions, createWebhookResource, type WebhookResource } from './webhook.ts'

/** The service's whole interface. Everything rejects with a `ServiceError`, or with the reason of the caller's signal. */
export interface Client<Fields extends FieldCatalogue = BuiltInFields> {
  /** The one webhook of the business. */
  readonly webhook: WebhookResource
  /** The config that vehicles begin with when a customer shares them. */
  readonly defaultConfig: DefaultConfigResource<Fields>
  /** The streaming config of one vehicle. */
  config(vin: string): ConfigResource<Fields>
  /** What there is to read of one vehicle. */
  vehicle(vin: string): VehicleResource
  /** What there is to read of one energy site, and its settings. */
  energySite(id: string | number): EnergySiteResource
  /** Everything that customers have shared, with the customer behind it. */
  products(options?: CallOptions): Promise<readonly Product[]>
  /**
   * Sends a command to a vehicle, once: the service wakes it first and retries what failed. Resolves also when the vehicle
   * refused (`result` is false). Throws `insufficient_scope` without command access.
   */
  command(vin: string, name: VehicleCommand, body?: object, options?: CallOptions): Promise<CommandResult>
  /** Wakes a vehicle. */
  wakeUp(vin: string, options?: CallOptions): Promise<CommandResult>
  /**
   * Streams a vehicle as Server-Sent Events, as the union that handlers get. Connects when it is iterated, and again for ever,
   * until the signal is aborted or the iteration is left. Throws what will not pass: a wrong key, a vehicle that is not shared.
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
   */
  stream(vin: string, options?: StreamOptions<Fields>): EventStream<Fields>
  /**
   * Closes a gap: fetches the full state of the vehicle concerned, or of all when none is named, as `vehicle_data` events.
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
   */
  refill(gap: Refillable, options?: RefillOptions): Refill
}

/**
 * A client of the service's interface. Runs wherever `fetch` does.
 *
 * Throws a `FleethookError` for an option that is missing or wrong.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
 * await client.webhook.set({ url: 'https://example.com/telemetry', format: 'service', auth: process.env.WEBHOOK_SECRET })
 * const { ignoredFields } = await client.config('0FLEETV14T0000004').patch({
 *   fields: { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 }, Location: { interval_seconds: 10 } },
 * })
 * console.log(ignoredFields)
 * ```
 *
 * Specification: "Endpoints", "Authentication".
 */
export function createClient<const Fields extends FieldCatalogue = FieldCatalogue>(
  options: ClientOptions<Fields>,
): Client<ExtendedBy<Fields>> {
  const connection = readConnection(options)
  const call = createCall(connection)
  const normalizer = createNormalizer<Fields>(options.fields === undefined ? {} : { fields: options.fields })
  const vehiclePath = (vin: string): string => `/api/1/vehicles/${segment('The VIN', vin)}`

  return {
    webhook: createWebhookResource(call),
    defaultConfig: createDefaultConfigResource(connection, call),
    config: (vin) => createConfigResource(connection, call, vin),
    vehicle: (vin) => createVehicleResource(call, vin),
    energySite: (id) => createEnergySiteResource(call, id),
    products: (given) => listProducts(call, given),
    command: async (vin, name, body = {}, given = {}) =>
      sendCommand(call, `${vehiclePath(vin)}/command/${segment('The command', name)}`, body, given),
    async wakeUp(vin, given = {}) {
      try {
        return await sendCommand(call, `${vehiclePath(vin)}/command/wake_up`, {}, given)
      } catch (error) {
        // The specification calls it a vehicle command, and the maker has it at a path of its own.
        if (!(error instanceof ServiceError) || error.status !== 404 || error.code === 'vehicle_not_found') throw error
        return sendCommand(call, `${vehiclePath(vin)}/wake_up`, {}, given)
      }
    },
    stream: (vin, given = {}) => createStream(connection, normalizer, vin, given),
    refill: (gap, given = {}) => createRefill(connection, call, createNormalizer(), gap, given),
  }
}
