import { elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { Delivery } from '../inbox/observer.ts'
import type { AnyVehicleView, Change } from '../vehicles/edge.ts'
import type { Context, Entry, Step } from './entry.ts'
import type { CoreOptions } from './events.ts'

/** A handler's failure. `error` is whatever was thrown; it need not be an `Error`. */
export interface Failure {
  readonly error: unknown
}

interface ActiveRun {
  readonly step: Step
  readonly owner: RequestScope
  readonly context: RunContext
  readonly first: FirstMessage
  readonly resolve: (failure: Failure | undefined) => void
  timer: Timer | undefined
  /** When it began, while somebody wants to know. */
  readonly startedMs: number | undefined
  /** When its time limit was reached, in milliseconds since the epoch. */
  timedOutAtMs: number | undefined
}

/** A run of a step that leaves a mark has ended well, after its time limit. */
type EndedLate = (step: Step, entries: readonly Entry[]) => void

interface FirstMessage {
  readonly subject: Entry | readonly Entry[]
  readonly event: FleetEvent | MalformedBody
  readonly delivery: Delivery
  readonly messages: number | undefined
}

type RunnerOptions = Pick<CoreOptions, 'clock' | 'log' | 'timeoutMs' | 'events'>

const none: readonly never[] = []

/** Runs handlers under a time limit, and never throws, whatever a handler does. */
export class Runner {
  readonly #options: RunnerOptions
  readonly #endedLate: EndedLate
  readonly #active = new PassingMap<ActiveRun, ActiveRun>()

  constructor(options: RunnerOptions, endedLate: EndedLate) {
    this.#options = options
    this.#endedLate = endedLate
  }

  /** Runs a handler for one message. `undefined` when it is done, or why it failed; a promise of that when it is asynchronous. */
  run(step: Step, entry: Entry, delivery: Delivery): Failure | undefined | Promise<Failure | undefined> {
    const { event, request } = entry
    if (event === undefined) return undefined
    const context = new MessageContext(this.#options.log, request.env ?? {}, delivery, entry)
    try {
      const { wants, input } = step
      // The filter of a handler that throws fails the handler, so it is asked again here.
      if (wants !== undefined && !wants(event, entry)) return undefined
      const first = { subject: entry, event, delivery, messages: undefined }
      return this.#call(step, input === undefined ? event : input(entry), context, request, first)
    } catch (error) {
      return { error }
    }
  }

  runBatch(
    step: Step,
    entries: readonly Entry[],
    owner: RequestScope,
  ): Failure | undefined | Promise<Failure | undefined> {
    try {
      const { wants, input } = step
      const wanted = entries.filter(({ event }, at) => event !== undefined && (wants?.(event, entries[at]) ?? true))
      const deliveries = wanted.map((entry) => entry.delivery())
      const [entry] = wanted
      const [delivery] = deliveries
      if (entry?.event === undefined || delivery === undefined) return undefined
      const context = new BatchContext(this.#options.log, owner.env ?? {}, deliveries, wanted)
      const given = wanted.map((each) => (input === undefined ? each.event : input(each)))
      const first = { subject: wanted, event: entry.event, delivery, messages: entries.length }
      return this.#call(step, given, context, owner, first)
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
    step: Step,
    input: unknown,
    context: RunContext,
    owner: RequestScope,
    first: FirstMessage,
  ): Failure | undefined | Promise<Failure | undefined> {
    const { events, clock, timeoutMs } = this.#options
    const startedMs = events.observers.ran === undefined ? undefined : elapsedMs(clock)
    let result: unknown
    try {
      result = step.handler(input, context)
    } catch (error) {
      this.#ran(step, startedMs)
      throw error
    }
    // A synchronous handler needs neither a timer nor an entry among the active runs.
    if ((typeof result !== 'object' && typeof result !== 'function') || !isThenable(result)) {
      if (startedMs !== undefined) this.#ran(step, startedMs)
      return undefined
    }
    return new Promise((resolve) => {
      const run: ActiveRun = {
        step,
        owner,
        context,
        first,
        resolve,
        startedMs,
        timer: undefined,
        timedOutAtMs: undefined,
      }
      this.#active.set(run, run)
      run.timer = clock.after(timeoutMs, () => {
        run.timedOutAtMs = clock.now()
        this.#abort(run, timeoutError(timeoutMs))
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
    const { clock, events } = this.#options
    if (!this.#active.delete(run)) {
      if (run.timedOutAtMs === undefined) return
      const { event, delivery, messages, subject } = run.first
      if (failure === undefined && run.step.mark !== undefined) this.#endedLate(run.step, [subject].flat())
      const of = messages === undefined ? { handler: run.step.name } : { handler: run.step.name, messages }
      events.endedLate(clock.now() - run.timedOutAtMs, event, delivery, of)
      return
    }
    run.timer?.cancel()
    this.#ran(run.step, run.startedMs)
    run.resolve(failure)
  }

  #ran({ name }: Step, startedMs: number | undefined): void {
    const { events, clock } = this.#options
    if (startedMs !== undefined) events.observers.ran?.(name, elapsedMs(clock) - startedMs)
  }

  #abort(run: ActiveRun, reason: unknown): void {
    RunContext.abort(run.context, reason)
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
  readonly #entry: Entry

  constructor(log: Log, env: object, delivery: Delivery, entry: Entry) {
    super(log, env)
    this.delivery = delivery
    this.#entry = entry
  }

  get vehicle(): AnyVehicleView | undefined {
    return this.#entry.change?.view
  }

  get changes(): readonly Change[] {
    return this.#entry.change?.changes ?? none
  }
}

/** That of the handler of a batch. */
class BatchContext extends RunContext {
  readonly deliveries: readonly Delivery[]
  readonly #entries: readonly Entry[]

  constructor(log: Log, env: object, deliveries: readonly Delivery[], entries: readonly Entry[]) {
    super(log, env)
    this.deliveries = deliveries
    this.#entries = entries
  }

  get vehicles(): readonly (AnyVehicleView | undefined)[] {
    return this.#entries.map(({ change }) => change?.view)
  }

  get changes(): readonly (readonly Change[])[] {
    return this.#entries.map(({ change }) => change?.changes ?? none)
  }
}
