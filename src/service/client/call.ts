import type * as z from 'zod/mini'
import { type Clock, pause } from '../../base/clock.ts'
import { backoffMs } from '../../core/retry.ts'
import { isJsonObject } from '../../wire/record.ts'
import { type ReadLimits, readWithin } from '../../base/read-within.ts'
import { type Connection, nameOf, type ReadOptions, type ServiceRequest } from './connection.ts'
import { refusalOf, ServiceError } from './service-error.ts'

/** Sends a request, retries it where that is allowed, and reads the answer. */
export type Call = <T>(request: ServiceRequest, read: (answer: Response) => T | Promise<T>) => Promise<T>

/**
 * Makes calls with a time limit for each attempt. Retries an idempotent request after 429, 5xx or no answer, never
 * before `Retry-After`, and not when that is longer than `retry.maxMs`.
 */
export function createCall(connection: Connection): Call {
  const { clock, retry, timeoutMs } = connection

  return async (request, read) => {
    const { signal } = request
    const sent: Sent = { to: undefined }
    const onTimeout = (): Error => timedOut(request, sent, timeoutMs, 'Raise `timeoutMs`, or try again later.')
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await withDeadline({ clock, ms: timeoutMs, signal, onTimeout }, (given) =>
          sendOnce(connection, request, given, read, sent),
        )
      } catch (error) {
        const { doneCode } = request
        if (attempt > 1 && doneCode !== undefined && error instanceof ServiceError && error.code === doneCode) {
          return await read(new Response(null, { status: 204 }))
        }
        const waitMs = backoffMs(retry, attempt)
        const askedMs = error instanceof ServiceError ? (error.retryAfterMs ?? 0) : 0
        const isLast = !request.idempotent || attempt >= retry.attempts
        if (isLast || !isTransient(error) || askedMs > retry.maxMs) throw error
        await pause(clock, Math.max(waitMs, askedMs), signal)
      }
    }
  }
}

export function isTransient(error: unknown): boolean {
  if (!(error instanceof ServiceError)) return false
  const { code, status } = error
  return status === undefined ? code === 'unreachable' || code === 'timeout' : status === 429 || status >= 500
}

interface Deadline {
  readonly clock: Clock
  readonly ms: number
  /** Makes the error to reject with when the time limit is reached. */
  readonly onTimeout: () => Error
  readonly signal: AbortSignal | undefined
}

/** Runs with a time limit. Rejects with `onTimeout()` or the signal's reason even when `run` ignores its signal. */
export function withDeadline<T>(deadline: Deadline, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const { clock, ms, signal, onTimeout } = deadline
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const controller = new AbortController()
    const stop = (reason: unknown): void => {
      done()
      reject(reason) // oxlint-disable-line prefer-promise-reject-errors -- the caller chooses the reason
      controller.abort(reason)
    }
    const abandon = (): void => stop(signal?.reason)
    const timer = clock.after(ms, () => stop(onTimeout()))
    signal?.addEventListener('abort', abandon, { once: true })
    const done = (): void => {
      timer.cancel()
      signal?.removeEventListener('abort', abandon)
    }
    run(controller.signal).finally(done).then(resolve, reject)
  })
}

/** Where a request was sent. It has no credentials: `baseUrl` may have none. `undefined`: its region is not known yet. */
export interface Sent {
  to: string | undefined
}

const from = ({ to }: Sent): string => (to === undefined ? '' : ` from ${to}`)

export function timedOut(request: ServiceRequest, sent: Sent, ms: number, hint?: string): ServiceError {
  return new ServiceError('timeout', `${nameOf(request)}: no answer${from(sent)} within ${ms} ms.`, { hint })
}

/** Sends a request once. Resolves to what `read` returns for a 2xx, and rejects with a `ServiceError` for all else. */
export async function sendOnce<T>(
  connection: Connection,
  request: ServiceRequest,
  signal: AbortSignal,
  read: (answer: Response) => T | Promise<T>,
  sent: Sent,
): Promise<T> {
  const init = initOf(connection, request, signal)
  try {
    sent.to = await connection.addressOf(request.path)
    const answer = await connection.fetch(urlOf(sent.to, request), init)
    if (!answer.ok) throw await refusalOf(answer, request, connection)
    return await read(answer)
  } catch (error) {
    if (error instanceof ServiceError) throw error
    if (signal.aborted) throw signal.reason
    throw new ServiceError('unreachable', `${nameOf(request)}: no answer${from(sent)}, ${reasonOf(error)}.`, {
      hint: 'Is `baseUrl` right, and can this machine reach it?',
      cause: error,
    })
  }
}

function urlOf(address: string, { path, query = {} }: ServiceRequest): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, String(value))
  }
  const written = parameters.toString()
  return `${address}${path}${written === '' ? '' : `?${written}`}`
}

function initOf({ apiKey }: Connection, request: ServiceRequest, signal: AbortSignal): RequestInit {
  const { method, body, headers } = request
  return {
    method,
    headers: {
      accept: 'application/json',
      ...headers,
      authorization: `Bearer ${apiKey}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    body: body === undefined ? null : JSON.stringify(body),
    // A redirection must not carry the key to another host.
    redirect: 'manual',
    signal,
  }
}

/** Why there was no answer. The error of `fetch` has the reason in its cause. */
function reasonOf(error: unknown): string {
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (!(inner instanceof Error)) return `a ${typeof inner} was thrown`
  const code = 'code' in inner && typeof inner.code === 'string' ? inner.code : undefined
  return code ?? inner.message.slice(0, 200)
}

/** A read, which may be sent twice. */
export function get(path: string, { query, signal }: ReadOptions = {}): ServiceRequest {
  return { method: 'GET', path, query, idempotent: true, signal }
}

/** Sends a request and checks the content of the wrapper in its answer. */
export function send<T>(call: Call, request: ServiceRequest, schema: z.ZodMiniType<T>): Promise<T> {
  return call(request, async (answer) => checkBody(schema, unwrapped(await readJson(answer, request)), request))
}

/** The largest answer that the client reads, in bytes: some hundred thousand products. */
const mostBytes = 32 * 1_048_576
/** The time limit of a call includes its answer. */
const limits: ReadLimits = { mostBytes, mostMs: Infinity }

/** Reads the body of an answer. Rejects with `answer_unreadable` when it is larger than any of the service. */
export async function readBytes(answer: Response, request: ServiceRequest): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await readWithin(answer, limits)
  if (bytes !== undefined) return bytes
  throw new ServiceError(
    'answer_unreadable',
    `${nameOf(request)} was answered with ${answer.status} and more than ${mostBytes / 1_048_576} MiB.`,
    {
      status: answer.status,
      hint: 'Ask for less: a shorter time, or fewer items in a page. Is `baseUrl` the address of the service?',
    },
  )
}

/** Reads the JSON of an answer. An empty body is `undefined`. */
export async function readJson(answer: Response, request: ServiceRequest): Promise<unknown> {
  const text = new TextDecoder().decode(await readBytes(answer, request))
  if (text.trim() === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new ServiceError(
      'answer_unreadable',
      `${nameOf(request)} was answered with ${answer.status} and ${text.length} characters that are not JSON.`,
      { status: answer.status, hint: 'Is `baseUrl` the address of the service, and not of a web page?' },
    )
  }
}

/** Takes a body out of the wrapper that most answers have: `{"response": …}`. */
export function unwrapped(body: unknown): unknown {
  return isJsonObject(body) && 'response' in body ? body['response'] : body
}

/** Checks a body against its schema. Members that the schema does not name stay. */
export function checkBody<T>(schema: z.ZodMiniType<T>, value: unknown, request: ServiceRequest): T {
  const { data, error } = schema.safeParse(value)
  if (error === undefined) return data
  const [issue] = error.issues
  const place = issue === undefined || issue.path.length === 0 ? 'its top level' : `\`${issue.path.join('.')}\``
  throw new ServiceError(
    'answer_unreadable',
    `${nameOf(request)} was answered in a shape that the specification does not give: at ${place}.`,
    { hint: 'Is `baseUrl` the address of the service? If so, a newer fleethook may know this answer.' },
  )
}

/** One segment of a path. Refuses all but letters, digits, `_` and `-`: a VIN from outside must not change the path. */
export function segment(what: string, value: string | number): string {
  const text = String(value)
  if (/^[\w-]+$/.test(text)) return text
  throw new ServiceError('invalid_request', `${what} ${JSON.stringify(text.slice(0, 40))} is not valid.`, {
    hint: 'It can have letters, digits, "_" and "-" only.',
  })
}
