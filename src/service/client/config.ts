import * as z from 'zod/mini'
import { guarded } from '../../base/log.ts'
import type { BuiltInFields, FieldCatalogue, FieldType, LimitedType } from '../../events/fields.ts'
import { isJsonObject } from '../../wire/record.ts'
import { type Call, checkBody, get, readJson, segment, send, unwrapped } from './call.ts'
import type { CallOptions, Connection, ServiceRequest } from './connection.ts'
import { ServiceError } from './service-error.ts'

/**
 * How one field is streamed.
 *
 * Specification: "Streaming config".
 */
export interface FieldSetting {
  /** The streaming interval, in whole seconds from 1 up. */
  readonly interval_seconds: number
  /** The smallest change that is sent, in the field's own unit, or in meters for a location. A number from 0 up. */
  readonly minimum_delta?: number
  /** An unchanged value is sent again after this many seconds. A whole number from 1 up. */
  readonly resend_interval_seconds?: number
}

/** The setting of a field of this type. Only a number, a time or a location has a `minimum_delta`. */
export type FieldSettingOf<Type extends FieldType> = Type extends
  'number' | 'timestamp' | 'location' | 'any' | LimitedType
  ? FieldSetting
  : Omit<FieldSetting, 'minimum_delta'>

/**
 * Field name to setting. Only names of the catalogue compile, so a misspelled name is a type error. Add your own fields with
 * the client's option `fields`. Write a name that is in neither as `[name as string]`, so that a reviewer sees it.
 *
 * @example
 * ```ts
 * import type { BuiltInFields } from 'fleethook'
 * import type { FieldSettings } from 'fleethook/client'
 *
 * export const fields: FieldSettings<BuiltInFields> = {
 *   BatteryLevel: { interval_seconds: 60, minimum_delta: 1 },
 *   ['FieldOfNextYear' as string]: { interval_seconds: 60 },
 * }
 * ```
 */
export type FieldSettings<Fields extends FieldCatalogue> = {
  /** `null` streams the field at its default interval. */
  readonly [Name in keyof Fields]?: FieldSettingOf<Fields[Name]> | null
}

/** What a vehicle streams. */
export interface StreamingConfig<Fields extends FieldCatalogue = BuiltInFields> {
  readonly fields: FieldSettings<Fields>
}

/**
 * A config as the service returns it. A setting that the service stores as `{}` is `null` here, as you send it: the default
 * interval. Other members are kept as they came.
 */
export interface StoredConfig<Fields extends FieldCatalogue = BuiltInFields> extends StreamingConfig<Fields> {
  readonly [key: string]: unknown
}

/**
 * What a change of a config did. Other members of the answer are kept as they came.
 *
 * Specification: "Per-vehicle streaming config", which does not show the answers. See reading 8 in docs/decisions/0021-interface.md.
 */
export interface ConfigChange {
  /**
   * The number of vehicles that the change reached. 0 means that nothing changed: `skipped` says why, and the client logs a
   * warning. `undefined` when the answer does not say.
   */
  readonly updatedVehicles: number | undefined
  /** The VINs that the service skipped, by its reason, for instance `missing_key`. Empty when it skipped none. */
  readonly skipped: { readonly [reason: string]: readonly string[] }
  readonly [key: string]: unknown
}

/** The answer to a config that was sent. Other members are kept as they came. */
export interface ConfigResult extends ConfigChange {
  /** Names that the service did not know and dropped. Empty when it took all of them. The client also logs a warning. */
  readonly ignoredFields: readonly string[]
  /** The settings after the change, when the service returns them. */
  readonly fields?: { readonly [name: string]: FieldSetting | null }
}

/**
 * The streaming config of one vehicle: `client.config(vin)`. A vehicle has exactly one config. It is the same for everyone who
 * streams from the vehicle.
 *
 * `patch` and `replace` reject with `invalid_request`, before anything is sent, when a setting is out of bounds.
 *
 * @example
 * ```ts
 * import { createClient } from 'fleethook/client'
 *
 * const client = createClient({ baseUrl: process.env.SERVICE_URL, apiKey: process.env.SERVICE_API_KEY })
 * const config = client.config('0FLEETV14T0000004')
 * const { updatedVehicles, skipped } = await config.patch({ fields: { BatteryLevel: { interval_seconds: 60 }, Gear: null } })
 * if (updatedVehicles === 0) throw new Error(`nothing changed: ${JSON.stringify(skipped)}`)
 * ```
 *
 * Specification: "Per-vehicle streaming config".
 */
export interface ConfigResource<Fields extends FieldCatalogue = BuiltInFields> {
  /** Rejects with `config_not_found` when the vehicle does not stream. */
  get(options?: CallOptions): Promise<StoredConfig<Fields>>
  /** Adds or changes these fields, and keeps the others. `null` streams a field at its default interval. */
  patch(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
  /** Replaces the whole config. */
  replace(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
  /** Stops streaming from this vehicle, for everyone who streams from it. */
  stop(options?: CallOptions): Promise<ConfigChange>
}

/**
 * The business default config: `client.defaultConfig`. The service applies it once to each vehicle, at the moment a customer
 * shares it. A later change does not alter vehicles that are already shared.
 *
 * Specification: "Business configuration".
 */
export interface DefaultConfigResource<Fields extends FieldCatalogue = BuiltInFields> {
  /** Resolves to `null` when no default is set. */
  get(options?: CallOptions): Promise<StoredConfig<Fields> | null>
  /** Sets or replaces the default. Rejects with `invalid_request` when a setting is out of bounds. */
  set(config: StreamingConfig<Fields>, options?: CallOptions): Promise<ConfigResult>
}

const written: z.ZodMiniType<FieldSetting> = z.looseObject({
  interval_seconds: z.number(),
  minimum_delta: z.exactOptional(z.number()),
  resend_interval_seconds: z.exactOptional(z.number()),
})
/** The service stores the default interval as `null` or as `{}`. */
const byDefault = z.pipe(
  z.nullable(z.strictObject({})),
  z.transform(() => null),
)
const fields: z.ZodMiniType<{ readonly [name: string]: FieldSetting | null }> = z.record(
  z.string(),
  z.union([written, byDefault]),
)
const stored: z.ZodMiniType<{ readonly fields: { readonly [name: string]: FieldSetting | null } }> = z.looseObject({
  fields,
})
const names = z.array(z.string())
const skippedVehicles = z.record(z.string(), names)

const defaultPath = '/api/business/config/default'

export function createConfigResource<Fields extends FieldCatalogue>(
  connection: Connection,
  call: Call,
  vin: string,
): ConfigResource<Fields> {
  const path = `/api/config/${segment('The VIN', vin)}`
  return {
    get: async (options) => (await send(call, get(path, options), stored)) as StoredConfig<Fields>,
    patch: (config, options) => sendConfig(connection, call, 'PATCH', path, config, options),
    replace: (config, options) => sendConfig(connection, call, 'POST', path, config, options),
    async stop({ signal } = {}) {
      const request: ServiceRequest = { method: 'DELETE', path, idempotent: true, signal }
      const change = await call(request, async (answer) => readChange(await readJson(answer, request), request))
      warnOfNoChange(connection, change)
      return change
    },
  }
}

export function createDefaultConfigResource<Fields extends FieldCatalogue>(
  connection: Connection,
  call: Call,
): DefaultConfigResource<Fields> {
  return {
    get: async (options) =>
      (await send(call, get(defaultPath, options), z.nullable(stored))) as StoredConfig<Fields> | null,
    set: (config, options) => sendConfig(connection, call, 'PUT', defaultPath, config, options),
  }
}

/** Reads the config in a message of a stream. `undefined` when there is none. */
export function readConfig(value: unknown): StoredConfig | undefined {
  return stored.safeParse(value).data
}

/** Sends a config. Sending it twice has the same effect as sending it once, with every method, so all are idempotent. */
async function sendConfig<Fields extends FieldCatalogue>(
  connection: Connection,
  call: Call,
  method: 'PUT' | 'PATCH' | 'POST',
  path: string,
  config: StreamingConfig<Fields>,
  { signal }: CallOptions = {},
): Promise<ConfigResult> {
  const problem = problemWithFields(config.fields)
  if (problem !== undefined) throw new ServiceError('invalid_request', `The config was not sent. ${problem}`)
  const request: ServiceRequest = { method, path, body: config, idempotent: true, signal }
  const result = await call(request, async (answer) => readResult(await readJson(answer, request), request))
  const { ignoredFields } = result
  if (ignoredFields.length > 0) {
    const { log } = connection
    // What to do: Correct the field names in your config.
    guarded(() => log.warn('the service does not know some of the fields and dropped them', { ignoredFields }))
  }
  warnOfNoChange(connection, result)
  return result
}

/** A caller that does not look at the count would wait for data that never comes. */
function warnOfNoChange({ log }: Connection, { updatedVehicles, skipped }: ConfigChange): void {
  // What to do: `skipped` lists the VINs by reason. After a retry, the first try may have done it.
  if (updatedVehicles === 0) guarded(() => log.warn('the service changed the config of no vehicle', { skipped }))
}

/** Reads the members of an answer, which can be beside the wrapper or in it. */
function readChange(body: unknown, request: ServiceRequest): ConfigChange {
  const inner = unwrapped(body)
  const { response: _, ...outer } = isJsonObject(body) ? body : {}
  const {
    updated_vehicles: count,
    skipped_vehicles: skipped,
    ...rest
  } = { ...outer, ...(isJsonObject(inner) ? inner : {}) }
  return {
    ...rest,
    updatedVehicles: typeof count === 'number' ? count : undefined,
    skipped: checkBody(skippedVehicles, skipped ?? {}, request),
  }
}

function readResult(body: unknown, request: ServiceRequest): ConfigResult {
  const { ignoredFields, fields: settings, ...change } = readChange(body, request)
  return {
    ...change,
    ...(settings === undefined ? {} : { fields: checkBody(fields, settings, request) }),
    ignoredFields: checkBody(names, ignoredFields ?? [], request),
  }
}

/** Why the service would refuse a map of field settings, as a sentence, or `undefined`. */
export function problemWithFields(value: unknown): string | undefined {
  if (!isJsonObject(value)) {
    return '`fields` must map field names to settings, for instance { BatteryLevel: { interval_seconds: 60 } }.'
  }
  for (const [name, given] of Object.entries(value)) {
    const problem = given === undefined ? undefined : problemWithSetting(given)
    if (problem !== undefined) return `\`fields.${name}\` ${problem}`
  }
  return undefined
}

function problemWithSetting(value: unknown): string | undefined {
  if (value === null) return undefined
  if (!isJsonObject(value))
    return 'must be a setting such as { interval_seconds: 60 }, or null for the default interval.'
  const { interval_seconds: interval, minimum_delta: delta, resend_interval_seconds: resend } = value
  if (!isSeconds(interval))
    return 'needs `interval_seconds`, a whole number from 1 up. For the default interval, write null instead of an object.'
  if (delta !== undefined && !(typeof delta === 'number' && Number.isFinite(delta) && delta >= 0)) {
    return 'needs a `minimum_delta` that is a number from 0 up.'
  }
  if (resend !== undefined && !isSeconds(resend)) {
    return 'needs a `resend_interval_seconds` that is a whole number from 1 up.'
  }
  return undefined
}

function isSeconds(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 1
}
