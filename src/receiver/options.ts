import type { Env } from 'hono'
import { type Clock, systemClock } from '../base/clock.ts'
import type { Dedupe } from '../dispatch/duplicates.ts'
import type { RetryOptions } from '../dispatch/retry.ts'
import { FleethookError } from '../base/errors.ts'
import {
  aFunction,
  anything,
  checkOptions,
  defined,
  isObject,
  milliseconds,
  oneOf,
  required,
  type Rules,
  trueOrFalse,
  wholeNumber,
  withMethods,
} from '../base/options.ts'
import type { Format } from '../events/event.ts'
import { builtInFields, type ExtendedBy, type FieldCatalogue, type FieldName, nearestField } from '../events/fields.ts'
import type { Ack } from '../hosting/drainable.ts'
import type { DeadMessage } from '../inbox/dead-letters.ts'
import type { Secret } from '../http/secret.ts'
import { type InboxFactory, isRelayInbox, type RelayInbox } from '../inbox/inbox.ts'
import { memoryInbox } from '../inbox/memory.ts'
import type { Observer } from '../inbox/observer.ts'
import { consoleLog, type Log } from '../base/log.ts'
import { isTextList } from '../wire/record.ts'

/** The most that a receiver takes at once. */
export interface Limits {
  /** The largest body, in bytes after inflating. Default 1,048,576. */
  readonly bodyBytes: number
  /** Messages that wait or are being handled. Default 10,000 in memory; a durable inbox has its own default. */
  readonly pendingMessages: number | undefined
  /** The size of those messages, in bytes. Default 64 MiB in memory; a durable inbox has its own default. */
  readonly pendingBytes: number | undefined
}

/** What {@link createReceiver} takes. Only `secret` is required. */
export interface ReceiverOptions<E extends Env = Env, Fields extends FieldCatalogue = FieldCatalogue> {
  /**
   * The value that was set as the webhook's `auth` (specification: "Authentication of outgoing webhook messages").
   * A string, a list of strings while one secret replaces another, or a function of the runtime's `env`, called for
   * every request. An empty or missing secret throws. `false` accepts everything and has to be written out.
   */
  readonly secret: Secret<NonNullable<E['Bindings']>> | undefined
  /** `'auto'` (default) reads each message by its shape; a pinned format makes others `unknown` events. */
  readonly format?: 'auto' | Format
  /** `true` (default) reads values by the field catalogue. `false` leaves them as they were sent, without wrappers. */
  readonly decode?: boolean
  /** Fields of your own. They extend the built-in catalogue and win over it, also in the types of `event.data`. */
  readonly fields?: Fields
  /** Where accepted messages are kept until they are handled. Default `memoryInbox()`. */
  readonly inbox?: InboxFactory | RelayInbox
  /** When the 2xx is sent. Default `'received'` with an inbox in memory, `'stored'` with a durable one. */
  readonly ack?: Ack
  /** Handlers that run at once, over all vehicles. Default 16. */
  readonly concurrency?: number
  /** `'vin'` (default): one message of a VIN at a time, in order of arrival. `'none'`: any order. */
  readonly order?: 'vin' | 'none'
  /**
   * When a failing handler runs again. Default with a durable inbox: for an hour, with waits from 200 ms to 60 s. In memory:
   * for a minute, with waits up to 10 s. While a handler fails for every vehicle, its circuit breaker is open, and that time
   * does not count.
   */
  readonly retry?: Partial<RetryOptions>
  /**
   * Skips a message whose `event.id` was already handled in this process, when the two receipts are at most `withinMs`
   * milliseconds apart. Default: skips none. `stats().duplicates` counts them.
   */
  readonly dedupe?: Dedupe
  /**
   * Keeps the newest value of these fields for each vehicle, for `context.vehicle` and `context.changes`, the filter `changed`,
   * `receiver.when` and `receiver.vehicles`. `true`: all fields. Default: off. It needs an inbox that can keep them: in memory, in
   * SQLite or in Durable Objects.
   */
  readonly vehicles?: boolean | VehiclesOptions<Fields>
  /** The longest that one run of a handler may take before its signal is aborted, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number
  readonly limits?: Partial<Limits>
  /**
   * What an inbox in memory does when it is full: answers 503 (default), or first merges waiting `data` messages of one VIN.
   * Durable inboxes keep every message as it came, and refuse `'conflate'`.
   */
  readonly overflow?: 'refuse' | 'conflate'
  /** Gets what an operator should know. Default: the console, for warnings and errors. */
  readonly log?: Log
  /**
   * `true` logs the text of every error that a handler throws. The text can quote a payload. Default `false`: only errors with
   * a string `code`, which come from the system, the network or a database, are logged with the first line of their text.
   */
  readonly logErrorText?: boolean
  /** Called for every message that becomes a dead letter. */
  readonly onDeadLetter?: (letter: DeadMessage) => unknown
  /**
   * Gets reports of what happens to messages: one observer, or several. Default: none, which costs nothing. `receiver.observe`
   * adds one later.
   */
  readonly observe?: Observer | readonly Observer[]
  /** The clock, for tests: see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

/** The option `vehicles` of {@link createReceiver}. */
export interface VehiclesOptions<Fields extends FieldCatalogue = FieldCatalogue> {
  /** The fields to keep. Positions are personal data, so keep `Location` only if you need it. `'all'`: all fields. */
  readonly fields: readonly FieldName<ExtendedBy<Fields>>[] | 'all'
  /**
   * The least difference from the last value that counted, for a new number to count as a change. Default: any difference. It
   * hides the noise of a sensor, but not a slow drift.
   */
  readonly deltas?: { readonly [Name in FieldName<ExtendedBy<Fields>>]?: number }
  /** Forgets a vehicle when no message of it has come for this time, in milliseconds. At least a minute. Default: never. */
  readonly forgetAfterMs?: number
}

/** Options with every default filled in. */
export interface Settings {
  readonly secret: Secret
  readonly format: 'auto' | Format
  readonly decode: boolean
  readonly fields: FieldCatalogue
  readonly inbox: InboxFactory | RelayInbox
  readonly ack: Ack | undefined
  readonly concurrency: number
  readonly order: 'vin' | 'none'
  readonly retry: Partial<RetryOptions>
  readonly dedupe: Dedupe | undefined
  readonly vehicles: VehiclesSettings | undefined
  readonly timeoutMs: number
  readonly limits: Limits
  readonly overflow: 'refuse' | 'conflate'
  readonly log: Log
  readonly logErrorText: boolean
  readonly onDeadLetter: ((letter: DeadMessage) => unknown) | undefined
  readonly observe: readonly Observer[]
  readonly clock: Clock
}

/** The option `vehicles` with its defaults. */
interface VehiclesSettings {
  /** `undefined`: all. */
  readonly fields: readonly string[] | undefined
  readonly deltas: Readonly<Record<string, number>>
  readonly forgetAfterMs: number | undefined
}

const vehiclesRules: Rules<VehiclesOptions> = {
  fields: required(
    {
      must: "must be a list of field names, or 'all'",
      accepts: (value) => value === 'all' || (isTextList(value) && value.length > 0),
    },
    "Name the fields to keep, for instance vehicles: { fields: ['BatteryLevel', 'Gear'] }.",
  ),
  deltas: {
    must: 'must map field names to numbers above 0',
    accepts: (value) =>
      isObject(value) &&
      Object.values(value).every((delta) => typeof delta === 'number' && delta > 0 && delta < Infinity),
  },
  forgetAfterMs: wholeNumber(60_000),
}

const observerMembers: readonly (keyof Observer)[] = [
  ...(['attached', 'received', 'refused', 'tested', 'around', 'failed', 'settled', 'dead', 'gap'] as const),
]

/** Whether every member that an observer has is a function. */
const isObserver = (value: unknown): boolean =>
  isObject(value) &&
  observerMembers.every((name) => ['undefined', 'function'].includes(typeof Reflect.get(value, name)))

const rules: Rules<ReceiverOptions> = {
  // Checked by `createSecretCheck`, which never shows it, also when it is missing.
  secret: anything,
  format: oneOf('auto', 'service', 'vehicle_maker', 'event_collector'),
  decode: trueOrFalse,
  // The types in it are checked where they are read.
  fields: { must: "must map field names to types, for instance { CabinNoise: 'number' }", accepts: isObject },
  inbox: {
    must: 'must be an inbox, for instance memoryInbox()',
    accepts: (value) => typeof value === 'function' || isRelayInbox(value),
  },
  ack: oneOf('received', 'stored', 'handled'),
  concurrency: wholeNumber(1),
  order: oneOf('vin', 'none'),
  retry: {
    attempts: wholeNumber(1),
    minMs: milliseconds(0),
    maxMs: milliseconds(0),
    maxAgeMs: wholeNumber(0),
  },
  dedupe: { withinMs: required(wholeNumber(1)), maxEntries: wholeNumber(1) },
  // Checked by `readVehicles`: it can be `true`.
  vehicles: {
    must: 'must be true, or an object with `fields`',
    accepts: (value) => typeof value === 'boolean' || isObject(value),
    hint: "For instance vehicles: { fields: ['BatteryLevel', 'Gear'] }.",
  },
  timeoutMs: milliseconds(1),
  limits: { bodyBytes: wholeNumber(1), pendingMessages: wholeNumber(1), pendingBytes: wholeNumber(1) },
  overflow: oneOf('refuse', 'conflate'),
  log: withMethods('debug', 'info', 'warn', 'error'),
  logErrorText: trueOrFalse,
  onDeadLetter: aFunction,
  observe: {
    must: 'must be an observer, or a list of observers',
    accepts: (value) => (Array.isArray(value) ? value : [value]).every(isObserver),
  },
  clock: withMethods('now', 'after'),
}

/** Options whose fields nobody has checked. */
type GivenOptions = (Omit<ReceiverOptions<never, never>, 'vehicles'> | Omit<ReceiverOptions, 'vehicles'>) & {
  readonly vehicles?: unknown
}

/** Checks options and fills in the defaults. Throws a `FleethookError` that names the option, what was given and what to do. */
export function readOptions(options: GivenOptions): Settings {
  checkOptions('createReceiver', options, rules)
  return {
    secret: options.secret as Secret,
    format: options.format ?? 'auto',
    decode: options.decode ?? true,
    fields: options.fields ?? {},
    inbox: options.inbox ?? memoryInbox(),
    ack: options.ack,
    concurrency: options.concurrency ?? 16,
    order: options.order ?? 'vin',
    retry: defined(options.retry),
    dedupe: options.dedupe,
    vehicles: readVehicles(options),
    timeoutMs: options.timeoutMs ?? 30_000,
    limits: { bodyBytes: 1_048_576, pendingMessages: undefined, pendingBytes: undefined, ...defined(options.limits) },
    overflow: options.overflow ?? 'refuse',
    log: options.log ?? consoleLog,
    logErrorText: options.logErrorText ?? false,
    onDeadLetter: options.onDeadLetter,
    observe: [options.observe ?? []].flat(),
    clock: options.clock ?? systemClock,
  }
}

/** Throws `option_invalid` for unknown fields, and where the state of a vehicle could not be kept in order. */
function readVehicles(options: GivenOptions): VehiclesSettings | undefined {
  const { vehicles, order, decode, fields: ownFields = {} } = options
  if (vehicles === undefined || vehicles === false) return undefined
  if (vehicles !== true) checkOptions('createReceiver.vehicles', vehicles, vehiclesRules)
  const given: VehiclesOptions = vehicles === true ? { fields: 'all' } : vehicles
  const deltas: Readonly<Record<string, number>> = { ...given.deltas }
  const fields: readonly string[] | undefined = given.fields === 'all' ? undefined : given.fields
  const known = [...Object.keys(builtInFields), ...Object.keys(ownFields)]
  for (const name of [...(fields ?? []), ...Object.keys(deltas)]) {
    if (known.includes(name) && (fields === undefined || fields.includes(name))) continue
    const nearest = nearestField(name, fields === undefined || !known.includes(name) ? known : fields)
    const hint =
      nearest === undefined ? 'Add a field of your own to the option `fields`.' : `Did you mean \`${nearest}\`?`
    throw known.includes(name)
      ? invalid('vehicles.deltas', `names \`${name}\`, which is not among \`vehicles.fields\``, hint)
      : invalid('vehicles', `names \`${name}\`, which is not in the catalogue`, hint)
  }
  if (order === 'none') {
    const problem = "needs the order of each vehicle's messages, and option `order` is 'none'"
    throw invalid('vehicles', problem, "Leave out `order`, or set it to 'vin'.")
  }
  if (decode === false) {
    const problem = 'compares decoded values, and option `decode` is false'
    throw invalid('vehicles', problem, 'Leave out `decode`. `event.raw` has every value as it was sent.')
  }
  return { fields, deltas, forgetAfterMs: given.forgetAfterMs }
}

const invalid = (option: string, problem: string, hint: string): FleethookError =>
  new FleethookError('option_invalid', `Option \`${option}\` of createReceiver ${problem}.`, { hint })
