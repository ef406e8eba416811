import { type Clock, systemClock } from '../../base/clock.ts'
import { consoleLog, type Log } from '../../base/log.ts'
import {
  anything,
  aFunction,
  checkOptions,
  defined,
  milliseconds,
  required,
  type Rules,
  wholeNumber,
  withMethods,
} from '../../base/options.ts'
import type { RetryOptions } from '../../core/retry.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import { isJsonObject } from '../../wire/record.ts'
import { isLoopback } from './webhook-url.ts'

/**
 * The options of {@link createClient}. `baseUrl` and `apiKey` are required, so an environment variable that is not set is an
 * error at construction.
 *
 * Specification: "Authentication".
 */
export interface ClientOptions<Fields extends FieldCatalogue = FieldCatalogue> {
  /**
   * The address of the service: the specification's `{base_url}`. It can have a path, but no credentials, query or fragment.
   *
   * Or one for each region, as in `{ na: 'https://na.example.com', eu: 'https://eu.example.com' }`: a request about a product goes to the address of
   * its `region`, in any case of letters, and everything else to the first.
   */
  readonly baseUrl: string | undefined | { readonly [region: string]: string | undefined }
  /** The business's bearer token, which begins with `sk_`, without the word `Bearer`. No error and no log line shows it. */
  readonly apiKey: string | undefined
  /** Sends the requests. Default: the platform's `fetch`. */
  readonly fetch?: Fetch
  /**
   * The most attempts of an idempotent call, and the waits between them, after 429, 5xx, or no answer. A stream uses the same
   * waits, and reconnects without a limit. Default `{ attempts: 4, minMs: 500, maxMs: 60_000 }`.
   */
  readonly retry?: Partial<RetryOptions>
  /** The longest that one attempt may take, its answer included, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number
  /** Your own fields, as in `createReceiver`. They extend the built-in catalogue and win over it. */
  readonly fields?: Fields
  /** Where the client writes its warnings. Default: the console. */
  readonly log?: Log
  /** The clock of all waits and time limits. Default: the system's. For tests, see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

/** The part of the platform's `fetch` that the client uses. Pass your own to send requests through a proxy or into a test. */
export type Fetch = (url: string, init: RequestInit) => Response | Promise<Response>

/** The options of every call. */
export interface CallOptions {
  /** Cancels the call. It then rejects with the signal's reason. */
  readonly signal?: AbortSignal
}

/** The options of a read. */
export interface ReadOptions extends CallOptions {
  /** Parameters that the maker defines for this path. */
  readonly query?: Query
}

/** Query parameters. An `undefined` parameter is left out. */
export interface Query {
  readonly [name: string]: string | number | boolean | undefined
}

export interface Connection {
  /** Without a slash at its end. With several regions, the first one's. */
  readonly baseUrl: string
  /** Where a request with this path goes. */
  readonly addressOf: (path: string) => string | Promise<string>
  readonly apiKey: string
  readonly fetch: Fetch
  readonly retry: RetryOptions
  readonly timeoutMs: number
  readonly clock: Clock
  readonly log: Log
}

export interface ServiceRequest {
  readonly method: 'GET' | 'PUT' | 'PATCH' | 'POST' | 'DELETE'
  /** The path below the base address, with its segments already escaped. */
  readonly path: string
  readonly query?: Query | undefined
  /** Sent as JSON. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Sending the request twice has the same effect as sending it once, so it may be retried. */
  readonly idempotent: boolean
  /** After a retry, an error with this code shows that an earlier attempt took effect although its answer was lost. */
  readonly doneCode?: string
  /** A value in the body that no error may show, even if the service quotes it. */
  readonly secret?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** A request as errors name it: without its query, its headers and its body. */
export function nameOf({ method, path }: ServiceRequest): string {
  return `${method} ${path}`
}

const rules: Rules<ClientOptions> = {
  baseUrl: {
    ...required(
      { must: 'must be the address of the service, or one for each region', accepts: isBaseUrlOrEach },
      'Give a URL with https:, or with http: for a sandbox, and with a host and a path only. Is the environment variable set?',
    ),
    // It may hold a password.
    isSecret: true,
  },
  apiKey: {
    ...required(
      { must: 'must be the bearer token, in visible ASCII and without spaces', accepts: isToken },
      'Give the token alone, without the word "Bearer" before it. Is the environment variable set?',
    ),
    isSecret: true,
  },
  fetch: aFunction,
  retry: { attempts: wholeNumber(1), minMs: milliseconds(0), maxMs: milliseconds(0) },
  timeoutMs: milliseconds(1),
  // The normalizer checks the types of the fields.
  fields: anything,
  log: withMethods('debug', 'info', 'warn', 'error'),
  clock: withMethods('now', 'after'),
}

export function readConnection(options: ClientOptions): {
  readonly connection: Connection
  readonly addresses: ReadonlyMap<string, string>
} {
  checkOptions('createClient', options, rules)
  const { log = consoleLog, clock = systemClock, timeoutMs = 30_000 } = options
  const addresses = addressesIn(options.baseUrl)
  const [baseUrl = ''] = addresses.values()
  if ([...addresses.values()].some(isOpen)) {
    // What to do: Use `https:`, except for a sandbox on your machine.
    log.warn('the API key travels without encryption: `baseUrl` begins with http:')
  }
  const connection = {
    baseUrl,
    addressOf: () => baseUrl,
    apiKey: options.apiKey ?? '',
    // Some runtimes throw when their `fetch` is called as a method of another object.
    fetch: options.fetch ?? (((url, init) => fetch(url, init)) satisfies Fetch),
    retry: { attempts: 4, minMs: 500, maxMs: 60_000, ...defined(options.retry) },
    timeoutMs,
    log,
    clock,
  }
  return { connection, addresses }
}

/** The addresses by region, in lower case. A single one belongs to no region. */
function addressesIn(given: ClientOptions['baseUrl'] = ''): ReadonlyMap<string, string> {
  const each = typeof given === 'string' ? [['', given] as const] : Object.entries(given)
  return new Map(
    each.map(([region, address = '']) => {
      const { origin, pathname } = new URL(address)
      return [region.toLowerCase(), `${origin}${pathname.replace(/\/+$/, '')}`]
    }),
  )
}

function isOpen(address: string): boolean {
  const { protocol, hostname } = new URL(address)
  return protocol === 'http:' && !isLoopback(hostname)
}

function isBaseUrlOrEach(value: unknown): boolean {
  if (!isJsonObject(value)) return isBaseUrl(value)
  const each = Object.values(value)
  return each.length > 0 && each.every(isBaseUrl)
}

function isBaseUrl(value: unknown): boolean {
  if (typeof value !== 'string' || !URL.canParse(value)) return false
  const { protocol, username, password, search, hash } = new URL(value)
  return /^https?:$/.test(protocol) && `${username}${password}${search}${hash}` === ''
}

function isToken(value: unknown): boolean {
  return typeof value === 'string' && /^[\x21-\x7e]+$/.test(value)
}
