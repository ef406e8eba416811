/** How much the tests do. The vitest config decides: `test/vitest.config.ts` and the two configs beside it. */
export const forms = ['short', 'full', 'long'] as const

/**
 * - `short`: `npm test`. It runs on each of the four runtimes and kills processes, but takes few rounds of each.
 * - `full`: `npm run validate`. Every file, every runtime version, every property at its full number of runs.
 * - `long`: `npm run test:faults`. Faults and fuzzing until the figures in `docs/reliability.md` are certain.
 */
export type Form = (typeof forms)[number]

/** The environment variable that carries the form to the tests and to the processes they start. */
export const formVariable = 'FLEETHOOK_TEST_FORM'

/** The form of this run. */
export const form: Form = forms.find((name) => name === process.env[formVariable]) ?? 'short'

/** The amount for this form: `inForm({ short: 2, full: 6, long: 100 })`. Without `short` or `long`, that of `full`. */
export function inForm<Amount>(amounts: {
  readonly short?: Amount
  readonly full: Amount
  readonly long?: Amount
}): Amount {
  return amounts[form] ?? amounts.full
}

/** Cases of one kind that each start a process: the first of them in the short form, all of them in the others. */
export function few<Case>(cases: readonly Case[], count = 2): readonly Case[] {
  return inForm({ short: cases.slice(0, count), full: cases })
}
