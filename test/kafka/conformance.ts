// The conformance suite on real brokers. As a program it runs all checks on the runtime that executes it, and prints one line for each:
// its name, and what went wrong. `SETTINGS` has the arguments of `conformanceOn`.
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { relayConformance } from '../conformance/relay-conformance.ts'
import type { Conformance } from '../../src/testing.ts'
import { createTopics } from './topics.ts'

/** The name of a check, and what went wrong. */
export type Outcome = readonly [name: string, problem?: string]

export interface ConformanceOptions {
  readonly brokers: readonly string[]
  /** What the names of the topics begin with. */
  readonly prefix: string
}

export function conformanceOn({ brokers, prefix }: ConformanceOptions): readonly Conformance[] {
  const made = new Set<string>()
  return relayConformance({
    async inbox(name) {
      const topic = `${prefix}-${name}`
      if (!made.has(topic)) {
        made.add(topic)
        await createTopics(brokers, topic, 6)
      }
      return kafkaInbox({ brokers, topic, partitions: 6, quiesceMs: 2_000, sessionMs: 6_000 })
    },
  })
}

if (import.meta.main) {
  const options: ConformanceOptions = JSON.parse(process.env['SETTINGS'] ?? '{}')
  for (const { name, run } of conformanceOn(options)) {
    const outcome: Outcome = await run().then(
      () => [name],
      (error: unknown) => [name, String(error)],
    )
    console.log(JSON.stringify(outcome))
  }
}
