import { backgroundTimer, type Clock, type Timer } from '../base/clock.ts'
import { guarded, type Log } from '../base/log.ts'
import type { RuntimeRefusal } from '../hosting/drainable.ts'
import { hintOf, type Refusal, type RefusalError, statusOf } from '../http/answers.ts'
import type { Door } from '../http/paths.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { RefusedRequest } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Observers } from './observers.ts'

/** What the receiver knows about a refused request beside the reason. */
interface RefusedDetails {
  readonly door?: Door
  /** Messages that were read and not kept. */
  readonly messages?: readonly Pick<InboxMessage, 'lane'>[]
  readonly isTest?: boolean
}

/** Counts, reports and logs refused requests. */
export interface Refusals {
  /** The number of refused requests by reason. */
  readonly counts: Readonly<Record<string, number>>
  note(refusal: Refusal, details?: RefusedDetails): void
  /** A request was refused before the receiver saw it. */
  noteByRuntime(error: RuntimeRefusal): void
  /** Logs what was counted since the last line. */
  flush(): void
  /** The receiver has drained: logs what was counted since the last line, and starts no timer any more. */
  stop(): void
}

/** The receiver does not know who sent a request that it refused for one of these reasons. */
const ofStrangers: ReadonlySet<string> = /* @__PURE__ */ new Set<RefusalError>([
  'request_unreadable',
  'authorization_missing',
  'authorization_scheme',
  'secret_wrong',
  'secret_unavailable',
  'path_unknown',
  'method_not_allowed',
])

/** The reasons of requests that are refused because the secret was changed on one side. */
export const secretErrors: ReadonlySet<string> = /* @__PURE__ */ new Set<RefusalError>([
  'authorization_missing',
  'authorization_scheme',
  'secret_wrong',
])

/** Requests that the runtime refuses before the receiver sees them. */
const runtimeRefusals: Readonly<Record<RuntimeRefusal, { readonly status: number; readonly hint: string }>> = {
  request_malformed: { status: 400, hint: 'The request is not HTTP. Look at a proxy that changes requests.' },
  request_timeout: {
    status: 408,
    hint: 'The client sent its request too slowly: see `headersTimeoutMs` and `requestTimeoutMs` of serve.',
  },
  expectation_unsupported: { status: 417, hint: 'The request has an Expect header other than 100-continue.' },
  headers_too_large: { status: 431, hint: 'The headers of the request are too large. Look at a proxy that adds some.' },
  connections_exceeded: { status: 0, hint: 'There are too many connections at once: see `maxConnections` of serve.' },
}

/** Every reason of a runtime. */
export const runtimeRefusalErrors: readonly RuntimeRefusal[] = /* @__PURE__ */ (() =>
  Object.keys(runtimeRefusals) as RuntimeRefusal[])()

/** The time that one log line covers, in milliseconds. */
const windowMs = 10_000

interface LogWindow {
  readonly sinceMs: number
  readonly kinds: Map<string, { count: number; hint: string | undefined }>
  /** A lost message was reported by the last line or in this window. The next loss waits for the end of the window. */
  isLossReported: boolean
  /** Requests that a line has reported already. */
  reported: number
  readonly timer: Timer | undefined
}

/**
 * Logs the number of refused requests of each kind every ten seconds, and the first lost message at once. A single request of
 * a stranger is not urgent, so it waits for the ten seconds.
 */
export function createRefusals(clock: Clock, log: Log, observers: Pick<Observers, 'refused'>): Refusals {
  const counts: Record<string, number> = {}
  let current: LogWindow | undefined
  let isStopped = false

  function begin(isLossReported: boolean): LogWindow {
    let timer = isStopped ? undefined : backgroundTimer(clock, windowMs, flush)
    // Without `unref` the timer would keep the process alive. Then there is none, and the next refused request brings the
    // line.
    if (timer?.unref === undefined) {
      timer?.cancel()
      timer = undefined
    }
    return { sinceMs: clock.now(), kinds: new Map(), isLossReported, reported: 0, timer }
  }

  function flush(): void {
    const ended = current
    if (ended === undefined) return
    ended.timer?.cancel()
    current = undefined
    const kinds = [...ended.kinds].toSorted(([, a], [, b]) => b.count - a.count)
    const total = kinds.reduce((sum, [, { count }]) => sum + count, 0)
    if (total <= ended.reported) return
    const list = kinds.length === 1 ? kinds[0]?.[0] : kinds.map(([error, { count }]) => `${error} ${count}`).join(', ')
    const refused = Object.fromEntries(kinds.map(([error, { count }]) => [error, count]))
    const seconds = Math.max(1, Math.round((clock.now() - ended.sinceMs) / 1000))
    const advice = kinds[0] === undefined ? '' : adviceFor(kinds[0][0], kinds[0][1].hint)
    const requests = total === 1 ? '1 request' : `${total} requests`
    guarded(() => log.warn(`${requests} refused in ${seconds} s: ${list}. ${advice}`, { refused }))
    current = begin(kinds.some(([error]) => isLoss(error)))
  }

  function count(error: string, hint: string | undefined, details?: Record<string, unknown>): void {
    // A runtime can end timers with the request that started them.
    if (current !== undefined && clock.now() - current.sinceMs > windowMs) flush()
    current ??= begin(false)
    if (isLoss(error) && !current.isLossReported) {
      current.isLossReported = true
      current.reported += 1
      guarded(() => log.warn(`1 request refused: ${error}. ${adviceFor(error, hint)}`, details))
    }
    const known = current.kinds.get(error)
    if (known === undefined) current.kinds.set(error, { count: 1, hint })
    else known.count += 1
    counts[error] = (counts[error] ?? 0) + 1
  }

  function call(request: Omit<RefusedRequest, 'count'>): void {
    observers.refused?.({ ...request, count: counts[request.error] ?? 0 })
  }

  return {
    counts,
    flush,
    stop() {
      isStopped = true
      flush()
    },
    note(refusal, { door, messages = [], isTest = false } = {}) {
      const { error, eventNumber } = refusal
      const hint = hintOf(refusal)
      count(error, hint, eventNumber === undefined ? undefined : { eventNumber })
      // Under overload this is called for each message.
      if (observers.refused === undefined) return
      const vins = new Set(messages.flatMap(({ lane }) => vinOf(lane) ?? []))
      const isAuthentic = !ofStrangers.has(error)
      const status = statusOf(refusal)
      call({ error, status, hint, isAuthentic, isTest, door, messages: messages.length, vins: [...vins] })
    },
    noteByRuntime(error) {
      const { status, hint } = runtimeRefusals[error]
      count(error, hint)
      call({ error, status, hint, isAuthentic: false, isTest: false, door: undefined, messages: 0, vins: [] })
    },
  }
}

/** Whether a message of the service is lost with the request, as far as the receiver can tell. */
const isLoss = (error: string): boolean => !ofStrangers.has(error) && !(error in runtimeRefusals)

function adviceFor(error: string, hint: string | undefined): string {
  const lost = isLoss(error) ? 'The service sends each message once, so a refused one is lost. ' : ''
  const rotation = secretErrors.has(error)
    ? ' If you just rotated the secret, give the receiver both secrets until no request has the old one.'
    : ''
  return `${lost}${hint ?? ''}${rotation}`.trim()
}
