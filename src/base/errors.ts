/** The code of a {@link FleethookError}. Codes are stable: match the code, not the text. */
export type ErrorCode =
  | 'option_invalid'
  | 'secret_missing'
  | 'ack_unavailable'
  | 'handler_invalid'
  | 'handler_timeout'
  | 'handed_over'
  | 'vehicle_forgotten'
  | 'inbox_full'
  | 'body_too_large'
  | 'inbox_unavailable'
  | 'inbox_locked'
  | 'inbox_damaged'
  | 'inbox_unsupported'
  | 'message_refused'
  | 'encode_unsupported'
  | 'message_unreadable'
  | 'drain_deadline'
  | 'forward_failed'
  | 'forward_refused'
  | 'listen_failed'

/**
 * Every error that fleethook makes.
 *
 * `code` is stable. `message` says what happened and with which value. `hint` says what to do. No part of it contains a
 * secret, a header or a payload.
 *
 * @example
 * ```ts
 * import { createReceiver, FleethookError } from 'fleethook'
 *
 * try {
 *   createReceiver({ secret: '' })
 * } catch (error) {
 *   if (error instanceof FleethookError) console.error(error.code, error.message, error.hint) // secret_missing …
 * }
 * ```
 */
export class FleethookError extends Error {
  override readonly name = 'FleethookError'
  /** Stable, for programs. */
  readonly code: ErrorCode
  /** What to do, for people. It is not part of `message`, so print both. */
  readonly hint: string | undefined

  constructor(
    code: ErrorCode,
    message: string,
    options: { readonly hint?: string | undefined; readonly cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.hint = options.hint
  }
}

/** The text of an error for people: what happened, then what to do. */
export function withHint({ message, hint }: { readonly message: string; readonly hint?: string | undefined }): string {
  return hint === undefined ? message : `${message} ${hint}`
}

/** Text that every store takes: no NUL, and no half of a character. JSON text has neither, but what was read from it can. */
export const storable = (text: string): string => text.replaceAll(/[\0\p{Surrogate}]/gu, '\uFFFD')
