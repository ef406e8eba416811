/**
 * In which form the faults run. `short` is part of `npm test`: seconds a file, to see that nothing is broken. `long` is
 * `npm run test:faults`: as much as the claims in `docs/reliability.md` need, one file at a time, and it writes its figures.
 */
export const form: 'short' | 'long' = process.env['FLEETHOOK_FAULTS'] === 'long' ? 'long' : 'short'

/** How much of something this form takes: `inForm({ short: 300, long: 10_000 })`. */
export function inForm<Amount>(amounts: { readonly short: Amount; readonly long: Amount }): Amount {
  return amounts[form]
}
