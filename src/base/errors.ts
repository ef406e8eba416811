/** The code of a {@link FleethookError}. Codes are stable: match the code, not the text. */
export type ErrorCode =
  /**
   * The text names the option or argument and its limits. Usual causes: a secret read from a file ends with a line break; one inbox is given to
   * two receivers; `npm ls fleethook` shows two versions.
   */
  | 'option_invalid'
  /**
   * The environment variable is not set. On Workers, pass a function: `secret: (env) => env.WEBHOOK_SECRET`. `secret: false` accepts everything.
   * `operatorRoutes` needs a secret of its own.
   */
  | 'secret_missing'
  /** The inbox or the runtime cannot keep this `ack`: see [the table](delivery.md#when-the-2xx-is-sent). */
  | 'ack_unavailable'
  /** A handler is not a function, or a topic or a filter does not exist. */
  | 'handler_invalid'
  /**
   * Pass `context.signal` to every call that you wait for, or raise `timeoutMs`. In a handler of `exactlyOnce`, run statements on its
   * transaction (`tx`), and give its pool `concurrency` connections.
   */
  | 'handler_timeout'
  /** Another process has taken over the message. If it happens often, look for handlers that block their process for seconds. */
  | 'handed_over'
  /** An operator erased the vehicle of the message. What the handler already wrote elsewhere is yours to erase. */
  | 'vehicle_forgotten'
  /** The disk, its quota, `maxBytes` or `limits` is full. Free space, make the handlers faster, or raise `concurrency` or the limit. */
  | 'inbox_full'
  /** The messages of one body take more than `limits.pendingBytes`, so the answer is 413. Raise it, or let the relay send smaller batches. */
  | 'body_too_large'
  /**
   * The file cannot be opened or written (the text names its owner and the user of the process), or [Kafka](#kafka) or [Postgres](#postgres)
   * cannot be used. A disk that fails is tried again after 1, 2, 4 and up to 30 seconds. If the thread of the inbox ended, restart the process.
   * A receiver that was drained stays closed: make a new one. A replay that stopped goes on with the next process.
   */
  | 'inbox_unavailable'
  /** Another process, or another receiver of this one, has the inbox file. Stop one, give each its own, or raise `waitMs`. */
  | 'inbox_locked'
  /** Nothing at first: what can be read moves into a new file. Then check the disk. See [a damaged file](inbox.md#a-damaged-file). */
  | 'inbox_damaged'
  /**
   * `node:sqlite` is missing, the disk cannot keep the promise (use a local one), the file is of something else or of [another
   * version](versions.md#inbox-files), or `thread` does not work on Deno.
   */
  | 'inbox_unsupported'
  /**
   * The store refuses one row, for instance by a trigger of yours: 503 and a `gap` when it arrives, later a dead letter. Other messages are
   * written.
   */
  | 'message_refused'
  /** A `gap` event is never sent. Write `createdAt` like `2024-02-24T04:58:44.983Z`. */
  | 'encode_unsupported'
  /** `normalize` takes one JSON object, several one after another, or a list, as text or bytes. */
  | 'message_unreadable'
  /** Give the process more time to stop. On Workers with the inbox in memory, handlers have 25 seconds: use [a durable inbox](workers.md). */
  | 'drain_deadline'
  /** The server to which `forward` posts answers 408, 425, 429 or 5xx, or nothing: it is tried again for 24 hours. */
  | 'forward_failed'
  /**
   * That server answers anything else, and the message is a dead letter: fix the address, the secret or that server, then `fleethook dead replay
   * --branch …`.
   */
  | 'forward_refused'
  /** `EADDRINUSE`: another process has the port. `EACCES`: ports below 1024 need a privilege; Deno needs `--allow-net`. */
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
    super(message, 'cause' in options ? { cause: options.cause } : {})
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
