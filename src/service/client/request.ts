import type { Clock } from '../../base/clock.ts'
import type { RetryOptions } from '../../dispatch/retry.ts'
import type { Log } from '../../base/log.ts'

/** What every request needs. */
export interface Connection {
  /** Without a slash at its end. */
  readonly baseUrl: string
  readonly apiKey: string
  readonly fetch: Fetch
  readonly retry: RetryOptions
  readonly timeoutMs: number
  readonly clock: Clock
  readonly log: Log
}

/** As much of the platform's `fetch` as the client uses. */
export type Fetch = (url: string, init: RequestInit) => Response | Promise<Response>

/** One request to the service. */
export interface ServiceRequest {
  readonly method: 'GET' | 'PUT' | 'PATCH' | 'POST' | 'DELETE'
  /** Below the base address, its segments already escaped. */
  readonly path: string
  readonly query?: Query | undefined
  /** Sent as JSON. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Sending it twice leaves the same behind as sending it once, so that it may be sent again. */
  readonly idempotent: boolean
  /** A value in the body that must not show up in an error, whatever the service says about it. */
  readonly secret?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** Parameters of a query; `undefined` leaves one out. */
export interface Query {
  readonly [name: string]: string | number | boolean | undefined
}

/** The URL of a request. */
export function urlOf(baseUrl: string, { path, query = {} }: ServiceRequest): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, String(value))
  }
  const written = parameters.toString()
  return `${baseUrl}${path}${written === '' ? '' : `?${written}`}`
}

/** A request as errors name it: without its query, its headers and its body. */
export function nameOf({ method, path }: ServiceRequest): string {
  return `${method} ${path}`
}
