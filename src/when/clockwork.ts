import FlatQueue from 'flatqueue'
import { backgroundTimer, type Clock, elapsedMs, longestMs, type Timer } from '../base/clock.ts'
import { driftMs } from '../inbox/delivery-id.ts'
import type { Due } from '../inbox/vehicle-store.ts'
import type { Clockwork, Port, Timing, TimingHost } from '../vehicles/timing.ts'
import { quietMs } from '../vehicles/lag.ts'

/** The first timer of a vehicle. */
interface Pending {
  readonly vin: string
  dueMs: number | undefined
  /** When that is by the clock that is never set back. */
  at: number
  /** Its place in the queue. When the timer moved back, it is earlier than `at`. */
  key: number
  /** `false`: its message is under way. */
  isQueued: boolean
  /** A newer message of the vehicle was in its lane. */
  isFollowed: boolean
  /** It has waited for the port, and does so once. */
  hasWaited: boolean
}

/** Messages of timers that were not handed out yet: after a long downtime they must not take the room of others. */
const mostUnderWay = 1_000

/** The most timers that move to a later time in one turn: a whole fleet may be due when a stalled process continues. */
const mostMoved = 1_000

/** The time until messages of timers are put again that the inbox did not take. */
const refusedMs = 5_000

/** Entries of timers that have moved or gone, before the queue is rebuilt. */
const mostStale = 1_000

/** Makes the clockwork of edges with timers. */
export const createClockwork: Timing = (host) => new QueuedTimers(host)

/**
 * Knows when the next timer of each vehicle is due, and puts its message. One queue, and one timer of the runtime. A timer runs by the
 * clock that is never set back, so that a change of the time of day makes none happen early.
 */
class QueuedTimers implements Clockwork {
  readonly known: Map<string, Pending> = new Map()
  readonly #clock: Clock
  readonly #time: CorrectedTime
  readonly #put: TimingHost['put']
  /** Also has entries of timers that have moved or gone since. */
  readonly #queue = new FlatQueue<Pending>()
  #underWay = 0
  #timer: Timer | undefined
  /** The entry of the queue for which `#timer` is set, and when it fires: at once, if that is over. */
  #wakesAt = Infinity
  #firesAt = Infinity
  #isStarted = false
  #port: Port = 'own'
  /** What is due before `#waitsTo` waits until `#portIsReadAt`. */
  #waitsTo = -Infinity
  #portIsReadAt = -Infinity

  constructor(host: TimingHost) {
    this.#clock = host.clock
    this.#time = new CorrectedTime(host)
    this.#put = host.put
  }

  set(vin: string, dueMs: number | undefined, isAwake: boolean = false, isFollowed: boolean = false): void {
    let pending = this.known.get(vin)
    if (pending === undefined) {
      if (dueMs === undefined) return
      pending = { vin, dueMs: undefined, at: 0, key: 0, isQueued: false, isFollowed, hasWaited: false }
      this.known.set(vin, pending)
    } else if (!pending.isQueued) {
      // What its message changes is known when that is handed out.
      if (!isAwake && dueMs !== undefined) return
      this.#underWay -= 1
    }
    if (dueMs === undefined) {
      this.known.delete(vin)
      return this.#arm()
    }
    if (dueMs !== pending.dueMs || pending.isFollowed) {
      const now = elapsedMs(this.#clock)
      this.#setAt(pending, now + Math.max(dueMs - this.nowMs(), isFollowed ? quietMs : -Infinity))
    }
    pending.dueMs = dueMs
    pending.isFollowed = isFollowed
    if (!pending.isQueued || pending.at < pending.key) this.#enter(pending)
    this.#arm()
  }

  add(vin: string, dueMs: number): void {
    const knownMs = this.known.get(vin)?.dueMs
    if (knownMs === undefined || dueMs < knownMs) this.set(vin, dueMs)
  }

  nowMs(): number {
    return this.#time.nowMs()
  }

  heard(atMs: number): void {
    this.#time.heard(atMs)
  }

  nextMs(): number | undefined {
    const next = this.#first()
    return next && Math.ceil(this.#clock.now() + Math.max(0, next.key - elapsedMs(this.#clock)))
  }

  start(where: Port = 'own'): void {
    this.#isStarted = true
    this.#port = where
    this.#awaitPort()
    this.#run()
  }

  stoodStill(): void {
    if (this.#isStarted) this.#awaitPort()
  }

  stop(): void {
    this.#isStarted = false
    this.#timer?.cancel()
    this.#wakesAt = Infinity
  }

  #enter(pending: Pending): void {
    const queue = this.#queue
    pending.key = pending.at
    pending.isQueued = true
    queue.push(pending, pending.key)
    if (queue.length <= 2 * this.known.size + mostStale) return
    queue.clear()
    for (const each of this.known.values()) if (each.isQueued) queue.push(each, each.key)
    queue.shrink()
  }

  #first(): Pending | undefined {
    const queue = this.#queue
    for (let next = queue.peek(); next !== undefined; next = queue.peek()) {
      if (next.isQueued && next.key === queue.peekValue() && this.known.get(next.vin) === next) return next
      queue.pop()
    }
    return undefined
  }

  #arm(): void {
    const next = this.#first()?.key ?? Infinity
    if (!this.#isStarted || next >= this.#wakesAt || this.#underWay >= mostUnderWay) return
    this.#timer?.cancel()
    this.#wakesAt = next
    const now = elapsedMs(this.#clock)
    const ms = Math.min(longestMs, Math.max(0, Math.ceil(next - now)))
    this.#firesAt = now + ms
    this.#timer = backgroundTimer(this.#clock, ms, this.#run)
  }

  #setAt(pending: Pending, at: number): void {
    pending.hasWaited = at < this.#waitsTo
    pending.at = at < this.#waitsTo ? Math.max(at, this.#portIsReadAt) : at
  }

  /**
   * Nobody ran until now, and messages may wait at the port that say otherwise. So whatever is due before they are here waits for them, no matter what sets
   * its timer.
   */
  #awaitPort(): void {
    if (this.#port === 'none') return
    const now = elapsedMs(this.#clock)
    this.#portIsReadAt = now + quietMs
    this.#waitsTo = this.#port === 'own' ? this.#portIsReadAt : now - driftMs
  }

  /** Puts the messages of timers that are due. */
  readonly #run = (): void => {
    const due: Due[] = []
    const now = elapsedMs(this.#clock)
    this.#wakesAt = Infinity
    if (now - this.#firesAt > driftMs) this.#awaitPort()
    let moved = 0
    for (
      let next = this.#first();
      next !== undefined && next.key <= now && this.#underWay < mostUnderWay && moved < mostMoved;
      next = this.#first()
    ) {
      this.#queue.pop()
      next.isQueued = false
      if (!next.hasWaited) this.#setAt(next, next.at)
      if (next.at > now) {
        this.#enter(next)
        moved += 1
      } else if (next.dueMs !== undefined) {
        due.push({ vin: next.vin, dueMs: next.dueMs })
        this.#underWay += 1
      }
    }
    if (due.length > 0) void this.#put(due).then((isPut) => !isPut && this.#giveBack(due))
    this.#arm()
  }

  #giveBack(due: readonly Due[]): void {
    for (const { vin } of due) {
      const pending = this.known.get(vin)
      if (pending === undefined || pending.isQueued) continue
      this.#underWay -= 1
      pending.at = elapsedMs(this.#clock) + refusedMs
      this.#enter(pending)
    }
    this.#arm()
  }
}

/** The time, corrected if the clock was set: at least the time of the newest message, at most what the elapsed time allows. */
class CorrectedTime {
  readonly #clock: Clock
  readonly #newestMs: () => number
  /** The time of day when the other clock was at 0, as of the newest message that was sent after it. */
  #zeroMs: number

  constructor({ clock, newestMs }: TimingHost) {
    this.#clock = clock
    this.#newestMs = newestMs
    this.#zeroMs = clock.now() - elapsedMs(clock)
  }

  nowMs(): number {
    return Math.min(Math.max(this.#clock.now(), this.#newestMs()), this.#zeroMs + elapsedMs(this.#clock))
  }

  heard(atMs: number): void {
    this.#zeroMs = Math.max(this.#zeroMs, atMs - elapsedMs(this.#clock))
  }
}
