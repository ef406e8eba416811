import { describe, expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, gates, scene, state } from './scene.ts'

describe('one lane per VIN', () => {
  test('messages of a VIN are handled one at a time, in order of arrival', async () => {
    const { receiver, post } = scene()
    const gate = gates()
    const started: unknown[] = []
    receiver.on('data', async ({ data: { Odometer } }) => {
      started.push(Odometer)
      await gate.wait(String(Odometer))
    })
    await Promise.all([1, 2, 3].map((n) => post(data('A', n))))
    for (const n of [1, 2, 3]) {
      await turn()
      expect(started.at(-1)).toBe(n)
      expect(gate.waiting).toEqual([String(n)])
      gate.open(String(n))
    }
    await turn()
    expect(started).toEqual([1, 2, 3])
    expect(receiver.stats()).toMatchObject({ received: 3, handled: 3, running: 0, lanes: 0 })
  })

  test('all handlers of a message are done before the next message of its VIN', async () => {
    const { receiver, post } = scene()
    const seen: string[] = []
    receiver
      .on('data', async ({ data: { Odometer } }) => {
        await turn()
        seen.push(`first ${String(Odometer)}`)
      })
      .on('*', async (event) => {
        await turn()
        seen.push(`second ${event.topic === 'data' ? String(event.data.Odometer) : ''}`)
      })
    await post([data('A', 1), data('A', 2)])
    await receiver.drain()
    expect(seen).toEqual(['first 1', 'second 1', 'first 2', 'second 2'])
  })

  test('messages without a VIN have a lane of their own kind', async () => {
    const { receiver, post } = scene()
    const gate = gates()
    const seen: string[] = []
    receiver
      .on('unknown', async (event) => {
        seen.push(`unknown ${String(event.raw['n'])}`)
        await gate.wait(`unknown ${String(event.raw['n'])}`)
      })
      .on('state', ({ vin }) => void seen.push(vin))
    await post({ n: 1 })
    await post({ n: 2 })
    await post(state('A', 'online'))
    await turn()
    expect(seen).toEqual(['unknown 1', 'A'])
    gate.open('unknown 1')
    await turn()
    expect(seen).toEqual(['unknown 1', 'A', 'unknown 2'])
  })

  test('a lane exists only while it has work', async () => {
    const { receiver, post } = scene()
    receiver.on('data', () => {})
    await Promise.all(Array.from({ length: 500 }, (_, n) => post(data(`VIN${n}`, n))))
    expect(receiver.stats().lanes).toBe(500)
    await turn()
    expect(receiver.stats()).toMatchObject({ lanes: 0, running: 0, handled: 500, pending: { messages: 0, bytes: 0 } })
  })
})

describe('concurrency', () => {
  test.each([1, 3, 16])('at most %i handlers run at once, over all VINs', async (concurrency) => {
    const { receiver, post } = scene({ concurrency })
    const gate = gates()
    let running = 0
    let most = 0
    receiver.on('data', async ({ vin }) => {
      running += 1
      most = Math.max(most, running)
      await gate.wait(vin)
      running -= 1
    })
    for (let n = 0; n < 40; n += 1) await post(data(`VIN${n}`, n))
    await turn()
    expect(gate.waiting).toHaveLength(concurrency)
    while (gate.waiting.length > 0) {
      for (const vin of gate.waiting) gate.open(vin)
      await turn()
    }
    expect(most).toBe(concurrency)
    expect(receiver.stats().handled).toBe(40)
  })

  test('VINs take turns', async () => {
    const { receiver, post } = scene({ concurrency: 1 })
    const seen: string[] = []
    receiver.on('data', ({ vin }) => void seen.push(vin))
    await post(['A', 'A', 'A', 'B', 'B', 'C'].map((vin, n) => data(vin, n)))
    await turn()
    expect(seen).toEqual(['A', 'B', 'C', 'A', 'B', 'A'])
  })

  test('a lane in back-off takes no slot of concurrency and keeps its order', async () => {
    const { receiver, post, clock } = scene({ concurrency: 1 })
    const seen: string[] = []
    receiver.on('data', ({ vin, data: { Odometer } }, { delivery }) => {
      seen.push(`${vin}${String(Odometer)}`)
      if (vin === 'A' && Odometer === 1 && delivery.attempt === 1) throw new Error('once')
    })
    await post([data('A', 1), data('A', 2), data('B', 1)])
    await turn()
    expect(seen).toEqual(['A1', 'B1'])
    expect(receiver.stats()).toMatchObject({ running: 0, lanes: 1 })
    await clock.advance(200)
    expect(seen).toEqual(['A1', 'B1', 'A1', 'A2'])
  })
})
