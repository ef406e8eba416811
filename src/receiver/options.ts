import { type Clock, elapsedMs, systemClock } from '../base/clock.ts'
import type { ReceiverPart } from '../core/part.ts'
import type { VehiclesPart } from '../parts/vehicles.ts'
import type { RetryOptions } from '../core/retry.ts'
import {
  anything,
  checkOptions,
  defined,
  isObject,
  milliseconds,
  oneOf,
  type Rules,
  trueOrFalse,
  wholeNumber,
  withMethods,
} from '../base/options.ts'
import type { Format } from '../events/event.ts'
import type { ExtendedBy, FieldCatalogue, FieldName } from '../events/fields.ts'
import type { Ack } from '../hosting/drainable.ts'
import type { Door } from '../http/paths.ts'
import type { Secret } from '../http/secret.ts'
import type { InboxFactory } from '../inbox/inbox.ts'
import { memoryInbox } from '../inbox/memory.ts'
import type { Observer } from '../observe/observer.ts'
import { consoleLog, type Log } from '../base/log.ts'
import { isObserver } from '../reports/observers.ts'

/** The most that a receiver takes at once. */
export interface Limits {
  /** The largest body, in bytes, before and after inflating. Default 1 MiB, and 8 MiB on the collector's paths, where relays send batches. */
  readonly bodyBytes: number
  /** Messages that wait or are being handled, and the most in one body. Default 50,000 in memory; a durable inbox has its own default. */
  readonly pendingMessages: number | undefined
  /** The size of those messages, in bytes. Default 64 MiB in memory; a durable inbox has its own default. */
  readonly pendingBytes: number | undefined
}

/** What {@link createReceiver} takes. Only `secret` is required. */
export interface ReceiverOptions<Bindings extends object = object, Fields extends FieldCatalogue = FieldCatalogue> {
  /**
   * The value that was set as the webhook's `auth` (specification: "Authentication of outgoing webhook messages").
   * A string, a list of strings while one secret replaces another, or a function of the runtime's `env`, called for
   * every request. An empty or missing secret throws. `false` accepts everything and has to be written out.
   */
  readonly secret: Secret<Bindings> | undefined
  /**
   * The path under which the host passes whole paths on, for instance `/telemetry`: for `fetch`, for `accept` with a `path`, and for
   * `serve`. A Hono app that mounts `routes()` knows it without this option. Default: none, so the receiver is at `/`.
   */
  readonly basePath?: string
  /** `'auto'` (default) reads each message by its shape; a pinned format makes others `unknown` events. */
  readonly format?: 'auto' | Format
  /** `true` (default) reads values by the field catalogue. `false` leaves them as they were sent, without wrappers. */
  readonly decode?: boolean
  /** Fields of your own. They extend the built-in catalogue and win over it, also in the types of `event.data`. */
  readonly fields?: Fields
  /** Where accepted messages are kept until they are handled. Default `memoryInbox()`. */
  readonly inbox?: InboxFactory
  /** When the 2xx is sent. Default `'received'` with an inbox in memory, `'stored'` with a durable one. */
  readonly ack?: Ack
  /** Handlers that run at once, over all vehicles. Default 16. */
  readonly concurrency?: number
  /**
   * When a failing handler runs again. Default with a durable inbox: for an hour, with waits from 200 ms to 60 s. In memory:
   * for a minute, with waits up to 10 s. While a handler fails for every vehicle, its circuit breaker is open, and that time
   * does not count.
   */
  readonly retry?: Partial<RetryOptions>
  /** What the receiver can do beside receiving: `vehicles(…)`, `dedupe(…)`, and parts of your own. Default: none. */
  readonly parts?: readonly (ReceiverPart | VehiclesPart<FieldName<ExtendedBy<Fields>>>)[]
  /** The longest that one run of a handler may take before its signal is aborted, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number
  readonly limits?: Partial<Limits>
  /** Gets what an operator should know. Default: the console, for warnings and errors. */
  readonly log?: Log
  /**
   * `true` logs the text of every error that a handler throws. The text can quote a payload. Default `false`: only errors with
   * a string `code`, which come from the system, the network or a database, are logged with the first line of their text. Of others, the log has
   * the plain words that neither the message nor the state of its vehicle has.
   */
  readonly logErrorText?: boolean
  /**
   * One observer, or several. They hear about refused requests, errors, dead letters and more. Default: none, which costs nothing.
   * `receiver.observe` adds one later.
   */
  readonly observe?: Observer | readonly Observer[]
  /** The clock, for tests: see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

/** The options with their defaults. `basePath` has no slash at its end. */
export interface Settings extends Required<
  Omit<ReceiverOptions, 'secret' | 'ack' | 'retry' | 'parts' | 'limits' | 'observe'>
> {
  readonly secret: Secret
  readonly ack: Ack | undefined
  /** The name of the branch. `undefined`: it is a receiver with a webhook. */
  readonly branch: string | undefined
  readonly retry: Partial<RetryOptions>
  readonly parts: readonly AnyPart[]
  readonly limits: Omit<Limits, 'bodyBytes'>
  readonly bodyBytes: Readonly<Record<Door, number>>
  readonly observe: readonly Observer[]
}

export const receiverRules: Rules<ReceiverOptions> = {
  // Checked by `createSecretCheck`, which never shows it, also when it is missing.
  secret: anything,
  format: oneOf('auto', 'service', 'vehicle_maker', 'event_collector'),
  decode: trueOrFalse,
  // The types in it are checked where they are read.
  fields: { must: "must map field names to types, for instance { CabinNoise: 'number' }", accepts: isObject },
  inbox: { must: 'must be an inbox, for instance memoryInbox()', accepts: (value) => typeof value === 'function' },
  ack: oneOf('received', 'stored', 'handled'),
  concurrency: wholeNumber(1),
  retry: { attempts: wholeNumber(1), minMs: milliseconds(0), maxMs: milliseconds(0), maxAgeMs: wholeNumber(0) },
  parts: {
    must: 'must be a list of parts, such as dedupe(…), with `vehicles(…)` at most once',
    accepts: (value) =>
      Array.isArray(value) &&
      value.every((part) => isObject(part) && ('create' in part || 'keep' in part)) &&
      value.filter((part) => 'keep' in part).length <= 1,
  },
  timeoutMs: milliseconds(1),
  limits: { bodyBytes: wholeNumber(1), pendingMessages: wholeNumber(1), pendingBytes: wholeNumber(1) },
  log: withMethods('debug', 'info', 'warn', 'error'),
  logErrorText: trueOrFalse,
  observe: {
    must: 'must be an observer, or a list of observers',
    accepts: (value) => (Array.isArray(value) ? value : [value]).every(isObserver),
  },
  clock: withMethods('now', 'after'),
  basePath: {
    must: 'must be a path that begins with /, for instance /telemetry',
    accepts: (value) => typeof value === 'string' && /^\/[^?#]*$/.test(value),
  },
}

/** Inboxes store whole milliseconds, and a clock of your own can have fractions. */
function inWholeMs(clock: Clock): Clock {
  if (clock === systemClock) return clock
  const now = (): number => Math.floor(clock.now())
  const after: Clock['after'] = (ms, run) => clock.after(ms, run)
  return clock.elapsedMs === undefined ? { now, after } : { now, after, elapsedMs: () => elapsedMs(clock) }
}

export type AnyPart = ReceiverPart | VehiclesPart

/** Options whose fields nobody has checked. */
export type GivenOptions = Omit<ReceiverOptions<never>, 'parts'> & { readonly parts?: readonly AnyPart[] }

/** Checks options and fills in the defaults. Throws a `FleethookError` that names the option, what was given and what to do. */
export function readOptions(options: GivenOptions): Settings {
  checkOptions('createReceiver', options, receiverRules)
  const { bodyBytes, pendingMessages, pendingBytes } = options.limits ?? {}
  const inbox = options.inbox ?? memoryInbox()
  return {
    secret: options.secret as Secret,
    basePath: (options.basePath ?? '').replace(/\/$/, ''),
    format: options.format ?? 'auto',
    decode: options.decode ?? true,
    fields: options.fields ?? {},
    inbox,
    ack: options.ack,
    concurrency: options.concurrency ?? 16,
    branch: undefined,
    retry: defined(options.retry),
    parts: options.parts ?? [],
    timeoutMs: options.timeoutMs ?? 30_000,
    limits: { pendingMessages, pendingBytes },
    // Relays of the collector protocol send batches of 2 MiB, and drop refused batches.
    bodyBytes: { root: bodyBytes ?? 1_048_576, collector: bodyBytes ?? 8 * 1_048_576 },
    log: options.log ?? consoleLog,
    logErrorText: options.logErrorText ?? false,
    observe: [options.observe ?? []].flat(),
    clock: options.clock === undefined ? systemClock : inWholeMs(options.clock),
  }
}
