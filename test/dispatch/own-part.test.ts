import type { ReceiverPart } from 'fleethook/extend'
import { expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, scene } from './scene.ts'

/** The example of CONTRIBUTING.md: at most `limit` messages of each vehicle. */
function limited(limit: number): ReceiverPart {
  return {
    create() {
      const counts = new Map<string, number>()
      return {
        admit({ laneKey, attempt }) {
          if (attempt > 0) return undefined
          const count = (counts.get(laneKey) ?? 0) + 1
          counts.set(laneKey, count)
          return count > limit ? 'skip' : undefined
        },
      }
    },
  }
}

test('a part of a user decides which messages are handled, and nothing else changes', async () => {
  const { receiver, post } = scene({ parts: [limited(2)] })
  const seen: unknown[] = []
  receiver.on('data', ({ vin, data: { Odometer } }) => void seen.push(`${vin} ${String(Odometer)}`))
  await post([1, 2, 3, 4].flatMap((n) => [data('A', n), data('B', n)]))
  await turn()
  expect(seen.toSorted()).toEqual(['A 1', 'A 2', 'B 1', 'B 2'])
  expect(receiver.stats()).toMatchObject({ handled: 4, duplicates: 4, pending: { messages: 0 }, lanes: 0 })
})

test('a receiver and a server end with `await using`', async () => {
  const { receiver, post } = scene({})
  let handled = 0
  receiver.on('data', () => void (handled += 1))
  {
    await using _ = receiver
    await post(data('A', 1))
  }
  expect({ handled, ...receiver.readiness() }).toMatchObject({ handled: 1, ready: false })
})
