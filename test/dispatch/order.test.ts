import { describe, expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, gates, scene, state } from './scene.ts'

describe('one lane per VIN', () => {
  test('messages without a VIN have a lane of their own kind', async () => {
    const { receiver, post, send } = scene()
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
    await send(state('A', 'online'))
    expect(seen).toEqual(['unknown 1', 'A'])
    gate.open('unknown 1')
    await turn()
    expect(seen).toEqual(['unknown 1', 'A', 'unknown 2'])
  })
})

describe('concurrency', () => {
  test('VINs take turns', async () => {
    const { receiver, send } = scene({ concurrency: 1 })
    const seen: string[] = []
    receiver.on('data', ({ vin }) => void seen.push(vin))
    await send(['A', 'A', 'A', 'B', 'B', 'C'].map((vin, n) => data(vin, n)))
    expect(seen).toEqual(['A', 'B', 'C', 'A', 'B', 'A'])
  })

  test('a lane in back-off takes no slot of concurrency and keeps its order', async () => {
    const { receiver, send, clock } = scene({ concurrency: 1 })
    const seen: string[] = []
    receiver.on('data', ({ vin, data: { Odometer } }, { delivery }) => {
      seen.push(`${vin}${String(Odometer)}`)
      if (vin === 'A' && Odometer === 1 && delivery.attempt === 1) throw new Error('once')
    })
    await send([data('A', 1), data('A', 2), data('B', 1)])
    expect(seen).toEqual(['A1', 'B1'])
    expect(receiver.stats()).toMatchObject({ running: 0, lanes: 1 })
    await clock.advance(200)
    expect(seen).toEqual(['A1', 'B1', 'A1', 'A2'])
  })
})
