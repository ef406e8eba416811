import { v7 } from 'uuid'

/** How many hexadecimal digits count: few enough for a small integer. */
const digits = 7

/**
 * Ids by UUIDv7: they sort by arrival, also within one millisecond.
 *
 * The first id of a millisecond is random, and those that follow count on from it (RFC 9562, 6.2, method 2): an id of its
 * own from the library is most of what a message costs before it is read.
 */
export function createDeliveryIds(): (nowMs: number) => string {
  let lastMs = 0
  let head = ''
  let tail = 0
  return (nowMs) => {
    tail += 1
    // A clock that was put back stands still here; it moves on when there is no number left.
    if (nowMs > lastMs || tail === 16 ** digits) {
      lastMs = Math.max(nowMs, lastMs + 1)
      const first = v7({ msecs: lastMs })
      head = first.slice(0, -digits)
      // Half of the numbers, so that many are left to count on.
      tail = Number.parseInt(first.slice(-digits), 16) >> 1
    }
    return head + tail.toString(16).padStart(digits, '0')
  }
}
