import { checkOptions, numberBetween, type Rule } from '../base/options.ts'
import { FleethookError } from '../base/errors.ts'

/** A length of time: the sum of these. From a second to a year. */
export interface Duration {
  readonly days?: number
  readonly hours?: number
  readonly minutes?: number
  readonly seconds?: number
}

const anAmount: Rule = numberBetween(0, 31_622_400)

/** A duration in milliseconds, and as it is in the names of edges. */
export function readDuration(what: string, duration: Duration): { readonly ms: number; readonly name: string } {
  const rules = { days: anAmount, hours: anAmount, minutes: anAmount, seconds: anAmount }
  checkOptions<Duration>(what, duration, rules)
  const { days = 0, hours = 0, minutes = 0, seconds = 0 } = duration
  const all = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
  if (all < 1 || all > 31_622_400)
    throw invalid(`\`${what}\` was given ${all} seconds`, 'Pass a time from a second to a year: { minutes: 30 }.')
  return { ms: Math.round(all * 1_000), name: `${all} s` }
}

export function invalid(message: string, hint: string): FleethookError {
  return new FleethookError('option_invalid', `${message}.`, { hint })
}
