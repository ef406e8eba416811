import type { Format } from '../events/event.ts'

/** What is posted. */
export interface Posted {
  /** Below the receiver's URL. */
  readonly path?: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>>
}

/** What came back. */
export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

const collectorScheme = 'Splunk'

/** The header as the service sends it: a secret without a scheme word gets the collector's in the collector's format. */
export function authorizationOf(secret: string, format: Format): string {
  return format === 'event_collector' && !secret.includes(' ') ? `${collectorScheme} ${secret}` : secret
}

/** Posts to a receiver by HTTP. */
export function posting({ url }: { readonly url: string }): (posted: Posted) => Promise<Answered> {
  const base = url.replace(/\/$/, '')
  return async ({ path = '', method = 'POST', headers = {}, body }) => {
    const init: RequestInit & { readonly duplex?: 'half' } = {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
      ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
    }
    const answer = await fetch(`${base}${path === '' ? '/' : path}`, init)
    return { status: answer.status, headers: answer.headers, text: await answer.text() }
  }
}
