import type { Durability } from '../hosting/drainable.ts'
import type { DeadLetters, ReplaySelection } from '../inbox/dead-letters.ts'
import { createGaps } from './gaps.ts'
import type { Surroundings } from '../dispatch/work.ts'
import { FleethookError } from '../base/errors.ts'
import type { Refusal } from '../http/answers.ts'
import { isHeld } from '../hosting/execution-context.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { Backend } from './backend.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { BackendParts } from './backend.ts'

/** Takes messages to where they are kept and handled. */
export interface Relay {
  readonly durability: Durability
  /**
   * Resolves when all of the messages are as durable as `durability` says, or to why they are not kept. Rejects when
   * whoever keeps them is out of reach.
   */
  put(messages: readonly InboxMessage[], env: unknown): Promise<Refusal | undefined>
  readonly deadLetters: DeadLetters
  /** Puts messages back that were handled. */
  replay(which: ReplaySelection, from?: Partial<Surroundings>): Promise<number>
}

/** How long a refusal shows in health checks when no message has come since. */
const refusingMs = 5_000

/** What stands behind the HTTP face where no handler runs: nothing waits here, and nothing is left when it ends. */
export function createRelayBackend(relay: Relay, { settings, receipts, reports }: BackendParts): Backend {
  const { clock } = settings
  const ack = settings.ack ?? 'stored'
  if (ack === 'handled') {
    throw new FleethookError(
      'ack_unavailable',
      "Option `ack` is 'handled' and this inbox hands messages on to where they are handled later.",
      { hint: "Use ack: 'stored', the default, or an inbox in memory." },
    )
  }
  const gaps = createGaps()
  let refused: { readonly error: 'inbox_full' | 'inbox_unavailable'; readonly atMs: number } | undefined
  let underWay = 0
  let empty = (): void => {}
  let draining: Promise<{ handled: number; left: number; lost: number }> | undefined

  async function put(
    messages: readonly InboxMessage[],
    env: unknown,
    outOfReach: () => void = () => {},
  ): Promise<Refusal | undefined> {
    const reason = await relay.put(messages, env).catch((error: unknown): Refusal => {
      reports.dispatch.inboxFailed(error)
      outOfReach()
      return { error: 'inbox_unavailable' }
    })
    const error = reason?.error
    refused = error === 'inbox_full' || error === 'inbox_unavailable' ? { error, atMs: clock.now() } : undefined
    return reason
  }

  async function store(messages: readonly InboxMessage[], from: Surroundings): Promise<Refusal | undefined> {
    const reason = await put(messages, from.env, () => {
      // Where they are kept knows nothing of it, so it is told of from here.
      for (const { lane, receivedAt } of messages) gaps.note(vinOf(lane), 'inbox_unavailable', receivedAt)
    })
    if (reason !== undefined) return reason
    reports.noteAccepted(messages)
    if (gaps.size > 0) hold(from, emitGap(from.env))
    return undefined
  }

  async function putInternal(message: InboxMessage, env: unknown): Promise<boolean> {
    return (await put([message], env)) === undefined
  }

  async function emitGap(env: unknown): Promise<void> {
    const gap = gaps.take(clock.now())
    if (gap === undefined) return
    if (await putInternal(receipts.gap(gap), env)) return emitGap(env)
    gaps.putBack(gap)
  }

  function enter(): void {
    underWay += 1
  }

  function leave(): void {
    underWay -= 1
    if (underWay === 0) empty()
  }

  function hold({ context }: Surroundings, work: Promise<unknown>): void {
    enter()
    const done = work.finally(leave)
    if (isHeld(context)) context.waitUntil(done)
  }

  return {
    ack,
    durability: relay.durability,
    deadLetters: relay.deadLetters,
    replay: (which, from) => relay.replay(which, from),
    enter,
    leave,
    isReady: true,
    becomeReady: async () => true,
    get draining() {
      return draining !== undefined
    },

    async take(messages, from) {
      if (messages.length === 0) return undefined
      const stored = store(messages, from)
      if (ack === 'stored') return stored
      hold(
        from,
        stored.then((reason) => {
          if (reason !== undefined) reports.noteLost(messages)
        }),
      )
      return undefined
    },

    putInternal: (message, { env }) => putInternal(message, env),

    refusing: () => (refused !== undefined && clock.now() - refused.atMs < refusingMs ? refused.error : undefined),

    open: async () => {},

    drain(deadlineMs) {
      draining ??= new Promise((resolve) => {
        const end = (): void => {
          timer.cancel()
          reports.noteUntold(gaps.size)
          resolve({ handled: 0, left: 0, lost: 0 })
        }
        const timer = clock.after(deadlineMs, end)
        empty = end
        if (underWay === 0) end()
      })
      return draining
    },

    state: () => ({
      handled: 0,
      retried: 0,
      deadLettered: 0,
      duplicates: 0,
      lost: 0,
      pending: { messages: 0, bytes: 0 },
      running: 0,
      lanes: 0,
      openGaps: gaps.size,
    }),
  }
}
