import { elapsedMs, resolvedOr } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { guardedLog, type Log } from '../base/log.ts'
import { Core, type CoreOptions } from '../core/core.ts'
import { drain } from '../core/draining.ts'
import type { RequestWork } from '../core/message.ts'
import type { Lifecycle } from '../core/runner.ts'
import type { Part } from '../core/part.ts'
import type { Registry } from '../core/registry.ts'
import { retryOptions } from '../core/retry.ts'
import type { FactsEvent, GapReason, TimerEvent } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import { GapReporting } from '../gaps/gaps.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../hosting/drainable.ts'
import { isBound, noRequest, type RequestScope } from '../hosting/execution-context.ts'
import type { Refusal } from '../http/answers.ts'
import type { Stats } from '../observe/stats.ts'
import {
  type Erased,
  type Inbox,
  type InboxEvent,
  type InboxFactory,
  type InboxHost,
  type InboxMessage,
  RefusedElsewhere,
  refusingMs,
  type Waiting,
} from '../inbox/inbox.ts'
import type { BranchBehind, Operated, OperatorApi } from '../observe/observer.ts'
import { deadMessage, type Receipts, vinOf } from '../inbox/receipts.ts'
import type { Window } from '../inbox/window.ts'
import type { KeptVehicles } from '../parts/vehicles.ts'
import type { VehicleStates } from '../vehicles/open.ts'
import type { LocalVehicles, Vehicles } from '../vehicles/vehicles.ts'
import { Readiness } from './readiness.ts'
import type { Following, FollowingHost } from './following.ts'
import type { Settings } from './options.ts'
import type { Reports } from '../reports/reports.ts'

/** Where a receiver has its branches. */
export interface Behind {
  readonly byName: Map<string, BranchBehind>
  branches: BranchesBehind | undefined
  /** How the receiver was opened, once it is. */
  opened: OpenOptions | undefined
}

/** All of them. What they need is in `src/branch`, so who has none does not bundle it. */
export interface BranchesBehind {
  /** The receiver is open. */
  open(options: OpenOptions): void
  /** The same branches behind another intake of this receiver: each Durable Object has one, and one for each of them, which `intakeOf` makes. */
  behind(front: Intake, intakeOf: (name: string, parts: ReceiverParts) => Intake): BranchesBehind
  /** Tells the branches what the receiver knows about time and gaps. */
  tellStates(tell: (states: VehicleStates) => void): void
  /** The receiver has drained, and puts nothing any more. Its inbox is closed after that. */
  quiet(): void
  drain(options: DrainOptions, front: Promise<DrainResult>): Promise<DrainResult>
  /** Ends the work on a vehicle in the branches. Resolves to a function that notes what was erased. */
  letGo(vin: string): Promise<(erased: Erased) => void>
  stats(): Stats['branches']
}

export interface ReceiverParts {
  readonly settings: Settings
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
  readonly vehicles: KeptVehicles | undefined
  readonly behind: Behind
  readonly operatedBy: (intake: Intake) => Intake['operator']
  /** For a branch. Who has none does not bundle it. */
  readonly follows?: ((host: FollowingHost) => Following) | undefined
}

/**
 * Where a receiver puts messages: the inbox keeps them, and the core runs their handlers, unless the inbox hands them out elsewhere. What the
 * inbox refuses is a gap.
 */
export class Intake {
  readonly parts: ReceiverParts
  readonly ack: Ack
  readonly inbox: Inbox
  readonly core: Core
  readonly gaps: GapReporting
  readonly operator: Operated & Pick<OperatorApi, 'vehicles'>
  /** The states of vehicles in this process, as messages change them and as operators see them. */
  readonly states: VehicleStates | undefined
  /** The newest state of each vehicle. `undefined`: nothing keeps it. */
  readonly vehicles: Vehicles<FieldCatalogue> | undefined
  readonly readiness: Readiness
  /** For what no request brings: messages that the inbox finds, and gaps. */
  readonly scope: RequestScope
  isDraining = false
  /** A drain has ended all work, and nothing is put any more. The inbox is closed after that. */
  isClosed = false
  #draining: Promise<DrainResult> | undefined
  #notListeningMs = (): number => 0

  constructor(parts: ReceiverParts, createInbox: InboxFactory = parts.settings.inbox, scope: RequestScope = noRequest) {
    const { settings, receipts, reports, vehicles } = parts
    const { clock } = settings
    this.parts = parts
    this.scope = scope
    // A log that throws must not stop the inbox between a write and its report.
    const log = guardedLog(settings.log)
    this.gaps = new GapReporting({
      clock,
      log,
      scope,
      hasRoom: () => this.readiness.isRecovered && this.window?.isBehind !== true && !this.#takesNothing(),
      mayHandle: () => !this.lifecycle.startsNoMore,
      put: (events, from) => this.#storeOwn(events.map(receipts.own), from),
      stoodStill: () => this.#tellStates((states) => states.timers.stoodStill()),
      uncertain: (gap) => this.#tellStates((states) => states.noteGap(gap)),
      inBackground: (from, run) => this.#inBackground(from, run),
    })
    this.inbox = createInbox(this.#host(log))
    this.states =
      this.inbox.shared?.states === undefined
        ? vehicles?.in(this.inbox, clock, receipts.ids, reports.inboxFailed)
        : undefined
    this.vehicles = vehicles?.whole(this, clock)
    this.ack = chooseAck(settings.ack, this.durability)
    this.core = new Core(this.#handling())
    this.readiness = new Readiness(this, parts.follows?.(this))
    this.operator = parts.operatedBy(this)
  }

  /** What the inbox sees of its receiver. */
  #host(log: Log): InboxHost {
    const { settings, registry, receipts, reports, vehicles } = this.parts
    const { clock, limits, ack } = settings
    return {
      clock,
      log,
      limits,
      read: receipts.reread,
      on: (event) => this.#heard(event),
      ack,
      states: vehicles && (() => vehicles.inMemory(log)),
      receiver: {
        openGaps: () => {
          // A crash must not lose counts of refused requests that no gap covers. While the inbox cannot be opened, each message tries that again.
          if (this.readiness.isRecovered) reports.refusals.flush()
          return this.gaps.list()
        },
        notListeningMs: () => this.#notListeningMs(),
        handlers: () => registry.added,
        inLanes: () => this.core.lanes.messages,
        operator: () => this.operator,
      },
    }
  }

  /** What the core handles messages with. */
  #handling(): CoreOptions {
    const { settings, registry, receipts, reports } = this.parts
    const { clock, concurrency, timeoutMs } = settings
    return {
      clock,
      log: settings.log,
      concurrency,
      givesWay: settings.branch !== undefined,
      timeoutMs,
      retry: retryOptions(settings.retry, this.durability !== 'memory'),
      inbox: this.inbox,
      registry,
      vehicles: this.states,
      parts: settings.parts.flatMap((part): readonly Part[] => ('create' in part ? [part.create()] : [])),
      read: receipts.reread,
      reports,
      died: (letter, request) => {
        const told = reports.noteDead(deadMessage(letter, receipts.reread), this.durability)
        // On a function, what goes on after the answer is frozen.
        if (told !== undefined) request.alsoWaitFor(this.during(() => resolvedOr(told, clock, timeoutMs)))
      },
      missed: (lane, fromMs) => this.gaps.note({ vin: vinOf(lane), reason: 'deadline', fromMs, missed: 1 }),
      onCapacity: (request) => {
        this.window?.refill()
        if (this.gaps.open.size > 0) this.gaps.emit(request)
      },
    }
  }

  get durability(): Durability {
    return this.inbox.durability
  }

  get lifecycle(): Lifecycle {
    return this.core.lifecycle
  }

  /** `undefined`: every message that waits has its place. */
  get window(): Window<Waiting> | undefined {
    return this.readiness.window
  }

  /** How this process reads the states. `undefined`: others keep them. */
  get ownVehicles(): LocalVehicles | undefined {
    return this.states?.api(() => this.readiness.whenRecovered())
  }

  /** Messages get their places before the inbox has them. */
  get placesFirst(): boolean {
    return (this.inbox.shared?.handsOut ?? 'here') === 'here'
  }

  /** What is put is handed out in this process. */
  get isHere(): boolean {
    return this.placesFirst || this.inbox.shared?.handsOut === 'stored'
  }

  /** What the inbox reports. */
  #heard(event: InboxEvent): void {
    const { core, gaps } = this
    const { reports } = this.parts
    if (event.type === 'failed') reports.inboxFailed(event.error)
    else if (event.type === 'waiting') this.readiness.adopt(event.messages)
    else if (event.type === 'refused') core.refused(event.id, event.reason)
    else if (event.type === 'dropped') reports.counts.deadLettersDropped += event.deadLetters
    else if (event.type === 'gone') {
      const gone = new Set(event.ids)
      const reason = new FleethookError('handed_over', 'Another process has taken over the message.')
      core.drop(({ id }) => gone.has(id), 'handedOver', reason)
    } else if (event.type === 'gap' || event.type === 'available') {
      if (event.type === 'gap') gaps.note(event.gap)
      gaps.emit(this.scope)
    } else this.readiness.following?.hear(event)
  }

  /**
   * Why load balancers should send messages elsewhere; `undefined`: here they are taken. From the call of `drain` on, another process is to get them,
   * although this one still takes some.
   */
  busy(): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#draining === undefined ? this.inbox.refusing() : 'draining'
  }

  /** Keeps messages. The answer may leave at once, or when the promise resolves. With a refusal they are not kept. */
  put(messages: readonly InboxMessage[], from: RequestScope): Refusal | undefined | Promise<Refusal | undefined> {
    if (messages.length === 0) return undefined
    const { takesNone, keepsOrder } = this.inbox.shared ?? {}
    // A balancer that posts here loses messages.
    if (takesNone !== undefined) {
      this.#noteMissed(messages, 'inbox_unavailable')
      this.gaps.soon(from)
      return takesNone
    }
    if (this.#takesNothing()) return { error: 'draining' }
    if (keepsOrder === true) this.gaps.emitAll(from)
    if (this.ack === 'received' && this.durability !== 'memory') {
      this.#putAfterAnswer(messages, from)
      return undefined
    }
    try {
      const stored = this.#store(messages, from)
      const mayAnswer = !(stored instanceof Promise) && this.ack !== 'handled' && from.context?.watch === undefined
      return mayAnswer ? undefined : this.#whenStored(stored, messages, from)
    } catch (error) {
      return this.#noteRefused(messages, error, from)
    }
  }

  /** Resolves when the answer may leave. */
  async #whenStored(
    stored: RequestWork | Promise<RequestWork>,
    messages: readonly InboxMessage[],
    from: RequestScope,
  ): Promise<Refusal | undefined> {
    let request: RequestWork
    try {
      request = await stored
    } catch (error) {
      return this.#noteRefused(messages, error, from)
    }
    request.context?.watch?.(request.settled())
    return this.ack === 'handled' ? this.#whenHandled(request, messages) : undefined
  }

  /** Gives messages their places and puts them into the inbox. Throws or rejects with what the inbox says. */
  #store(messages: readonly InboxMessage[], from: RequestScope): RequestWork | Promise<RequestWork> {
    // When too many messages wait already, these wait in the inbox only.
    const isPlaced = !this.placesFirst || this.window?.takes(messages.at(-1)?.id ?? '') !== false
    const window = isPlaced ? undefined : this.window
    if (window !== undefined) this.readiness.expect(messages, from)
    const request = this.core.add(this.placesFirst && window === undefined ? messages : [], from)
    const cancel = (error: unknown): never => {
      this.core.cancel(request)
      throw error
    }
    let stored: void | Promise<void>
    try {
      stored =
        window === undefined
          ? this.inbox.put(messages, from)
          : window.put(messages, () => this.inbox.put(messages, from))
    } catch (error) {
      return cancel(error)
    }
    return stored instanceof Promise
      ? stored.then(() => this.#start(request, messages), cancel)
      : this.#start(request, messages)
  }

  /** The inbox has the messages, so their handlers start. */
  #start(request: RequestWork, messages: readonly InboxMessage[]): RequestWork {
    this.core.start(request)
    // Not the messages that the receiver made.
    if (messages[0]?.kind !== 'wire') return request
    this.parts.reports.noteAccepted(messages)
    if (this.gaps.open.size > 0) this.gaps.start(request)
    return request
  }

  async #whenHandled(request: RequestWork, [first]: readonly InboxMessage[]): Promise<Refusal | undefined> {
    // No handler of this process will run any more.
    if (this.lifecycle.startsNoMore) return { error: 'draining' }
    await request.settled()
    if (request.unhandled > 0) return { error: this.lifecycle.startsNoMore ? 'draining' : 'not_handled_in_time' }
    // Only a dead letter that survives this process can be replayed later.
    if (request.givenUp === undefined || this.durability !== 'memory') return undefined
    const fromMs = first?.receivedAt ?? this.parts.settings.clock.now()
    for (const lane of request.givenUp) this.gaps.note({ vin: vinOf(lane), reason: 'not_handled', fromMs, missed: 1 })
    this.gaps.start(request)
    return { error: 'not_handled' }
  }

  /** Keeps a message that the receiver made itself, if there is room. Resolves to whether it is kept. */
  async putInternal(message: InboxMessage, from: RequestScope): Promise<boolean> {
    return this.inbox.shared?.takesNone === undefined && (await this.#storeOwn([message], from)) !== undefined
  }

  /** Keeps what the business says. Throws or rejects with what the inbox says when it is not kept. `undefined`: nothing is taken any more. */
  say(events: readonly FactsEvent[]): RequestWork | Promise<RequestWork> | undefined {
    return this.#takesNothing() ? undefined : this.#store(events.map(this.parts.receipts.own), this.readiness.scope)
  }

  /** Timers get their places behind the messages of their vehicles. Resolves to whether they are kept. */
  async putTimers(timers: readonly TimerEvent[]): Promise<boolean> {
    return (await this.#storeOwn(timers.map(this.parts.receipts.own), this.readiness.scope)) !== undefined
  }

  /** Takes no more messages once `takeUntil` resolves, ends all work, and closes the inbox. */
  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  /** Stores messages whose answer leaves now. */
  #putAfterAnswer(messages: readonly InboxMessage[], from: RequestScope): void {
    // What it throws is handled below, as what it rejects with.
    const stored = (async () => this.#store(messages, from))()
    this.#inBackground(from, async () => {
      try {
        await stored
      } catch (error) {
        this.#noteRefused(messages, error, from)
        this.parts.reports.noteLost(messages)
      }
    })
    from.context?.watch?.(stored.then((request) => request.settled()).catch(() => {}))
  }

  /** Stores messages that the receiver made, behind those of their vehicles. Resolves to `undefined` when the inbox refuses. */
  async #storeOwn(messages: readonly InboxMessage[], from: RequestScope): Promise<RequestWork | undefined> {
    if (this.#takesNothing()) return undefined
    try {
      const request = await this.#store(messages, from)
      const { gap } = this.parts.reports.observers.tell
      if (gap !== undefined) for (const { event } of messages) if (event?.topic === 'gap') gap(event)
      return request
    } catch (error) {
      this.#noteFailed(error)
      return undefined
    }
  }

  /** The inbox did not take these messages. Notes the gap, unless the other side has, and returns why. */
  #noteRefused(messages: readonly InboxMessage[], error: unknown, from: RequestScope): Refusal {
    if (error instanceof RefusedElsewhere) return error.refusal
    const { hint } = error instanceof FleethookError ? error : {}
    const reason = this.#noteFailed(error)
    this.#noteMissed(messages, reason)
    // There is room for the event of the gap. An inbox in this process says itself when it has room again.
    if (reason === 'body_too_large') this.gaps.soon(from)
    else if (!this.isHere) this.gaps.soon(from, refusingMs)
    // A full disk and slow handlers need different advice.
    return { error: reason, hint: reason === 'inbox_unavailable' ? this.hintOf(error) : hint }
  }

  #noteMissed(messages: readonly InboxMessage[], reason: GapReason): void {
    for (const { lane, receivedAt } of messages)
      this.gaps.note({ vin: vinOf(lane), reason, fromMs: receivedAt, missed: 1 })
  }

  /** That it is full, or a body too large, is no failure. */
  #noteFailed(error: unknown): 'inbox_full' | 'body_too_large' | 'inbox_unavailable' {
    const code = error instanceof FleethookError ? error.code : undefined
    if (code === 'inbox_full' || code === 'body_too_large') return code
    if (!(error instanceof RefusedElsewhere)) this.parts.reports.inboxFailed(error)
    return 'inbox_unavailable'
  }

  /** Where an inbox in this process has failed, the log says more than the answer may. */
  hintOf(error: unknown): string | undefined {
    return !this.isHere && error instanceof FleethookError ? error.message : undefined
  }

  /** A durable inbox keeps messages for the next process until it closes. In memory nobody would handle them. */
  #takesNothing(): boolean {
    return this.isClosed || (this.lifecycle.startsNoMore && this.durability === 'memory')
  }

  #tellStates(tell: (states: VehicleStates) => void): void {
    if (this.states !== undefined) tell(this.states)
    this.parts.behind.branches?.tellStates(tell)
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { clock } = this.parts.settings
    const { takeUntil, notListeningMs = () => 0 } = options
    let refusesSinceMs = Infinity
    this.#notListeningMs = () => Math.max(elapsedMs(clock) - refusesSinceMs, notListeningMs())
    this.gaps.start(this.scope)
    const refuse = (): void => {
      if (this.isDraining) return
      refusesSinceMs = elapsedMs(clock)
      this.isDraining = true
      this.gaps.drain()
    }
    // An answer that waits for handlers would wait in vain.
    if (takeUntil === undefined || this.ack === 'handled') refuse()
    else takeUntil.then(refuse, refuse)
    const result = await drain(this.core, options)
    refuse()
    this.isClosed = true
    this.parts.behind.branches?.quiet()
    this.parts.reports.noteUnreportedGaps(this.inbox.time === 'kept' ? 0 : this.gaps.open.size)
    const left = this.window?.isBehind === true ? this.inbox.usage().messages : result.left
    await this.inbox.close(clock.now() - Math.ceil(this.#notListeningMs()))
    return { ...result, left }
  }

  /** A drain waits for it. */
  async during(run: () => Promise<void>): Promise<void> {
    this.lifecycle.enter()
    try {
      await run()
    } finally {
      this.lifecycle.leave()
    }
  }

  /** Work that no answer waits for. A drain waits for it, and a bound request is kept alive for it. */
  #inBackground({ context }: RequestScope, run: () => Promise<void>): void {
    const done = this.during(run)
    if (isBound(context)) context.waitUntil(done)
  }
}

/** When the 2xx is sent. Throws `ack_unavailable` for a promise that the inbox cannot keep. */
function chooseAck(ack: Ack | undefined, durability: Durability): Ack {
  const isMemory = durability === 'memory'
  if (ack === 'stored' && isMemory) {
    throw new FleethookError(
      'ack_unavailable',
      "Option `ack` is 'stored' and the inbox keeps messages in memory only.",
      { hint: "Use a durable inbox, or ack: 'received' or 'handled'." },
    )
  }
  return ack ?? (isMemory ? 'received' : 'stored')
}
