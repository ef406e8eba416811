import { type Clock, elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Durability, OpenOptions } from '../hosting/drainable.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import {
  type Claim,
  type Inbox,
  type InboxMessage,
  type InboxSettings,
  type Opened,
  type Outcome,
  RefusedElsewhere,
  refusingMs,
  type Settled,
} from './inbox.ts'
import { nothing } from './pages.ts'

type Refusing = 'inbox_full' | 'inbox_unavailable'

/** An inbox that forwards messages to where they are kept and handled, and hands out nothing. */
export abstract class ForwardingInbox implements Inbox {
  abstract readonly durability: Durability
  readonly handsOut: 'shared' | 'elsewhere' = 'elsewhere'
  protected readonly clock: Clock
  #refused: { readonly error: Refusing; readonly atMs: number } | undefined

  /** Throws `ack_unavailable` for a receiver whose answers wait for handlers. */
  constructor({ clock, ack }: InboxSettings) {
    this.clock = clock
    if (ack === 'handled')
      throw new FleethookError(
        'ack_unavailable',
        "Option `ack` is 'handled', and this inbox forwards messages, which are handled later.",
        { hint: "Use ack: 'stored', the default, or an inbox in memory." },
      )
  }

  /** Resolves when the other side has all messages. Called in the task of `put`, so that they keep their order. Rejects as `put` does. */
  protected abstract forward(messages: readonly InboxMessage[], from?: RequestScope): Promise<void>

  async put(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    try {
      await this.forward(messages, from)
      this.#refused = undefined
    } catch (error) {
      const why = refusingBy(error)
      this.#refused = why && { error: why, atMs: elapsedMs(this.clock) }
      throw error
    }
  }

  refusing(): Refusing | undefined {
    const refused = this.#refused
    return refused !== undefined && elapsedMs(this.clock) - refused.atMs < refusingMs ? refused.error : undefined
  }

  async open(_options?: OpenOptions): Promise<Opened> {
    return { waiting: nothing() }
  }

  claim(_id: string): Claim | undefined | Promise<Claim | undefined> {
    return undefined
  }

  settle(_id: string, _outcome?: Outcome): Settled | Promise<Settled> {}

  usage(): { readonly messages: number; readonly bytes: number } {
    return { messages: 0, bytes: 0 }
  }

  async close(_stoppedAtMs?: number): Promise<void> {}
}

/** Whether the next message would be refused too: one alone can be too large. */
function refusingBy(error: unknown): Refusing | undefined {
  const code =
    error instanceof RefusedElsewhere ? error.refusal.error : error instanceof FleethookError ? error.code : undefined
  if (code === 'body_too_large') return undefined
  return code === 'inbox_full' ? code : 'inbox_unavailable'
}
