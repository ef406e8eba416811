import type { Format } from '../events/event.ts'

/** What a request may carry. */
export type PostedBody = string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>>

/** What is posted. */
export interface Posted {
  /** Below the receiver's URL. */
  readonly path?: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** A stream is made anew for each request. */
  readonly body?: PostedBody | (() => PostedBody | Promise<PostedBody>)
}

/** What came back. */
export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** How long an answer may take, in milliseconds, unless it is said otherwise. */
export const defaultPatienceMs = 15_000

const collectorScheme = 'Splunk'

/** The header as the service sends it: a secret without a scheme word gets the collector's in the collector's format. */
export function authorizationOf(secret: string, format: Format): string {
  return format === 'event_collector' && !secret.includes(' ') ? `${collectorScheme} ${secret}` : secret
}

/** Posts to a receiver by HTTP. */
export function posting({
  url,
  patienceMs = defaultPatienceMs,
}: {
  readonly url: string
  readonly patienceMs?: number
}): (posted: Posted) => Promise<Answered> {
  const base = url.replace(/\/$/, '')
  return async ({ path = '', method = 'POST', headers = {}, body: given }) => {
    const body = typeof given === 'function' ? await given() : given
    const over = new AbortController()
    const timer = setTimeout(() => over.abort(), patienceMs)
    const init: RequestInit & { readonly duplex?: 'half' } = {
      method,
      headers,
      signal: over.signal,
      ...(body === undefined ? {} : { body }),
      ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
    }
    try {
      const answer = await fetch(base + path, init)
      return { status: answer.status, headers: answer.headers, text: await answer.text() }
    } catch (cause) {
      const what = over.signal.aborted ? `was not answered within ${patienceMs} ms` : 'was not answered'
      throw new Error(`${method} ${path === '' ? 'to the receiver' : path} ${what}.`, { cause })
    } finally {
      clearTimeout(timer)
      // Ends a body that is still on its way.
      over.abort()
    }
  }
}
