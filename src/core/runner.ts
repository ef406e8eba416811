import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { isBound, type RequestScope } from '../hosting/execution-context.ts'
import type { Delivery } from '../inbox/observer.ts'
import type { AnyVehicleView, Change } from '../vehicles/edge.ts'
import type { Context, Message, Handler } from './message.ts'
import type { Reports } from '../reports/reports.ts'

/** A handler's failure. `error` is whatever was thrown; it need not be an `Error`. */
export interface Failure {
  readonly error: unknown
}

/** How a run ended. `undefined`: its handler is done. */
export type Ran = Failure | undefined

interface ActiveRun {
  readonly handler: Handler
  readonly owner: RequestScope
  readonly context: RunContext
  readonly first: FirstMessage
  readonly resolve: (failure: Ran) => void
  /** Its own timer, if its work is bound to its request: a runtime ends timers with the request that set them. */
  timer: Timer | undefined
  /** When it began, by the clock that is never set back. */
  readonly startedMs: number
  /** When its time limit was reached, in milliseconds since the epoch. */
  lateFromMs: number | undefined
}

interface FirstMessage {
  readonly subject: Message | readonly Message[]
  readonly event: FleetEvent | MalformedBody
  readonly delivery: Delivery
  readonly messages: number | undefined
}

interface RunnerOptions {
  readonly clock: Clock
  readonly log: Log
  readonly timeoutMs: number
  readonly reports: Reports
}

const none: readonly never[] = []

/** Runs handlers under a time limit, and never throws, whatever a handler does. */
export class Runner {
  readonly #options: RunnerOptions
  /** A run of a handler that leaves a mark has ended well, after its time limit. */
  readonly #endedLate: (handler: Handler, messages: readonly Message[]) => void
  /** In the order in which they began. */
  readonly #active = new PassingMap<ActiveRun, ActiveRun>()
  /** Fires when the time limit of the oldest run is reached, or of one that was older. All limits are the same, so one timer is enough. */
  #timer: Timer | undefined

  constructor(options: RunnerOptions, endedLate: (handler: Handler, messages: readonly Message[]) => void) {
    this.#options = options
    this.#endedLate = endedLate
  }

  /** Runs a handler for one message. It needs a promise only if the handler is asynchronous. */
  run(handler: Handler, message: Message, delivery: Delivery): Ran | Promise<Ran> {
    const { event, request } = message
    if (event === undefined) return undefined
    if (handler.gather !== undefined) return this.runBatch(handler, [message], request)
    const context = new MessageContext(this.#options.log, request.env ?? {}, delivery, message)
    try {
      const { wants, input, nth } = handler
      // The filter of a handler that throws fails the handler, so it is asked again here.
      if (wants !== undefined && !wants(event, message)) return undefined
      const first = { subject: message, event, delivery, messages: undefined }
      return this.#call(handler, input === undefined ? event : input(message, nth), context, request, first)
    } catch (error) {
      return { error }
    }
  }

  runBatch(handler: Handler, messages: readonly Message[], owner: RequestScope): Ran | Promise<Ran> {
    try {
      const { wants, input, nth } = handler
      const wanted = messages.filter(({ event }, at) => event !== undefined && (wants?.(event, messages[at]) ?? true))
      const deliveries = wanted.map((message) => message.delivery())
      const [message] = wanted
      const [delivery] = deliveries
      if (message?.event === undefined || delivery === undefined) return undefined
      const context = new BatchContext(this.#options.log, owner.env ?? {}, deliveries, wanted)
      const given = wanted.map((each) => (input === undefined ? each.event : input(each, nth)))
      const first = { subject: wanted, event: message.event, delivery, messages: messages.length }
      return this.#call(handler, given, context, owner, first)
    } catch (error) {
      return { error }
    }
  }

  /** Aborts the signals of the active runs, of one owner or all. The runs count as failed, whether or not their handlers listen. */
  abort(reason: unknown, owner?: RequestScope): void {
    for (const run of this.#active.values()) if (owner === undefined || run.owner === owner) this.#abort(run, reason)
  }

  /** Aborts runs all of whose messages another process has now. */
  abortGone(reason: unknown): void {
    for (const run of this.#active.values())
      if ([run.first.subject].flat().every(({ isGone }) => isGone)) this.#abort(run, reason)
  }

  #call(
    handler: Handler,
    input: unknown,
    context: RunContext,
    owner: RequestScope,
    first: FirstMessage,
  ): Ran | Promise<Ran> {
    const { reports, clock, timeoutMs } = this.#options
    const startedMs = reports.observers.ran === undefined ? undefined : elapsedMs(clock)
    let result: unknown
    try {
      result = handler.run(input, context)
    } catch (error) {
      this.#ran(handler, startedMs)
      throw error
    }
    // A synchronous handler needs neither a timer nor a place among the active runs.
    if ((typeof result !== 'object' && typeof result !== 'function') || !isThenable(result)) {
      if (startedMs !== undefined) this.#ran(handler, startedMs)
      return undefined
    }
    return new Promise((resolve) => {
      const run: ActiveRun = {
        handler,
        owner,
        context,
        first,
        resolve,
        startedMs: startedMs ?? elapsedMs(clock),
        timer: undefined,
        lateFromMs: undefined,
      }
      this.#active.set(run, run)
      if (isBound(owner.context)) run.timer = clock.after(timeoutMs, () => this.#timeOut(run))
      else this.#timer ??= clock.after(timeoutMs, this.#timeOutOldest)
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

  #finish(run: ActiveRun, failure: Ran): void {
    const { clock, reports } = this.#options
    if (!this.#active.delete(run)) {
      if (run.lateFromMs === undefined) return
      const { event, delivery, messages, subject } = run.first
      if (failure === undefined && run.handler.mark !== undefined) this.#endedLate(run.handler, [subject].flat())
      reports.endedLate(clock.now() - run.lateFromMs, event, delivery, { handler: run.handler.name, messages })
      return
    }
    run.timer?.cancel()
    if (this.#active.size === 0) {
      this.#timer?.cancel()
      this.#timer = undefined
    }
    this.#ran(run.handler, run.startedMs)
    run.resolve(failure)
  }

  readonly #timeOutOldest = (): void => {
    const { clock, timeoutMs } = this.#options
    const nowMs = elapsedMs(clock)
    this.#timer = undefined
    for (const run of this.#active.values()) {
      if (run.timer !== undefined) continue
      const leftMs = run.startedMs + timeoutMs - nowMs
      if (leftMs <= 0) this.#timeOut(run)
      else {
        this.#timer = clock.after(leftMs, this.#timeOutOldest)
        break
      }
    }
  }

  #timeOut(run: ActiveRun): void {
    const { clock, timeoutMs } = this.#options
    run.lateFromMs = clock.now()
    this.#abort(run, timeoutError(timeoutMs, run.handler))
  }

  #ran({ name }: Handler, startedMs: number | undefined): void {
    const { reports, clock } = this.#options
    if (startedMs !== undefined) reports.observers.ran?.(name, elapsedMs(clock) - startedMs)
  }

  #abort(run: ActiveRun, reason: unknown): void {
    RunContext.abort(run.context, reason)
    this.#finish(run, { error: reason })
  }
}

/** A handler with a mark has a transaction. One that waits for itself looks like any other that takes too long, so each is told. */
function timeoutError(timeoutMs: number, { mark }: Handler): FleethookError {
  const itself =
    'If it takes a second connection of the pool of its transaction, it waits for itself: use the transaction.'
  return new FleethookError('handler_timeout', `A handler took longer than ${timeoutMs} ms.`, {
    hint: `Pass \`context.signal\` on to what it waits for, or raise \`timeoutMs\`.${mark === undefined ? '' : ` ${itself}`}`,
  })
}

function isThenable(value: object | null): value is PromiseLike<unknown> {
  return value !== null && 'then' in value && typeof value.then === 'function'
}

/** The second argument of a handler. A class, because a getter on each object costs more than the rest of the run. */
class RunContext implements Context {
  readonly log: Log
  readonly env: object
  #controller: AbortController | undefined

  constructor(log: Log, env: object) {
    this.log = log
    this.env = env
  }

  get signal(): AbortSignal {
    return (this.#controller ??= new AbortController()).signal
  }

  static abort(context: RunContext, reason: unknown): void {
    context.#controller ??= new AbortController()
    context.#controller.abort(reason)
  }
}

/** That of a handler of one message. */
class MessageContext extends RunContext {
  readonly delivery: Delivery
  readonly #message: Message

  constructor(log: Log, env: object, delivery: Delivery, message: Message) {
    super(log, env)
    this.delivery = delivery
    this.#message = message
  }

  get vehicle(): AnyVehicleView | undefined {
    return this.#message.change?.view
  }

  get changes(): readonly Change[] {
    return this.#message.change?.changes ?? none
  }
}

/** That of the handler of a batch. */
class BatchContext extends RunContext {
  readonly deliveries: readonly Delivery[]
  readonly #messages: readonly Message[]

  constructor(log: Log, env: object, deliveries: readonly Delivery[], messages: readonly Message[]) {
    super(log, env)
    this.deliveries = deliveries
    this.#messages = messages
  }

  get vehicles(): readonly (AnyVehicleView | undefined)[] {
    return this.#messages.map(({ change }) => change?.view)
  }

  get changes(): readonly (readonly Change[])[] {
    return this.#messages.map(({ change }) => change?.changes ?? none)
  }
}
