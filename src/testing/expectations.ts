import { type ErrorCode, FleethookError } from '../base/errors.ts'

/** Throws unless both are the same as JSON, whatever the order of keys. */
export function equal(actual: unknown, expected: unknown): void {
  if (sorted(actual) !== sorted(expected)) throw new Error(`Expected ${sorted(expected)} and got ${sorted(actual)}.`)
}

/** JSON with the keys in order, so that equal values are equal texts. */
function sorted(value: unknown): string {
  return (
    JSON.stringify(value, (_, inner: unknown) =>
      typeof inner === 'object' && inner !== null && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
    ) ?? 'undefined'
  )
}

/** Throws unless the promise rejects with a `FleethookError` of this code. */
export async function rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  let thrown: unknown
  try {
    await promise
  } catch (error) {
    thrown = error
  }
  if (!(thrown instanceof FleethookError)) throw new Error(`Expected a rejection with a FleethookError ${code}.`)
  equal(thrown.code, code)
}
