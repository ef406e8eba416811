import type { Posted } from './post.ts'

/** One request, and the answer that the contract has for it. */
export interface AnswerCase extends Posted {
  /** A sentence of the contract. */
  readonly name: string
  readonly status: number
  /** `code` of the answer. Left out where the host of a mounted receiver may answer in its own words. */
  readonly code?: number
  /** `error` of a refusal. */
  readonly error?: string
  /** `invalid-event-number` of a refusal. */
  readonly number?: number
}

/** Never in an answer, nor is the secret. */
export const payloadMark = 'payload-mark-81d7'

/** A message that any receiver takes. */
export const state: string = `{"vin":"0FLEETV14T0000004","createdAt":"2026-11-21T10:00:00Z","state":"online","note":"${payloadMark}"}`

/** The same as a collector event. */
export const envelope: string =
  '{"time":1795255200.5,"host":"h","source":"0FLEETV14T0000004","sourcetype":"vehicle:telemetry:data","event":{"Soc":"50"}}'

export const collectorPaths: readonly string[] = [
  '/services/collector',
  '/services/collector/event',
  '/services/collector/event/1.0',
]
export const healthPaths: readonly string[] = ['/services/collector/health', '/services/collector/health/1.0']

/** The part of an answer that tells it from others. */
export type Outcome = Required<Pick<AnswerCase, 'status' | 'code'>> & Pick<AnswerCase, 'error'>

export const accepted: Outcome = { status: 200, code: 0 }

type RefusalName =
  | 'missing'
  | 'scheme'
  | 'wrong'
  | 'empty'
  | 'notJson'
  | 'time'
  | 'gzip'
  | 'noEvent'
  | 'blankEvent'
  | 'tooLarge'
  | 'encoding'
  | 'method'

/** What the refusals have in common, under the names of their `error`. */
export const refusals: Readonly<Record<RefusalName, Outcome>> = {
  missing: { status: 401, code: 2, error: 'authorization_missing' },
  scheme: { status: 401, code: 3, error: 'authorization_scheme' },
  wrong: { status: 403, code: 4, error: 'secret_wrong' },
  empty: { status: 400, code: 5, error: 'body_empty' },
  notJson: { status: 400, code: 6, error: 'body_not_json' },
  time: { status: 400, code: 6, error: 'time_invalid' },
  gzip: { status: 400, code: 6, error: 'body_gzip_broken' },
  noEvent: { status: 400, code: 12, error: 'event_missing' },
  blankEvent: { status: 400, code: 13, error: 'event_blank' },
  tooLarge: { status: 413, code: 6, error: 'body_too_large' },
  encoding: { status: 415, code: 6, error: 'encoding_unsupported' },
  method: { status: 405, code: 405, error: 'method_not_allowed' },
}
