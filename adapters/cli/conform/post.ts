import { readWithin } from '../../../src/base/read-within.ts'
import { exchange } from '../exchange.ts'

export type PostedBody = string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>>

export interface Posted {
  /** Below the receiver's URL. */
  readonly path?: string
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** The names of the headers are sent in capitals. Not for streams. */
  readonly isInCapitals?: true
  /** A stream is given as a function, because each request needs a new one. */
  readonly body?: PostedBody | (() => PostedBody | Promise<PostedBody>)
}

export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** More than any answer of a receiver has, in bytes. */
const mostBytes = 1_048_576

/** The default of the longest wait for an answer, in milliseconds. */
export const defaultPatienceMs = 15_000

/** Makes a function that posts to a receiver over HTTP. */
export function posting({
  url,
  patienceMs = defaultPatienceMs,
}: {
  readonly url: string
  readonly patienceMs?: number
}): (posted: Posted) => Promise<Answered> {
  const base = url.replace(/\/$/, '')
  return async ({ path = '', method = 'POST', headers = {}, isInCapitals, body: given }) => {
    const body = typeof given === 'function' ? await given() : given
    if (isInCapitals && typeof body === 'string') return inCapitals(base + path, headers, body, patienceMs)
    const over = new AbortController()
    const timer = setTimeout(() => over.abort(), patienceMs)
    const init: RequestInit & { readonly duplex?: 'half' } = {
      method,
      headers,
      signal: over.signal,
      // The service follows none.
      redirect: 'manual',
      body: body ?? null,
      duplex: 'half',
    }
    try {
      const answer = await fetch(base + path, init)
      return {
        status: answer.status,
        headers: answer.headers,
        text: new TextDecoder().decode(await readWithin(answer, { mostBytes, mostMs: patienceMs })),
      }
    } catch (cause) {
      const what = over.signal.aborted ? `was not answered within ${patienceMs} ms` : 'was not answered'
      throw new Error(`${method} ${path === '' ? 'to the receiver' : path} ${what}.`, { cause })
    } finally {
      clearTimeout(timer)
      // Ends a body that is still being sent.
      over.abort()
    }
  }
}

/** `fetch` writes the names of headers in small letters. Other senders do not. */
async function inCapitals(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string,
  patienceMs: number,
): Promise<Answered> {
  const names = Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value])
  const signal = AbortSignal.timeout(patienceMs)
  const { status, text } = await exchange(url, { agent: false, headers: Object.fromEntries(names), body, signal })
  return { status, headers: new Headers(), text }
}
