import type { Format } from '../../../src/events/event.ts'
import type { Posted } from './post.ts'
import type { SentMessage } from './session.ts'

/** What is checked, in the order of the report. */
export const groups = {
  formats: 'three formats and six topics',
  values: 'the wrappers of values',
  secret: 'the secret',
  bodies: 'shapes of bodies',
  batches: 'batches',
  gzip: 'gzip',
  relays: 'the paths of the collector protocol',
  order: 'order per vehicle',
  repeats: 'repeated messages',
  kills: 'kills under load',
  answers: 'the answers of fleethook, code by code',
} as const
export type Group = keyof typeof groups
export const allGroups: readonly Group[] = Object.keys(groups).filter((name): name is Group => name in groups)

/** A post, and the data messages in it. */
export interface Request {
  readonly posted: Posted
  readonly format?: Format
  readonly messages: readonly SentMessage[]
  /** What tells it from the other requests of its case. */
  readonly label?: string | undefined
}

/**
 * What the answer must be:
 * - `accepted`: 2xx. The service sends once, so anything else loses the message.
 * - `unauthorized`: 401 or 403.
 * - `refused`: 4xx, because a 2xx would say that somebody has it.
 * - `survived`: 2xx or 4xx.
 */
export type Expected = 'accepted' | 'unauthorized' | 'refused' | 'survived'

/** One line of the report. */
export interface Case {
  readonly group: Group
  readonly name: string
  readonly expected: Expected
  readonly requests: readonly Request[]
  /** A receiver may ignore these: whether they are handled is not required. */
  readonly isOptional?: true
  /** The messages are handled although the answer is a refusal. */
  readonly isKept?: true
  /** What the body of each answer must be, beside its status. */
  readonly problemWith?: (text: string) => string | undefined
}

export const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
