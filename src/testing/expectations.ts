import { type ErrorCode, FleethookError } from '../base/errors.ts'

/** One check of a conformance suite. */
export interface Conformance {
  /** What the check expects, as a sentence. */
  readonly name: string
  /** Rejects when the check fails. The error says what was expected and what was found. */
  run(): Promise<void>
}

/** Throws unless both are equal as JSON. The order of keys does not count. */
export function equal(actual: unknown, expected: unknown): void {
  if (sorted(actual) !== sorted(expected)) throw new Error(`Expected ${sorted(expected)} and got ${sorted(actual)}.`)
}

/** JSON with sorted keys, so that equal values are equal texts. */
function sorted(value: unknown): string {
  return (
    JSON.stringify(value, (_, inner: unknown) =>
      typeof inner === 'object' && inner !== null && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
    ) ?? 'undefined'
  )
}

export async function rejects(run: () => unknown, code: ErrorCode): Promise<void> {
  const thrown: unknown = await (async () => run())().then(
    () => undefined,
    (error: unknown) => error,
  )
  if (!(thrown instanceof FleethookError)) throw new Error(`Expected a rejection with a FleethookError ${code}.`)
  equal(thrown.code, code)
}
