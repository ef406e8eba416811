import type { Clock, Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { AnyVehicleView, Change } from '../vehicles/edge.ts'
import type { Step } from '../vehicles/vehicles.ts'
import type { HandlerContext } from './handler.ts'

/** A handler's failure. `error` is whatever was thrown; it need not be an `Error`. */
export interface Failure {
  readonly error: unknown
}

/** The owner of a run. All runs of one owner can be aborted together. `env` is the handler's `context.env`. */
interface Owner {
  readonly env: unknown
}

/** The second argument of a handler. `Given` is one delivery, or nothing for a batch. */
export interface RunContext<Given> extends Omit<HandlerContext, 'delivery' | 'vehicle'> {
  readonly delivery: Given
  readonly vehicle: AnyVehicleView | undefined
}

interface ActiveRun {
  readonly owner: Owner
  readonly context: Context<unknown>
  readonly resolve: (failure: Failure | undefined) => void
  /** Reports that the handler ended this long after its time limit. */
  readonly endedLate: (lateMs: number) => void
  timer: Timer | undefined
  /** When its time limit was reached, in milliseconds since the epoch. */
  timedOutAtMs: number | undefined
}

interface RunnerOptions {
  readonly clock: Clock
  readonly log: Log
  readonly timeoutMs: number
}

/** Called when a handler ignored its signal and ended after its time limit, with what it was given. */
type EndedLate<What, Given> = (lateMs: number, what: What, delivery: Given, handler: object) => void

/** Runs handlers under a time limit, and never throws, whatever a handler does. */
export class Runner {
  readonly #clock: Clock
  readonly #log: Log
  readonly #timeoutMs: number
  readonly #active = new PassingMap<ActiveRun, ActiveRun>()

  constructor({ clock, log, timeoutMs }: RunnerOptions) {
    this.#clock = clock
    this.#log = log
    this.#timeoutMs = timeoutMs
  }

  /** `undefined` when the handler is done, or why it failed; a promise of that when the handler is asynchronous. */
  run<What, Given>(
    handler: (what: What, context: RunContext<Given>) => unknown,
    what: What,
    owner: Owner,
    delivery: Given,
    step: Step | undefined,
    endedLate: EndedLate<What, Given>,
  ): Failure | undefined | Promise<Failure | undefined> {
    const context = new Context(this.#log, owner.env ?? {}, delivery, step)
    try {
      const result = handler(what, context)
      // A synchronous handler needs neither a timer nor an entry among the active runs.
      return (typeof result === 'object' || typeof result === 'function') && isThenable(result)
        ? this.#finished(result, context, owner, (lateMs) => endedLate(lateMs, what, delivery, handler))
        : undefined
    } catch (error) {
      return { error }
    }
  }

  /**
   * Aborts the signals of the active runs, of one owner or all. The runs count as failed, whether or not their handlers
   * listen.
   */
  abort(reason: unknown, owner?: Owner): void {
    for (const run of this.#active.values()) if (owner === undefined || run.owner === owner) this.#abort(run, reason)
  }

  #finished(
    result: PromiseLike<unknown>,
    context: Context<unknown>,
    owner: Owner,
    endedLate: ActiveRun['endedLate'],
  ): Promise<Failure | undefined> {
    return new Promise((resolve) => {
      const run: ActiveRun = { owner, context, resolve, endedLate, timer: undefined, timedOutAtMs: undefined }
      this.#active.set(run, run)
      run.timer = this.#clock.after(this.#timeoutMs, () => {
        run.timedOutAtMs = this.#clock.now()
        this.#abort(run, timeoutError(this.#timeoutMs))
      })
      try {
        result.then(
          () => this.#finish(run, undefined),
          (error: unknown) => this.#finish(run, { error }),
        )
      } catch (error) {
        this.#finish(run, { error })
      }
    })
  }

  #finish(run: ActiveRun, failure: Failure | undefined): void {
    if (!this.#active.delete(run)) {
      if (run.timedOutAtMs !== undefined) run.endedLate(this.#clock.now() - run.timedOutAtMs)
      return
    }
    run.timer?.cancel()
    run.resolve(failure)
  }

  #abort(run: ActiveRun, reason: unknown): void {
    abortSignal(run.context, reason)
    this.#finish(run, { error: reason })
  }
}

function timeoutError(timeoutMs: number): FleethookError {
  return new FleethookError('handler_timeout', `A handler took longer than ${timeoutMs} ms.`, {
    hint: 'Pass `context.signal` on to what it waits for, or raise `timeoutMs`.',
  })
}

function isThenable(value: object | null): value is PromiseLike<unknown> {
  return value !== null && 'then' in value && typeof value.then === 'function'
}

const none: readonly never[] = []

/** What each message changed, by the context of its handler. */
export let stepOf: (context: object) => Step | undefined

let abortSignal: (context: Context<unknown>, reason: unknown) => void

/**
 * The second argument of a handler. It is a class, because most handlers never look at the signal: a getter on a prototype
 * costs nothing, and one on each object would cost more than the rest of the run.
 */
class Context<Given> implements RunContext<Given> {
  readonly log: Log
  readonly env: object
  readonly delivery: Given
  readonly #step: Step | undefined
  #controller: AbortController | undefined

  constructor(log: Log, env: object, delivery: Given, step: Step | undefined) {
    this.log = log
    this.env = env
    this.delivery = delivery
    this.#step = step
  }

  get vehicle(): AnyVehicleView | undefined {
    return this.#step?.view
  }

  get changes(): readonly Change[] {
    return this.#step?.changes ?? none
  }

  get signal(): AbortSignal {
    return (this.#controller ??= new AbortController()).signal
  }

  static {
    stepOf = (context) => (#step in context ? context.#step : undefined)
    abortSignal = (context, reason) => {
      context.#controller ??= new AbortController()
      context.#controller.abort(reason)
    }
  }
}

/** How long handlers may be started one after another before other tasks get their turn, in milliseconds. */
const sliceMs = 10

/**
 * Decides when handlers may start: in tasks of their own, and only for a short time in each, so that no answer waits for
 * them. It calls `run` in such a task.
 */
export class Yielding {
  readonly #clock: Clock
  readonly #run: () => void
  #wanted = false
  #isArmed = false
  #startedAtMs = 0
  #timersEndWithRequests = false

  constructor(clock: Clock, run: () => void) {
    this.#clock = clock
    this.#run = run
  }

  /**
   * Calls `run` in a new task, so that a handler that uses the CPU does not delay an answer that is about to leave. Where the
   * runtime ends the timers of a request with the request (`isBound`), the timer of another request cannot be used instead.
   */
  later(isBound: boolean): void {
    if (isBound) {
      this.#timersEndWithRequests = true
      setTimeout(this.#run, 0)
      return
    }
    this.#wanted = true
    if (!this.#isArmed) this.#arm()
  }

  /** Whether one more handler may start in this task. If not, `run` is called in a new one. */
  mayStart(): boolean {
    // Such a runtime limits the CPU time of a request itself.
    if (this.#timersEndWithRequests) return true
    if (!this.#isArmed) this.#arm()
    else if (this.#clock.now() - this.#startedAtMs >= sliceMs) {
      this.#wanted = true
      return false
    }
    return true
  }

  /** Until this timer fires, the process is still in the task that set it, or in tasks that followed without a pause. */
  #arm(): void {
    this.#isArmed = true
    this.#startedAtMs = this.#clock.now()
    setTimeout(() => {
      this.#isArmed = false
      if (!this.#wanted) return
      this.#wanted = false
      this.#run()
    }, 0)
  }
}

/** What is under way in a backend, and whether its drain has begun or ended. */
export class Lifecycle {
  /** Handlers that run. Only the scheduler changes it. */
  running = 0
  /** A drain has begun: batches do not wait to fill up. Only `beginDrain` changes it. */
  isDraining = false
  /** A drain has ended: no handler starts any more. Only `stop` changes it. */
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
