import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { vehicle } from 'fleethook/testing'
import { becomes } from 'fleethook/when'
import { expect, test } from 'vitest'
import { json, stub } from '../client/stub.ts'
import { gapOf } from './everywhere.ts'
import { shown, silent, vehicleScene } from './scene.ts'
import { newFolder } from '../folder.ts'

const vin = '0FLEETV14T0000004'
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

test('A replay of handled messages reports no changes', async () => {
  const folder = newFolder('edges')
  const path = join(folder, 'inbox.db')
  const edges: string[] = []
  const seen: string[] = []
  const receiver = createReceiver({
    ...{ secret: false, log: silent, inbox: sqliteInbox({ path }) },
    parts: [vehicles({ fields: ['Gear'] })],
  })
    .when(becomes('Gear', 'P'), ({ change }) => void edges.push(shown(change)))
    .on('data', (_, { changes }) => void seen.push(changes.map(shown).join()))
  const car = vehicle(receiver, vin)
  for (const Gear of ['P', 'D', 'P'] as const) await car.data({ Gear })
  expect([edges.splice(0), seen.splice(0)]).toEqual([['Gear "D">"P"'], ['', 'Gear "P">"D"', 'Gear "D">"P"']])
  expect(await receiver.replay({ from: new Date(0), to: new Date(Date.now() + 1_000) })).toBe(3)
  while (receiver.stats().pending.messages > 0) await pause(1)
  expect([edges, seen]).toEqual([[], ['', '', '']])
  await receiver.drain()
})

test('A document that `client.refill` fetches closes a gap: what is the same is certain again, and what changed is a change across it', async () => {
  const { client, clock } = stub(({ path }) =>
    json({
      response: path.includes('vehicle_data')
        ? {
            charge_state: {
              battery_level: 50,
              charge_limit_soc: null,
              charging_state: 'Charging',
              timestamp: clock.now(),
            },
            drive_state: { shift_state: null, timestamp: clock.now() },
          }
        : [],
    })(),
  )
  const { receiver, send, told } = vehicleScene({
    clock,
    vehicles: { fields: ['BatteryLevel', 'ChargeLimitSoc', 'DetailedChargeState', 'Gear', 'Locked'] },
  })
  const edges: string[] = []
  receiver.when(
    becomes('DetailedChargeState', 'Charging'),
    ({ change, event }) => void edges.push(`${event.topic} ${shown(change)}`),
  )
  receiver.on('gap', (gap) => void receiver.from(client.refill({ ...gap, vin })))
  await send(
    { BatteryLevel: 50.4, ChargeLimitSoc: 80, DetailedChargeState: 'Stopped', Gear: 'P', Locked: true },
    { vin },
  )
  const from = new Date(clock.now() - 100)
  await receiver.from({ feed: async ({ tell }) => void (await tell(gapOf(vin, from, new Date(clock.now())))) })
  for (let turn = 0; turn < 20; turn += 1) await clock.advance(10)
  const state = await receiver.vehicles.get(vin)
  const certain = (['BatteryLevel', 'ChargeLimitSoc', 'DetailedChargeState', 'Gear', 'Locked'] as const).map((field) =>
    state?.isCertain(field),
  )
  // The document has no value for `Locked`, and none for the charge limit.
  expect(state?.invalidSince('ChargeLimitSoc')).toBeUndefined()
  expect(certain).toEqual([true, false, true, true, false])
  // The telemetry knows more digits.
  expect(state?.value('BatteryLevel')).toBe(50.4)
  expect(edges).toEqual(['vehicle_data DetailedChargeState "Stopped">"Charging"~'])
  await send({ Gear: 'D' }, { vin })
  expect(told.at(-1)?.changes).toEqual(['Gear "P">"D"'])
})
