import type { DeadLetters, OperatorApi, ReplaySelection } from '../inbox/dead-letters.ts'
import type { Registry } from '../dispatch/registry.ts'
import type { Receipts } from '../inbox/receipts.ts'
import type { Settings } from '../receiver/options.ts'
import type { Reports } from '../receiver/reports.ts'
import type { Ack, DrainResult, Durability } from '../hosting/drainable.ts'
import type { Surroundings } from '../dispatch/work.ts'
import type { Refusal } from '../http/answers.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { Stats } from '../receiver/stats.ts'

/** What a backend is made of. */
export interface BackendParts {
  readonly settings: Settings
  readonly registry: Registry
  readonly receipts: Receipts
  readonly reports: Reports
}

/** What keeps messages and has them handled: in this process, or by a relay to another one. */
export interface Backend extends OperatorApi {
  readonly ack: Ack
  readonly durability: Durability
  readonly deadLetters: DeadLetters
  /** Puts messages back that were handled. */
  replay(which: ReplaySelection, from?: Partial<Surroundings>): Promise<number>
  /** Whether it takes nothing more. */
  readonly draining: boolean
  /** Until as many times `leave` more may come, and a drain waits for it. */
  enter(): void
  leave(): void
  /** Whether messages may be read and taken. */
  readonly isReady: boolean
  /** Resolves to whether it is ready now. */
  becomeReady(): Promise<boolean>
  /** Keeps messages. Resolves when the answer may leave, to why it must be a refusal. */
  take(messages: readonly InboxMessage[], from: Surroundings): Promise<Refusal | undefined>
  /**
   * Keeps what the receiver made itself, if there is room: it stands for nothing that was acknowledged. Resolves to whether
   * it is kept.
   */
  putInternal(message: InboxMessage, from: Surroundings): Promise<boolean>
  /** Why it would take nothing just now, if so. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  readonly open: () => Promise<void>
  /** Takes nothing more and resolves when the handlers of all that was taken are done, or at the deadline. */
  drain(deadlineMs: number): Promise<DrainResult>
  /** What has become of messages here, and what is going on. */
  state(): BackendState
}

/** The part of {@link Stats} that is about what has been taken. */
export type BackendState = Pick<
  Stats,
  'handled' | 'retried' | 'deadLettered' | 'duplicates' | 'lost' | 'pending' | 'running' | 'lanes' | 'openGaps'
>
