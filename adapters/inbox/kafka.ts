/**
 * A durable inbox on a Kafka cluster, for several receivers and handling processes. For Node 22.22 or 24.6 and later, Bun, and Deno.
 *
 * @module
 */
import type { InboxFactory } from '../../src/inbox/inbox.ts'
import { givenOnce } from './forwarding.ts'
import { type KafkaInboxOptions, readKafkaOptions } from './kafka/options.ts'
import { KafkaSystem } from './kafka/system.ts'
import { SharedInbox } from './shared-inbox.ts'

export type { KafkaInboxOptions, KafkaSasl, KafkaTls } from './kafka/options.ts'

/**
 * Keeps messages in a topic of a Kafka cluster. A 2xx is sent when the in-sync replicas, which are at least two brokers, have the
 * message. Handlers run in every process of the group, in order per VIN over all of them. Any receiver, handling process or broker
 * can end at any moment: no acknowledged message is lost as long as the topic's retention covers the time until it is handled.
 *
 * Attempts are counted in memory: after a crash, and when another process takes over, they begin at 1 again. A message during which
 * three processes ended still becomes a dead letter.
 *
 * `fleethook kafka topics --apply` creates the topics. Install the package `@platformatic/kafka` beside this one.
 *
 * Throws `option_invalid` for a wrong option. `receiver.open`, which `serve` calls, rejects with `option_invalid` for topics that
 * cannot keep the promise, with `inbox_unavailable` when the cluster cannot be used, and with `inbox_unsupported` without the package.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { kafkaInbox } from 'fleethook/inbox/kafka'
 * import { serve } from 'fleethook/node'
 *
 * const receiver = createReceiver({
 *   secret: process.env.WEBHOOK_SECRET,
 *   inbox: kafkaInbox({ brokers: ['b1:9092', 'b2:9092', 'b3:9092'] }),
 * }).on('data', (event) => console.log(event.vin, event.data.BatteryLevel))
 *
 * await serve(receiver, { port: 3000 })
 * ```
 */
export function kafkaInbox(options: KafkaInboxOptions): InboxFactory {
  const settings = readKafkaOptions(options)
  const give = givenOnce('kafkaInbox', 'topic')
  const create: InboxFactory = (own) => {
    give()
    return new SharedInbox(settings.role, own, new KafkaSystem(settings, own), settings.meanwhile)
  }
  return create
}
