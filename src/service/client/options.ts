import { type Clock, systemClock } from '../../base/clock.ts'
import type { RetryOptions } from '../../dispatch/retry.ts'
import { FleethookError } from '../../base/errors.ts'
import type { FieldCatalogue } from '../../events/fields.ts'
import { consoleLog, type Log } from '../../base/log.ts'
import type { Connection, Fetch } from './request.ts'
import { isLoopback } from './webhook-url.ts'

/** What {@link createClient} takes. */
export interface ClientOptions<Fields extends FieldCatalogue = FieldCatalogue> {
  /** The address of the service: the specification's `{base_url}`. */
  readonly baseUrl: string | undefined
  /** The business's bearer token. */
  readonly apiKey: string | undefined
  /** Sends the requests. Default: the platform's `fetch`. */
  readonly fetch?: Fetch
  /**
   * How idempotent requests are sent again after 429, 5xx and when no answer came; and the waits of a stream, which is connected
   * again for ever. Default `{ attempts: 4, minMs: 500, maxMs: 60_000 }`.
   */
  readonly retry?: Partial<RetryOptions>
  /** How long one attempt may take, its answer included, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number
  /** Fields of your own, which extend the built-in catalogue and win over it, as in `createReceiver`. */
  readonly fields?: Fields
  /** Where to say what an operator should know. Default: the console, warnings and errors. */
  readonly log?: Log
  /** Time, for tests: see `fakeClock` in `fleethook/testing`. */
  readonly clock?: Clock
}

const names: readonly string[] = ['baseUrl', 'apiKey', 'fetch', 'retry', 'timeoutMs', 'fields', 'log', 'clock']

/** Checks the options and fills in the defaults. Throws a `FleethookError` that names the option, and never shows the key. */
export function readConnection(options: ClientOptions): Connection {
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    throw new FleethookError('option_invalid', `There is no option \`${name}\`.`, {
      hint: `The options are ${names.join(', ')}.`,
    })
  }
  const { apiKey, fetch: given, retry = {}, timeoutMs = 30_000, log = consoleLog, clock = systemClock } = options
  const connection = {
    baseUrl: readBaseUrl(options.baseUrl),
    apiKey: readKey(apiKey),
    // As a function of its own: `fetch` of some runtimes does not like to be called as a method.
    fetch: given ?? (((url, init) => fetch(url, init)) satisfies Fetch),
    retry: {
      attempts: whole('retry.attempts', retry.attempts ?? 4),
      minMs: whole('retry.minMs', retry.minMs ?? 500, 0),
      maxMs: whole('retry.maxMs', retry.maxMs ?? 60_000, 0),
    },
    timeoutMs: whole('timeoutMs', timeoutMs),
    log,
    clock,
  }
  if (connection.baseUrl.startsWith('http:') && !isLoopback(new URL(connection.baseUrl).hostname)) {
    log.warn('the API key travels without encryption: `baseUrl` begins with http:')
  }
  return connection
}

function readBaseUrl(baseUrl: unknown): string {
  const url = typeof baseUrl === 'string' && URL.canParse(baseUrl) ? new URL(baseUrl) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new FleethookError('option_invalid', 'Option `baseUrl` must be the address of the service.', {
      hint: 'Give a URL that begins with https:, or with http: for a sandbox. Is the environment variable set?',
    })
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new FleethookError('option_invalid', 'Option `baseUrl` has more than a host and a path.', {
      hint: 'Leave out credentials, "?" and "#"; the key is `apiKey`.',
    })
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

function readKey(apiKey: unknown): string {
  if (typeof apiKey !== 'string' || apiKey === '') {
    throw new FleethookError('option_invalid', 'Option `apiKey` is missing.', {
      hint: 'Give the business’s bearer token. Is the environment variable set?',
    })
  }
  if (/^[\x21-\x7e]+$/.test(apiKey)) return apiKey
  throw new FleethookError('option_invalid', 'Option `apiKey` has blanks, line ends or characters beyond ASCII.', {
    hint: 'Give the token alone, without the word "Bearer" before it.',
  })
}

function whole(name: string, value: unknown, least = 1): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value < 2 ** 31) return value
  throw new FleethookError(
    'option_invalid',
    `Option \`${name}\` must be a whole number from ${least} up and was given ${String(value)}.`,
  )
}
