import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Lifecycle } from '../core/lifecycle.ts'
import type { Registry } from '../core/registry.ts'
import type { RequestScope } from '../core/message.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../hosting/drainable.ts'
import type { Refusal } from '../http/answers.ts'
import type { Forgotten, ReplaySelection } from '../inbox/dead-letters.ts'
import type { OperatorApi } from '../inbox/observer.ts'
import type { Behind } from '../receiver/branches.ts'
import { type InboxGap, type InboxMessage, isRelayInbox, type RelayInbox } from '../inbox/inbox.ts'
import type { Receipts } from '../inbox/receipts.ts'
import type { Settings } from '../receiver/options.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import type { KeptVehicles } from '../parts/vehicles.ts'
import type { Vehicles } from '../vehicles/vehicles.ts'
import type { Reports } from '../receiver/reports.ts'
import type { Stats } from '../inbox/stats.ts'

export interface BackendParts {
  readonly settings: Settings
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
  readonly vehicles: KeptVehicles | undefined
  readonly behind: Behind
}

/** Keeps messages and runs their handlers, in this process (`local.ts`) or elsewhere (`relay.ts`). */
export interface Backend extends Required<
  Omit<OperatorApi, 'readiness' | 'handlersOf' | 'vehicles' | 'replaySome' | 'backlog' | 'forget' | 'branches'>
> {
  readonly replaySome?: OperatorApi['replaySome']
  readonly ack: Ack
  readonly durability: Durability
  /** The newest state of each vehicle. `undefined`: nothing keeps it. */
  readonly vehicles: Vehicles<FieldCatalogue> | undefined
  /** Replays messages that were handled and that are still kept. Resolves to the number of messages. */
  replay(which: ReplaySelection, from?: Partial<RequestScope>): Promise<number>
  readonly isDraining: boolean
  readonly lifecycle: Lifecycle
  readonly isReady: boolean
  becomeReady(): Promise<boolean>
  /** Why it did not become ready, for the answer. */
  readonly notReadyHint?: string | undefined
  /** Keeps messages. Returns or resolves when the answer may leave; with a refusal when they are not kept. */
  put(messages: readonly InboxMessage[], from: RequestScope): Refusal | undefined | Promise<Refusal | undefined>
  /** Keeps a message that the receiver made itself, if there is room. Resolves to whether it is kept. */
  putInternal(message: InboxMessage, from: RequestScope): Promise<boolean>
  /** Messages are missing for a reason that `put` does not see. A `gap` event reports it as soon as it can be kept. */
  noteGap(gap: InboxGap, from?: RequestScope): void
  /** Why it would refuse a message now; `undefined` when it would not. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  open(options?: OpenOptions): Promise<void>
  /** Takes no more messages once `takeUntil` resolves, ends all work, and closes the inbox. */
  drain(options: DrainOptions): Promise<DrainResult>
  /** Erases what is kept of a vehicle. Rejects with `inbox_unsupported` where that is not possible. */
  forget(vin: string, options?: { readonly dryRun?: boolean }): Promise<Forgotten>
  state(): BackendState
  /** Sentences for the operator when it has started. Default: none. */
  facts?(): readonly string[]
}

/** The part of {@link Stats} about messages that were taken. */
export type BackendState = Omit<
  Stats,
  | keyof Reports['counts']
  | 'topics'
  | 'secrets'
  | 'refused'
  | 'drift'
  | 'drifted'
  | 'clocksBehind'
  | 'certificateUntilMs'
  | 'draining'
  | 'branches'
>

export function statsOf(
  backend: Pick<Backend, 'state' | 'isDraining'>,
  { reports, behind }: Pick<BackendParts, 'reports' | 'behind'>,
): Stats {
  const { counts, topics, secrets, refusals, drift, clocksBehind, certificate } = reports
  const state = backend.state()
  return {
    ...counts,
    ...state,
    lost: state.lost + counts.unkept,
    topics: { ...topics },
    secrets: [...secrets],
    refused: { ...refusals.counts },
    drift: drift.list(),
    drifted: drift.total(),
    clocksBehind: clocksBehind.size,
    certificateUntilMs: certificate.untilMs,
    draining: backend.isDraining,
    branches: behind.branches?.stats(),
  }
}

export async function cannotForget(): Promise<never> {
  throw new FleethookError('inbox_unsupported', 'This inbox cannot erase a vehicle.', {
    hint: 'docs/operating.md says what each inbox keeps, and for how long.',
  })
}

export interface AttachableInbox extends RelayInbox {
  /** Whether it can be that of a branch, or in front of one, depends on this. `takes`: whether it takes messages in this process. */
  readonly place?: {
    readonly of: 'postgresInbox' | 'kafkaInbox' | 'durableObjectInbox'
    readonly name?: string
    readonly takes: boolean
  }
  /** Called once by `createReceiver`, with the parts of the receiver. */
  readonly attach: (parts: BackendParts) => Backend
  /** Makes the clock of the receiver of that of its machine, before `attach`: where several processes share a store, its time decides. */
  readonly clock?: (local: Clock) => Clock
  /** Called with the bindings of every request of a Worker, for calls that have none, such as for dead letters. */
  readonly bind?: (env: unknown) => void
}

/** For the inbox of one receiver: throws `option_invalid` when it is given to a second one. */
export function attachedOnce(name: string, own: string): () => void {
  let isAttached = false
  return () => {
    if (isAttached)
      throw new FleethookError('option_invalid', `One ${name} was given to two receivers.`, {
        hint: `Make one for each receiver, with its own ${own}.`,
      })
    isAttached = true
  }
}

/** Whether messages are kept and handled elsewhere. */
export function isAttachable(inbox: unknown): inbox is AttachableInbox {
  return isRelayInbox(inbox) && 'attach' in inbox
}
