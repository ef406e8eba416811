import type { Clock, Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { createPassingMap } from '../base/passing-map.ts'
import type { HandlerContext } from './handler.ts'

/** Runs handlers, and never throws, whatever a handler does. */
export interface Runner {
  /**
   * `undefined` when the handler is done, or why it failed; a promise of it when the handler is asynchronous. `owner` says
   * whose run it is, so that all runs of one owner can be aborted.
   */
  run<What, Receipt>(
    handler: (what: What, context: RunContext<Receipt>) => unknown,
    what: What,
    owner: Owner,
    delivery: Receipt,
  ): Failure | undefined | Promise<Failure | undefined>
  /** Aborts the signals of the runs under way, of one owner or all, and fails them, whether or not a handler listens. */
  abort(reason: unknown, owner?: Owner): void
}

/** What a handler gets beside what it is to handle: of one delivery, or of many. */
export interface RunContext<Receipt> extends Omit<HandlerContext, 'delivery'> {
  readonly delivery: Receipt
}

export interface Owner {
  readonly env: unknown
}

/** A handler's failure. `error` is whatever was thrown; it need not be an `Error`. */
export interface Failure {
  readonly error: unknown
}

interface ActiveRun {
  readonly owner: Owner
  readonly context: Context<unknown>
  readonly resolve: (failure: Failure | undefined) => void
  timer: Timer | undefined
}

/** Runs handlers under a time limit. */
export function createRunner(options: {
  readonly clock: Clock
  readonly log: Log
  readonly timeoutMs: number
}): Runner {
  const { clock, log, timeoutMs } = options
  const active = createPassingMap<ActiveRun, ActiveRun>()

  function finish(run: ActiveRun, failure: Failure | undefined): void {
    if (!active.delete(run)) return
    run.timer?.cancel()
    run.resolve(failure)
  }

  function abort(run: ActiveRun, reason: unknown): void {
    abortSignal(run.context, reason)
    finish(run, { error: reason })
  }

  function settle(result: PromiseLike<unknown>, context: Context<unknown>, owner: Owner): Promise<Failure | undefined> {
    return new Promise((resolve) => {
      const run: ActiveRun = { owner, context, resolve, timer: undefined }
      active.set(run, run)
      run.timer = clock.after(timeoutMs, () => abort(run, timeout(timeoutMs)))
      try {
        result.then(
          () => finish(run, undefined),
          (error: unknown) => finish(run, { error }),
        )
      } catch (error) {
        finish(run, { error })
      }
    })
  }

  return {
    run(handler, what, owner, delivery) {
      const context = new Context(log, owner.env ?? {}, delivery)
      try {
        const result = handler(what, context)
        // A handler that is done at once costs neither a timer nor a place among the active ones.
        return isThenable(result) ? settle(result, context, owner) : undefined
      } catch (error) {
        return { error }
      }
    },

    abort(reason, owner) {
      for (const run of active.values()) if (owner === undefined || run.owner === owner) abort(run, reason)
    },
  }
}

function timeout(timeoutMs: number): FleethookError {
  return new FleethookError('handler_timeout', `A handler took longer than ${timeoutMs} ms.`, {
    hint: 'Pass `context.signal` on to what it waits for, or raise `timeoutMs`.',
  })
}

let abortSignal: (context: Context<unknown>, reason: unknown) => void

/**
 * What a handler gets beside the event. A class, because most handlers never look at the signal, and a getter on a
 * prototype costs nothing where one on each object would cost more than the rest of the run.
 */
class Context<Receipt> implements RunContext<Receipt> {
  readonly log: Log
  readonly env: object
  readonly delivery: Receipt
  #controller: AbortController | undefined

  constructor(log: Log, env: object, delivery: Receipt) {
    this.log = log
    this.env = env
    this.delivery = delivery
  }

  get signal(): AbortSignal {
    return (this.#controller ??= new AbortController()).signal
  }

  static {
    abortSignal = (context, reason) => {
      context.#controller ??= new AbortController()
      context.#controller.abort(reason)
    }
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    ((typeof value === 'object' && value !== null) || typeof value === 'function') &&
    'then' in value &&
    typeof value.then === 'function'
  )
}
