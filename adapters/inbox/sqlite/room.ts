import { FleethookError } from '../../../src/base/errors.ts'
import type { InboxSettings } from '../../../src/inbox/inbox.ts'

/** How much is pending, and how much may be. */
export interface Room {
  readonly messages: number
  readonly bytes: number
  /** Throws `inbox_full` when it does not fit. */
  take(messages: number, bytes: number): void
  give(messages: number, bytes: number): void
  /** What a file says. */
  set(messages: number, bytes: number): void
  readonly isFull: boolean
}

export function createRoom({ pendingMessages = Infinity, pendingBytes = Infinity }: InboxSettings): Room {
  let messages = 0
  let bytes = 0
  // Made once: under overload the stack trace of each refusal would cost more than everything else about it.
  const full = new FleethookError(
    'inbox_full',
    `The inbox holds as much as \`limits\` allow: ${pendingMessages} messages or ${pendingBytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
  )

  return {
    get messages() {
      return messages
    },
    get bytes() {
      return bytes
    },
    take(moreMessages, moreBytes) {
      if (messages + moreMessages > pendingMessages || bytes + moreBytes > pendingBytes) throw full
      messages += moreMessages
      bytes += moreBytes
    },
    give(lessMessages, lessBytes) {
      messages -= lessMessages
      bytes -= lessBytes
    },
    set(foundMessages, foundBytes) {
      messages = foundMessages
      bytes = foundBytes
    },
    get isFull() {
      return messages >= pendingMessages || bytes >= pendingBytes
    },
  }
}
