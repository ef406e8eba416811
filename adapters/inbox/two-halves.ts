import { createDeadLetterReader, listedAfter } from '../../src/backend/replay.ts'
import { type Backend, type BackendParts, type BackendState, cannotForget, statsOf } from '../../src/backend/backend.ts'
import { LocalBackend } from '../../src/backend/local.ts'
import { RelayBackend } from '../../src/backend/relay.ts'
import { watchForStalls } from '../../src/gaps/gaps.ts'
import type { Clock } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { guardedLog } from '../../src/base/log.ts'
import type { Lifecycle } from '../../src/core/lifecycle.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../../src/hosting/drainable.ts'
import type { RequestScope } from '../../src/hosting/execution-context.ts'
import type { Refusal } from '../../src/http/answers.ts'
import type {
  DeadLetters,
  Forgotten,
  Messages,
  MessageSelection,
  Replayed,
  ReplayPage,
  ReplaySelection,
} from '../../src/inbox/dead-letters.ts'
import { Life, type Signs } from './signs-of-life.ts'
import type { DeadLetter, Inbox, InboxGap, InboxMessage, InboxSettings, Selection } from '../../src/inbox/inbox.ts'
import type { Observer } from '../../src/inbox/observer.ts'
import { vinOf } from '../../src/inbox/receipts.ts'
import type { Backlog, Failing, InboxStats, Stats } from '../../src/inbox/stats.ts'
import type { VehicleStore } from '../../src/inbox/vehicle-store.ts'

/** What a process does: `'receive'` only accepts messages, `'handle'` only runs handlers. */
export type Role = 'both' | 'receive' | 'handle'

/** The messages that other processes may have too, as an inbox of this process. Operators ask the system, for those of all processes. */
export interface SharedInbox extends Pick<
  Inbox,
  'put' | 'claim' | 'settle' | 'reschedule' | 'deadLetter' | 'usage' | 'close'
> {
  open(): Promise<void>
  isStillHeld(id: string): Promise<boolean>
  /** Why health checks of a process that only handles fail. */
  refusing(): 'inbox_unavailable' | undefined
  /** Starts no more handlers, waits for running ones, and writes down what is settled. For a stop, before handlers are aborted. */
  finish(withinMs: number): Promise<void>
  /** Hands out no more messages. */
  stop(): void
}

/** A system that several processes share: it keeps the messages. */
export interface SharedSystem {
  readonly durability: Durability
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  /** The states of vehicles. Left out: it cannot keep them. */
  readonly vehicles?: VehicleStore | undefined
  replay(which: ReplaySelection): Promise<number>
  /** Left out: a replay cannot go on where it was broken off. */
  replaySome?(which: ReplayPage): Promise<Replayed>
  /** Left out: it cannot erase a vehicle. */
  forget?(vin: string, dryRun: boolean): Promise<Forgotten>
  /** Connects and checks the system. Called again after it rejected. `front`: the half that receives, if this process does. */
  connect(front: RelayBackend | undefined): Promise<void>
  /** Keeps messages in the order of the calls. Resolves to a refusal, or rejects when the system cannot be used. */
  put(messages: readonly InboxMessage[]): Promise<Refusal | undefined>
  /** The half behind. Called once, after `connect`. */
  inbox(settings: InboxSettings): SharedInbox
  /** Where receivers leave signs of life, once it is connected. */
  signs(): Signs
  /** See `Life`. */
  earlier?(): readonly InboxGap[]
  /** Why a message would be refused now, apart from what the half in front knows. */
  refusing(): 'inbox_unavailable' | undefined
  /** Sentences for the operator. */
  facts(): readonly string[]
  figures(): InboxStats
  /** What waits for all processes, at the last look. `undefined`: not known yet. */
  backlog(): Backlog | undefined
  /** What fails in all processes, at the last look. Left out: the system does not keep it. */
  failing?(): Failing
  /** The same as of now, with the texts of errors. */
  failingNow?(): Promise<Failing>
  /** Closes what both halves share, after them. */
  close(): Promise<void>
}

/**
 * A receiver on a system that several processes share. The half in front is a relay that writes messages to the system. The half
 * behind is an inbox with the messages that this process may handle. A process has one of the halves, or both. Even with both, each
 * message goes through the system, and another process may handle it.
 */
export class TwoHalves implements Backend {
  readonly ack: Ack
  readonly durability: Durability
  readonly vehicles: Backend['vehicles']
  readonly lifecycle: Lifecycle
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  readonly replaySome: Backend['replaySome']
  notReadyHint: string | undefined
  readonly #role: Role
  readonly #parts: BackendParts
  readonly #system: SharedSystem
  readonly #front: RelayBackend | undefined
  readonly #back: LocalBackend | undefined
  #inbox: SharedInbox | undefined
  #life: Life | undefined
  #connecting: Promise<void> | undefined
  #opening: Promise<void> | undefined
  #readiness: Promise<boolean> | undefined
  #draining: Promise<DrainResult> | undefined
  #isOpen = false
  /** The gap of the time before this receiver is on its way. */
  readonly #accounted: Promise<void>
  #account = (): void => {}
  #isDraining = false
  #stopWatching = (): void => {}

  constructor(role: Role, parts: BackendParts, system: SharedSystem) {
    this.#role = role
    this.#accounted = new Promise((resolve) => {
      this.#account = resolve
    })
    this.#parts = parts
    this.#system = system
    this.durability = system.durability
    const { deadLetters, messages } = system
    // An operator may call these before the first message arrives, so each call connects first.
    this.deadLetters = {
      ...listedAfter(() => this.#connect(), deadLetters),
      replay: (which) => this.#connect().then(() => deadLetters.replay(which)),
      discard: (which) => this.#connect().then(() => deadLetters.discard(which)),
    }
    const replaySome = system.replaySome?.bind(system)
    this.replaySome = replaySome && ((which) => this.#connect().then(() => replaySome(which)))
    this.messages = listedAfter(() => this.#connect(), messages)
    const { vehicles: store } = system
    if (parts.vehicles !== undefined && store === undefined) throw parts.vehicles.noStore('only forwards messages')
    if (role !== 'receive') this.#back = this.#handling()
    this.vehicles = this.#back === undefined ? this.#listed(store) : this.#back.vehicles
    if (role !== 'handle')
      this.#front = new RelayBackend(
        {
          durability: system.durability,
          ...(this.vehicles === undefined ? {} : { vehicles: this.vehicles, keepsOrder: true }),
          deadLetters: this.deadLetters,
          messages: this.messages,
          replay: (which) => this.replay(which),
          // No await once the inbox is open, so messages keep the order of these calls.
          put: (received) => (this.#isOpen ? system.put(received) : this.#connect().then(() => system.put(received))),
        },
        parts,
      )
    const one = this.#front ?? this.#back
    if (one === undefined) throw new Error('A role has a front or a back.')
    this.ack = one.ack
    this.lifecycle = one.lifecycle
  }

  get isReady(): boolean {
    return this.#isOpen
  }

  get isDraining(): boolean {
    return this.#isDraining || this.#front?.isDraining === true
  }

  readonly stats = (): Stats => statsOf(this, this.#parts.reports)

  /** Of a system that does not keep it: what this process knows. */
  readonly failing = async (): Promise<Failing> => {
    await this.#connect()
    const failing = this.#system.failingNow?.() ?? this.#back?.failing() ?? this.#front?.failing()
    if (failing === undefined) throw new Error('A role has a front or a back.')
    return failing
  }

  readonly observe = (observer: Observer): (() => void) => this.#parts.reports.observers.add(observer)

  replay(which: ReplaySelection): Promise<number> {
    return this.#connect().then(() => this.#system.replay(which))
  }

  async forget(vin: string, { dryRun = false }: { readonly dryRun?: boolean } = {}): Promise<Forgotten> {
    await this.#connect()
    const erase = this.#system.forget?.bind(this.#system) ?? cannotForget
    if (dryRun) return erase(vin, true)
    this.#back?.letGoOf(vin)
    await this.vehicles?.forget(vin)
    const erased = await erase(vin, false)
    if (this.#front === undefined) this.#parts.reports.observers.forgotten?.(vin)
    else this.#front.letGoOf(vin)
    return erased
  }

  open(options: OpenOptions = {}): Promise<void> {
    return (this.#opening ??= this.#open(options).catch((error: unknown) => {
      this.#opening = undefined
      throw error
    }))
  }

  async becomeReady(): Promise<boolean> {
    const fromMs = this.#parts.settings.clock.now()
    this.#readiness ??= this.open().then(
      () => true,
      (error: unknown) => {
        this.#readiness = undefined
        this.notReadyHint = error instanceof FleethookError ? error.message : undefined
        this.#parts.reports.dispatch.inboxFailed(error)
        return false
      },
    )
    const isReady = await this.#readiness
    if (!isReady) this.noteGap({ reason: 'inbox_unavailable', fromMs, missed: 1 })
    return isReady
  }

  async put(messages: readonly InboxMessage[], from: RequestScope): Promise<Refusal | undefined> {
    if (this.#front !== undefined) return this.#front.put(messages, from)
    // A balancer that posts here loses messages.
    for (const { lane, receivedAt } of messages) {
      const vin = vinOf(lane)
      const gap = { reason: 'inbox_unavailable', fromMs: receivedAt, missed: 1 } as const
      this.#back?.noteGap(vin === undefined ? gap : { ...gap, vin }, from)
    }
    return handlesOnly
  }

  noteGap(gap: InboxGap, from?: RequestScope): void {
    if (this.#front === undefined) this.#back?.noteGap(gap, from)
    else this.#front.noteGap(gap, from)
  }

  async putInternal(message: InboxMessage, from: RequestScope): Promise<boolean> {
    return this.#front === undefined ? false : this.#front.putInternal(message, from)
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#front === undefined ? this.#inbox?.refusing() : (this.#system.refusing() ?? this.#front.refusing())
  }

  facts(): readonly string[] {
    return [
      ...(this.#role === 'handle' ? ['This process only runs handlers: it takes no messages.'] : []),
      ...(this.#role === 'receive' ? ['This process only receives: handlers run in others.'] : []),
      ...this.#system.facts(),
    ]
  }

  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  state(): BackendState {
    const front = this.#front?.state()
    const back = this.#back?.state()
    const state = back ?? front
    if (state === undefined) throw new Error('A role has a front or a back.')
    return {
      ...state,
      inbox: this.#system.figures(),
      backlog: this.#system.backlog(),
      failing: this.#system.failing?.() ?? state.failing,
      openGaps: (front?.openGaps ?? 0) + (back?.openGaps ?? 0),
    }
  }

  #connect(): Promise<void> {
    return (this.#connecting ??= this.#system.connect(this.#front).catch((error: unknown) => {
      this.#connecting = undefined
      throw error
    }))
  }

  /** The states of vehicles in a process that handles none. */
  #listed(store: VehicleStore | undefined): Backend['vehicles'] {
    const { vehicles, settings, receipts } = this.#parts
    if (store === undefined) return undefined
    const kept = vehicles?.in({
      inbox: { vehicles: store },
      clock: settings.clock,
      receipts,
      watchesTime: false,
      receives: false,
      failed: () => {},
      put: async () => false,
    })
    return kept?.states.api(() => this.#connect())
  }

  #handling(): LocalBackend {
    const { vehicles } = this.#system
    return new LocalBackend({
      ...this.#parts,
      settings: { ...this.#parts.settings, ack: 'stored' },
      // A stall of this half is no gap: others receive meanwhile.
      watchesTime: false,
      receives: this.#role !== 'handle',
      // A timer that was due meanwhile must know of the gap before it.
      timersAfter: this.#role === 'both' ? this.#accounted : undefined,
      inbox: (settings) =>
        inboxBehind(this.#system.durability, vehicles, async () => {
          await this.#connect()
          return (this.#inbox = this.#system.inbox(settings))
        }),
    })
  }

  async #open(options: OpenOptions): Promise<void> {
    await this.#connect()
    await this.#back?.open()
    this.#isOpen = true
    const front = this.#front
    if (front === undefined) return
    const { clock } = this.#parts.settings
    const log = guardedLog(this.#parts.settings.log)
    this.#life = new Life({
      clock,
      log,
      signs: this.#system.signs(),
      earlier: this.#system.earlier?.() ?? [],
      openGaps: () => front.openGaps(),
      onGap: (gap) => front.noteGap(gap),
      onSigned: () => front.reportGaps(),
      onAccounted: this.#account,
    })
    this.#life.start(options.listeningWasKept === true)
    this.#stopWatching = watchForStalls(clock, (fromMs, toMs) => {
      log.warn('the process stood still, and messages may be missing', { ms: toMs - fromMs })
      front.noteGap({ reason: 'stalled', fromMs, toMs })
    })
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { handlerGraceMs = 2_000, deadlineMs = 25_000, notListeningMs = () => 0 } = options
    this.#stopWatching()
    this.#life?.leave(notListeningMs)
    const [front, back] = await Promise.all([
      this.#front?.drain(options),
      this.#stopHandling(handlerGraceMs, deadlineMs),
    ])
    this.#isDraining = true
    await this.#life?.close()
    await this.#system.close()
    return back ?? front ?? { handled: 0, left: 0, lost: 0 }
  }

  /** Running handlers finish first. Then others learn at once that this process leaves, so another one can take over. */
  async #stopHandling(handlerGraceMs: number, deadlineMs: number): Promise<DrainResult | undefined> {
    const graceMs = Math.min(handlerGraceMs, deadlineMs)
    await this.#inbox?.finish(graceMs)
    const drained = this.#back?.drain({ deadlineMs: Math.max(0, deadlineMs - graceMs), handlerGraceMs: 0 })
    // Only after the drain has begun: from then on, a message that is not handed out counts as left.
    this.#inbox?.stop()
    return drained
  }
}

/** The half behind, as an inbox of this process. `connect` resolves to it when the system can be used. */
export function inboxBehind(
  durability: Durability,
  vehicles: VehicleStore | undefined,
  connect: () => Promise<SharedInbox>,
): Inbox {
  let shared: SharedInbox | undefined
  const opened = (): SharedInbox => {
    if (shared === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return shared
  }
  return {
    durability,
    ...(vehicles === undefined ? {} : { vehicles }),
    async open() {
      shared = await connect()
      await shared.open()
      return { waiting: none() }
    },
    put: (messages) => opened().put(messages),
    claim: (id) => opened().claim(id),
    isStillHeld: (id) => opened().isStillHeld(id),
    settle: (id, vehicle) => opened().settle(id, vehicle),
    reschedule: (id, next) => opened().reschedule(id, next),
    deadLetter: (id, reason, vehicle) => opened().deadLetter(id, reason, vehicle),
    deadLetters: async () => [],
    findDeadLetter: async () => undefined,
    settled: async () => [],
    revive: async () => undefined,
    discard: async () => false,
    usage: () => shared?.usage() ?? { messages: 0, bytes: 0 },
    refusing: () => shared?.refusing(),
    close: async () => shared?.close(),
  }
}

async function* none(): AsyncGenerator<never> {}

const handlesOnly: Refusal = {
  error: 'inbox_unavailable',
  hint: "This process has the role 'handle': post to one with the role 'receive' or 'both'.",
}

/** The dead letters that a shared system keeps. */
export interface DeadLetterStore {
  deadLetters(which: Selection): Promise<readonly DeadLetter[]>
  findDeadLetter(id: string): Promise<DeadLetter | undefined>
  /** Makes dead letters waiting messages again, in the order given. Resolves to their number. */
  replay(ids: readonly string[]): Promise<number>
  discard(ids: readonly string[]): Promise<number>
}

/** What `receiver.deadLetters` does with them. */
export function deadLettersOf(
  store: DeadLetterStore,
  reread: Parameters<typeof createDeadLetterReader>[1],
): DeadLetters {
  const reader = createDeadLetterReader(store, reread)
  type Which = string | (MessageSelection & { readonly dryRun?: boolean | undefined })
  const each =
    (run: (ids: readonly string[]) => Promise<number>) =>
    async (which: Which): Promise<number> => {
      const ids = typeof which === 'string' ? [which] : await reader.ids(which)
      return typeof which !== 'string' && which.dryRun === true ? ids.length : run(ids)
    }
  return {
    list: reader.list,
    get: reader.get,
    replay: each((ids) => store.replay(ids)),
    discard: each((ids) => store.discard(ids)),
  }
}

/** The most replayed messages per second. The limit keeps new messages from waiting long. */
const perSecond = 500
const atOnce = 50

/** Replays in steps, so that new messages run in between. Keeps the order of the items. */
export async function paced<Item>(
  clock: Clock,
  items: readonly Item[],
  run: (some: readonly Item[]) => Promise<unknown>,
): Promise<void> {
  for (let start = 0; start < items.length; start += atOnce) {
    const some = items.slice(start, start + atOnce)
    // Also after the last ones: the next page follows at once.
    const rest = new Promise<void>((resolve) => {
      clock.after((1_000 * some.length) / perSecond, resolve)
    })
    await Promise.all([rest, run(some)])
  }
}
