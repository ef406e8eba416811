/**
 * A durable inbox on Cloudflare Queues, for messages whose order does not matter.
 *
 * @module
 */
import { LocalBackend } from '../../src/backend/local.ts'
import { aFunction, checkOptions, required, type Rules } from '../../src/base/options.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { detachedContext } from '../../src/hosting/execution-context.ts'
import type { AttachableInbox, BackendParts } from '../../src/backend/backend.ts'
import { type RelayInbox, refuseConflation } from '../../src/inbox/inbox.ts'
import { RelayBackend } from '../../src/backend/relay.ts'
import { createBatchInbox } from './queue/batch-inbox.ts'
import { createQueueRelay, type QueueBinding } from './queue/relay.ts'

export type { QueueBinding, QueuedMessage } from './queue/relay.ts'

const rules: Rules<QueueInboxOptions<never>> = {
  queue: required(aFunction, 'Give (env) => env.FLEETHOOK_QUEUE, with the name of your binding.'),
}

/** What {@link queueInbox} takes. */
export interface QueueInboxOptions<Bindings> {
  /** The queue, as its producer sees it: `(env) => env.FLEETHOOK_QUEUE`. */
  readonly queue: (env: Bindings) => QueueBinding
}

/**
 * Keeps messages on a queue of the platform, whose consumer is the same Worker: `worker(receiver)` has the `queue` handler.
 * A 2xx is sent once the queue has confirmed the message.
 *
 * A queue does not promise order, and hands messages of one VIN to several consumers at once. So the receiver needs
 * `order: 'none'`. Any other order throws `option_invalid`. `retry` sets the wait between attempts, and when `onDeadLetter` is
 * called. The consumer sets the number of attempts: its `max_retries` must be one less than `retry.attempts`. A message that
 * fails in its last attempt goes to the consumer's `dead_letter_queue`. Without one, the platform deletes it. A message over
 * 127,000 bytes is refused with 413.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { type QueueBinding, queueInbox } from 'fleethook/inbox/queue'
 * import { worker } from 'fleethook/workers'
 *
 * interface Bindings { WEBHOOK_SECRET: string; FLEETHOOK_QUEUE: QueueBinding }
 *
 * const receiver = createReceiver<{ Bindings: Bindings }>({
 *   secret: (env) => env.WEBHOOK_SECRET,
 *   inbox: queueInbox<Bindings>({ queue: (env) => env.FLEETHOOK_QUEUE }),
 *   order: 'none',
 * }).on('data', (event) => console.log(event.vin))
 *
 * export default worker(receiver)
 * ```
 */
export function queueInbox<Bindings = never>(options: QueueInboxOptions<Bindings>): RelayInbox {
  checkOptions('queueInbox', options, rules)
  const { queue } = options
  let attached: BackendParts | undefined
  const inbox: AttachableInbox = {
    kind: 'relay',
    attach(parts) {
      if (attached !== undefined) {
        throw new FleethookError('option_invalid', 'One queueInbox was given to two receivers.', {
          hint: 'Make one for each receiver, with a queue of its own.',
        })
      }
      if (parts.settings.order !== 'none') {
        throw new FleethookError(
          'option_invalid',
          "Option `order` is 'vin', and a queue of the platform keeps no order: messages of one VIN reach several consumers at once.",
          { hint: "Write out order: 'none', or use durableObjectInbox, which keeps the order within a VIN." },
        )
      }
      refuseConflation(parts.settings)
      attached = parts
      return new RelayBackend(createQueueRelay(queue), parts)
    },

    async consume(batch, env) {
      if (attached === undefined) return
      const { settings } = attached
      const inbox = createBatchInbox(batch, settings.clock)
      const backend = new LocalBackend({
        ...attached,
        inbox: () => inbox,
        // The platform counts attempts as well. Its `max_retries` is one less.
        settings: { ...settings, ack: 'stored', retry: { attempts: 5, ...settings.retry } },
        scope: { env, context: detachedContext },
        watchesTime: false,
      })
      await backend.open()
      await inbox.done
      // Nothing is left, and no timer of it either.
      await backend.drain({ deadlineMs: 0 })
    },
  }
  return inbox
}
