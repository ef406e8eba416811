import type { Env } from 'hono'
import type { Clock } from '../clock.ts'
import { FleethookError } from '../errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Log } from '../log.ts'
import type { Delivery, HandlerContext } from './handler.ts'
import type { AnyHandler } from './registry.ts'

/** What the runs of one message share. */
export interface RunSurroundings {
  readonly env: unknown
  /** Whose run it is, so that all runs of one owner can be aborted. */
  readonly owner: object
  readonly delivery: Delivery
}

/** Runs handlers, one at a time each call, and never throws, whatever the handler does. */
export interface Runner {
  /** `undefined` when the handler is done, or why it failed. */
  run(
    handler: AnyHandler,
    event: FleetEvent | MalformedBody,
    surroundings: RunSurroundings,
  ): Promise<Failure | undefined>
  /** Aborts the signals of the runs under way, of one owner or all, and fails them, whether or not a handler listens. */
  abort(reason: unknown, owner?: object): void
}

/** A handler's failure. `error` is whatever was thrown; it need not be an `Error`. */
export interface Failure {
  readonly error: unknown
}

interface ActiveRun {
  readonly owner: object
  abort(reason: unknown): void
}

/** Runs handlers under a time limit. */
export function createRunner(options: {
  readonly clock: Clock
  readonly log: Log
  readonly timeoutMs: number
}): Runner {
  const { clock, log, timeoutMs } = options
  const active = new Set<ActiveRun>()

  return {
    async run(handler, event, surroundings) {
      const controller = lazyController()
      try {
        const result = handler(event, context(controller, log, surroundings))
        // A handler that is done at once costs neither a timer nor a place among the active ones.
        if (!isThenable(result)) return undefined
        return await settle(result, controller, surroundings.owner)
      } catch (error) {
        return { error }
      }
    },
    abort(reason, owner) {
      for (const run of active) if (owner === undefined || run.owner === owner) run.abort(reason)
    },
  }

  function settle(
    result: PromiseLike<unknown>,
    controller: LazyController,
    owner: object,
  ): Promise<Failure | undefined> {
    return new Promise((resolve) => {
      const finish = (failure: Failure | undefined): void => {
        timer.cancel()
        active.delete(run)
        resolve(failure)
      }
      const run: ActiveRun = {
        owner,
        abort(reason) {
          controller.abort(reason)
          finish({ error: reason })
        },
      }
      const timer = clock.after(timeoutMs, () => {
        run.abort(
          new FleethookError('handler_timeout', `A handler took longer than ${timeoutMs} ms.`, {
            hint: 'Pass `context.signal` on to what it waits for, or raise `timeoutMs`.',
          }),
        )
      })
      active.add(run)
      result.then(
        () => finish(undefined),
        (error: unknown) => finish({ error }),
      )
    })
  }
}

/** Most handlers never look at the signal, so there is none until they do. */
interface LazyController {
  readonly signal: AbortSignal
  abort(reason: unknown): void
}

function lazyController(): LazyController {
  let controller: AbortController | undefined
  return {
    get signal() {
      controller ??= new AbortController()
      return controller.signal
    },
    abort(reason) {
      controller ??= new AbortController()
      controller.abort(reason)
    },
  }
}

function context(controller: LazyController, log: Log, { env, delivery }: RunSurroundings): HandlerContext<Env> {
  return {
    get signal() {
      return controller.signal
    },
    log,
    env: env ?? {},
    delivery,
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}
