import { FleethookError } from '../../../src/base/errors.ts'
import { type InboxHost, neverFits, whyNeverFit } from '../../../src/inbox/inbox.ts'
import { mostNewBytes, rowBytes, spaceFor } from './file/volume.ts'

type Limits = InboxHost['limits']

/** The messages that wait or are claimed, and how many of them there may be. */
export class Pending {
  messages = 0
  bytes = 0
  readonly #limits: Limits
  readonly #maxBytes: number
  /** Created once: under overload, a stack trace for each refusal would cost more than everything else in it. */
  readonly #limitError: FleethookError

  constructor(limits: Limits, maxBytes: number) {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = limits
    this.#limits = limits
    this.#maxBytes = maxBytes
    this.#limitError = new FleethookError(
      'inbox_full',
      `The inbox is at the limits of the receiver: ${pendingMessages} messages or ${pendingBytes} bytes.`,
      { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
    )
  }

  /** The room that they take in the file. */
  get fileBytes(): number {
    return this.bytes + this.messages * rowBytes
  }

  get isFull(): boolean {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    return this.messages >= pendingMessages || this.bytes >= pendingBytes
  }

  /** How much of the limits or of the room for the file they take, from 0 to 1. */
  usedOf(path: string): number {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    const room = Math.max(1, Math.min(mostNewBytes(this.#maxBytes), spaceFor(path)))
    return Math.max(this.messages / pendingMessages, this.bytes / pendingBytes, this.fileBytes / room)
  }

  /** Whether the limits have room for these. */
  hasRoom(messages: number, bytes: number): boolean {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    return this.messages + messages <= pendingMessages && this.bytes + bytes <= pendingBytes
  }

  /** Counts messages that are about to be written, or throws when there is no room for them. */
  reserve(messages: number, bytes: number): void {
    // A commit would drop all that is kept for replays, to make room that is never enough.
    if (bytes + messages * rowBytes > mostNewBytes(this.#maxBytes)) throw neverFits('maxBytes', this.#maxBytes)
    if (!this.hasRoom(messages, bytes)) throw whyNeverFit(messages, bytes, this.#limits) ?? this.#limitError
    this.add(messages, bytes)
  }

  add(messages: number, bytes: number): void {
    this.messages += messages
    this.bytes += bytes
  }

  release(messages: number, bytes: number): void {
    this.add(-messages, -bytes)
  }
}
