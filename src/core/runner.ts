import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { PassingMap } from '../base/passing-map.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { isBound, type RequestScope } from '../hosting/execution-context.ts'
import type { Delivery, RunEnd } from '../observe/observer.ts'
import type { AnyVehicleView, Change } from '../vehicles/edge.ts'
import type { Registered, Message } from './message.ts'
import type { Reports } from '../reports/reports.ts'

/** How long handlers may be started one after another before other tasks get their turn, in milliseconds. */
const sliceMs = 10

/**
 * A receiver that gives way starts this many handlers in a task, or as many as fit into this part of the time that the last one took: where each commit
 * takes 50 ms, a few starts for each of them would be very slow, and nobody would feel more. The longest rest between two tasks is in milliseconds.
 */
const startsAtOnce = 4
const partOfTask = 0.1
const longestRestMs = 50

/**
 * What is under way in a receiver, and how far its drain is. Says when handlers may start: in tasks of their own, and only for a short time in each,
 * so that no answer waits.
 */
export class Lifecycle {
  /** Turns: messages and batches that have one of the `concurrency` slots. Only the core changes it. */
  running = 0
  /** Where messages may still come from: a drain waits until there is none. */
  expected = 0
  /** A drain has begun: batches do not wait to fill up. Only `drain` changes this and the next one. */
  isDraining = false
  /** No handler starts any more, but some may still run. A durable inbox's drain begins so; in memory it ends so. */
  startsNoMore = false
  /** Called whenever something has ended, while a drain waits for it. */
  onChange: (() => void) | undefined
  readonly #clock: Clock
  readonly #givesWay: boolean
  readonly #start: () => void
  #starts = 0
  #wanted = false
  #isArmed = false
  /** By the clock that is never set back: when the task began, and how long the last one took with its rest. */
  #startedAtMs = 0
  #lastTaskMs = 0
  #timersEndWithRequests = false

  constructor(clock: Clock, givesWay: boolean, start: () => void) {
    this.#clock = clock
    this.#givesWay = givesWay
    this.#start = start
  }

  enter(): void {
    this.expected += 1
  }

  leave(): void {
    this.expected -= 1
    this.onChange?.()
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

  later(): void {
    this.#wanted = true
    if (!this.#isArmed) this.#arm()
  }

  /** The same for work that is bound to its request, which cannot use the timer of another one. */
  laterInContext(run: () => void): void {
    this.#timersEndWithRequests = true
    setTimeout(run, 0)
  }

  /** Whether one more handler may start in this task. If not, more start in a new one. */
  mayStart(): boolean {
    // Such a runtime limits the CPU time of a request itself.
    if (this.#timersEndWithRequests) return true
    if (!this.#isArmed) this.#arm()
    else if (this.#tookMs >= this.#sliceMs) {
      this.#wanted = true
      return false
    }
    this.#starts += 1
    return true
  }

  /** How long this task has taken, in milliseconds. */
  get #tookMs(): number {
    return elapsedMs(this.#clock) - this.#startedAtMs
  }

  /** How long handlers may be started in this task, in milliseconds. */
  get #sliceMs(): number {
    if (!this.#givesWay || this.#starts < startsAtOnce) return sliceMs
    return Math.min(sliceMs, this.#lastTaskMs * partOfTask)
  }

  #arm(): void {
    this.#isArmed = true
    this.#beginTask()
    this.#setTimer()
  }

  #beginTask(): void {
    this.#starts = 0
    this.#startedAtMs = elapsedMs(this.#clock)
  }

  /** Until this timer fires, the process is still in the task that set it, or in tasks that followed without a pause. */
  #setTimer(): void {
    // The task is over then, with all that others did in it. Then start nothing for as long again: a busy process gives way more.
    const rest = (): unknown => setTimeout(this.#run, Math.min(longestRestMs, this.#tookMs))
    setTimeout(this.#givesWay ? rest : this.#run, 0)
  }

  readonly #run = (): void => {
    this.#lastTaskMs = this.#tookMs
    if (this.#wanted) {
      this.#wanted = false
      this.#beginTask()
      this.#start()
      // Handlers that have started and are not done may go on, and let others start, in this same task.
      if (this.#wanted || (this.#starts > 0 && this.running > 0)) return this.#setTimer()
    }
    this.#isArmed = false
  }
}

/** How a run ended: what its handler threw, which need not be an `Error`. `undefined`: it is done. */
export type Ran = RunEnd['failure']

/** A run whose handler is asynchronous. */
interface Run {
  readonly handler: Registered
  readonly owner: RequestScope
  readonly context: MessageContext
  readonly messages: readonly Message[]
  /** The event of the first message, as it was when the run began. */
  readonly event: FleetEvent | MalformedBody
  readonly size: number | undefined
  readonly resolve: (failure: Ran) => void
  /** Its own timer, if its work is bound to its request: a runtime ends timers with the request that set them. */
  timer?: Timer
  /** When it began, by the clock that is never set back. */
  readonly startedMs: number
  /** When its time limit was reached, in milliseconds since the epoch. */
  lateFromMs?: number
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
  readonly #endedLate: (handler: Registered, messages: readonly Message[]) => void
  readonly #active = new PassingMap<Run, Run>()
  /** Why runs were aborted: what ends with one of these has not failed. */
  readonly #reasons = new WeakSet<Error>()
  /** Fires when the time limit of the oldest run is reached, or of an older run that has ended. All limits are the same, so one timer is enough. */
  #timer: Timer | undefined

  constructor(options: RunnerOptions, endedLate: (handler: Registered, messages: readonly Message[]) => void) {
    this.#options = options
    this.#endedLate = endedLate
  }

  /**
   * Runs a handler for one message, or the handler of a batch for several. It needs a promise only if the handler is asynchronous. `known`: the delivery of
   * the one message.
   */
  run(handler: Registered, given: readonly Message[], owner: RequestScope, known?: Delivery): Ran | Promise<Ran> {
    const { log, reports, clock, timeoutMs } = this.#options
    const { wants, input, gather } = handler
    let startedMs: number | undefined
    try {
      // The filter of a handler that throws fails the handler, so it is asked again here.
      const messages =
        wants === undefined ? given : given.filter((each) => each.event !== undefined && wants(each.event, each))
      const [message] = messages
      const deliveries = known === undefined ? messages.map((each) => each.delivery()) : [known]
      const [delivery] = deliveries
      if (message?.event === undefined || delivery === undefined) return undefined
      const { event } = message
      const isBatch = gather !== undefined
      const context = new MessageContext(log, owner.env ?? {}, delivery, message)
      const inputs = input === undefined ? undefined : messages.map((each) => input(each))
      const what = isBatch ? (inputs ?? messages.map((each) => each.event)) : inputs === undefined ? event : inputs[0]
      if (reports.observers.tell.ran !== undefined) startedMs = elapsedMs(clock)
      const result = handler.run(what, isBatch ? new BatchContext(context, deliveries, messages) : context)
      // A synchronous handler needs neither a timer nor a place among the active runs.
      if ((typeof result !== 'object' && typeof result !== 'function') || !isThenable(result)) {
        if (startedMs !== undefined) this.#ran(handler, startedMs)
        return undefined
      }
      return new Promise((resolve) => {
        const size = isBatch ? given.length : undefined
        const beganMs = startedMs ?? elapsedMs(clock)
        const run: Run = { handler, owner, context, messages, event, size, resolve, startedMs: beganMs }
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
    } catch (error) {
      if (startedMs !== undefined) this.#ran(handler, startedMs)
      return { error }
    }
  }

  /** Aborts the signals of active runs. The runs end with this reason, whether or not their handlers listen. */
  abort(reason: FleethookError, which: (run: Run) => boolean = () => true): void {
    this.#reasons.add(reason)
    for (const run of this.#active.values()) if (which(run)) this.#abort(run, reason)
  }

  /** Whether a run ended because it was aborted: by the reason itself, or by an error that was made of it. */
  isAbort(error: unknown): boolean {
    try {
      if (!(error instanceof Error)) return false
      return this.#reasons.has(error) || (error.cause instanceof Error && this.#reasons.has(error.cause))
    } catch {
      // An error that cannot be read is not ours.
      return false
    }
  }

  #finish(run: Run, failure: Ran): void {
    const { clock, reports } = this.#options
    if (!this.#active.delete(run)) {
      const { handler, messages, event, context, size, lateFromMs } = run
      if (lateFromMs === undefined) return
      if (failure === undefined && handler.mark !== undefined) this.#endedLate(handler, messages)
      reports.endedLate(clock.now() - lateFromMs, event, context.delivery, { handler: handler.name, messages: size })
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

  #timeOut(run: Run): void {
    const { clock, timeoutMs } = this.#options
    // A handler with a mark has a transaction. A transaction that waits for itself looks like any other slow one, so each is told.
    const itself =
      ' If it takes a second connection of the pool of its transaction, it waits for itself: use the transaction.'
    const hint = `Pass \`context.signal\` on to what it waits for, or raise \`timeoutMs\`.${run.handler.mark === undefined ? '' : itself}`
    run.lateFromMs = clock.now()
    this.#abort(run, new FleethookError('handler_timeout', `A handler took longer than ${timeoutMs} ms.`, { hint }))
  }

  #ran({ name }: Registered, startedMs: number): void {
    const { reports, clock } = this.#options
    reports.observers.tell.ran?.(name, elapsedMs(clock) - startedMs)
  }

  #abort(run: Run, reason: unknown): void {
    MessageContext.abort(run.context, reason)
    this.#finish(run, { error: reason })
  }
}

function isThenable(value: object | null): value is PromiseLike<unknown> {
  return value !== null && 'then' in value && typeof value.then === 'function'
}

const textOf = ({ claim }: Message): string => claim?.message.text ?? ''

/** The second argument of a handler. A class, because a getter on each object costs more than the rest of the run. */
class MessageContext {
  readonly log: Log
  readonly env: object
  readonly delivery: Delivery
  readonly text: string
  readonly #message: Message
  #controller: AbortController | undefined

  constructor(log: Log, env: object, delivery: Delivery, message: Message) {
    this.log = log
    this.env = env
    this.delivery = delivery
    // The claim is gone when a handler that takes too long reads it.
    this.text = textOf(message)
    this.#message = message
  }

  get signal(): AbortSignal {
    return (this.#controller ??= new AbortController()).signal
  }

  static abort(context: MessageContext, reason: unknown): void {
    context.#controller ??= new AbortController()
    context.#controller.abort(reason)
  }

  get vehicle(): AnyVehicleView | undefined {
    return this.#message.step?.view
  }

  get changes(): readonly Change[] {
    return this.#message.step?.changes ?? none
  }
}

/** The same for a batch, around the context of its first message. */
class BatchContext {
  readonly log: Log
  readonly env: object
  readonly deliveries: readonly Delivery[]
  readonly texts: readonly string[]
  readonly #first: MessageContext
  readonly #messages: readonly Message[]

  constructor(first: MessageContext, deliveries: readonly Delivery[], messages: readonly Message[]) {
    this.log = first.log
    this.env = first.env
    this.deliveries = deliveries
    this.texts = messages.map(textOf)
    this.#first = first
    this.#messages = messages
  }

  get signal(): AbortSignal {
    return this.#first.signal
  }

  get vehicles(): readonly (AnyVehicleView | undefined)[] {
    return this.#messages.map(({ step }) => step?.view)
  }

  get changes(): readonly (readonly Change[])[] {
    return this.#messages.map(({ step }) => step?.changes ?? none)
  }
}
