/** A crashed process can have handed out more messages than ran at once, because it had no time to write that earlier ones were settled. */
const firstSuspects = 1_024

interface KnownClaim {
  readonly lane: string
  readonly seq: number
  /** The number of claims that are written. */
  readonly deliveries: number
  readonly replayed: boolean
}

/**
 * Decides which claims must be written before the message is handed out, so that a message that ends its process is
 * counted. A claim that is written later may be missing after a crash, so each message of a crashed process counts as
 * handed out once. After that, messages that it probably had in hand are counted exactly. Not all: a backlog of a million
 * messages must not wait for a million syncs.
 */
export class CrashSuspects {
  /** The `seq` of the last message that a crashed process left. -1: none crashed. */
  upTo = -1
  #claimed = 0
  readonly #lanes = new Set<string>()

  /** The number of times that a message was handed out before. */
  deliveriesOf({ seq, deliveries, replayed }: KnownClaim): number {
    return seq <= this.upTo && !replayed ? Math.max(1, deliveries) : deliveries
  }

  /** Whether this claim must be written first. Called once for each claim. */
  mustWrite({ lane, seq, deliveries, replayed }: KnownClaim): boolean {
    if (deliveries > 0 || replayed) return true
    if (seq > this.upTo) return false
    this.#claimed += 1
    const isFirst = !this.#lanes.has(lane)
    this.#lanes.add(lane)
    return isFirst || this.#claimed <= firstSuspects
  }

  /** The claim could not be written, so the message was not handed out. */
  takeBack({ lane }: Pick<KnownClaim, 'lane'>): void {
    this.#claimed -= 1
    this.#lanes.delete(lane)
  }
}
