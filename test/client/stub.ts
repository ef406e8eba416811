import { type Client, type ClientOptions, createClient } from 'fleethook/client'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { remember, type Remembered } from '../http/ways.ts'

export const apiKey = 'the-key-of-the-business'
export const baseUrl = 'https://service.example'
export const vin = '0FLEETV14T0000004'

/** One request to the stub. */
export interface Asked {
  readonly method: string
  /** With the query. */
  readonly path: string
  readonly headers: Headers
  readonly body: unknown
}

export interface Stub {
  readonly client: Client
  readonly asked: readonly Asked[]
  /** As `GET /path`, in order. */
  readonly lines: () => readonly string[]
  readonly log: Remembered
  readonly clock: FakeClock
}

type Answering = (asked: Asked, init: RequestInit) => Response | Promise<Response>

/** A client whose requests get these answers in order. The last answer repeats. */
export function stub(answers: Answering | readonly Answering[], options: Partial<ClientOptions> = {}): Stub {
  const asked: Asked[] = []
  const log = remember()
  const clock = fakeClock()
  const list = typeof answers === 'function' ? [answers] : answers
  const client = createClient({
    baseUrl,
    apiKey,
    log,
    clock,
    fetch: async (url, init) => {
      const request = new Request(url, init)
      const { pathname, search } = new URL(url)
      const text = await request.text()
      const body: unknown = text === '' ? undefined : JSON.parse(text)
      const next: Asked = { method: request.method, path: `${pathname}${search}`, headers: request.headers, body }
      asked.push(next)
      const answering = list[Math.min(asked.length, list.length) - 1]
      if (answering === undefined) throw new Error('The stub has no answer.')
      return answering(next, init)
    },
    ...options,
  })
  return { client, asked, lines: () => asked.map(({ method, path }) => `${method} ${path}`), log, clock }
}

/** A JSON answer. */
export function json(body: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): () => Response {
  return () =>
    new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json', ...headers } })
}

/** An error answer, in the shape of our reading of the specification. */
export function refusal(status: number, error: string, headers: Readonly<Record<string, string>> = {}): () => Response {
  return json({ response: null, error, error_description: `The service says ${error}` }, status, headers)
}

/** The reason of a rejected promise. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => {
      throw new Error('The promise was not rejected.')
    },
    (error: unknown) => error,
  )
}
