/**
 * What a runtime gives for work that goes on after the answer: the third argument of `fetch`. Workers give one that
 * holds a request's work for a while; the servers of the other runtimes give {@link detachedContext}.
 */
export interface ExecutionContext {
  /** Keeps the request's surroundings alive until the promise settles. */
  waitUntil(work: Promise<unknown>): void
  passThroughOnException(): void
  readonly props: unknown
  /** The process lives on whatever becomes of this request, so work needs no holding. */
  readonly detached?: true
  /** Given a promise that resolves when every handler of the request's messages is done, or has given up. For tests. */
  readonly watch?: (handled: Promise<void>) => void
}

/** For runtimes whose process outlives every request: nothing has to be held. */
export const detachedContext: ExecutionContext = {
  waitUntil: () => {},
  passThroughOnException: () => {},
  props: {},
  detached: true,
}

/** Whether the runtime ends the work of a request on its own, unless it is held. */
export function isHeld(context: ExecutionContext | undefined): context is ExecutionContext {
  return context !== undefined && context.detached !== true
}
