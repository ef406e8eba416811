/** What a {@link FleethookError} can be about. The strings are stable: match on them, not on the text. */
export type ErrorCode =
  | 'option_invalid'
  | 'secret_missing'
  | 'ack_unavailable'
  | 'handler_invalid'
  | 'handler_timeout'
  | 'inbox_full'
  | 'inbox_unavailable'
  | 'inbox_locked'
  | 'inbox_damaged'
  | 'inbox_unsupported'
  | 'encode_unsupported'
  | 'message_unreadable'
  | 'drain_deadline'
  | 'listen_failed'

/**
 * Every error that fleethook itself makes.
 *
 * `code` is stable. `message` says what happened and with which value. `hint` says what to do.
 * No part of it ever holds a secret, a header or a payload.
 *
 * @example
 * ```ts
 * import { createReceiver, FleethookError } from 'fleethook'
 *
 * try {
 *   createReceiver({ secret: '' })
 * } catch (error) {
 *   if (error instanceof FleethookError) console.error(error.message, error.hint) // secret_missing …
 * }
 * ```
 */
export class FleethookError extends Error {
  override readonly name = 'FleethookError'
  /** Stable, for programs. */
  readonly code: ErrorCode
  /** What to do about it, for people. Not part of `message`: whoever prints the error prints both. */
  readonly hint: string | undefined

  constructor(
    code: ErrorCode,
    message: string,
    options: { readonly hint?: string | undefined; readonly cause?: unknown } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : {})
    this.code = code
    this.hint = options.hint
  }
}

/** An error for people: what happened, then what to do. */
export function withHint({ message, hint }: { readonly message: string; readonly hint?: string | undefined }): string {
  return hint === undefined ? message : `${message} ${hint}`
}
