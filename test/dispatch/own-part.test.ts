import { dedupe } from 'fleethook'
import type { MessageView, ReceiverPart } from 'fleethook/extend'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { limited } from '../../examples/workers-storage/limited.ts'
import { turn } from './fake-clock.ts'
import { data, scene } from './scene.ts'

beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(() => {}))
afterEach(() => vi.restoreAllMocks())

test('a part of a user decides which messages are handled, and nothing else changes', async () => {
  const { receiver, send } = scene({ parts: [limited(2)] })
  const seen: unknown[] = []
  receiver.on('data', ({ vin, data: { Odometer } }) => void seen.push(`${vin} ${String(Odometer)}`))
  await send([1, 2, 3, 4].flatMap((n) => [data('A', n), data('B', n)]))
  expect(seen.toSorted()).toEqual(['A 1', 'A 2', 'B 1', 'B 2'])
  expect(console.warn).toHaveBeenCalledTimes(2)
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
    const { receiver, send } = scene({ parts: [limited(3), dedupe({ withinMs: 60_000 })] })
    receiver.on('data', () => {})
    await send([data('A', 1), data('A', 1), data('A', 2)])
    expect(receiver.stats()).toMatchObject({ handled: 2, duplicates: 1 })
  })

  test('a replay', async () => {
    const { receiver, send } = scene({ parts: [limited(1)], retry: { attempts: 1 } })
    let runs = 0
    receiver.on('data', () => {
      runs += 1
      if (runs === 1) throw new Error('no')
    })
    await send(data('A', 1))
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
  const { receiver, send } = scene({ parts: [limited(2), picky] })
  receiver.on('data', () => {})
  await send([data('BAD', 1), data('ODD', 1), data('A', 1)])
  expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 2, lanes: 0 })
  const letters = await Array.fromAsync(receiver.deadLetters.list())
  expect(letters).toMatchObject([
    { error: 'TypeError: no such vehicle', attempts: 0 },
    { error: 'FleethookError: `admit` of a part returned "maybe".', attempts: 0 },
  ])
})

/** Notes what parts hear. */
function hearing(admit?: (message: MessageView) => 'skip' | 'wait' | undefined): {
  part: ReceiverPart
  heard: unknown[]
} {
  const heard: unknown[] = []
  const over = ({ id, lane, event, attempt, receivedAt, counts }: MessageView, outcome: string): void => {
    heard.push([lane, outcome, { id: typeof id, topic: event?.topic, attempt, receivedAt, counts }])
  }
  return { part: { create: () => (admit === undefined ? { over } : { admit, over }) }, heard }
}

test('a part hears of the end of each message once, with what it may know', async () => {
  const { part, heard } = hearing(({ event }) => (event?.topic === 'state' ? 'skip' : undefined))
  const { receiver, post, clock } = scene({ parts: [part], retry: { attempts: 2 } })
  receiver
    .on('data', ({ vin }) => {
      if (vin === 'BAD') throw new Error('no')
    })
    .on('state', () => {})
  const receivedAt = clock.now()
  await post([data('A', 1), data('BAD', 1), { vin: 'A', createdAt: '2024-02-24T04:58:44Z', state: 'online' }])
  await clock.advance(60_000)
  const known = { id: 'string', topic: 'data', receivedAt, counts: true }
  expect(heard).toEqual([
    ['A', 'done', { ...known, attempt: 1 }],
    ['A', 'skipped', { ...known, topic: 'state', attempt: 0 }],
    ['BAD', 'dead', { ...known, attempt: 2 }],
  ])
})

test('a part hears that a message is gone when its vehicle is erased', async () => {
  const { part, heard } = hearing()
  const { receiver, send } = scene({ parts: [part] })
  receiver.on('data', () => new Promise(() => {}))
  await send([data('A', 1), data('A', 2), data('B', 1)])
  await receiver.forget('A')
  expect(heard).toMatchObject([
    ['A', 'gone', { counts: true }],
    ['A', 'gone', { counts: true }],
  ])
})

test("'wait' without a message before it holds no message up", async () => {
  const { part, heard } = hearing(() => 'wait')
  const { receiver, send } = scene({ parts: [part] })
  receiver.on('data', () => {})
  await send([data('A', 1), data('A', 2), data('B', 1)])
  expect(heard).toHaveLength(3)
  expect(receiver.stats()).toMatchObject({ handled: 3, lanes: 0 })
})

test('a message that was handled stays a duplicate when its replay fails', async () => {
  const { receiver, send } = scene({ parts: [dedupe({ withinMs: 60_000 })], retry: { attempts: 1 } })
  let runs = 0
  receiver.on('data', () => {
    runs += 1
    if (runs % 2 === 1) throw new Error('no')
  })
  await send(data('A', 1))
  await receiver.deadLetters.replay({})
  await turn()
  await send(data('A', 1))
  expect({ runs, ...receiver.stats() }).toMatchObject({ runs: 2, duplicates: 1 })
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
