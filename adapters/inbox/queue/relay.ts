import type { Relay } from '../../../src/backend/relay.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { DeadLetters } from '../../../src/inbox/dead-letters.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'

/** A message on a queue: as an inbox keeps it, without the event. The consumer reads the event again. */
export type QueuedMessage = Omit<InboxMessage, 'event'>

/** The part of a producer's binding that fleethook uses: `env.FLEETHOOK_QUEUE`. */
export interface QueueBinding {
  send(body: QueuedMessage, options: { contentType: 'json' }): Promise<unknown>
  sendBatch(messages: Iterable<{ body: QueuedMessage; contentType: 'json' }>): Promise<unknown>
}

/** Sends messages to a queue. The consumer of the queue handles them. */
export function createQueueRelay(queue: (env: never) => QueueBinding): Relay {
  return {
    durability: 'replicated',
    deadLetters,
    messages: { list: elsewhere, get: elsewhere },
    // A queue deletes handled messages.
    replay: async () => 0,

    async put(messages, env) {
      const binding = bound(queue(env as never))
      const all = messages.map(sized)
      const tooLarge = all.find(({ bytes }) => bytes > mostMessageBytes)
      if (tooLarge !== undefined) {
        return {
          error: 'body_too_large',
          hint: `A queue takes messages of up to ${mostMessageBytes} bytes and one of these has ${tooLarge.bytes}.`,
        }
      }
      for (const batch of batchesOf(all)) {
        const [first] = batch
        if (first !== undefined && batch.length === 1) await binding.send(first.body, { contentType: 'json' })
        else await binding.sendBatch(batch.map(({ body }) => ({ body, contentType: 'json' })))
      }
      return undefined
    },
  }
}

/** The platform keeps dead letters in the queue that `dead_letter_queue` names. */
const deadLetters: DeadLetters = {
  list: elsewhere,
  get: elsewhere,
  replay: elsewhere,
  discard: elsewhere,
}

async function elsewhere(): Promise<never> {
  throw new FleethookError('inbox_unavailable', 'The dead letters of a queue are in the dead letter queue beside it.', {
    hint: 'Look at the `dead_letter_queue` of the consumer in the Wrangler configuration.',
  })
}

function bound(binding: QueueBinding | undefined): QueueBinding {
  if (binding !== undefined) return binding
  throw new FleethookError('inbox_unavailable', 'The option `queue` of queueInbox returned nothing for this env.', {
    hint: 'Bind the queue as a producer in `queues` of the Wrangler configuration.',
  })
}

/** The largest message that the platform takes: 128 kB, of which it uses about 100 bytes itself. */
const mostMessageBytes = 127_000

/** What it takes in one call. */
const mostBatchBytes = 255_000
const mostBatchMessages = 100

const encoder = /* @__PURE__ */ new TextEncoder()

/** A message on its way to the queue. */
interface Sized {
  readonly body: QueuedMessage
  readonly bytes: number
}

function sized({ event: _, ...body }: InboxMessage): Sized {
  return { body, bytes: encoder.encode(JSON.stringify(body)).length }
}

/** Makes as few calls as the platform allows, in order. */
function batchesOf(messages: readonly Sized[]): readonly (readonly Sized[])[] {
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
