import type { Drainable } from '../hosting/drainable.ts'
import type { Answer } from '../http/answers.ts'
import type { PathTarget } from '../http/paths.ts'
import type { Incoming } from '../http/routes.ts'
import type { Intake, ReceiverParts } from './intake.ts'
import type { Settings } from './options.ts'
import type { Reports } from '../reports/reports.ts'
import type { Refusals } from '../reports/refusals.ts'

/** A receiver as the server that serves it sees it. Only adapters use it. */
export interface HostedReceiver {
  targetOf(path: string): PathTarget | undefined
  /** Answers a request that the server read itself, without a `Request`. Never throws or rejects. */
  answer(target: PathTarget | undefined, request: Incoming): Answer | Promise<Answer>
  /** The server refused a request before the receiver saw it. */
  readonly refused: Refusals['noteByRuntime']
  /** The certificate that the server serves from now on ends at this time, in milliseconds since the epoch. */
  readonly noteCertificate: (untilMs: number) => void
  /** As they were given, with the clock of this machine. Those of `intake.parts` have the clock of the inbox. */
  readonly settings: Settings
  readonly reports: Reports
  readonly intake: Intake
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

const partsByInbox = /* @__PURE__ */ new WeakMap<object, ReceiverParts>()

/** Remembers the receiver of an inbox, for objects that run its handlers elsewhere. */
export function rememberParts(inbox: object, parts: ReceiverParts): void {
  partsByInbox.set(inbox, parts)
}

/** The parts of the receiver, or of the branch, with this inbox. */
export function partsWith(inbox: object): ReceiverParts | undefined {
  return partsByInbox.get(inbox)
}
