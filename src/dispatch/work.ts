import type { Timer } from '../clock.ts'
import { type ExecutionContext, isHeld } from '../http/execution-context.ts'
import type { Waiting } from '../inbox/inbox.ts'
import type { InLane } from './lanes.ts'
import type { AnyHandler } from './registry.ts'

/** A message on its way through its lane. */
export interface Work extends InLane<Work> {
  readonly id: string
  readonly batch: Batch
  /** The message's lane: its VIN, or a lane of its own kind. */
  readonly from: string
  /** It came over the wire, so it counts; what the receiver made itself does not. */
  readonly counts: boolean
  /** It may have been handed out by an earlier process. */
  readonly redelivered: boolean
  state: 'waiting' | 'running' | 'over'
  /** How often its handlers were run. */
  attempt: number
  /** The handlers that are still to succeed; all of them before the first attempt. */
  pending: readonly AnyHandler[] | undefined
  /** Why the last of them failed. */
  error: unknown
  /** Runs out when it may be tried again. */
  rest: Timer | undefined
  /** The way into the surroundings of the request that brought the message, where a runtime binds work to these. */
  gate: (() => void) | undefined
}

/** The surroundings of the request that brought messages: bindings, and what holds its work. */
export interface Surroundings {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
}

/** The messages of one request, and whoever waits for them. */
export interface Batch extends Surroundings {
  /** Whether the runtime ends the request's work on its own, unless it is held. */
  readonly held: boolean
  readonly works: readonly Work[]
  /** How many of them were acknowledged, or are about to be, and will never be handled. */
  lost: number
  /** Resolves when each of its messages is settled, dead or given up. */
  settled(): Promise<void>
  /** One message more is over. */
  finish(): void
}

/** The batch of one request, each of its messages ready for a lane. */
export function createBatch(messages: readonly Waiting[], { env, context }: Surroundings): Batch {
  let left = messages.length
  let settled: Promise<void> | undefined
  let resolve: (() => void) | undefined
  const works: Work[] = []
  const batch: Batch = {
    env,
    context,
    held: isHeld(context),
    works,
    lost: 0,
    settled() {
      // Made when somebody asks: most answers wait for no handler.
      settled ??= new Promise((done) => {
        resolve = done
        if (left === 0) done()
      })
      return settled
    },
    finish() {
      left -= 1
      if (left === 0) resolve?.()
    },
  }
  for (const message of messages) works.push(createWork(message, batch))
  return batch
}

function createWork({ id, lane, kind, redelivered = false }: Waiting, batch: Batch): Work {
  return {
    id,
    batch,
    from: lane,
    counts: kind === 'wire',
    redelivered,
    state: 'waiting',
    attempt: 0,
    pending: undefined,
    error: undefined,
    rest: undefined,
    gate: undefined,
    ready: false,
    lane: undefined,
    previous: undefined,
    next: undefined,
  }
}

/**
 * A way into `step` that leads through the surroundings in which `gateInto` was called.
 *
 * Where a runtime binds work to the request that started it (Workers), a step may only run in that request's
 * surroundings, although the turn may come while another request is being served. A continuation runs where it was
 * registered, so each step waits behind a promise of its own.
 */
export function gateInto(step: () => void): () => void {
  let open = (): void => {}
  void new Promise<void>((resolve) => {
    open = resolve
  }).then(step)
  return open
}
