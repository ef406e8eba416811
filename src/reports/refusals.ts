import { type Clock, elapsedMs, idleTimer, type Timer } from '../base/clock.ts'
import { guarded, type Log, quietMs } from '../base/log.ts'
import { hintOf, type Refusal, type RefusalError, statusOf } from '../http/answers.ts'
import type { Door } from '../http/paths.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { RefusedRequest } from '../observe/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Observers } from './observers.ts'

/** What the receiver knows about a refused request beside the reason. */
interface RefusedDetails {
  readonly door?: Door | undefined
  /** Messages that were read and not kept. */
  readonly messages?: readonly Pick<InboxMessage, 'lane'>[]
  readonly isTest?: boolean
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

/** The part of a refusal that is counted and logged. `isAuthentic`: a message of the service is lost with the request. */
type Kind = Pick<RefusedRequest, 'hint' | 'isAuthentic'> & { readonly error: RefusedRequest['error'] | 'test' }

/** Refused tests are counted apart, whatever the reason: no message is lost with them. */
const ofTests: Kind = {
  error: 'test',
  hint: 'They have the header `fleethook-test`, as the requests of `fleethook doctor` have.',
  isAuthentic: false,
}

interface LogWindow {
  readonly sinceMs: number
  readonly kinds: Map<string, Kind & { count: number }>
  /** A lost message was reported by the last line or in this window. The next loss waits for the end of the window. */
  isLossReported: boolean
  /** All requests, and how many of them a line has reported already. */
  total: number
  reported: number
  readonly timer: Timer | undefined
}

/** Counts, reports and logs refused requests: each kind every ten seconds, and the first lost message at once. */
export class Refusals {
  /** The number of refused requests by reason. */
  readonly counts: Record<string, number> = {}
  readonly #clock: Clock
  readonly #log: Log
  readonly #observers: Observers
  #window: LogWindow | undefined
  #isStopped = false

  constructor(clock: Clock, log: Log, observers: Observers) {
    this.#clock = clock
    this.#log = log
    this.#observers = observers
  }

  readonly note = (refusal: Refusal, { door, messages = [], isTest = false }: RefusedDetails): void => {
    const { error, eventNumber } = refusal
    const kind = { error, hint: hintOf(refusal), isAuthentic: !ofStrangers.has(error) }
    this.count(isTest ? ofTests : kind, eventNumber === undefined ? undefined : { eventNumber })
    // Under overload this is called for each message.
    if (this.#observers.tell.refused === undefined) return
    const vins = new Set(messages.flatMap(({ lane }) => vinOf(lane) ?? []))
    this.tell({ ...kind, status: statusOf(refusal), isTest, door, messages: messages.length, vins: [...vins] })
  }

  count(kind: Kind, details?: Record<string, unknown>): void {
    const { error, isAuthentic } = kind
    // A runtime can end timers with the request that started them.
    if (this.#window !== undefined && elapsedMs(this.#clock) - this.#window.sinceMs > quietMs) this.flush()
    const window = (this.#window ??= this.#begin(false))
    if (isAuthentic && !window.isLossReported) {
      window.isLossReported = true
      window.reported += 1
      // What to do: A message is lost. [Look up the word](http.md#what-each-error-means-and-what-to-do).
      guarded(() => this.#log.warn(`1 request refused: ${error}. ${adviceFor(kind)}`, details))
    }
    window.total += 1
    const known = window.kinds.get(error)
    if (known === undefined) window.kinds.set(error, { ...kind, count: 1 })
    else known.count += 1
    this.counts[error] = (this.counts[error] ?? 0) + 1
  }

  tell(request: Omit<RefusedRequest, 'count'>): void {
    const count = this.counts[request.isTest ? 'test' : request.error] ?? 0
    this.#observers.tell.refused?.({ ...request, count })
  }

  /** When the next line is due, in milliseconds since the epoch. `undefined`: nothing was counted since the last line. */
  dueAtMs(): number | undefined {
    const window = this.#window
    return window !== undefined && window.total > window.reported ? window.sinceMs + quietMs : undefined
  }

  /** The receiver has drained: logs what was counted since the last line, and starts no timer any more. */
  stop(): void {
    this.#isStopped = true
    this.flush()
  }

  readonly flush = (): void => {
    const ended = this.#window
    if (ended === undefined) return
    ended.timer?.cancel()
    this.#window = undefined
    const kinds = [...ended.kinds.values()].toSorted(
      (a, b) => Number(a.error === 'test') - Number(b.error === 'test') || b.count - a.count,
    )
    const [most] = kinds
    const { total, reported } = ended
    if (most === undefined || total <= reported) return
    const list = kinds.length === 1 ? most.error : kinds.map(({ error, count }) => `${error} ${count}`).join(', ')
    const refused = Object.fromEntries(kinds.map(({ error, count }) => [error, count]))
    const seconds = Math.max(1, Math.round((elapsedMs(this.#clock) - ended.sinceMs) / 1000))
    const requests = total === 1 ? '1 request' : `${total} requests`
    // What to do about `… refused in … s: …`: The counts of ten seconds, strangers included. `test` is `fleethook doctor`. `secret_wrong` after a
    // rotation: give the receiver both secrets.
    guarded(() => this.#log.warn(`${requests} refused in ${seconds} s: ${list}. ${adviceFor(most)}`, { refused }))
    this.#window = this.#begin(kinds.some(({ isAuthentic }) => isAuthentic))
  }

  #begin(isLossReported: boolean): LogWindow {
    // Without a timer, the next refused request brings the line.
    const timer = this.#isStopped ? undefined : idleTimer(this.#clock, quietMs, this.flush)
    return { sinceMs: elapsedMs(this.#clock), kinds: new Map(), isLossReported, total: 0, reported: 0, timer }
  }
}

function adviceFor({ error, hint, isAuthentic }: Kind): string {
  const lost = isAuthentic ? 'The service sends each message once, so a refused one is lost. ' : ''
  const rotation = secretErrors.has(error)
    ? ' If you just rotated the secret, give the receiver both secrets until no request has the old one.'
    : ''
  return `${lost}${hint ?? ''}${rotation}`.trim()
}
