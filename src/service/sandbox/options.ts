import { type Clock, systemClock } from '../../base/clock.ts'
import {
  aFunction,
  checkOptions,
  defined,
  numberBetween,
  required,
  type Rules,
  trueOrFalse,
  wholeNumber,
  withMethods,
} from '../../base/options.ts'
import type { Format } from '../../events/event.ts'
import { isJsonObject } from '../../wire/record.ts'
import { builtInFields } from '../../events/fields.ts'
import { type FieldSetting, problemWithFields, type StreamingConfig } from '../client/config.ts'

/**
 * The options of {@link createSandbox}. Only `apiKey` is required.
 */
export interface SandboxOptions {
  /** The business's bearer token, at least 8 characters. */
  readonly apiKey: string | undefined
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
  /**
   * The minutes after which the service ends a stream on purpose: 0 to 1,440, fractions included. 0 never ends one. Default
   * 5.
   */
  readonly streamMinutes?: number
  /** The most requests in a minute. Further ones are answered with 429 and `Retry-After`. Default: no limit. */
  readonly rateLimit?: number
  /** Gets a line for each delivery, API call and stream. No line has a secret. Default: nothing is shown. */
  readonly show?: (line: ActivityLine) => void
  /** Accepts a webhook on this machine (loopback), which the service refuses. Default `false`. */
  readonly allowLocal?: boolean
  /** Posts a message to the webhook. Default: by `fetch`, which always checks the TLS certificate, whatever `verify` says. */
  readonly post?: PostMessage
  /** The clock of the sandbox. Default: the system's. For tests, see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

/** One line of what happens in a sandbox. */
export interface ActivityLine {
  readonly kind: 'delivery' | 'call' | 'stream'
  /** Whether it went wrong. */
  readonly failed: boolean
  /** For instance `403 → POST http://localhost:3000/  data 0FL3EETV1T0000000  12 ms  wrong secret`. */
  readonly text: string
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

/** A setting as the service keeps it. An empty setting was sent as `null`, so the field has its default interval. */
type KeptSetting = FieldSetting | { readonly interval_seconds?: never }

export type KeptFields = { readonly [name: string]: KeptSetting }

export type SandboxSettings = Required<Omit<SandboxOptions, 'apiKey' | 'config' | 'rateLimit'>> &
  Pick<SandboxOptions, 'config' | 'rateLimit'> & { readonly apiKey: string }

const rules: Rules<SandboxOptions> = {
  apiKey: {
    ...required(
      { must: 'must be at least 8 visible ASCII characters', accepts: isKey },
      'Is the environment variable set?',
    ),
    isSecret: true,
  },
  vehicles: wholeNumber(0, 1_000),
  energySites: wholeNumber(0, 100),
  config: {
    must: 'must be a streaming config, for instance { fields: { BatteryLevel: { interval_seconds: 60 } } }',
    accepts: (value) => isJsonObject(value) && readSettings(value['fields']).problem === undefined,
  },
  seed: wholeNumber(0, 0x7fff_ffff),
  startAt: wholeNumber(0, 8e15),
  speed: numberBetween(0, 1_000),
  allowLocal: trueOrFalse,
  streamMinutes: numberBetween(0, 1_440),
  rateLimit: wholeNumber(1, 1_000_000),
  show: aFunction,
  post: aFunction,
  clock: withMethods('now', 'after'),
}

export function readOptions(options: SandboxOptions): SandboxSettings {
  checkOptions('createSandbox', options, rules)
  const { apiKey = '', clock = systemClock } = options
  return {
    vehicles: 3,
    energySites: 1,
    seed: 1,
    startAt: clock.now(),
    speed: 1,
    allowLocal: false,
    streamMinutes: 5,
    show: () => {},
    post: postByFetch,
    clock,
    ...defined(options),
    apiKey,
  }
}

/** Settings as the service keeps them, and what it does not know. */
export interface ReadSettings {
  readonly known: KeptFields
  readonly ignored: readonly string[]
  /** Why the service refuses the settings, as a sentence. */
  readonly problem?: string | undefined
}

/** Reads field settings. `null` asks for the default interval, and is kept as an empty setting. */
export function readSettings(fields: unknown): ReadSettings {
  const given = isJsonObject(fields)
    ? Object.fromEntries(Object.entries(fields).filter(([, setting]) => setting !== null))
    : fields
  const problem = problemWithFields(given)
  if (problem !== undefined || !isJsonObject(fields)) return { known: {}, ignored: [], problem }
  const names = Object.keys(fields).filter((name) => fields[name] !== undefined)
  const isKnown = (name: string): boolean => Object.hasOwn(builtInFields, name)
  const entries = names.filter(isKnown).map((name): [string, KeptSetting] => [name, kept(fields[name])])
  return { known: Object.fromEntries(entries), ignored: names.filter((name) => !isKnown(name)) }
}

/** The members of a checked setting. Others are dropped. */
function kept(setting: unknown): KeptSetting {
  if (!isJsonObject(setting)) return {}
  const { interval_seconds: interval, minimum_delta: delta, resend_interval_seconds: resend } = setting
  return {
    interval_seconds: Number(interval),
    ...(typeof delta === 'number' ? { minimum_delta: delta } : {}),
    ...(typeof resend === 'number' ? { resend_interval_seconds: resend } : {}),
  }
}

function isKey(value: unknown): boolean {
  return typeof value === 'string' && /^[\x21-\x7e]{8,}$/.test(value)
}

/** `fetch` has no way to skip the check of the certificate. */
export async function postByFetch({ url, headers, body, signal }: OutgoingMessage): Promise<number> {
  const answer = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
  // Nothing waits for it: the other side may never confirm that.
  answer.body?.cancel().catch(() => {})
  return answer.status
}
