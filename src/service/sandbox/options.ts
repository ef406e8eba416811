import { type Clock, systemClock } from '../../base/clock.ts'
import {
  aFunction,
  checkOptions,
  numberBetween,
  oneOf,
  required,
  type Rules,
  trueOrFalse,
  wholeNumber,
  withMethods,
} from '../../base/options.ts'
import type { Format } from '../../events/event.ts'
import { isJsonObject } from '../../wire/record.ts'
import { type FieldSetting, problemWithFields, type StreamingConfig } from '../client/config.ts'

/** Which commands the business chose at setup (specification: "Authentication"). */
export interface CommandAccess {
  /** `'all'`: data and commands. `'charging'`: charging commands only. `'none'`: data only. Default `'all'`. */
  readonly vehicle?: 'all' | 'charging' | 'none'
  /** Whether commands may change the settings of energy sites. Default `true`. */
  readonly energy?: boolean
}

/**
 * The options of {@link createSandbox}. Only `apiKey` is required.
 *
 * @example
 * ```ts
 * import type { SandboxOptions } from 'fleethook/sandbox'
 *
 * export const options: SandboxOptions = {
 *   apiKey: 'a-key-of-the-test',
 *   vehicles: 1,
 *   speed: 0,
 *   config: { fields: { Location: { interval_seconds: 5 } } },
 * }
 * ```
 */
export interface SandboxOptions {
  /** The business's bearer token, at least 8 characters. A list accepts several, so that one can replace another. */
  readonly apiKey: string | readonly string[] | undefined
  /** The commands that are allowed. Default: all. */
  readonly commands?: CommandAccess
  /** The number of vehicles that are shared at the start: 0 to 1,000. Default 3. */
  readonly vehicles?: number
  /** The number of energy sites that are shared: 0 to 100. Default 1. */
  readonly energySites?: number
  /** The config of the vehicles at the start, as if another business had set it. Default: none, so they do not stream. */
  readonly config?: StreamingConfig
  /** A whole number. The same seed and start give the same vehicles. Default 1. */
  readonly seed?: number
  /** The time at which the vehicles begin, in milliseconds since the epoch. Default: now. */
  readonly startAt?: number
  /** Seconds of the vehicles' time in each second: 0 to 1,000. With 0, time passes only by `advance`. Default 1. */
  readonly speed?: number
  /** Accepts a webhook on this machine (loopback), which the service refuses. Default `false`. */
  readonly allowLocal?: boolean
  /** Where the webhook, the configs and the shared vehicles are kept. Default: in memory. */
  readonly store?: SandboxStore
  /** Posts a message to the webhook. Default: by `fetch`, which always checks the TLS certificate, whatever `verify` says. */
  readonly post?: PostMessage
  /** The clock of the sandbox. Default: the system's. For tests, see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

/** One message to the webhook. */
export interface OutgoingMessage {
  readonly url: string
  readonly headers: { readonly [name: string]: string }
  readonly body: string
  /** Whether to check the TLS certificate. */
  readonly verify: boolean
  /** Aborted after 10 seconds without an answer. */
  readonly signal: AbortSignal
}

/**
 * Posts a message once, without following a redirection. Resolves to the status of the answer, and rejects when there is none.
 *
 * Specification: "Webhook delivery".
 */
export type PostMessage = (message: OutgoingMessage) => Promise<number>

/** The webhook, with the value of `auth`, which no answer shows. */
export interface KeptWebhook {
  readonly url: string
  readonly format: Format
  readonly auth: string | undefined
  readonly verify: boolean
  readonly enabled: boolean
  /** ISO 8601. */
  readonly updatedAt: string
}

/** Field name to setting. */
export type KeptFields = { readonly [name: string]: FieldSetting }

/** A vehicle that is or was shared. It keeps its config when it is no longer shared, because others may stream from it. */
export interface KeptVehicle {
  /** The index of the simulated vehicle. */
  readonly index: number
  readonly shared: boolean
  /** ISO 8601. */
  readonly grantedAt: string
  readonly customer: { readonly id: string; readonly ref: string | null }
  /** Absent while the vehicle does not stream. */
  readonly fields?: KeptFields | undefined
}

/** Everything that a sandbox keeps when it restarts. It is JSON. */
export interface SandboxState {
  readonly webhook?: KeptWebhook | undefined
  readonly defaultFields: KeptFields | null
  readonly vehicles: { readonly [vin: string]: KeptVehicle }
}

/** Where a sandbox keeps its state. When `save` throws, the request that made the change is answered with 500. */
export interface SandboxStore {
  /** Returns the state that was saved last, or `undefined` at the first start. */
  load(): SandboxState | undefined
  /** Keeps the state before it returns. */
  save(state: SandboxState): void
}

/** The options with their defaults. */
export type SandboxSettings = Required<Omit<SandboxOptions, 'apiKey' | 'commands' | 'config'>> & {
  readonly apiKeys: readonly string[]
  readonly commands: Required<CommandAccess>
  readonly config: StreamingConfig | undefined
}

const rules: Rules<SandboxOptions> = {
  apiKey: {
    ...required(
      { must: 'must be at least 8 visible ASCII characters, or a list of such keys', accepts: areKeys },
      'Is the environment variable set?',
    ),
    isSecret: true,
  },
  commands: { vehicle: oneOf('all', 'charging', 'none'), energy: trueOrFalse },
  vehicles: wholeNumber(0, 1_000),
  energySites: wholeNumber(0, 100),
  config: {
    must: 'must be a streaming config, for instance { fields: { BatteryLevel: { interval_seconds: 60 } } }',
    accepts: (value) => isJsonObject(value) && problemWithFields(value['fields']) === undefined,
  },
  seed: wholeNumber(0, 0x7fff_ffff),
  startAt: wholeNumber(0, 8e15),
  speed: numberBetween(0, 1_000),
  allowLocal: trueOrFalse,
  store: withMethods('load', 'save'),
  post: aFunction,
  clock: withMethods('now', 'after'),
}

/** Checks the options and adds the defaults. Throws `option_invalid`. */
export function readOptions(options: SandboxOptions): SandboxSettings {
  checkOptions('createSandbox', options, rules)
  const { apiKey, commands = {}, clock = systemClock } = options
  return {
    apiKeys: keysIn(apiKey),
    commands: { vehicle: commands.vehicle ?? 'all', energy: commands.energy ?? true },
    vehicles: options.vehicles ?? 3,
    energySites: options.energySites ?? 1,
    config: options.config,
    seed: options.seed ?? 1,
    startAt: options.startAt ?? clock.now(),
    speed: options.speed ?? 1,
    allowLocal: options.allowLocal ?? false,
    store: options.store ?? memoryStore(),
    post: options.post ?? postByFetch,
    clock,
  }
}

function keysIn(apiKey: SandboxOptions['apiKey']): readonly string[] {
  return apiKey === undefined ? [] : typeof apiKey === 'string' ? [apiKey] : apiKey
}

function areKeys(value: unknown): boolean {
  const keys: readonly unknown[] = Array.isArray(value) ? value : [value]
  return keys.length > 0 && keys.every((key) => typeof key === 'string' && /^[\x21-\x7e]{8,}$/.test(key))
}

function memoryStore(): SandboxStore {
  let kept: SandboxState | undefined
  return { load: () => kept, save: (state) => void (kept = state) }
}

/** `fetch` has no way to skip the check of the certificate. */
export async function postByFetch({ url, headers, body, signal }: OutgoingMessage): Promise<number> {
  const answer = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
  await answer.body?.cancel()
  return answer.status
}
