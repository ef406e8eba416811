import { expect, test } from 'vitest'
import { createKeptMessages } from '../../adapters/inbox/sqlite/kept-messages.ts'
import { message } from '../../src/testing/kept-message.ts'

test('messages that are put back again and again cost the same each time', () => {
  const messages = createKeptMessages()
  const numbers = Array.from({ length: 1_000 }, (_, n) => n)
  for (const n of numbers)
    messages.wait({ message: message(n), seq: n, deliveries: 0, replayed: false, isClaimed: false })

  /** As often as a thousand vehicles are tried whose handler has nowhere to write to. */
  function passed(rounds: number): number {
    const startedAt = performance.now()
    for (let round = 0; round < rounds; round += 1) {
      for (const n of numbers) {
        const kept = messages.get(message(n).id)
        if (kept === undefined) throw new Error(`${n} is gone`)
        messages.claim(kept)
        messages.wait(kept)
      }
    }
    return performance.now() - startedAt
  }

  passed(5)
  const early = passed(10)
  passed(30)
  // Where each is remembered anew, this takes a hundred times as long.
  expect(passed(10)).toBeLessThan(early * 10 + 50)
})
