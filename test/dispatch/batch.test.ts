import { type BatchContext, createReceiver, Discard, type EventOf, Retry } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { fakeClock, turn } from './fake-clock.ts'
import { data, scene, state } from './scene.ts'

const numbers = (events: readonly EventOf<'data'>[]): unknown[] => events.map((event) => event.data.Odometer)

describe('a batch', () => {
  test('runs as soon as it has its size', async () => {
    const { receiver, post, send, clock } = scene()
    const seen: unknown[] = []
    receiver.batch('data', { size: 3, withinMs: 1000 }, (events) => void seen.push(numbers(events)))
    await post([data('A', 1), data('A', 2)])
    await send(data('B', 3))
    expect(seen).toEqual([[1, 3, 2]])
    expect(receiver.stats()).toMatchObject({ handled: 3, running: 0, lanes: 0, retried: 0, pending: { messages: 0 } })
    expect(clock.timers()).toEqual([])
  })

  test('runs when the time since its first message is over', async () => {
    const { receiver, post, clock } = scene()
    const seen: unknown[] = []
    receiver.batch('data', { size: 3, withinMs: 1000 }, (events) => void seen.push(numbers(events)))
    await post(data('A', 1))
    await clock.advance(600)
    await post(data('A', 2))
    await clock.advance(399)
    expect(seen).toEqual([])
    expect(receiver.stats()).toMatchObject({ handled: 0, running: 0, lanes: 1 })
    await clock.advance(1)
    expect(seen).toEqual([[1, 2]])
    expect(receiver.stats()).toMatchObject({ handled: 2, lanes: 0 })
  })

  test('is for a topic, several or all, and filtered as other handlers are; each has its own', async () => {
    const { receiver, post, clock } = scene()
    const seen: unknown[] = []
    receiver
      .batch('*', { size: 9, withinMs: 10 }, (events) => void seen.push(['all', ...events.map(({ topic }) => topic)]))
      .batch('data', { size: 9, withinMs: 10, vins: ['B'] }, (events) => void seen.push(['B', ...numbers(events)]))
      .batch(['data', 'state'], { size: 9, withinMs: 10, fields: ['Soc'] }, (events) => {
        expectTypeOf(events).toEqualTypeOf<readonly EventOf<'data' | 'state'>[]>()
        seen.push(['Soc', events.length])
      })
    await post([data('A', 1, { Soc: 5 }), data('B', 2), state('C', 'online')])
    await clock.advance(1000)
    expect(seen.toSorted()).toEqual([
      ['B', 2],
      ['Soc', 1],
      ['all', 'data', 'data', 'state'],
    ])
    expect(receiver.stats()).toMatchObject({ handled: 3, lanes: 0 })
  })

  test('its handler gets a signal, the log, env and the deliveries', async () => {
    const { receiver, post, clock } = scene({ timeoutMs: 500 })
    const contexts: BatchContext[] = []
    receiver.batch('data', { size: 2, withinMs: 10 }, (_, context) => {
      contexts.push(context)
      return contexts.length === 1
        ? new Promise((_resolve, reject) => context.signal.addEventListener('abort', reject))
        : 0
    })
    await post([data('A', 1), data('B', 2)])
    await clock.advance(499)
    expect(contexts[0]?.signal.aborted).toBe(false)
    await clock.advance(1)
    expect(contexts[0]?.signal.reason).toMatchObject({ code: 'handler_timeout' })
    const first = { attempt: 1, redelivered: false, replayed: false }
    expect(contexts[0]?.deliveries).toMatchObject([first, first])
    expect(contexts[0]?.env).toEqual({})
    expect(receiver.stats()).toMatchObject({ handled: 2, lanes: 0, retried: 0 })
  })
})

describe('a batch that fails', () => {
  test('is tried message by message, and only the one that fails is retried', async () => {
    const { receiver, post, send, clock } = scene({ retry: { attempts: 3, minMs: 100, maxMs: 100 } })
    const runs: unknown[][] = []
    const told: unknown[] = []
    receiver.observe({ failed: (_, { kind, messages }) => void told.push([kind, messages]) })
    receiver.batch('data', { size: 8, withinMs: 10 }, (events) => {
      runs.push(numbers(events))
      if (events.some(({ vin }) => vin === 'F')) throw new Error('no')
    })
    await send([...'ABCDEFGH'].map((vin, n) => data(vin, n + 1)))
    expect(runs).toEqual([[1, 2, 3, 4, 5, 6, 7, 8], [1], [2], [3], [4], [5], [6], [7], [8]])
    expect(told).toEqual([
      ['handler', 8],
      ['handler', 1],
    ])
    expect(receiver.stats()).toMatchObject({ handled: 7, lanes: 1, retried: 0, running: 0 })
    await post([data('F', 9), data('A', 10)])
    await clock.advance(40)
    expect(runs.slice(9)).toEqual([[10]])
    await clock.advance(1000)
    expect(runs.slice(10)).toEqual([[6], [6], [9], [9], [9]])
    expect(receiver.stats()).toMatchObject({ handled: 8, retried: 4, deadLettered: 2, lanes: 0 })
    expect((await Array.fromAsync(receiver.deadLetters.list()))[0]).toMatchObject({ error: 'Error: no', attempts: 3 })
  })

  test('marks its messages as redelivered', async () => {
    const { receiver, send } = scene()
    const runs: unknown[] = []
    receiver.batch('data', { size: 2, withinMs: 10 }, (_, { deliveries }) => {
      runs.push(deliveries.map(({ redelivered }) => redelivered))
      if (deliveries.length > 1) throw new Error('no')
    })
    await send([data('A', 1), data('B', 2)])
    expect(runs).toEqual([[false, false], [true], [true]])
  })

  test('with Retry waits and runs again undivided; after the last attempt all are dead letters', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 2 } })
    const runs: unknown[] = []
    const told: unknown[] = []
    receiver.observe({ failed: (error) => void told.push(error) })
    receiver.batch('data', { size: 2, withinMs: 10 }, (events, { deliveries }) => {
      runs.push([numbers(events), deliveries.map(({ attempt }) => attempt)])
      throw new Retry(5000, { cause: new Error('busy') })
    })
    await post([data('A', 1), data('B', 2)])
    await clock.advance(4999)
    expect(runs).toEqual([
      [
        [1, 2],
        [1, 1],
      ],
    ])
    await clock.advance(1)
    expect(runs.slice(1)).toEqual([
      [
        [1, 2],
        [2, 2],
      ],
    ])
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([
      { error: 'Error: busy' },
      { error: 'Error: busy' },
    ])
    expect(told).toEqual([])
    expect(receiver.stats()).toMatchObject({ retried: 2, deadLettered: 2, lanes: 0 })
  })

  test('with Retry still waits in the next process, and its attempt has been counted', async () => {
    const on = disk()
    const clock = fakeClock()
    const first = scene({ inbox: storedInbox(on) }, clock)
    first.receiver.batch('data', { size: 2, withinMs: 10 }, () => {
      throw new Retry(5000)
    })
    await first.post([data('A', 1), data('B', 2)])
    await turn()
    const noted = { attempts: 1, notBefore: clock.now() + 5000 }
    expect([...on.next.values()]).toEqual([noted, noted])
    const second = scene({ inbox: storedInbox(on) }, clock)
    const attempts: unknown[] = []
    second.receiver.batch('data', { size: 2, withinMs: 10 }, (_, { deliveries }) => {
      attempts.push(deliveries.map(({ attempt }) => attempt))
    })
    await second.receiver.open()
    await clock.advance(4999)
    expect(attempts).toEqual([])
    await clock.advance(1)
    expect(attempts).toEqual([[2, 2]])
  })

  test('with Discard is over', async () => {
    const { receiver, post, clock } = scene()
    receiver.batch('data', { size: 2, withinMs: 10 }, () => {
      throw new Discard('not today')
    })
    await post([data('A', 1), data('B', 2)])
    await clock.advance(10)
    expect(receiver.stats()).toMatchObject({ handled: 2, discarded: 2, deadLettered: 0, lanes: 0 })
  })

  test('does not count for the other handlers of its messages', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 1 } })
    const seen: unknown[] = []
    receiver
      .on('data', () => {
        throw new Error('ordinary')
      })
      .batch('data', { size: 1, withinMs: 10 }, () => {
        throw new Error('first')
      })
      .batch('data', { size: 1, withinMs: 10 }, (events) => void seen.push(numbers(events)))
    await post(data('A', 1))
    await clock.advance(10)
    expect(seen).toEqual([[1]])
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ error: 'Error: ordinary' }])
  })

  test('a filter that throws fails the batch for that message alone', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 1 } })
    const seen: unknown[] = []
    const vins = (vin: string): boolean => {
      if (vin === 'B') throw new Error('no')
      return vin === 'A'
    }
    receiver.batch('data', { size: 3, withinMs: 10, vins }, (events) => void seen.push(numbers(events)))
    await post([data('A', 1), data('B', 2), data('C', 3)])
    await clock.advance(10)
    expect(seen).toEqual([[1]])
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ event: { vin: 'B' } }])
  })
})

test.each([
  [{ size: 0, withinMs: 1 }, '`size`'],
  [{ size: 1.5, withinMs: 1 }, '`size`'],
  [{ size: 1, withinMs: -1 }, '`withinMs`'],
  [{ size: 1, withinMs: Number.NaN }, '`withinMs`'],
])('%j is refused', (options, named) => {
  const receiver = createReceiver({ secret: false })
  expect(() => receiver.batch('data', options, () => {})).toThrow(named)
})

test('a batch has no message that went to another process while it was gathered', async () => {
  const claimed: string[] = []
  const lost = new Set<string | undefined>()
  const inbox: InboxFactory = (settings) => ({
    ...storedInbox(disk(), { claim: (id) => void claimed.push(id) })(settings),
    shared: { handsOut: 'here', isStillHeld: async (id) => !lost.has(id) },
  })
  const { receiver, post, send, clock } = scene({ inbox })
  const seen: unknown[] = []
  receiver.batch('data', { size: 10, withinMs: 1000 }, (events) => void seen.push(numbers(events)))
  await send([data('A', 1), data('B', 2), data('A', 3)])
  lost.add(claimed[1])
  await clock.advance(1000)
  expect(seen).toEqual([[1, 3]])
  await post(data('B', 4))
  await clock.advance(1000)
  expect(seen).toEqual([[1, 3], [4]])
  expect(receiver.stats()).toMatchObject({ handled: 3, lanes: 0, running: 0 })
})
