import type { DeadLetters } from '../../../src/inbox/dead-letters.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Relay } from '../../../src/backend/relay.ts'
import type { QueueBinding } from './platform.ts'
import { batchesOf, mostMessageBytes, sized } from './sizes.ts'

/** Sends messages to a queue, whose consumer handles them. */
export function createQueueRelay(queue: (env: never) => QueueBinding): Relay {
  return {
    durability: 'replicated',
    deadLetters,
    // A queue has forgotten what was handled.
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

/** They are the platform's: in the queue that is named as `dead_letter_queue`. */
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
