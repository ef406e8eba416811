import { elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { resolvedOr } from '../core/draining.ts'
import { Lifecycle } from '../core/lifecycle.ts'
import type { Ack, DrainOptions, DrainResult, Durability } from '../hosting/drainable.ts'
import { isBound, noRequest, type RequestScope } from '../hosting/execution-context.ts'
import type { Refusal } from '../http/answers.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { DeadLetters, Forgotten, Messages, ReplaySelection } from '../inbox/dead-letters.ts'
import type { InboxGap, InboxMessage, KeptGap } from '../inbox/inbox.ts'
import type { Observer } from '../inbox/observer.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Failing, Stats } from '../inbox/stats.ts'
import type { Vehicles } from '../vehicles/vehicles.ts'
import { type Backend, type BackendParts, type BackendState, cannotForget, statsOf } from './backend.ts'
import { guardedLog } from '../base/log.ts'
import { GapReporting } from '../gaps/reporting.ts'

/** Forwards messages to where they are kept and handled. */
export interface Relay {
  readonly durability: Durability
  /** It handles messages in the order of `put`, so gap events are put before the messages that follow the gap. Default `false`. */
  readonly keepsOrder?: boolean
  /**
   * Resolves when all are as durable as `durability` says, or to a refusal. Rejects when the other side is out of
   * reach. `gaps`: those that no kept event reports yet, for a relay with `vehicles`.
   */
  put(messages: readonly InboxMessage[], env: unknown, gaps?: readonly KeptGap[]): Promise<Refusal | undefined>
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  /** The states of vehicles. Left out when the other side cannot keep them. */
  readonly vehicles?: Vehicles<FieldCatalogue>
  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number>
  /** Left out: the other side does not know it. */
  failing?(): Promise<Failing>
  /** Left out: the other side cannot erase a vehicle. */
  forget?(vin: string, dryRun: boolean): Promise<Forgotten>
}

/** How long health checks report a refusal when no further message comes, in milliseconds. */
const refusingMs = 5_000

/** The backend of a process in which no handler runs: nothing waits here, and nothing is left when it ends. */
export class RelayBackend implements Backend {
  readonly ack: Ack
  readonly durability: Durability
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  readonly lifecycle: Lifecycle
  /** The state of a vehicle is kept where its messages are handled. */
  readonly vehicles: Vehicles<FieldCatalogue> | undefined
  readonly isReady = true
  isDraining = false
  readonly #relay: Relay
  readonly #parts: BackendParts
  readonly #gaps: GapReporting
  #refused: { readonly error: 'inbox_full' | 'inbox_unavailable'; readonly atMs: number } | undefined
  #draining: Promise<DrainResult> | undefined

  constructor(relay: Relay, parts: BackendParts) {
    const { ack = 'stored' } = parts.settings
    if (parts.vehicles !== undefined && relay.vehicles === undefined) {
      throw parts.vehicles.noStore('only forwards messages')
    }
    if (ack === 'handled') {
      throw new FleethookError(
        'ack_unavailable',
        "Option `ack` is 'handled', and this inbox forwards messages, which are handled later.",
        { hint: "Use ack: 'stored', the default, or an inbox in memory." },
      )
    }
    this.ack = ack
    this.durability = relay.durability
    this.deadLetters = relay.deadLetters
    this.messages = relay.messages
    this.vehicles = parts.vehicles && relay.vehicles
    this.lifecycle = new Lifecycle(parts.settings.clock)
    this.#relay = relay
    this.#gaps = new GapReporting({
      clock: parts.settings.clock,
      log: guardedLog(parts.settings.log),
      scope: noRequest,
      hasRoom: () => true,
      put: async (events, { env }) =>
        (await this.#putOwn(events.map(parts.receipts.own), env)) ? { handled: async () => {} } : undefined,
      uncertain: () => {},
      hold: (from, run) => this.#hold(from, run()),
    })
    this.#parts = parts
  }

  async becomeReady(): Promise<boolean> {
    return true
  }

  async open(): Promise<void> {}

  async put(messages: readonly InboxMessage[], from: RequestScope): Promise<Refusal | undefined> {
    if (messages.length === 0) return undefined
    if (this.#relay.keepsOrder === true) this.#gaps.emitAll(from)
    const stored = this.#store(messages, from)
    if (this.ack === 'stored') return stored
    const { reports } = this.#parts
    this.#hold(
      from,
      stored.then((refusal) => {
        if (refusal !== undefined) reports.noteLost(messages)
      }),
    )
    return undefined
  }

  async putInternal(message: InboxMessage, { env }: RequestScope): Promise<boolean> {
    return this.#putOwn([message], env)
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    const { clock } = this.#parts.settings
    const refused = this.#refused
    return refused !== undefined && elapsedMs(clock) - refused.atMs < refusingMs ? refused.error : undefined
  }

  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number> {
    return this.#relay.replay(which, from)
  }

  async forget(vin: string, { dryRun = false }: { readonly dryRun?: boolean } = {}): Promise<Forgotten> {
    const erased = await (this.#relay.forget?.(vin, dryRun) ?? cannotForget())
    if (!dryRun) this.letGoOf(vin)
    return erased
  }

  letGoOf(vin: string): void {
    this.#gaps.forget(vin)
    this.#parts.reports.observers.forgotten?.(vin)
  }

  noteGap(gap: InboxGap, from?: RequestScope): void {
    this.#gaps.note(gap, from)
    if (from === undefined) this.reportGaps()
  }

  /** The other side may take messages again: reports the open gaps. Else they would wait for the next message. */
  reportGaps(): void {
    this.#gaps.start(noRequest)
  }

  openGaps(): readonly KeptGap[] {
    return this.#gaps.list()
  }

  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  readonly stats = (): Stats => statsOf(this, this.#parts.reports)

  readonly failing = async (): Promise<Failing> => {
    if (this.#relay.failing !== undefined) return this.#relay.failing()
    throw new FleethookError(
      'inbox_unsupported',
      'No handler runs in this process, and it does not know those of others.',
    )
  }

  readonly observe = (observer: Observer): (() => void) => this.#parts.reports.observers.add(observer)

  state(): BackendState {
    const none = {
      handled: 0,
      retried: 0,
      deadLettered: 0,
      duplicates: 0,
      lost: 0,
      handedOver: 0,
      forgotten: 0,
      running: 0,
      lanes: 0,
    }
    const [backlog, failing] = [undefined, undefined]
    const pending = { messages: 0, bytes: 0 }
    return { ...none, pending, backlog, failing, inbox: {}, resting: [], openGaps: this.#gaps.size }
  }

  async #send(
    messages: readonly InboxMessage[],
    env: unknown,
    outOfReach: () => void = () => {},
  ): Promise<Refusal | undefined> {
    const { settings, reports } = this.#parts
    const gaps = this.vehicles === undefined ? [] : this.#gaps.list()
    const refusal = await this.#relay.put(messages, env, gaps).catch((error: unknown): Refusal => {
      reports.dispatch.inboxFailed(error)
      outOfReach()
      return { error: 'inbox_unavailable', hint: error instanceof FleethookError ? error.message : undefined }
    })
    const error = refusal?.error
    const shows = error === 'inbox_full' || error === 'inbox_unavailable'
    this.#refused = shows ? { error, atMs: elapsedMs(settings.clock) } : undefined
    return refusal
  }

  async #store(messages: readonly InboxMessage[], from: RequestScope): Promise<Refusal | undefined> {
    const refusal = await this.#send(messages, from.env, () => {
      // The other side does not know that it was out of reach, so this side reports the gap.
      this.#noteMissed(messages, 'inbox_unavailable')
      this.#gaps.soon(from, refusingMs)
    })
    if (refusal !== undefined) {
      if (refusal.error === 'body_too_large') {
        this.#noteMissed(messages, refusal.error)
        this.#gaps.soon(from)
      }
      return refusal
    }
    this.#parts.reports.noteAccepted(messages)
    if (this.#gaps.size > 0) this.#gaps.start(from)
    return undefined
  }

  async #putOwn(messages: readonly InboxMessage[], env: unknown): Promise<boolean> {
    if ((await this.#send(messages, env)) !== undefined) return false
    for (const { event } of messages) if (event?.topic === 'gap') this.#parts.reports.observers.gap?.(event)
    return true
  }

  #noteMissed(messages: readonly InboxMessage[], reason: 'inbox_unavailable' | 'body_too_large'): void {
    for (const { lane, receivedAt } of messages)
      this.#gaps.note({ vin: vinOf(lane), reason, fromMs: receivedAt, missed: 1 })
  }

  async #drain({ deadlineMs = 25_000, takeUntil }: DrainOptions): Promise<DrainResult> {
    await resolvedOr(takeUntil, this.#parts.settings.clock, deadlineMs)
    this.isDraining = true
    this.#gaps.start(noRequest)
    this.#gaps.drain()
    await this.lifecycle.until(() => this.lifecycle.isQuiet, deadlineMs)
    this.#parts.reports.noteUnreportedGaps(this.#gaps.size)
    return { handled: 0, left: 0, lost: 0 }
  }

  #hold({ context }: RequestScope, work: Promise<unknown>): void {
    this.lifecycle.enter()
    const done = work.finally(() => this.lifecycle.leave())
    if (isBound(context)) context.waitUntil(done)
  }
}
