import { type Clock, elapsedMs } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import type { Durability, OpenOptions } from '../../src/hosting/drainable.ts'
import type { RequestScope } from '../../src/hosting/execution-context.ts'
import {
  type Claim,
  type Inbox,
  type InboxMessage,
  type InboxHost,
  type Opened,
  type Outcome,
  type ReadMessage,
  RefusedElsewhere,
  refusingMs,
  type Settled,
} from '../../src/inbox/inbox.ts'
import { nothing } from '../../src/base/pages.ts'

type Refusing = 'inbox_full' | 'inbox_unavailable'

/** An inbox that forwards messages to where they are kept and handled, and hands out nothing. */
export abstract class ForwardingInbox implements Inbox {
  abstract readonly durability: Durability
  readonly shared: NonNullable<Inbox['shared']> = { handsOut: 'elsewhere' }
  protected readonly clock: Clock
  #refused: { readonly error: Refusing; readonly atMs: number } | undefined

  /** Throws `ack_unavailable` for a receiver whose answers wait for handlers. */
  constructor({ clock, ack }: InboxHost) {
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
  if (code === 'body_too_large' || code === 'message_refused') return undefined
  return code === 'inbox_full' ? code : 'inbox_unavailable'
}

/** For the inbox of one receiver: throws `option_invalid` when it is given to a second one. */
export function givenOnce(name: string, own: string): () => void {
  let isGiven = false
  return () => {
    if (isGiven)
      throw new FleethookError('option_invalid', `One ${name} was given to two receivers.`, {
        hint: `Make one for each receiver, with its own ${own}.`,
      })
    isGiven = true
  }
}

/** For an inbox without a receiver. */
export const readsNothing: ReadMessage = () => {
  throw new FleethookError('message_unreadable', 'Only a receiver reads messages.')
}
