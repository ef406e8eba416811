import type { Clock } from '../clock.ts'
import type { ExecutionContext } from '../http/execution-context.ts'
import type { Lane } from './lanes.ts'
import type { AnyHandler } from './registry.ts'

/** A message on its way through its lane. */
export interface Work {
  readonly id: string
  readonly batch: Batch
  /** It came over the wire, so it counts; what the receiver made itself does not. */
  readonly counts: boolean
  /** How often its handlers were run. */
  attempt: number
  /** The handlers that are still to succeed; all of them before the first attempt. */
  pending: readonly AnyHandler[] | undefined
  /** Set while a step of it is under way. */
  running: Lane<Work> | undefined
  /** Nothing more is done with it. */
  over: boolean
  /** Starts a step in the surroundings of the request that brought the message. */
  enter: (lane: Lane<Work>) => void
}

/** The messages of one request, and whoever waits for them. */
export interface Batch {
  readonly env: unknown
  /** Resolves when each of its messages is settled, dead or given up. */
  readonly settled: Promise<void>
  /** One message more is over. */
  finish(): void
  /** Since when the request's surroundings can no longer be counted on, in milliseconds since the epoch. */
  readonly expiresAt: number
  readonly works: Work[]
}

/** Below the 30 seconds after which Workers cut what `waitUntil` holds. */
export const heldWorkMs = 25_000

/**
 * The batch of one request.
 *
 * Where a runtime binds work to the request that started it (Workers), a step may only run in that request's
 * surroundings, although the turn may come while another request is being served. A continuation runs where it was
 * registered, so each step waits behind a promise of its own (`gated`).
 */
export function createBatch(size: number, env: unknown, context: ExecutionContext | undefined, clock: Clock): Batch {
  let left = size
  let resolve = (): void => {}
  const settled = new Promise<void>((done) => {
    resolve = done
  })
  if (left === 0) resolve()
  const held = isHeld(context)
  if (held) context.waitUntil(settled)
  return {
    env,
    settled,
    works: [],
    expiresAt: held ? clock.now() + heldWorkMs : Number.POSITIVE_INFINITY,
    finish() {
      left -= 1
      if (left === 0) resolve()
    },
  }
}

/** Whether the runtime ends the work of a request on its own, unless it is held. */
export function isHeld(context: ExecutionContext | undefined): context is ExecutionContext {
  return context !== undefined && context.detached !== true
}

/** A way into `step` that leads through the surroundings in which `gated` was called. */
export function gated(step: (lane: Lane<Work>) => void): (lane: Lane<Work>) => void {
  let open = (_lane: Lane<Work>): void => {}
  void new Promise<Lane<Work>>((resolve) => {
    open = resolve
  }).then(step)
  return open
}
