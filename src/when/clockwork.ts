import FlatQueue from 'flatqueue'
import { backgroundTimer, elapsedMs, longestMs, type Timer } from '../base/clock.ts'
import { driftMs } from '../inbox/delivery-id.ts'
import type { Due } from '../inbox/vehicle-store.ts'
import type { Clockwork, Port, TimingHost } from '../vehicles/timing.ts'
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

/** The time until messages of timers are put again that the inbox did not take. */
const refusedMs = 5_000

/** Entries of timers that have moved or gone, before the queue is rebuilt. */
const mostStale = 1_000

/**
 * Knows when the next timer of each vehicle is due, and puts its message. One queue, and one timer of the runtime. A timer runs by the
 * clock that is never set back, so that a change of the time of day makes none happen early.
 */
export function createClockwork({ clock, newestMs, put }: TimingHost): Clockwork {
  const known = new Map<string, Pending>()
  /** Also has entries of timers that have moved or gone since. */
  const queue = new FlatQueue<Pending>()
  let underWay = 0
  let timer: Timer | undefined
  /** The entry of the queue for which `timer` is set, and when it fires: at once, if that is over. */
  let wakesAt = Infinity
  let firesAt = Infinity
  let isStarted = false
  let port: Port = 'own'
  /** What is due before `waitsTo` waits until `portIsReadAt`. */
  let waitsTo = -Infinity
  let portIsReadAt = -Infinity
  /** The time of day when the other clock was at 0, as of the newest message that was sent after it. */
  let zeroMs = clock.now() - elapsedMs(clock)

  /** The time, corrected if the clock was set: at least the time of the newest message, at most what the elapsed time allows. */
  const nowMs = (): number => Math.min(Math.max(clock.now(), newestMs()), zeroMs + elapsedMs(clock))

  function enter(pending: Pending): void {
    pending.key = pending.at
    pending.isQueued = true
    queue.push(pending, pending.key)
    if (queue.length <= 2 * known.size + mostStale) return
    queue.clear()
    for (const each of known.values()) if (each.isQueued) queue.push(each, each.key)
    queue.shrink()
  }

  function first(): Pending | undefined {
    for (let next = queue.peek(); next !== undefined; next = queue.peek()) {
      if (next.isQueued && next.key === queue.peekValue() && known.get(next.vin) === next) return next
      queue.pop()
    }
    return undefined
  }

  function arm(): void {
    const next = first()?.key ?? Infinity
    if (!isStarted || next >= wakesAt || underWay >= mostUnderWay) return
    timer?.cancel()
    wakesAt = next
    const now = elapsedMs(clock)
    const ms = Math.min(longestMs, Math.max(0, Math.ceil(next - now)))
    firesAt = now + ms
    timer = backgroundTimer(clock, ms, run)
  }

  function setAt(pending: Pending, at: number): void {
    pending.hasWaited = at < waitsTo
    pending.at = at < waitsTo ? Math.max(at, portIsReadAt) : at
  }

  /**
   * Nobody ran until now, and messages may wait at the port that say otherwise. So whatever is due before they are here waits for them, no matter what sets
   * its timer.
   */
  function awaitPort(): void {
    if (port === 'none') return
    const now = elapsedMs(clock)
    portIsReadAt = now + quietMs
    waitsTo = port === 'own' ? portIsReadAt : now - driftMs
    const soon: Pending[] = []
    for (let next = first(); next !== undefined && next.key < waitsTo; next = first()) {
      queue.pop()
      next.isQueued = false
      soon.push(next)
    }
    for (const each of soon) {
      if (!each.hasWaited) setAt(each, each.at)
      enter(each)
    }
  }

  function run(): void {
    const due: Due[] = []
    const now = elapsedMs(clock)
    wakesAt = Infinity
    if (now - firesAt > driftMs) awaitPort()
    for (let next = first(); next !== undefined && next.key <= now && underWay < mostUnderWay; next = first()) {
      queue.pop()
      next.isQueued = false
      if (next.at > now) enter(next)
      else if (next.dueMs !== undefined) {
        due.push({ vin: next.vin, dueMs: next.dueMs })
        underWay += 1
      }
    }
    if (due.length > 0) void put(due).then((isPut) => !isPut && giveBack(due))
    arm()
  }

  function giveBack(due: readonly Due[]): void {
    for (const { vin } of due) {
      const pending = known.get(vin)
      if (pending === undefined || pending.isQueued) continue
      underWay -= 1
      pending.at = elapsedMs(clock) + refusedMs
      enter(pending)
    }
    arm()
  }

  function set(vin: string, dueMs: number | undefined, isAwake = false, isFollowed = false): void {
    let pending = known.get(vin)
    if (pending === undefined) {
      if (dueMs === undefined) return
      pending = { vin, dueMs: undefined, at: 0, key: 0, isQueued: false, isFollowed, hasWaited: false }
      known.set(vin, pending)
    } else if (!pending.isQueued) {
      // What its message changes is known when that is handed out.
      if (!isAwake && dueMs !== undefined) return
      underWay -= 1
    }
    if (dueMs === undefined) {
      known.delete(vin)
      return arm()
    }
    if (dueMs !== pending.dueMs || pending.isFollowed) {
      const now = elapsedMs(clock)
      setAt(pending, now + Math.max(dueMs - nowMs(), isFollowed ? quietMs : -Infinity))
    }
    pending.dueMs = dueMs
    pending.isFollowed = isFollowed
    if (!pending.isQueued || pending.at < pending.key) enter(pending)
    arm()
  }

  return {
    known,

    set,

    add(vin, dueMs) {
      const knownMs = known.get(vin)?.dueMs
      if (knownMs === undefined || dueMs < knownMs) set(vin, dueMs)
    },

    nowMs,

    heard(atMs) {
      zeroMs = Math.max(zeroMs, atMs - elapsedMs(clock))
    },

    nextMs() {
      const next = first()
      return next && Math.ceil(clock.now() + Math.max(0, next.key - elapsedMs(clock)))
    },

    start(where = 'own') {
      isStarted = true
      port = where
      awaitPort()
      run()
    },

    stoodStill() {
      if (isStarted) awaitPort()
    },

    stop() {
      isStarted = false
      timer?.cancel()
      wakesAt = Infinity
    },
  }
}
