import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import type { Core } from '../core/core.ts'
import type { RequestWork } from '../core/message.ts'
import { gapOf } from '../events/gap.ts'
import type { GapReporting } from '../gaps/gaps.ts'
import type { RequestScope } from '../hosting/execution-context.ts'
import type { InboxEvent, InboxMessage, Waiting } from '../inbox/inbox.ts'
import { type Receipts, vinOf } from '../inbox/receipts.ts'
import type { Window } from '../inbox/window.ts'
import type { Reports } from '../reports/reports.ts'

/** The intake of a branch. */
export interface FollowingHost {
  readonly core: Core
  readonly gaps: GapReporting
  readonly window: Window<Waiting> | undefined
  readonly parts: {
    readonly reports: Reports
    readonly receipts: Pick<Receipts, 'reread'>
    readonly settings: { readonly log: Log }
  }
}

type Stored = Extract<InboxEvent, { readonly type: 'stored' }>
type Expired = Extract<InboxEvent, { readonly type: 'expired' }>

/**
 * What a branch hears of the inbox of its receiver.
 *
 * - Before `begin`: new messages are in the pages that are read at the start.
 * - While these pages are read without a window: new messages wait behind them.
 * - Then: new messages get their places as they are stored.
 */
export class Following {
  readonly #host: FollowingHost
  #phase: 'before' | 'reading' | 'after' = 'before'
  readonly #early: Stored[] = []
  /** By id: who waits for the handlers of messages in the pages. */
  readonly #awaited = new Map<string, () => void>()
  /** The bindings of the last request whose messages are read later. */
  env: unknown

  constructor(host: FollowingHost) {
    this.#host = host
  }

  /** What the inbox reports of its reader. */
  hear(event: InboxEvent): void {
    if (event.type === 'stored') this.#stored(event)
    else if (event.type === 'skipped') this.#skipped(event.messages)
    else if (event.type === 'expired') this.#expired(event)
  }

  /** The pages are read from now on. */
  begin(): void {
    this.#phase = this.#host.window === undefined ? 'reading' : 'after'
  }

  /** The pages are read. */
  end(): void {
    this.#phase = 'after'
    for (const { messages, from } of this.#early.splice(0)) this.#place(messages, from)
  }

  /** A page has its places. */
  read(page: readonly Waiting[], request: RequestWork): void {
    if (this.#awaited.size === 0) return
    for (const { id } of page) {
      void request.settled().then(this.#awaited.get(id))
      this.#awaited.delete(id)
    }
  }

  /** The inbox has these messages for the branch. */
  #stored({ messages, from }: Stored): void {
    const { gaps, parts } = this.#host
    const own = messages.filter(({ kind }) => kind === 'wire')
    if (own.length > 0) parts.reports.noteAccepted(own)
    if (this.#phase === 'before') return this.#watchLater(messages, from)
    if (this.#phase === 'reading') this.#early.push({ type: 'stored', messages, from })
    else this.#place(messages, from)
    if (gaps.open.size > 0) gaps.start(from)
  }

  /** The limits of the branch have no place for what the receiver has put. */
  #skipped(messages: readonly InboxMessage[]): void {
    const { gaps, parts } = this.#host
    const hint = 'Make the handlers of the branch faster, or raise its `concurrency` or `limits`.'
    const lost = messages.filter(({ kind }) => kind !== 'gap')
    if (lost.length > 0) parts.reports.refusals.note({ error: 'inbox_full', hint }, { door: 'root', messages: lost })
    for (const { lane, receivedAt } of lost)
      gaps.note({ vin: vinOf(lane), reason: 'inbox_full', fromMs: receivedAt, missed: 1 })
    for (const message of messages) {
      const event = message.kind === 'gap' ? (message.event ?? parts.receipts.reread(message)) : undefined
      if (event?.topic === 'gap') gaps.note(gapOf(event))
    }
  }

  /** The inbox needed the room of messages that waited for the branch. */
  #expired({ ids, missed, fromMs, toMs }: Expired): void {
    const { core, gaps, parts } = this.#host
    const { counts } = core
    const before = counts.lost
    const gone = new Set(ids)
    const reason = new FleethookError('inbox_full', 'The inbox needed the room of the message.')
    core.drop(({ id }) => gone.has(id), 'lost', reason)
    // Not all of them have a place in memory.
    counts.lost = Math.max(counts.lost, before + missed)
    // What to do: The branch was behind for too long for this disk, or for `maxBytes`. A `gap` of the branch says when they were received.
    parts.settings.log.error('messages of a branch had to make room for new ones', { messages: missed })
    gaps.note({ reason: 'inbox_expired', fromMs, toMs, missed })
  }

  #place(messages: readonly InboxMessage[], from: RequestScope): void {
    const { core, window } = this.#host
    const placed = window === undefined ? messages : window.offered(messages)
    if (placed.length < messages.length) this.env = from.env ?? this.env
    const request = core.add(placed, from)
    from.context?.watch?.(request.settled())
    core.start(request)
  }

  /** They are in the pages that are read at the start. A test waits for their handlers. */
  #watchLater(messages: readonly InboxMessage[], { context }: RequestScope): void {
    if (context?.watch === undefined) return
    for (const { id } of messages) context.watch(new Promise((resolve) => this.#awaited.set(id, resolve)))
  }
}
