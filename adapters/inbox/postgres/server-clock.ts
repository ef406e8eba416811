import { type Clock, elapsedMs, type Timer } from '../../../src/base/clock.ts'

/**
 * The time of the server. One clock decides per store: ids, receipts, timers and retention go by it in every process, whatever the clocks of
 * the machines say. Between two looks at the server it runs by the clock that no change of the time of day affects.
 */
export class ServerClock implements Clock {
  /** The clock of this machine. */
  readonly local: Clock
  /** The time of the server when the elapsed time was 0. `undefined`: it was not asked yet. */
  #zeroMs: number | undefined

  constructor(local: Clock) {
    this.local = local
  }

  now(): number {
    return this.#zeroMs === undefined ? this.local.now() : Math.floor(this.#zeroMs + this.elapsedMs())
  }

  elapsedMs(): number {
    return elapsedMs(this.local)
  }

  after(ms: number, run: () => void): Timer {
    return this.local.after(ms, run)
  }

  /** The answer to a statement that was sent at `sentMs`, by `elapsedMs`, had this time of the server. */
  learn(serverMs: number, sentMs: number): void {
    // The server read its clock between the question and the answer. What is known already stays when it fits in there.
    const [least, most] = [serverMs - this.elapsedMs(), serverMs - sentMs]
    this.#zeroMs = this.#zeroMs === undefined ? (least + most) / 2 : Math.min(Math.max(this.#zeroMs, least), most)
  }
}

/** The time of the server in a statement, in milliseconds. */
export const serverMs = `floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
