import type { Clock } from '../base/clock.ts'

/** What is under way in a backend, and whether its drain has begun or ended. */
export class Lifecycle {
  /** Handlers that run. Only the scheduler changes it. */
  running = 0
  /** A drain has begun: batches do not wait to fill up. Only `beginDrain` changes it. */
  isDraining = false
  /** A drain has reached its end: no handler starts. Only `stop` changes it. */
  isStopped = false
  readonly #clock: Clock
  #expected = 0
  /** Called whenever something has ended, while a drain waits for it. */
  onChange: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Messages may come until `leave` is called. A drain waits until every `enter` has its `leave`. */
  enter(): void {
    this.#expected += 1
  }

  leave(): void {
    this.#expected -= 1
    this.onChange?.()
  }

  /** Whether no more messages can come. */
  get isQuiet(): boolean {
    return this.#expected === 0
  }

  beginDrain(): void {
    this.isDraining = true
  }

  stop(): void {
    this.isStopped = true
  }

  /** Resolves when `isOver` holds, which is checked at every change, or when the time has passed. */
  until(isOver: () => boolean, atMostMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#clock.after(atMostMs, resolve)
      this.onChange = () => {
        if (!isOver()) return
        this.onChange = undefined
        timer.cancel()
        resolve()
      }
      this.onChange()
    })
  }
}
