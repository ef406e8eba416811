import type { Drainable, RuntimeRefusal } from '../hosting/drainable.ts'
import type { Answer } from '../http/answers.ts'
import type { PathTarget } from '../http/paths.ts'
import type { HttpRequest } from '../http/routes.ts'

/** A receiver as the server that serves it sees it. Only adapters use it. */
export interface HostedReceiver {
  /** Answers a request that the server read itself, without a `Request`. Never throws or rejects. */
  answer(target: PathTarget | undefined, request: HttpRequest): Answer | Promise<Answer>
  /** It keeps states of vehicles in memory, which a Worker can lose at any time. */
  readonly keepsVehiclesInMemory: boolean
  /** The server refused a request before the receiver saw it. */
  refused(error: RuntimeRefusal): void
  /** Sentences for the operator, when the receiver has started or has drained. */
  facts(moment: 'start' | 'stop'): readonly string[]
}

const hosted = /* @__PURE__ */ new WeakMap<object, HostedReceiver>()

/** Remembers how servers see a receiver. */
export function markHosted(receiver: Drainable, about: HostedReceiver): void {
  hosted.set(receiver, about)
}

/** This receiver as servers see it. `undefined` for another object, or for a receiver of another version of fleethook. */
export function hostedBy(receiver: object): HostedReceiver | undefined {
  return hosted.get(receiver)
}
