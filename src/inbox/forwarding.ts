import { type Clock, elapsedMs } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Durability, OpenOptions } from '../hosting/drainable.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { RefusalError } from '../http/answers.ts'
import {
  type Claim,
  type Inbox,
  type InboxMessage,
  MessagesRefused,
  refusingMs,
  type Opened,
  type Outcome,
  type Settled,
} from './inbox.ts'

type Refusing = 'inbox_full' | 'inbox_unavailable'

/** An inbox that forwards messages to where they are kept and handled, and hands out nothing. */
export abstract class ForwardingInbox implements Inbox {
  abstract readonly durability: Durability
  readonly handsOut: 'shared' | 'elsewhere' = 'elsewhere'
  protected readonly clock: Clock
  #refused: { readonly error: Refusing; readonly atMs: number } | undefined

  constructor(clock: Clock) {
    this.clock = clock
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
  const code: RefusalError | FleethookError['code'] =
    error instanceof MessagesRefused
      ? error.refusal.error
      : error instanceof FleethookError
        ? error.code
        : 'inbox_unavailable'
  if (code === 'inbox_full') return code
  return error instanceof MessagesRefused && code !== 'inbox_unavailable' ? undefined : 'inbox_unavailable'
}

export async function* nothing(): AsyncGenerator<never> {}
