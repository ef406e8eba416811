import type { Env } from 'hono'
import { type Clock, systemClock } from './clock.ts'
import type { Dedupe } from './dispatch/duplicates.ts'
import type { RetryOptions } from './dispatch/retry.ts'
import { FleethookError } from './errors.ts'
import type { Format, FleetEvent } from './events/event.ts'
import type { FieldCatalogue } from './events/fields.ts'
import type { MalformedBody } from './events/malformed.ts'
import type { Secret } from './http/secret.ts'
import type { Durability, InboxFactory } from './inbox/inbox.ts'
import { memoryInbox } from './inbox/memory.ts'
import { isRelay, type RelayInbox } from './inbox/relay.ts'
import { consoleLog, type Log } from './log.ts'

/** When the 2xx is sent: on receipt, once the inbox has made the message durable, once all its handlers are done. */
export type Ack = 'received' | 'stored' | 'handled'

/** How much a receiver takes in at once. */
export interface Limits {
  /** The largest body, in bytes after inflating. Default 1,048,576. */
  readonly bodyBytes: number
  /** Messages that wait or are being handled. Default 10,000 in memory; a durable inbox says its own. */
  readonly pendingMessages: number | undefined
  /** The size of those messages, in bytes. Default 64 MiB in memory; a durable inbox says its own. */
  readonly pendingBytes: number | undefined
}

/** A message that was given up, with why. */
export interface DeadMessage {
  /** The delivery's id, for `receiver.deadLetters.replay(id)`. */
  readonly id: string
  readonly event: FleetEvent | MalformedBody
  /** The name and message of the last error of the last handler that failed. */
  readonly error: string
  readonly attempts: number
  readonly diedAt: Date
}

/** What {@link createReceiver} takes. Only `secret` is required. */
export interface ReceiverOptions<E extends Env = Env, Fields extends FieldCatalogue = FieldCatalogue> {
  /**
   * The value that was set as the webhook's `auth` (specification: "Authentication of outgoing webhook messages").
   * A string, a list of strings while one secret replaces another, or a function of the runtime's `env`, called for
   * every request. Empty or missing throws. `false` accepts everything and has to be written out.
   */
  readonly secret: Secret<NonNullable<E['Bindings']>> | undefined
  /** `'auto'` (default) reads each message by its shape; a pinned format makes others `unknown` events. */
  readonly format?: 'auto' | Format
  /** `true` (default) reads values by the field catalogue; `false` leaves them as they were sent, without wrappers. */
  readonly decode?: boolean
  /** Fields of your own, which extend the built-in catalogue and win over it. The types of `event.data` follow. */
  readonly fields?: Fields
  /** Where accepted messages are kept until they are handled. Default `memoryInbox()`. */
  readonly inbox?: InboxFactory | RelayInbox
  /** When the 2xx is sent. Default `'received'` with an inbox in memory, `'stored'` with a durable one. */
  readonly ack?: Ack
  /** Handlers that run at once, over all vehicles. Default 16. */
  readonly concurrency?: number
  /** `'vin'` (default): one message of a VIN at a time, in order of arrival. `'none'`: any order. */
  readonly order?: 'vin' | 'none'
  /** How a failing handler is run again. Default `{ attempts: 5, minMs: 200, maxMs: 30_000 }`. */
  readonly retry?: Partial<RetryOptions>
  /**
   * Passes over messages that say what one said that was handled, by `event.id`: within `withinMs` milliseconds of its
   * receipt, in this process. Default: none are. `stats().duplicates` counts them.
   */
  readonly dedupe?: Dedupe
  /** How long one run of a handler may take before its signal is aborted, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number
  readonly limits?: Partial<Limits>
  /**
   * What an inbox in memory does when it is full: answer 503 (default), or first merge queued `data` of one VIN. Durable inboxes
   * keep every message as it came, and refuse `'conflate'`.
   */
  readonly overflow?: 'refuse' | 'conflate'
  /** Where to say what an operator should know. Default: the console, warnings and errors. */
  readonly log?: Log
  /** Called for every message that is given up, after its last attempt. */
  readonly onDeadLetter?: (letter: DeadMessage) => unknown
  /** Time, for tests: see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
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
  readonly retry: RetryOptions
  readonly dedupe: Dedupe | undefined
  readonly timeoutMs: number
  readonly limits: Limits
  readonly overflow: 'refuse' | 'conflate'
  readonly log: Log
  readonly onDeadLetter: ((letter: DeadMessage) => unknown) | undefined
  readonly clock: Clock
}

/** What a value must be, and how to say so. */
type Rule = readonly [isRight: (value: unknown) => boolean, must: string]
interface Rules {
  readonly [option: string]: Rule | Rules
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null
const isFunction = (value: unknown): boolean => typeof value === 'function'

/** The longest that a timer of any runtime can wait. */
const longestMs = 2_147_483_647

const whole = (least: number, most: number = Number.MAX_SAFE_INTEGER): Rule => [
  (value) => Number.isSafeInteger(value) && Number(value) >= least && Number(value) <= most,
  most === longestMs
    ? `must be whole milliseconds from ${least} to ${most}`
    : `must be a whole number from ${least} up`,
]
const oneOf = (...values: readonly unknown[]): Rule => [
  (value) => values.includes(value),
  `must be ${values.map(shown).join(' or ')}`,
]
const methods = (...names: readonly string[]): Rule => [
  (value) => isObject(value) && names.every((name) => isFunction(value[name])),
  `must be an object with the methods ${names.join(', ')}`,
]

const rules: Rules = {
  // Looked at where it is prepared, so that its value is never near an error text.
  secret: [() => true, ''],
  format: oneOf('auto', 'service', 'vehicle_maker', 'event_collector'),
  decode: oneOf(true, false),
  // Its types are looked at where they are read.
  fields: [isObject, "must map names of fields to types, for instance { CabinNoise: 'number' }"],
  inbox: [(value) => isFunction(value) || isRelay(value), 'must be an inbox, for instance memoryInbox()'],
  ack: oneOf('received', 'stored', 'handled'),
  concurrency: whole(1),
  order: oneOf('vin', 'none'),
  retry: { attempts: whole(1), minMs: whole(0, longestMs), maxMs: whole(0, longestMs) },
  dedupe: { withinMs: whole(1), maxEntries: whole(1) },
  timeoutMs: whole(1, longestMs),
  limits: { bodyBytes: whole(1), pendingMessages: whole(1), pendingBytes: whole(1) },
  overflow: oneOf('refuse', 'conflate'),
  log: methods('debug', 'info', 'warn', 'error'),
  onDeadLetter: [isFunction, 'must be a function'],
  clock: methods('now', 'after'),
}

/** Checks options and fills in the defaults. Throws a `FleethookError` that names the option, what was given and what to do. */
export function readOptions(options: ReceiverOptions<never, never> | ReceiverOptions): Settings {
  if (!isObject(options) || Array.isArray(options)) {
    // Not its value: who gives something else than options gives the secret.
    throw new FleethookError(
      'option_invalid',
      `createReceiver takes an object of options and was given ${kind(options)}.`,
      {
        hint: 'Call createReceiver({ secret }).',
      },
    )
  }
  check(options, rules, '')
  if (options.secret === undefined) {
    throw new FleethookError('secret_missing', 'Option `secret` is missing.', {
      hint: 'Give the value that was set as `auth` of the webhook (is the environment variable set?), or write out `secret: false` to accept everything.',
    })
  }
  return {
    secret: options.secret as Secret,
    format: options.format ?? 'auto',
    decode: options.decode ?? true,
    fields: options.fields ?? {},
    inbox: options.inbox ?? memoryInbox(),
    ack: options.ack,
    concurrency: options.concurrency ?? 16,
    order: options.order ?? 'vin',
    retry: { attempts: 5, minMs: 200, maxMs: 30_000, ...defined(options.retry) },
    dedupe: dedupeOf(options.dedupe),
    timeoutMs: options.timeoutMs ?? 30_000,
    limits: { bodyBytes: 1_048_576, pendingMessages: undefined, pendingBytes: undefined, ...defined(options.limits) },
    overflow: options.overflow ?? 'refuse',
    log: options.log ?? consoleLog,
    onDeadLetter: options.onDeadLetter,
    clock: options.clock ?? systemClock,
  }
}

function dedupeOf(given: Dedupe | undefined): Dedupe | undefined {
  if (given !== undefined && given.withinMs === undefined)
    throw new FleethookError('option_invalid', 'Option `dedupe` needs `withinMs`, in milliseconds.')
  return given
}

/** Which promise the 2xx makes, by the inbox. Throws `ack_unavailable` for one that the inbox cannot keep. */
export function chooseAck(ack: Ack | undefined, durability: Durability): Ack {
  if (ack === 'stored' && durability === 'memory') {
    throw new FleethookError(
      'ack_unavailable',
      "Option `ack` is 'stored' and the inbox keeps messages in memory only.",
      {
        hint: "Use a durable inbox, or ack: 'received' or 'handled'.",
      },
    )
  }
  return ack ?? (durability === 'memory' ? 'received' : 'stored')
}

/** Options written as `undefined` are options not given. */
function defined<T extends object>(part: T | undefined): Partial<T> {
  return Object.fromEntries(Object.entries(part ?? {}).filter(([, value]) => value !== undefined)) as Partial<T>
}

function check(options: Readonly<Record<string, unknown>>, allowed: Rules, prefix: string): void {
  for (const [key, value] of Object.entries(options)) {
    const name = prefix + key
    const rule = Object.hasOwn(allowed, key) ? allowed[key] : undefined
    if (rule === undefined) {
      throw new FleethookError('option_invalid', `There is no option \`${name}\`.`, {
        hint: `The options here are ${Object.keys(allowed).join(', ')}.`,
      })
    }
    if (value === undefined) continue
    if (!isRule(rule)) {
      if (!isObject(value)) throw invalid(name, `must be an object of ${Object.keys(rule).join(', ')}`, value)
      check(value, rule, `${name}.`)
      continue
    }
    const [isRight, must] = rule
    if (!isRight(value)) throw invalid(name, must, value)
  }
}

const isRule = (rule: Rule | Rules): rule is Rule => Array.isArray(rule)

function invalid(name: string, must: string, value: unknown): FleethookError {
  return new FleethookError('option_invalid', `Option \`${name}\` ${must} and was given ${shown(value)}.`)
}

function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value.slice(0, 40)}'`
  return isObject(value) || typeof value === 'function' ? kind(value) : String(value)
}

function kind(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  return Array.isArray(value) ? 'a list' : `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
}
