import type { InboxMessage } from '../../../src/inbox/inbox.ts'

/** What fleethook puts on a queue: a message as an inbox keeps it, without the event, which is read anew. */
export type QueuedMessage = Omit<InboxMessage, 'event'>

/** The part of a producer's binding that fleethook uses: `env.FLEETHOOK_QUEUE`. */
export interface QueueBinding {
  send(body: QueuedMessage, options: { contentType: 'json' }): Promise<unknown>
  sendBatch(messages: Iterable<{ body: QueuedMessage; contentType: 'json' }>): Promise<unknown>
}
