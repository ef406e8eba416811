/** How much the tests do. The vitest config decides: `test/vitest.config.ts` and the configs beside it. */
export const forms = ['short', 'real', 'full', 'long'] as const

/**
 * - `short`: `npm test`. Few rounds and cases of each kind, and one version of each runtime.
 * - `real`: `npm run test:real`. Few rounds too, for what needs real databases, disks, kills and every version of a runtime.
 * - `full`: `npm run test:full`, each night and before a release. Every property at its full number of runs.
 * - `long`: `npm run test:faults`. Faults and fuzzing until the figures in `docs/reliability.md` are certain.
 */
export type Form = (typeof forms)[number]

/** The environment variable that carries the form to the tests and to the processes they start. */
export const formVariable = 'FLEETHOOK_TEST_FORM'

/** The form of this run. */
export const form: Form = forms.find((name) => name === process.env[formVariable]) ?? 'short'

/** The amount for this form: `inForm({ short: 2, full: 6, long: 100 })`. Without one of the others, that of `full`. */
export function inForm<Amount>(amounts: {
  readonly short?: Amount
  readonly real?: Amount
  readonly full: Amount
  readonly long?: Amount
}): Amount {
  return amounts[form] ?? amounts.full
}

/** Cases of one kind that each start a process: the first of them in `npm test`, all of them in the other forms. */
export function few<Case>(cases: readonly Case[], count = 2): readonly Case[] {
  return form === 'short' ? cases.slice(0, count) : cases
}
