import { v7 } from 'uuid'

/** Ids by UUIDv7: they sort by arrival, also within one millisecond. */
export function createDeliveryIds(): (nowMs: number) => string {
  // One call for the randomness of many ids: asking for it is what an id costs.
  const pool = new Uint8Array(16 * 256)
  let at = pool.length
  let lastMs = 0
  let sequence = 0
  return (nowMs) => {
    if (at === pool.length) {
      crypto.getRandomValues(pool)
      at = 0
    }
    const random = pool.subarray(at, at + 16)
    at += 16
    if (nowMs > lastMs) {
      lastMs = nowMs
      sequence = 0
    } else {
      sequence += 1
    }
    return v7({ msecs: lastMs, seq: sequence, random })
  }
}
