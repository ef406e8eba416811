import { FleethookError, type ErrorCode } from '../../../src/base/errors.ts'
import type { Store } from './store.ts'

/** A call of the store, as it is sent to its thread. */
export interface Call {
  readonly number: number
  readonly method: keyof Store
  readonly given: readonly unknown[]
}

/** What came of a call. */
export type Outcome =
  { readonly number: number; readonly value: unknown } | { readonly number: number; readonly error: SentError }

/** An error as it is sent: threads copy no classes. */
export interface SentError {
  readonly code: ErrorCode
  /** Without the hint. */
  readonly message: string
  readonly hint: string | undefined
  readonly stack: string | undefined
}

export function sentError(error: unknown): SentError {
  if (!(error instanceof FleethookError)) {
    const message = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
    return { code: 'inbox_unavailable', message, hint: undefined, stack: stackOf(error) }
  }
  const { code, message, hint, cause } = error
  const own = hint === undefined ? message : message.slice(0, -hint.length - 1)
  return { code, message: own, hint, stack: stackOf(cause ?? error) }
}

export function receivedError({ code, message, hint, stack }: SentError): FleethookError {
  return new FleethookError(code, message, { ...(hint === undefined ? {} : { hint }), cause: stack })
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined
}
