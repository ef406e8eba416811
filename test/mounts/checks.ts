import { createReceiver, type Receiver, type ReceiverOptions } from 'fleethook'
import { type HandledEvent, receiverConformance } from '../../adapters/cli/conform/receiver-conformance.ts'
import { expect } from 'vitest'

export const secret = 'a-long-random-value'

/** A receiver that records the events that its handlers got. */
export function remembering(options: Partial<ReceiverOptions> = {}): {
  readonly receiver: Receiver
  readonly events: () => Promise<readonly HandledEvent[]>
} {
  const seen: unknown[] = []
  const receiver = createReceiver({ secret, ...options }).on('*', (event) => seen.push(event))
  return { receiver, events: async () => JSON.parse(JSON.stringify(seen)) }
}

/**
 * A host that reads bodies itself answers requests that are no POST, and reads before the secret is checked. It also
 * inflates a body whose header says gzip, so `accept` cannot know that the body was not gzip.
 */
const ofHosts =
  /OPTIONS|GET|PUT|PATCH|PROPFIND|HEAD|DELETE|health|before the body has arrived|not gzip although its header says so/
export const answeredByHost = (name: string): boolean => ofHosts.test(name)

/**
 * Runs the whole conformance suite against a mount, and reports what failed. Without `events` it does not check what
 * handlers got. `except`: cases that the host itself answers.
 */
export async function conforms(
  url: string,
  events?: () => Promise<readonly HandledEvent[]>,
  except: (name: string) => boolean = () => false,
): Promise<void> {
  const failed: string[] = []
  const checks = receiverConformance({ url, secret, ...(events && { events }) }).filter(({ name }) => !except(name))
  expect(checks.length).toBeGreaterThan(10)
  for (const { name, run } of checks) {
    try {
      await run()
    } catch (error) {
      failed.push(`${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  expect(failed).toEqual([])
}
