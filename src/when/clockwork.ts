import { backgroundTimer, elapsedMs, longestMs, type Timer } from '../base/clock.ts'
import type { Due } from '../inbox/vehicle-store.ts'
import type { Clockwork, TimingHost } from '../vehicles/edge.ts'

/** The first timer of a vehicle. */
interface Pending {
  readonly vin: string
  dueMs: number | undefined
  /** When that is by the clock that is never set back. */
  at: number
  /** Its key in the heap. When the timer moved back, it is earlier than `at`. */
  key: number
  /** Its place in the heap. -1: its message is under way. */
  place: number
}

/** Messages of timers that were not handed out yet: after a long downtime they must not take the room of others. */
const mostUnderWay = 1_000

/** The time until messages of timers are put again that the inbox did not take. */
const refusedMs = 5_000

/**
 * Knows when the next timer of each vehicle is due, and puts its message. One heap, and one timer of the runtime. A timer runs by the
 * clock that is never set back, so that a change of the time of day makes none happen early.
 */
export function createClockwork({ clock, newestMs, put }: TimingHost): Clockwork {
  const known = new Map<string, Pending>()
  const heap: Pending[] = []
  let underWay = 0
  let timer: Timer | undefined
  /** When `timer` fires. */
  let wakesAt = Infinity
  let isStarted = false
  /** The time of day when the other clock was at 0, as of the newest message that was sent after it. */
  let zeroMs = clock.now() - elapsedMs(clock)

  /** A clock that was set forward is ahead of the messages, and one that was set back is behind the newest of them. */
  const nowMs = (): number => Math.min(Math.max(clock.now(), newestMs()), zeroMs + elapsedMs(clock))

  function move(pending: Pending, place: number): void {
    heap[place] = pending
    pending.place = place
  }

  function rise(pending: Pending): void {
    for (let { place } = pending; place > 0;) {
      const above = (place - 1) >> 1
      const parent = heap[above]
      if (parent === undefined || parent.key <= pending.key) break
      move(parent, place)
      move(pending, above)
      place = above
    }
  }

  function sink(pending: Pending): void {
    for (let { place } = pending; ;) {
      let below = 2 * place + 1
      const right = heap[below + 1]
      if (right !== undefined && right.key < (heap[below]?.key ?? Infinity)) below += 1
      const child = heap[below]
      if (child === undefined || child.key >= pending.key) return
      move(child, place)
      move(pending, below)
      place = below
    }
  }

  function leave(pending: Pending): void {
    const { place } = pending
    pending.place = -1
    const last = heap.pop()
    if (last === undefined || last === pending) return
    move(last, place)
    rise(last)
    sink(last)
  }

  function enter(pending: Pending): void {
    pending.key = pending.at
    move(pending, heap.length)
    rise(pending)
  }

  function arm(): void {
    const next = heap[0]?.key ?? Infinity
    if (!isStarted || next >= wakesAt || underWay >= mostUnderWay) return
    timer?.cancel()
    wakesAt = next
    const ms = Math.min(longestMs, Math.max(0, Math.ceil(next - elapsedMs(clock))))
    timer = backgroundTimer(clock, ms, run)
  }

  function run(): void {
    wakesAt = Infinity
    const due: Due[] = []
    const now = elapsedMs(clock)
    for (let next = heap[0]; next !== undefined && next.key <= now && underWay < mostUnderWay; next = heap[0]) {
      leave(next)
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
      if (pending === undefined || pending.place !== -1) continue
      underWay -= 1
      pending.at = elapsedMs(clock) + refusedMs
      enter(pending)
    }
    arm()
  }

  return {
    known,

    set(vin, dueMs, isAwake = false) {
      let pending = known.get(vin)
      if (pending === undefined) {
        if (dueMs === undefined) return
        pending = { vin, dueMs: undefined, at: 0, key: 0, place: -1 }
        known.set(vin, pending)
      } else if (pending.place === -1) {
        // What its message changes is known when that is handed out.
        if (!isAwake && dueMs !== undefined) return
        underWay -= 1
      }
      if (dueMs === undefined) {
        known.delete(vin)
        if (pending.place !== -1) leave(pending)
        return arm()
      }
      if (dueMs !== pending.dueMs) pending.at = elapsedMs(clock) + Math.max(0, dueMs - nowMs())
      pending.dueMs = dueMs
      if (pending.place === -1) enter(pending)
      else if (pending.at < pending.key) {
        pending.key = pending.at
        rise(pending)
      }
      arm()
    },

    heard(atMs) {
      zeroMs = Math.max(zeroMs, atMs - elapsedMs(clock))
    },

    nextMs() {
      const [next] = heap
      return next && Math.ceil(clock.now() + Math.max(0, next.key - elapsedMs(clock)))
    },

    start() {
      isStarted = true
      // At once, so that they come before new messages.
      run()
    },

    stop() {
      isStarted = false
      timer?.cancel()
      wakesAt = Infinity
    },
  }
}
