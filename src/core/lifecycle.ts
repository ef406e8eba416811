import type { Clock } from '../base/clock.ts'

/** How long handlers may be started one after another before other tasks get their turn, in milliseconds. */
const sliceMs = 10

/** How many handlers a receiver that gives way starts in a task, and its longest rest between two, in milliseconds. */
const startsAtOnce = 4
const longestRestMs = 50

/** Says when handlers may start: in tasks of their own and only for a short time in each, so that no answer waits. */
export class Yielding {
  readonly #clock: Clock
  readonly #run: () => void
  readonly #givesWay: boolean
  #starts = 0
  #wanted = false
  #isArmed = false
  #startedAtMs = 0
  #timersEndWithRequests = false

  constructor(clock: Clock, givesWay: boolean, run: () => void) {
    this.#clock = clock
    this.#givesWay = givesWay
    this.#run = run
  }

  /** Calls `run` in a new task, so that no answer waits. */
  later(): void {
    this.#wanted = true
    if (!this.#isArmed) this.#arm()
  }

  /** The same for work that is bound to its request, which cannot use the timer of another one. */
  laterInContext(run: () => void): void {
    this.#timersEndWithRequests = true
    setTimeout(run, 0)
  }

  /** Whether one more handler may start in this task. If not, `run` is called in a new one. */
  mayStart(): boolean {
    // Such a runtime limits the CPU time of a request itself.
    if (this.#timersEndWithRequests) return true
    if (!this.#isArmed) this.#arm()
    else if ((this.#givesWay && this.#starts >= startsAtOnce) || this.#clock.now() - this.#startedAtMs >= sliceMs) {
      this.#wanted = true
      return false
    }
    this.#starts += 1
    return true
  }

  /** Until this timer fires, the process is still in the task that set it, or in tasks that followed without a pause. */
  #arm(): void {
    this.#isArmed = true
    this.#starts = 0
    this.#startedAtMs = this.#clock.now()
    const startedMs = performance.now()
    const run = (): void => {
      this.#isArmed = false
      if (!this.#wanted) return
      this.#wanted = false
      this.#run()
    }
    setTimeout(() => {
      // The task is over, with all that others did in it. Starting nothing for as long again gives way: the busier the process is, the more.
      if (this.#givesWay) setTimeout(run, Math.min(longestRestMs, performance.now() - startedMs))
      else run()
    }, 0)
  }
}

/** What is under way in a receiver, and how far its drain is. */
export class Lifecycle {
  /** Turns: messages and batches that have one of the `concurrency` slots. Only `Core` changes it. */
  running = 0
  /** A drain has begun: batches do not wait to fill up. Only `drain` changes this and the next one. */
  isDraining = false
  /** No handler starts any more, but some may still run. A durable inbox's drain begins so; in memory it ends so. */
  startsNoMore = false
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
