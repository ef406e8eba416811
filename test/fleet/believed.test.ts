import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { wireMessage } from '../../src/service/fleet/messages.ts'
import { inForm } from '../form.ts'

const startAt = Date.UTC(2026, 10, 1, 8)
const silent = { debug() {}, info() {}, warn() {}, error() {} }

test('the newest state believes all that a simulated fleet sends: with tunnels, fast clocks, uploads after hours and charges', async () => {
  let now = startAt
  const clock = { now: () => now, after: systemClock.after }
  const inbox = memoryInbox()
  const receiver = createReceiver({
    ...{ secret: false, log: silent, clock, inbox },
    parts: [vehicles({ fields: 'all' })] as const,
  })
  const heldFields = new Set<string>()
  let left = inForm({ short: 6_000, full: 100_000 })
  for (const { at, event } of createFleet({ vins: 20, seed: 11, startAt, firmware: 'mixed' })) {
    if (left-- === 0) break
    now = Math.max(now, at)
    await receiver.accept({ authorization: undefined, body: wireMessage(event, 'service') })
    if (left % 500 > 0) continue
    while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setImmediate(resolve))
    for await (const { odd = [] } of receiver.vehicles.list()) for (const { field } of odd) heldFields.add(field)
  }
  expect(receiver.stats().drift).toEqual([])
  // A counter that begins again counts with its second value.
  expect([...heldFields].filter((field) => !field.endsWith('ChargingEnergyIn'))).toEqual([])
  await receiver.drain()
})
