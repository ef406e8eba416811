import * as z from 'zod/mini'
import type { BuiltInFields, FieldCatalogue } from '../../events/fields.ts'
import { guarded } from '../../base/log.ts'
import { isJsonObject } from '../../wire/record.ts'
import { checked, discard, readJson, unwrapped } from './answer.ts'
import type { Call } from './call.ts'
import { type FieldSetting, type FieldSettings, flawOfFields } from './field-setting.ts'
import type { Connection, ServiceRequest } from './request.ts'
import { segment } from './segment.ts'
import { ServiceError } from './service-error.ts'
import type { CallOptions } from './webhook.ts'

/** What a vehicle streams. */
export interface StreamingConfig<Fields extends FieldCatalogue = BuiltInFields> {
  readonly fields: FieldSettings<Fields>
}

/** A config as the service returns it. */
export interface StoredConfig<Fields extends FieldCatalogue = BuiltInFields> extends StreamingConfig<Fields> {
  readonly [key: string]: unknown
}

/** What became of a config that was sent. */
export interface ConfigResult {
  /** Names that the service does not recognise and dropped. Empty when it took all of them; the client's log warns of others. */
  readonly ignoredFields: readonly string[]
  /** The settings as they now are, where the service says so. */
  readonly fields?: { readonly [name: string]: FieldSetting }
  readonly [key: string]: unknown
}

/** The streaming config of one vehicle. It has exactly one, whoever set it. */
export interface ConfigResource<Fields extends FieldCatalogue = BuiltInFields> {
  /** Throws `config_not_found` when the vehicle does not stream. */
  get(options?: CallOptions): Promise<StoredConfig<Fields>>
  /** Adds or changes the fields that are sent, and keeps the others. */
  patch(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
  /** Replaces the whole config. */
  replace(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
  /** Stops the streaming of this vehicle, for everyone who streams from it. */
  stop(options?: CallOptions): Promise<void>
}

/** The config that a vehicle begins with at the moment in which a customer shares it. */
export interface DefaultConfigResource<Fields extends FieldCatalogue = BuiltInFields> {
  /** `null` when none is set. */
  get(options?: CallOptions): Promise<StoredConfig<Fields> | null>
  /** Sets or replaces it. Applies to vehicles that are shared from now on, once each. */
  set(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
}

const setting: z.ZodMiniType<FieldSetting> = z.looseObject({
  interval_seconds: z.number(),
  minimum_delta: z.exactOptional(z.number()),
  resend_interval_seconds: z.exactOptional(z.number()),
})
const fields = z.record(z.string(), setting)
const stored: z.ZodMiniType<{ readonly fields: { readonly [name: string]: FieldSetting } }> = z.looseObject({ fields })
const ignored = z.array(z.string())

const defaultPath = '/api/business/config/default'

/** The config of one vehicle. */
export function createConfigResource<Fields extends FieldCatalogue>(
  connection: Connection,
  call: Call,
  vin: string,
): ConfigResource<Fields> {
  const path = `/api/config/${segment('The VIN', vin)}`
  return {
    get: async ({ signal } = {}) => {
      const request: ServiceRequest = { method: 'GET', path, idempotent: true, signal }
      return call(request, async (answer) => readStored<Fields>(answer, request))
    },
    patch: (config, options) => send(connection, call, 'PATCH', path, config, options),
    replace: (config, options) => send(connection, call, 'POST', path, config, options),
    stop: ({ signal } = {}) => call({ method: 'DELETE', path, idempotent: true, signal }, discard),
  }
}

/** The default config of the business. */
export function createDefaultConfigResource<Fields extends FieldCatalogue>(
  connection: Connection,
  call: Call,
): DefaultConfigResource<Fields> {
  return {
    get({ signal } = {}) {
      const request: ServiceRequest = { method: 'GET', path: defaultPath, idempotent: true, signal }
      return call(request, async (answer) => {
        const body = unwrapped(await readJson(answer, request))
        return body === null ? null : (checked(stored, body, request) as StoredConfig<Fields>)
      })
    },
    set: (config, options) => send(connection, call, 'PUT', defaultPath, config, options),
  }
}

/** The same config sent twice leaves the same behind, whatever the method: it may be sent again. */
async function send<Fields extends FieldCatalogue>(
  { log }: Connection,
  call: Call,
  method: 'PUT' | 'PATCH' | 'POST',
  path: string,
  config: StreamingConfig<Fields>,
  { signal }: CallOptions = {},
): Promise<ConfigResult> {
  const flaw = flawOfFields(config.fields)
  if (flaw !== undefined) throw new ServiceError('invalid_request', `The config cannot be sent: ${flaw}`)
  const request: ServiceRequest = { method, path, body: config, idempotent: true, signal }
  const result = await call(request, async (answer) => readResult(await readJson(answer, request), request))
  if (result.ignoredFields.length > 0) {
    const { ignoredFields } = result
    guarded(
      () => log.warn('the service does not know some of the fields, and dropped them', { ignoredFields }),
      () => {},
    )
  }
  return result
}

async function readStored<Fields extends FieldCatalogue>(
  answer: Response,
  request: ServiceRequest,
): Promise<StoredConfig<Fields>> {
  return checked(stored, unwrapped(await readJson(answer, request)), request) as StoredConfig<Fields>
}

/** `ignoredFields` stands beside the wrapper or in it; both are looked at. */
function readResult(body: unknown, request: ServiceRequest): ConfigResult {
  const inner = unwrapped(body)
  const outer = isJsonObject(body) ? body : {}
  const members = isJsonObject(inner) ? inner : {}
  const names = checked(ignored, outer['ignoredFields'] ?? members['ignoredFields'] ?? [], request)
  const { fields: settings, ...rest } = members
  const now = settings === undefined ? {} : { fields: checked(fields, settings, request) }
  return { ...rest, ...now, ignoredFields: names }
}
