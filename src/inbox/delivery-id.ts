/** The number of ids in a millisecond. */
const perMs = 2048

/**
 * Makes UUIDv7 that sort by arrival, counted within a millisecond (RFC 9562, 6.2). All ids that one object makes end alike, so {@link makerOf} an id
 * tells whether the same process made it.
 */
export class DeliveryIds {
  /** The millisecond of the newest id, made here or by an earlier process. */
  newestMs = 0
  readonly #first: number
  #counter = 0
  #head = ''
  /** The last two parts of a UUID: two bits for the variant, and 62 random bits. Not made before the first id: a Worker has no randomness until then. */
  #tail: string | undefined

  /** `first`: the number of the first id in a millisecond. */
  constructor(first: number = 0) {
    this.#first = first
  }

  get newestSeq(): number {
    return firstSeqAt(this.newestMs) + this.#counter
  }

  next(nowMs: number): string {
    this.#counter += 1
    // If the clock was set back, ids stay in the last millisecond until its numbers are used up, and then move on to the next.
    if (nowMs > this.newestMs || this.#counter >= perMs) {
      this.newestMs = Math.max(nowMs, this.newestMs + 1)
      this.#counter = this.#first
      const time = this.newestMs.toString(16).padStart(12, '0')
      this.#head = `${time.slice(0, 8)}-${time.slice(8)}-7`
    }
    this.#tail ??= crypto.randomUUID().slice(18)
    return this.#head + this.#counter.toString(16).padStart(3, '0') + this.#tail
  }

  /** From now on all ids sort after this id of an earlier process, whatever the clock says. */
  follow(id: string): void {
    const ms = millisecondOf(id)
    if (ms < this.newestMs) return
    this.newestMs = ms
    this.#counter = perMs - 1
  }
}

/** Where the counter is in the text of an id, behind the time and the version. */
const counterAt = 15

/** A safe integer for each id of an inbox, in their order. So an inbox finds a message without an index of texts. */
export function seqOf(id: string): number {
  return millisecondOf(id) * perMs + (Number.parseInt(id.slice(counterAt, counterAt + 3), 16) % perMs)
}

export function idWithSeq(id: string, seq: number): string {
  const ms = msOfSeq(seq).toString(16).padStart(12, '0')
  const counter = (seq % perMs).toString(16).padStart(3, '0')
  return `${ms.slice(0, 8)}-${ms.slice(8)}-${id.slice(counterAt - 1, counterAt)}${counter}${id.slice(counterAt + 3)}`
}

/** Names the process that made an id. The ids of one process rise, whatever its clock does. */
export const makerOf = (id: string): string => id.slice(counterAt + 3)

function millisecondOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
}

export function firstSeqAt(ms: number): number {
  return ms * perMs
}

export function msOfSeq(seq: number): number {
  return Math.floor(seq / perMs)
}

/** A smaller difference is no clock that was set back. */
export const driftMs = 1_000

/** Whether the clock was behind the newest message. Its times then say nothing about the order of messages. */
export function isClockBehind(newestSeq: number, nowMs: number): boolean {
  return msOfSeq(newestSeq) - nowMs > driftMs
}
