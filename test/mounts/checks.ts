import { createReceiver, type Receiver } from 'fleethook'
import { type HandledEvent, receiverConformance } from 'fleethook/testing'
import { expect } from 'vitest'

export const secret = 'a-long-random-value'

/** A receiver that remembers what its handlers were given. */
export function remembering(): {
  readonly receiver: Receiver
  readonly events: () => Promise<readonly HandledEvent[]>
} {
  const seen: unknown[] = []
  const receiver = createReceiver({ secret }).on('*', (event) => seen.push(event))
  return { receiver, events: async () => JSON.parse(JSON.stringify(seen)) }
}

/** Runs the whole conformance suite against a mount, and says what failed. `except`: what the host itself answers. */
export async function conforms(
  url: string,
  events: () => Promise<readonly HandledEvent[]>,
  except: (name: string) => boolean = () => false,
): Promise<void> {
  const failed: string[] = []
  const checks = receiverConformance({ url, secret, events }).filter(({ name }) => !except(name))
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
