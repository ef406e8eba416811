import type { PathTarget } from '../http/paths.ts'
import type { Begun, Incoming } from '../http/routes.ts'
import type { Intake } from './intake.ts'
import type { Settings } from './options.ts'
import type { Reports } from '../reports/reports.ts'

/** A receiver as the server that serves it sees it. Only adapters use it. */
export interface HostedReceiver {
  /** By their whole paths. */
  readonly targets: ReadonlyMap<string, PathTarget>
  /** Begins the answer to a request that the server reads itself, without a `Request`. Never throws or rejects. */
  begin(target: PathTarget | undefined, request: Incoming): Begun | Promise<Begun>
  /** As they were given, with the clock of this machine. The settings of `intake.parts` have the clock of the inbox. */
  readonly settings: Settings
  readonly reports: Reports
  readonly intake: Intake
}

const hosted = /* @__PURE__ */ new WeakMap<object, HostedReceiver>()

/** Remembers how servers see a receiver: by the receiver, and by its inbox for objects that run its handlers elsewhere. */
export function markHosted(by: object, about: HostedReceiver): void {
  hosted.set(by, about)
}

/** The receiver with this inbox, or this one as servers see it. `undefined` for another object, or one of another version of fleethook. */
export function hostedBy(by: object): HostedReceiver | undefined {
  return hosted.get(by)
}
