import { type Clock, pause, systemClock } from '../../base/clock.ts'
import { checkOptions, oneOf, type Rule, type Rules, required, wholeNumber } from '../../base/options.ts'
import { refuse } from './answers.ts'

/** How the next answers fail. */
export type FailureKind = '500' | '502' | '429' | 'slow' | 'cut'

const failureKinds: readonly FailureKind[] = ['500', '502', '429', 'slow', 'cut']

/**
 * Which answers fail, and how.
 *
 * @example
 * ```ts
 * import { createSandbox } from 'fleethook/sandbox'
 *
 * const sandbox = createSandbox({ apiKey: 'a-key-of-the-test', speed: 0 })
 * sandbox.fail({ kind: '502', count: 2, path: '/api/config' })
 * await sandbox.close()
 * ```
 */
export interface Failure {
  /**
   * `'500'` and `'502'` answer with that status, `'429'` also with `Retry-After`. `'slow'` waits before the answer. `'cut'` breaks
   * the connection in the middle of the answer.
   */
  readonly kind: FailureKind
  /** The number of answers that fail, from 1. Default 1. */
  readonly count?: number
  /** Only paths that begin with this. Default: all paths but the controls. */
  readonly path?: string
  /** How long `'slow'` waits. Default 3,000. */
  readonly delayMs?: number
  /** The seconds in `Retry-After` of `'429'`. Default 1. */
  readonly retryAfterSeconds?: number
}

const beginning: Rule = {
  must: 'must be the beginning of a path, such as /api/1/',
  accepts: (value) => typeof value === 'string' && value.startsWith('/'),
}
const rules: Rules<Failure> = {
  kind: required(oneOf(...failureKinds)),
  count: wholeNumber(1, 1_000_000),
  path: beginning,
  delayMs: wholeNumber(0, 600_000),
  retryAfterSeconds: wholeNumber(0, 86_400),
}

/** Checks a failure. Throws `option_invalid`. */
export function checkFailure(failure: unknown): asserts failure is Failure {
  checkOptions('fail', failure, rules)
}

/** Makes answers fail: those that a test asked for, and those over the rate limit. */
export interface Faults {
  fail(failure: Failure): void
  clear(): void
  /** Answers a request. Once its signal is aborted, nobody waits for the answer. */
  answer(path: string, signal: AbortSignal, next: () => Promise<Response>): Promise<Response>
  /** Ends the waits. */
  close(): void
}

const windowMs = 60_000
const cutMs = 20

/** Counts requests and failures. */
export function createFaults(clock: Clock, rateLimit: number | undefined): Faults {
  let failures: { readonly failure: Failure; left: number }[] = []
  const closing = new AbortController()
  let windowEndsAt = 0
  let requests = 0

  const tooMany = (seconds: number): Response =>
    refuse('too_many_requests', `Too many requests. Wait ${seconds} seconds, as Retry-After says.`, {
      'retry-after': String(seconds),
    })

  function limited(): Response | undefined {
    if (rateLimit === undefined) return undefined
    const now = clock.now()
    if (now >= windowEndsAt) {
      windowEndsAt = now + windowMs
      requests = 0
    }
    requests += 1
    return requests > rateLimit ? tooMany(Math.max(1, Math.ceil((windowEndsAt - now) / 1_000))) : undefined
  }

  function taken(path: string): Failure | undefined {
    const entry = failures.find(({ failure }) => path.startsWith(failure.path ?? '/'))
    if (entry === undefined) return undefined
    entry.left -= 1
    failures = failures.filter(({ left }) => left > 0)
    return entry.failure
  }

  return {
    fail: (failure) => void failures.push({ failure, left: failure.count ?? 1 }),
    clear: () => void (failures = []),
    async answer(path, signal, next) {
      const refused = limited()
      if (refused !== undefined) return refused
      const failure = taken(path)
      switch (failure?.kind) {
        case '500':
          return refuse('internal_error', 'The sandbox was asked to fail with 500. Try again.')
        case '502':
          // As a proxy in front of the service answers: not JSON.
          return new Response('<html><body><h1>502 Bad Gateway</h1></body></html>', {
            status: 502,
            headers: { 'content-type': 'text/html' },
          })
        case '429':
          return tooMany(failure.retryAfterSeconds ?? 1)
        case 'slow':
          await pause(clock, failure.delayMs ?? 3_000, closing.signal).catch(() => {})
          // A request whose sender gave up is not carried out later, after the requests that followed it.
          return signal.aborted ? refuse('internal_error', 'Nobody waits for this answer.') : next()
        case 'cut':
          return cut(await next())
        default:
          return next()
      }
    },
    close: () => closing.abort(),
  }
}

/** An answer whose connection breaks: after half of the body, or after the first chunk of a stream. */
async function cut(answer: Response): Promise<Response> {
  const headers = new Headers(answer.headers)
  let first: Uint8Array<ArrayBuffer>
  if (headers.get('content-type') === 'text/event-stream' && answer.body !== null) {
    const reader = answer.body.getReader()
    first = new Uint8Array((await reader.read()).value ?? [])
    await reader.cancel()
  } else {
    const whole = new Uint8Array(await answer.arrayBuffer())
    // The length of the whole answer, so that the reader notices that the rest is missing.
    headers.set('content-length', String(Math.max(2, whole.length)))
    first = whole.length < 2 ? new Uint8Array([123]) : whole.slice(0, Math.ceil(whole.length / 2))
  }
  let sent = false
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (!sent) {
        sent = true
        return controller.enqueue(first)
      }
      // Waits in real time: a server that reads ahead would turn an error that comes at once into an answer of its own.
      systemClock.after(cutMs, () => controller.error(new Error('The sandbox was asked to cut this answer.')))
      return undefined
    },
  })
  return new Response(body, { status: answer.status, headers })
}
