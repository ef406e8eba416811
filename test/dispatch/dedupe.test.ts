import { dedupe } from 'fleethook'
import { expect, test } from 'vitest'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene, state } from './scene.ts'

test('a message that was handled before is skipped within the time, whatever its format, and counted', async () => {
  const { receiver, post, send, clock } = scene({ parts: [dedupe({ withinMs: 1000 })] })
  const seen: unknown[] = []
  receiver.on('*', (event) => void seen.push(event.topic === 'data' ? event.data.Odometer : event.topic))
  await send([data('A', 1), data('A', 2), data('A', 1), data('B', 1)])
  await post({ event: data('A', 1), source: 'A', sourcetype: 'x:data', time: 1_708_750_724.123 })
  await post(state('A', 'online'))
  await clock.advance(1000)
  expect(seen.filter((each) => each === 2)).toHaveLength(1)
  await send(data('A', 1))
  await clock.advance(1)
  const before = seen.length
  await send(data('A', 1))
  expect(seen.length).toBe(before + 1)
  const { received, handled, duplicates } = receiver.stats()
  expect({ received, total: handled + duplicates }).toEqual({ received: 8, total: 8 })
  expect(duplicates).toBeGreaterThanOrEqual(2)
})

test('by default nothing is skipped', async () => {
  const { receiver, send } = scene()
  await send([data('A', 1), data('A', 1)])
  expect(receiver.stats()).toMatchObject({ handled: 2, duplicates: 0 })
})

test('only a handled message makes later ones duplicates, not one that waits, fails or is dead', async () => {
  const { receiver, send, clock } = scene({ parts: [dedupe({ withinMs: 100_000 })], retry: { attempts: 1 } })
  const gate = gates()
  let runs = 0
  receiver.on('data', async () => {
    runs += 1
    await gate.wait(`run ${runs}`)
  })
  await send([data('A', 1), data('A', 1), data('A', 1)])
  gate.fail('run 1', new Error('no'))
  await turn()
  expect(receiver.stats()).toMatchObject({ deadLettered: 1, duplicates: 0, running: 1 })
  gate.open('run 2')
  await clock.advance(1)
  expect(runs).toBe(2)
  expect(receiver.stats()).toMatchObject({ deadLettered: 1, handled: 1, duplicates: 1, lanes: 0 })
})

test('neither a replay nor the same delivery again is a duplicate', async () => {
  const on = disk()
  const { receiver, send } = scene({
    ...{ parts: [dedupe({ withinMs: 100_000 })], retry: { attempts: 1 }, inbox: storedInbox(on) },
  })
  let fails = true
  let runs = 0
  receiver.on('data', () => {
    runs += 1
    if (fails) throw new Error('no')
  })
  await send(data('A', 1))
  fails = false
  await send(data('A', 1))
  const [letter] = await Array.fromAsync(receiver.deadLetters.list())
  expect(await receiver.deadLetters.replay(letter?.id ?? '')).toBe(1)
  await turn()
  expect(runs).toBe(3)
  expect(receiver.stats()).toMatchObject({ handled: 2, deadLettered: 1, duplicates: 0 })
})

test('only the newest are remembered, up to the limit', async () => {
  const { receiver, send } = scene({ parts: [dedupe({ withinMs: 100_000, maxEntries: 2 })], concurrency: 1 })
  const seen: unknown[] = []
  receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
  for (const n of [1, 2, 3, 3, 2, 1]) await send(data('A', n))
  expect(seen).toEqual([1, 2, 3, 1])
  expect(receiver.stats().duplicates).toBe(2)
})

test('a duplicate is forgotten by the inbox, and its answer was a 2xx', async () => {
  const on = disk()
  const { receiver, post } = scene({ parts: [dedupe({ withinMs: 1000 })], ack: 'handled', inbox: storedInbox(on) })
  receiver.on('data', () => {})
  const answers = [await post(data('A', 1)), await post(data('A', 1))]
  expect(answers.map(({ status }) => status)).toEqual([200, 200])
  expect(on.messages.size).toBe(0)
  expect(receiver.stats()).toMatchObject({ handled: 1, duplicates: 1, pending: { messages: 0 } })
})

test.each([[{}], [{ withinMs: 0 }], [{ withinMs: 1, maxEntries: 0 }], [{ withinMs: 1, more: 1 }], [true]])(
  'dedupe(%j) is refused',
  (options) => {
    expect(() => dedupe(options as never)).toThrow('dedupe')
  },
)

test('of two duplicates that are gathered for one batch only the first is in it, and later messages stay behind it', async () => {
  const { receiver, send, clock } = scene({ parts: [dedupe({ withinMs: 100_000 })] })
  const batches: unknown[][] = []
  receiver.batch('data', { size: 10, withinMs: 100 }, (events) => {
    batches.push(events.map(({ data: { Odometer } }) => Odometer))
  })
  await send([data('A', 1), data('A', 2), data('A', 1), data('A', 3), data('B', 9)])
  await clock.advance(100)
  await clock.advance(100)
  expect(batches.map((batch) => batch.join(' '))).toEqual(['1 9 2', '3'])
  expect(receiver.stats()).toMatchObject({ received: 5, handled: 4, duplicates: 1, lanes: 0 })
})
