import { readJson, unwrapped } from './answer.ts'
import type { Call } from './call.ts'
import { type Document, readDocument } from './document.ts'
import type { Query, ServiceRequest } from './request.ts'
import { segment, segments } from './segment.ts'
import type { CallOptions } from './webhook.ts'

/** Parameters of the maker's own, and a way to give up. */
export interface ReadOptions extends CallOptions {
  readonly query?: Query
}

/** An image, as it was answered. */
export interface VehicleImage {
  readonly bytes: Uint8Array<ArrayBuffer>
  /** Such as `image/png`; empty when the answer does not say. */
  readonly contentType: string
}

/**
 * What there is to read of one shared vehicle. Each answer is what the maker put into `response`; the specification does not
 * show more of it. Reading does not wake a vehicle: `vehicle_unavailable` says that it is asleep or offline.
 */
export interface VehicleResource {
  readonly vin: string
  /** `/api/1/vehicles/{vin}`: what is known of it, whatever its state. */
  summary(options?: ReadOptions): Promise<Document>
  /** `…/vehicle_data`: the full document, as in a `vehicle_data` event. */
  data(options?: ReadOptions): Promise<Document>
  /** `…/telemetry` */
  telemetry(options?: ReadOptions): Promise<unknown>
  /** `…/fleet_telemetry_config`: as the maker has it. To change it, use `client.config(vin)`. */
  telemetryConfig(options?: ReadOptions): Promise<unknown>
  /** `…/fleet_telemetry_errors`: errors that the vehicle reported while streaming. */
  telemetryErrors(options?: ReadOptions): Promise<unknown>
  /** `…/charge_history` */
  chargeHistory(options?: ReadOptions): Promise<unknown>
  /** `…/recent_alerts` */
  recentAlerts(options?: ReadOptions): Promise<unknown>
  /** `…/nearby_charging_sites` */
  nearbyChargingSites(options?: ReadOptions): Promise<unknown>
  /** `…/release_notes` */
  releaseNotes(options?: ReadOptions): Promise<unknown>
  /** `/api/image/{vin}` */
  image(options?: CallOptions): Promise<VehicleImage>
  /** Anything else that can be read below `/api/1/vehicles/{vin}/`. */
  get(path: string, options?: ReadOptions): Promise<unknown>
}

/** Reads what is below `base`. */
export function createReader(call: Call, base: string): (path: string, options?: ReadOptions) => Promise<unknown> {
  return async (path, options) => {
    const request = reading(`${base}/${segments('The path', path)}`, options)
    return call(request, async (answer) => unwrapped(await readJson(answer, request)))
  }
}

/** One vehicle. */
export function createVehicleResource(call: Call, vin: string): VehicleResource {
  const id = segment('The VIN', vin)
  const base = `/api/1/vehicles/${id}`
  const get = createReader(call, base)

  const document = (path: string, options: ReadOptions | undefined): Promise<Document> => {
    const request = reading(path, options)
    return call(request, (answer) => readDocument(answer, request))
  }

  return {
    vin,
    summary: (options) => document(base, options),
    data: (options) => document(`${base}/vehicle_data`, options),
    telemetry: (options) => get('telemetry', options),
    telemetryConfig: (options) => get('fleet_telemetry_config', options),
    telemetryErrors: (options) => get('fleet_telemetry_errors', options),
    chargeHistory: (options) => get('charge_history', options),
    recentAlerts: (options) => get('recent_alerts', options),
    nearbyChargingSites: (options) => get('nearby_charging_sites', options),
    releaseNotes: (options) => get('release_notes', options),
    image({ signal } = {}) {
      const headers = { accept: 'image/*' }
      const request: ServiceRequest = { method: 'GET', path: `/api/image/${id}`, headers, idempotent: true, signal }
      return call(request, async (answer) => ({
        bytes: new Uint8Array(await answer.arrayBuffer()),
        contentType: answer.headers.get('content-type') ?? '',
      }))
    },
    get,
  }
}

function reading(path: string, { query, signal }: ReadOptions = {}): ServiceRequest {
  return { method: 'GET', path, query, idempotent: true, signal }
}
