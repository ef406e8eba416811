import type { DrainResult } from './dispatch/drain.ts'
import type { Surroundings } from './dispatch/work.ts'
import type { Refusal } from './http/answers.ts'
import type { Durability, InboxMessage } from './inbox/inbox.ts'
import type { Ack } from './options.ts'
import type { DeadLetters, ReplaySelection } from './receiver-interface.ts'
import type { Stats } from './stats.ts'

/** What stands behind the HTTP face and takes messages: an engine of this process, or a relay to one elsewhere. */
export interface Taker {
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
  takeOwn(message: InboxMessage, from: Surroundings): Promise<boolean>
  /** Why it would take nothing just now, if so. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined
  readonly open: () => Promise<void>
  /** Takes nothing more and resolves when the handlers of all that was taken are done, or at the deadline. */
  drain(deadlineMs: number): Promise<DrainResult>
  /** What has become of messages here, and what is going on. */
  state(): TakerState
}

/** The part of {@link Stats} that is about what has been taken. */
export type TakerState = Pick<
  Stats,
  'handled' | 'retried' | 'deadLettered' | 'duplicates' | 'lost' | 'pending' | 'running' | 'lanes' | 'openGaps'
>
