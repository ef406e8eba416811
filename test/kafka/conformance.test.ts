import { afterAll, beforeAll, describe, test } from 'vitest'
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { relayConformance } from '../../src/testing.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { createTopics } from './topics.ts'

let brokers: Brokers

beforeAll(async () => {
  brokers = await startBrokers()
})
afterAll(() => brokers?.[Symbol.asyncDispose]())

const made = new Set<string>()

async function inbox(topic: string): ReturnType<typeof make> {
  if (!made.has(topic)) {
    made.add(topic)
    await createTopics(brokers.addresses, topic, 6)
  }
  return make(topic)
}

const make = async (topic: string): Promise<ReturnType<typeof kafkaInbox>> =>
  kafkaInbox({ brokers: brokers.addresses, topic, partitions: 6, quiesceMs: 2_000, sessionMs: 6_000 })

describe('kafkaInbox is an inbox whose messages another system keeps', () => {
  test.each(relayConformance({ inbox }))('$name', ({ run }) => run(), 60_000)
})
