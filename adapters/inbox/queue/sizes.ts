import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import type { QueuedMessage } from './platform.ts'

/** What the platform takes as one message: 128 kB, of which it uses about 100 bytes itself. */
export const mostMessageBytes = 127_000

/** What it takes in one call. */
const mostBatchBytes = 255_000
const mostBatchMessages = 100

const encoder = /* @__PURE__ */ new TextEncoder()

/** A message on its way to the queue. */
export interface Sized {
  readonly body: QueuedMessage
  readonly bytes: number
}

export function sized({ event: _, ...body }: InboxMessage): Sized {
  return { body, bytes: encoder.encode(JSON.stringify(body)).length }
}

/** As few calls as the platform allows, in order. */
export function batchesOf(messages: readonly Sized[]): readonly (readonly Sized[])[] {
  const batches: Sized[][] = []
  let batch: Sized[] = []
  let bytes = 0
  for (const message of messages) {
    if (batch.length === mostBatchMessages || bytes + message.bytes > mostBatchBytes) {
      batches.push(batch)
      batch = []
      bytes = 0
    }
    batch.push(message)
    bytes += message.bytes
  }
  return batch.length === 0 ? batches : [...batches, batch]
}
