import type { Lifecycle } from '../dispatch/running.ts'
import type { Registry } from '../dispatch/registry.ts'
import type { RequestScope } from '../dispatch/work.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../hosting/drainable.ts'
import type { Refusal } from '../http/answers.ts'
import type { ReplaySelection } from '../inbox/dead-letters.ts'
import type { OperatorApi } from '../inbox/observer.ts'
import { type InboxGap, type InboxMessage, isRelayInbox, type RelayInbox } from '../inbox/inbox.ts'
import type { Receipts } from '../inbox/receipts.ts'
import type { Settings } from '../receiver/options.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { EdgeIndex } from '../vehicles/edge-index.ts'
import type { Slots } from '../vehicles/state.ts'
import type { Vehicles } from '../vehicles/vehicles.ts'
import type { Reports } from '../receiver/reports.ts'
import type { Stats } from '../inbox/stats.ts'

/** What a backend is made of. */
export interface BackendParts {
  readonly settings: Settings
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
  /** What the option `vehicles` asks for. */
  readonly vehicles: VehicleParts | undefined
}

/** Which fields of vehicles are kept, and the edges that read them. */
interface VehicleParts {
  readonly slots: Slots
  readonly edges: EdgeIndex
}

/** Keeps messages and runs their handlers, in this process (`local.ts`) or elsewhere (`relay.ts`). */
export interface Backend extends Required<Omit<OperatorApi, 'readiness' | 'handlersOf'>> {
  readonly ack: Ack
  readonly durability: Durability
  /** The newest state of each vehicle. `undefined`: the option `vehicles` is off. */
  readonly vehicles: Vehicles<FieldCatalogue> | undefined
  /** Replays messages that were handled and that are still kept. Resolves to the number of messages. */
  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number>
  /** Whether it takes no more messages. */
  readonly isDraining: boolean
  readonly lifecycle: Lifecycle
  /** Whether messages may be read and taken. */
  readonly isReady: boolean
  /** Resolves to whether it is ready now. */
  becomeReady(): Promise<boolean>
  /** Keeps messages. Returns or resolves when the answer may leave; with a refusal when they are not kept. */
  put(messages: readonly InboxMessage[], from: RequestScope): Refusal | undefined | Promise<Refusal | undefined>
  /** Keeps a message that the receiver made itself, if there is room. Resolves to whether it is kept. */
  putInternal(message: InboxMessage, from: RequestScope): Promise<boolean>
  /**
   * Messages are missing for a reason that `put` does not see. A `gap` event reports it as soon as the inbox can keep the
   * event.
   */
  noteGap(gap: InboxGap, from?: RequestScope): void
  /** Why it would refuse a message now; `undefined` when it would not. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  open(options?: OpenOptions): Promise<void>
  /** Takes no more messages once `takeUntil` resolves, ends all work, and closes the inbox. */
  drain(options: DrainOptions): Promise<DrainResult>
  state(): BackendState
  /** Sentences for the operator when it has started. Default: none. */
  facts?(): readonly string[]
}

/** The part of {@link Stats} about messages that were taken. */
export type BackendState = Pick<
  Stats,
  | 'handled'
  | 'retried'
  | 'deadLettered'
  | 'duplicates'
  | 'resting'
  | 'lost'
  | 'pending'
  | 'inbox'
  | 'running'
  | 'lanes'
  | 'openGaps'
>

/** The whole of {@link Stats}. */
export function statsOf(
  backend: Pick<Backend, 'state' | 'isDraining'>,
  { counts, topics, refusals, drift }: Reports,
): Stats {
  const state = backend.state()
  return {
    ...counts,
    ...state,
    lost: state.lost + counts.unkept,
    topics: { ...topics },
    refused: { ...refusals.counts },
    drift: drift.list(),
    drifted: drift.total(),
    draining: backend.isDraining,
  }
}

/** What a {@link RelayInbox} is inside. */
export interface AttachableInbox extends RelayInbox {
  /** Called once by `createReceiver`, with the parts of the receiver. */
  readonly attach: (parts: BackendParts) => Backend
  /**
   * Called with the bindings of every request of a Worker, for calls that have none of their own, such as those for dead
   * letters.
   */
  readonly bind?: (env: unknown) => void
  /** Handles a batch of messages that the platform kept: the `queue` handler of a Worker. */
  readonly consume?: (batch: KeptBatch, env: unknown) => Promise<void>
}

/** Messages that a platform kept and hands over to be handled. */
export interface KeptBatch {
  readonly messages: readonly KeptMessage[]
}

/** A message that a platform kept. It comes again unless it is acknowledged. */
export interface KeptMessage {
  readonly body: unknown
  /** The number of times it was handed over, this time included. */
  readonly attempts: number
  ack(): void
  retry(options?: { delaySeconds?: number }): void
}

/** Whether messages are kept and handled elsewhere. */
export function isAttachable(inbox: unknown): inbox is AttachableInbox {
  return isRelayInbox(inbox) && 'attach' in inbox
}
