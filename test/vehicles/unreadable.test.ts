import { memoryInbox } from 'fleethook'
import type { InboxFactory, VehicleStore } from 'fleethook/extend'
import { message } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { vehicleScene } from './scene.ts'

const vin = '0FLEETV14T0000001'

describe.each(['throws', 'rejects'] as const)('the state of a vehicle whose store %s', (how) => {
  const failing = (isDown: () => boolean): InboxFactory => {
    return (settings) => {
      const inbox = memoryInbox()(settings)
      const store = inbox.states
      if (store === undefined) throw new Error('no store')
      const load: VehicleStore['load'] = (vin) => {
        if (vin === '' || !isDown()) return store.load(vin)
        const error = new Error('the state cannot be read')
        if (how === 'rejects') return Promise.reject(error)
        throw error
      }
      return Object.assign(Object.create(inbox), { states: Object.assign(Object.create(store), { load }) })
    }
  }

  test('is read again after five seconds, and its message is handled', async () => {
    let isDown = true
    const { post, clock, told, receiver } = vehicleScene({ inbox: failing(() => isDown) })
    await post(message.data({ Gear: 'P' }, { vin }))
    await clock.advance(1_000)
    expect(told).toHaveLength(0)
    isDown = false
    await clock.advance(5_000)
    expect(told).toHaveLength(1)
    expect(receiver.stats()).toMatchObject({ handled: 1, running: 0, lanes: 0 })
  })

  test('makes its message a dead letter when the time for retries is over', async () => {
    const { post, clock, receiver } = vehicleScene({ inbox: failing(() => true), retry: { maxAgeMs: 30_000 } })
    await post(message.data({ Gear: 'P' }, { vin }))
    await clock.advance(60_000)
    expect(receiver.stats()).toMatchObject({ deadLettered: 1, running: 0, lanes: 0 })
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(letter?.error).toBe('Error: the state cannot be read')
  })
})
