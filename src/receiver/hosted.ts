import type { Drainable, Durability } from '../hosting/drainable.ts'
import type { Answer } from '../http/answers.ts'
import type { PathTarget } from '../http/paths.ts'
import type { Incoming } from '../http/routes.ts'
import type { Registry } from '../core/registry.ts'
import type { DeliveryIds } from '../inbox/delivery-id.ts'
import type { UnopenedInbox } from '../inbox/stats.ts'
import type { Behind } from './branches.ts'
import type { Intake, ReceiverParts } from './intake.ts'
import type { Settings } from './options.ts'
import type { Reports } from './reports.ts'
import type { KeptVehicles } from '../parts/vehicles.ts'
import type { Refusals } from './refusals.ts'

/** A receiver as the server that serves it sees it. Only adapters use it. */
export interface HostedReceiver {
  targetOf(path: string): PathTarget | undefined
  /** Answers a request that the server read itself, without a `Request`. Never throws or rejects. */
  answer(target: PathTarget | undefined, request: Incoming): Answer | Promise<Answer>
  /** The server refused a request before the receiver saw it. */
  readonly refused: Refusals['noteByRuntime']
  /** The certificate that the server serves from now on ends at this time, in milliseconds since the epoch. */
  readonly noteCertificate: (untilMs: number) => void
  readonly settings: Settings
  readonly intake: Intake
  readonly registry: Pick<Registry, 'addBranch'>
  readonly reports: Pick<Reports, 'inboxFailed' | 'refusals'>
  readonly behind: Behind
  /** Those of new messages. A branch keeps the ids of its messages, so its own must not be among them. */
  readonly ids: DeliveryIds
  /** The part `vehicles`, if the receiver has it. */
  readonly vehicles: Pick<KeptVehicles, 'noMemory'> | undefined
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

/** Sentences for the operator, when the receiver has started or has drained. */
export function factsOf({ settings: { secret }, intake }: HostedReceiver, moment: 'start' | 'stop'): readonly string[] {
  const { unopened = [], deadLetters = 0 } = intake.stats().inbox
  const atStart =
    moment === 'start'
      ? [
          ...(secret === false ? ['Requests need no secret: anybody can post.'] : []),
          ...intake.facts(),
          ...unopenedFacts(unopened),
        ]
      : []
  return [...atStart, ...deadLetterFacts(deadLetters, intake.durability)]
}

function unopenedFacts(unopened: readonly UnopenedInbox[]): readonly string[] {
  if (unopened.length === 0) return []
  const named = unopened
    .slice(0, 3)
    .map(
      ({ path, messages, deadLetters }) =>
        `${path} (${counted(messages, 'message')}, ${counted(deadLetters, 'dead letter')})`,
    )
  const more = unopened.length > named.length ? ` and ${unopened.length - named.length} more` : ''
  return [`No receiver has opened ${named.join(', ')}${more}.`]
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

function deadLetterFacts(deadLetters: number, durability: Durability): readonly string[] {
  if (deadLetters === 0) return []
  const them = counted(deadLetters, 'dead letter')
  if (durability === 'memory') return [`${them} in memory: gone when the process ends.`]
  return [`${them} ${deadLetters === 1 ? 'waits' : 'wait'}: \`fleethook dead list\`.`]
}
