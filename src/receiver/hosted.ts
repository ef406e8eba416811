import type { Drainable, Durability } from '../hosting/drainable.ts'
import type { Answer } from '../http/answers.ts'
import type { PathTarget } from '../http/paths.ts'
import type { Incoming } from '../http/routes.ts'
import type { Secret } from '../http/secret.ts'
import type { UnopenedInbox } from '../inbox/stats.ts'
import type { Intake } from './intake.ts'
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
  readonly secret: Secret
  readonly intake: Pick<Intake, 'durability' | 'stats' | 'facts' | 'parts'>
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

/** Sentences for the operator, when the receiver has started or has drained. */
export function factsOf({ secret, intake }: HostedReceiver, moment: 'start' | 'stop'): readonly string[] {
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
