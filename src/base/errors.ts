/** The code of a {@link FleethookError}. Codes are stable: match the code, not the text. */
export type ErrorCode =
  /**
   * The text names the option and its limits. Often a secret from a file ends with a line break, one inbox is in two receivers, or `npm ls
   * fleethook` shows two versions.
   */
  | 'option_invalid'
  /**
   * Set the environment variable. On Workers, pass `secret: (env) => env.WEBHOOK_SECRET`. `secret: false` accepts everything. `operatorRoutes`
   * needs its own.
   */
  | 'secret_missing'
  /** The inbox or the runtime [cannot keep this `ack`](reliability.md#when-the-2xx-is-sent). */
  | 'ack_unavailable'
  /** A handler is not a function, or a topic or a filter does not exist. */
  | 'handler_invalid'
  /** Pass `context.signal` to every call, or raise `timeoutMs`. In `exactlyOnce`, use its `tx`, and give its pool `concurrency` connections. */
  | 'handler_timeout'
  /** Another process took the message over. If this happens often, a handler blocks its process for seconds. */
  | 'handed_over'
  /** An operator erased the vehicle. Erase what the handler wrote elsewhere. */
  | 'vehicle_forgotten'
  /** Free space, make handlers faster, or raise `concurrency` or the limit: the disk, its quota, `maxBytes` or `limits` is full. */
  | 'inbox_full'
  /**
   * One body never fits into the inbox (`limits.pendingBytes`, its `maxBytes`, 2 MB a message in Durable Objects): 413. Raise it, or send
   * smaller batches.
   */
  | 'body_too_large'
  /**
   * The file cannot be opened or written (the text names its owner and the user of the process), or [Kafka](#kafka) or [Postgres](#postgres)
   * cannot be used. A failing disk is tried again within 30 seconds. If the inbox thread ended, restart. A drained receiver stays closed: make a
   * new one; the next process continues a replay.
   */
  | 'inbox_unavailable'
  /** Another receiver has the inbox file. Stop one, give each its own, or raise `waitMs`. */
  | 'inbox_locked'
  /** The file is moved aside, and the inbox begins again. Check the disk, and [recover what it held](inbox.md#a-damaged-file). */
  | 'inbox_damaged'
  /**
   * `node:sqlite` is missing, the disk is not local, the file is of something else or [another version](versions.md#inbox-files), or `thread` is
   * set on Deno.
   */
  | 'inbox_unsupported'
  /** The store refuses one row, for instance by your trigger: 503 and a `gap` when it arrives, later a dead letter. */
  | 'message_refused'
  /** A `gap` event is never sent. Write `createdAt` like `2024-02-24T04:58:44.983Z`. */
  | 'encode_unsupported'
  /** `normalize` takes one JSON object, several one after another, or a list, as text or bytes. */
  | 'message_unreadable'
  /** Give the process more time to stop. On Workers in memory that is 25 seconds: use [a durable inbox](workers.md). */
  | 'drain_deadline'
  /** The other server answers nothing, 5xx, or refuses every message: all wait until it takes them. Has its address or secret changed? */
  | 'forward_failed'
  /** The other server refuses this message and takes others: a dead letter. Fix that server, then `fleethook dead replay --branch …`. */
  | 'forward_refused'
  /** `EADDRINUSE`: the port is taken. `EACCES`: ports below 1024 need a privilege; Deno needs `--allow-net`. */
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
