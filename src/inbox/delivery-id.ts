/** The number of ids in a millisecond. */
const perMs = 2048

/**
 * Random words that are not used yet. Each request for more is a system call, which takes 18 µs at a rate of one per
 * millisecond.
 */
const words = new Uint32Array(1024)
let nextWord = words.length

/** Makes ids by UUIDv7 that sort by arrival. */
export interface DeliveryIds {
  next(nowMs: number): string
  /** From now on all ids sort after this id of an earlier process, whatever the clock says. */
  follow(id: string): void
}

/**
 * Counts within a millisecond where UUIDv7 has room for it (RFC 9562, 5.7 and 6.2, method 1). The rest is random, and new in
 * each millisecond: new random bits for each id would be most of what a message costs before it is read.
 */
export function createDeliveryIds(): DeliveryIds {
  let lastMs = 0
  let counter = 0
  let head = ''
  /** The last two parts of a UUID: two bits for the variant, and 62 random bits. */
  let tail = ''

  function begin(ms: number): void {
    lastMs = ms
    counter = 0
    const time = ms.toString(16).padStart(12, '0')
    head = `${time.slice(0, 8)}-${time.slice(8)}-7`
    if (nextWord === words.length) {
      crypto.getRandomValues(words)
      nextWord = 0
    }
    const first = words[nextWord++] ?? 0
    const second = words[nextWord++] ?? 0
    const high = (((first & 0x3fff_ffff) | 0x8000_0000) >>> 0).toString(16)
    tail = `-${high.slice(0, 4)}-${high.slice(4)}${second.toString(16).padStart(8, '0')}`
  }

  return {
    next(nowMs) {
      counter += 1
      // If the clock was set back, ids stay in the last millisecond until its numbers are used up, and then move on to the
      // next.
      if (nowMs > lastMs || counter === perMs) begin(Math.max(nowMs, lastMs + 1))
      return head + counter.toString(16).padStart(3, '0') + tail
    },

    follow(id) {
      const ms = millisecondOf(id)
      if (ms >= lastMs) begin(ms + 1)
    },
  }
}

/** Where the counter is in the text of an id, behind the time and the version. */
const counterAt = 15

/**
 * A safe integer for an id of `createDeliveryIds`: different for different ids of one inbox, and in their order. With it an
 * inbox finds a message by a number, without an index of texts.
 */
export function seqOf(id: string): number {
  return millisecondOf(id) * perMs + (Number.parseInt(id.slice(counterAt, counterAt + 3), 16) % perMs)
}

/** The same id with another `seq`. */
export function idWithSeq(id: string, seq: number): string {
  const ms = msOfSeq(seq).toString(16).padStart(12, '0')
  const counter = (seq % perMs).toString(16).padStart(3, '0')
  return `${ms.slice(0, 8)}-${ms.slice(8)}-${id.slice(counterAt - 1, counterAt)}${counter}${id.slice(counterAt + 3)}`
}

let lastTime = 'none'
let lastMs = NaN

/** Ids that follow each other are often from one millisecond. */
function millisecondOf(id: string): number {
  if (id.startsWith(lastTime)) return lastMs
  lastTime = id.slice(0, 13)
  lastMs = Number.parseInt(lastTime.slice(0, 8) + lastTime.slice(9), 16)
  return lastMs
}

/** The `seq` of the first id of a millisecond. */
export function firstSeqAt(ms: number): number {
  return ms * perMs
}

/** The millisecond in which the id of a `seq` was made. */
export function msOfSeq(seq: number): number {
  return Math.floor(seq / perMs)
}
