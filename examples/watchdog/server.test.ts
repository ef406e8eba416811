import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createReceiver, vehicles } from 'fleethook'
import { fakeClock, vehicle } from 'fleethook/testing'
import { fields, watch } from './rules.ts'

test('posts once when a vehicle is silent, when it is back, and when it is parked for a week with little charge', async () => {
  const clock = fakeClock()
  const posts: string[] = []
  const receiver = createReceiver({ secret: false, clock, parts: [vehicles({ fields })] })
  watch(receiver, async (text) => void posts.push(text))
  const car = vehicle(receiver, '0FLEETV14T0000004', { clock })

  // In pieces, the level twice, and an older one late.
  await car.data({ BatteryLevel: 19 })
  await car.data({ Gear: 'P' })
  await car.data({ BatteryLevel: 19 })
  await car.data({ BatteryLevel: 55 }, { createdAt: '2026-11-21T09:30:00Z' })
  await car.wait({ minutes: 90 })
  assert.deepEqual(posts.splice(0), ['0FLEETV14T0000004 has been silent since 2026-11-21T10:00:00.000Z'])
  await car.data({ BatteryLevel: 18 })
  assert.deepEqual(posts.splice(0), ['0FLEETV14T0000004 is back after 90 minutes'])
  await car.state('asleep')
  await car.wait({ days: 7 })
  assert.deepEqual(posts, ['0FLEETV14T0000004 has been parked since 2026-11-21T10:00:00.000Z, at 18 %'])
})
