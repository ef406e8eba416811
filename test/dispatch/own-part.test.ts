import type { Message, ReceiverPart } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { dedupe } from 'fleethook'
import { turn } from './fake-clock.ts'
import { data, scene } from './scene.ts'

/** The example of CONTRIBUTING.md. */
function limited(limit: number): ReceiverPart {
  return {
    create() {
      const seen = new Map<string, number>()
      const counted = new WeakSet<Message>()
      let minute = 0
      return {
        admit(message) {
          const now = Math.floor((message.claim?.message.receivedAt ?? 0) / 60_000)
          if (now > minute) seen.clear()
          minute = Math.max(minute, now)
          // It is asked again when another part said 'wait'.
          const count = (seen.get(message.lane) ?? 0) + (counted.has(message) ? 0 : 1)
          counted.add(message)
          seen.set(message.lane, count)
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

describe('a part that skips is not asked about', () => {
  test('a gap, which is the only news of a lost message', async () => {
    const skipAll: ReceiverPart = { create: () => ({ admit: () => 'skip' }) }
    const { receiver, post } = scene({ parts: [skipAll], limits: { pendingMessages: 1 } })
    const handled: string[] = []
    receiver.on('data', () => void handled.push('data')).on('gap', ({ vin }) => void handled.push(`gap of ${vin}`))
    const [taken, refused] = await Promise.all([post(data('A', 1)), post(data('A', 2))])
    expect([taken.status, refused.status]).toEqual([200, 503])
    await turn()
    expect(handled).toEqual(['gap of A'])
    expect(receiver.stats()).toMatchObject({ handled: 0, duplicates: 1 })
  })

  test('the messages of a batch that failed', async () => {
    const { receiver, post, clock } = scene({ parts: [limited(3)] })
    const runs: number[] = []
    receiver.batch('data', { size: 3, withinMs: 100 }, (events) => {
      runs.push(events.length)
      if (runs.length === 1) throw new Error('no')
    })
    await post([data('A', 1), data('A', 2), data('A', 3)])
    await clock.advance(60_000)
    expect({ runs, ...receiver.stats() }).toMatchObject({ runs: [3, 1, 1, 1], handled: 3, duplicates: 0 })
  })

  test('a message again, when another part let it wait', async () => {
    const { receiver, post } = scene({ parts: [limited(3), dedupe({ withinMs: 60_000 })] })
    receiver.on('data', () => {})
    await post([data('A', 1), data('A', 1), data('A', 2)])
    await turn()
    expect(receiver.stats()).toMatchObject({ handled: 2, duplicates: 1 })
  })

  test('a replay', async () => {
    const { receiver, post } = scene({ parts: [limited(1)], retry: { attempts: 1 } })
    let runs = 0
    receiver.on('data', () => {
      runs += 1
      if (runs === 1) throw new Error('no')
    })
    await post(data('A', 1))
    await turn()
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await turn()
    expect({ runs, ...receiver.stats() }).toMatchObject({ runs: 2, handled: 1, duplicates: 0 })
  })
})

test('a part that throws, or answers nonsense, makes its message a dead letter, beside other parts, too', async () => {
  const picky: ReceiverPart = {
    create: () => ({
      admit({ lane }) {
        if (lane === 'BAD') throw new TypeError('no such vehicle')
        return lane === 'ODD' ? JSON.parse('"maybe"') : undefined
      },
    }),
  }
  const { receiver, post } = scene({ parts: [limited(2), picky] })
  receiver.on('data', () => {})
  await post([data('BAD', 1), data('ODD', 1), data('A', 1)])
  await turn()
  expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 2, lanes: 0 })
  const letters = await Array.fromAsync(receiver.deadLetters.list())
  expect(letters).toMatchObject([
    { error: 'TypeError: no such vehicle', attempts: 0 },
    { error: 'FleethookError: `admit` of a part returned "maybe".', attempts: 0 },
  ])
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
