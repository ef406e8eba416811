import { describe, expect, test } from 'vitest'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

describe('the drain of a durable inbox', () => {
  test('starts no handler, and leaves waiting messages to the next process in order', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on), concurrency: 1 })
    const gate = gates()
    first.receiver.on('data', ({ data: { Odometer } }) => gate.wait(String(Odometer)))
    await first.post([data('A', 1), data('A', 2), data('B', 3)])
    await turn()
    const drained = first.receiver.drain()
    await turn()
    gate.open('1')
    await first.clock.advance(0)
    expect(await drained).toEqual({ handled: 1, left: 2, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await turn()
    expect(seen).toEqual([2, 3])
  })

  test('aborts a handler that hangs after `handlerGraceMs`, and its attempt does not count', async () => {
    const on = disk()
    const { receiver, post, clock } = scene({ inbox: storedInbox(on) })
    let aborted = false
    receiver.on('data', (_, { signal }) => {
      signal.addEventListener('abort', () => (aborted = true))
      return new Promise(() => {})
    })
    await post(data('A', 1))
    await turn()
    const drained = receiver.drain({ handlerGraceMs: 500 })
    await clock.advance(499)
    expect(aborted).toBe(false)
    await clock.advance(1)
    expect(aborted).toBe(true)
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    const attempts: number[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', (_, { delivery }) => void attempts.push(delivery.attempt))
    await next.receiver.open()
    await turn()
    expect(attempts).toEqual([1])
  })

  test('still takes messages until `takeUntil` resolves, and refuses them from then on', async () => {
    const on = disk()
    const { receiver, post } = scene({ inbox: storedInbox(on) })
    receiver.on('data', () => {})
    await receiver.open()
    let close = (): void => {}
    const drained = receiver.drain({ takeUntil: new Promise<void>((resolve) => (close = resolve)) })
    expect((await post(data('A', 1))).status).toBe(200)
    close()
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    expect((await post(data('A', 2))).status).toBe(503)
  })

  test('acknowledges a message that the inbox stores after the handlers were aborted', async () => {
    const on = disk()
    const slow: { storing?: Promise<void> } = {}
    const { receiver, post, clock } = scene({ inbox: storedInbox(on, { put: () => slow.storing }) })
    receiver.on('data', () => new Promise(() => {}))
    const numbers = Array.from({ length: 10 }, (_, n) => n + 1)
    for (const n of numbers.slice(0, 8)) await post(data('A', n))
    let store = (): void => {}
    slow.storing = new Promise((resolve) => (store = resolve))
    const late = numbers.slice(8).map((n) => post(data('A', n)))
    await turn()
    let close = (): void => {}
    const takeUntil = new Promise<void>((resolve) => (close = resolve))
    const drained = receiver.drain({ handlerGraceMs: 500, takeUntil })
    await clock.advance(500)
    store()
    expect((await Promise.all(late)).map(({ status }) => status)).toEqual([200, 200])
    close()
    expect(await drained).toMatchObject({ handled: 0, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await next.clock.advance(1_000)
    expect(seen).toEqual(numbers)
  })

  test("with ack: 'handled' an answer to what was not handled is 503", async () => {
    const { receiver, post, clock } = scene({ inbox: storedInbox(disk()), ack: 'handled' })
    receiver.on('data', () => new Promise(() => {}))
    const answer = post(data('A', 1))
    await turn()
    const drained = receiver.drain()
    await clock.advance(2_000)
    expect((await answer).status).toBe(503)
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
  })
})
