import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { vehicle } from 'fleethook/testing'
import { becomes, changed } from 'fleethook/when'
import { expect, onTestFinished, test } from 'vitest'
import { json, stub } from '../client/stub.ts'
import { shown, silent, vehicleScene } from './scene.ts'

const vin = '0FLEETV14T0000004'
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

async function idle(receiver: Receiver): Promise<void> {
  while (receiver.stats().pending.messages > 0) await pause(1)
}

/** An inbox file in which a vehicle has driven twice, with the id of each message. */
async function drivenTwice(): Promise<{ readonly path: string; readonly ids: readonly string[]; readonly from: Date }> {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-edges-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'inbox.db')
  const ids: string[] = []
  const from = new Date()
  const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path }) })
  receiver.on('data', (_, { delivery }) => void ids.push(delivery.id))
  const car = vehicle(receiver, vin)
  for (const Gear of ['P', 'D', 'P', 'D', 'P'] as const) {
    await car.data({ Gear })
    await pause(2)
  }
  await receiver.drain()
  return { path, ids, from }
}

test('A replay of handled messages reports no changes, and with `edges` a new rule sees what happened before it', async () => {
  const { path, ids, from } = await drivenTwice()
  const found: string[] = []
  const seen: string[] = []
  const receiver = createReceiver({ ...{ secret: false, log: silent, inbox: sqliteInbox({ path }) }, parts: [vehicles({ fields: ['Gear'] })] })
    .when(becomes('Gear', 'P'), ({ id, change, vehicle: car }) => void found.push(`${id} ${shown(change)} ${car.value('Gear')}`))
    .on('data', (_, { changes }) => void seen.push(changes.map(shown).join()))
  const to = new Date(Date.now() + 1_000)
  expect(await receiver.replay({ from, to })).toBe(5)
  await idle(receiver)
  expect([found, seen.splice(0)]).toEqual([[], ['', '', '', '', '']])

  expect(await receiver.replay({ from, to, edges: true })).toBe(5)
  await idle(receiver)
  const idOf = (index: number): string => `${vin}:${becomes('Gear', 'P').name}:${ids[index]}`
  const expected = [2, 4].map((index) => `${idOf(index)} Gear "D">"P" P`)
  expect(found.splice(0)).toEqual(expected)
  expect(seen.splice(0)).toEqual(['', 'Gear "P">"D"', 'Gear "D">"P"', 'Gear "P">"D"', 'Gear "D">"P"'])
  expect(await receiver.vehicles.get(vin)).toBeUndefined()

  // With a part of the time range, the state still begins with the first message that is kept.
  const [, , , , lastId = ''] = ids
  const last = new Date(Number.parseInt(lastId.slice(0, 8) + lastId.slice(9, 13), 16))
  expect(await receiver.replay({ from: last, to, edges: true })).toBe(1)
  await idle(receiver)
  expect(found).toEqual(expected.slice(1))
  await receiver.drain()
}) // prettier-ignore

test('A replay with `edges` leaves the newest state as it is', async () => {
  const { path, from } = await drivenTwice()
  const receiver = createReceiver({
    ...{ secret: false, log: silent, inbox: sqliteInbox({ path }) },
    parts: [vehicles({ fields: 'all' })],
  })
  const edges: string[] = []
  receiver.when(changed('Gear'), ({ change }) => void edges.push(shown(change)))
  const car = vehicle(receiver, vin)
  await car.data({ Gear: 'R' }, { createdAt: new Date().toISOString() })
  const to = new Date()
  await receiver.replay({ from, to, edges: true })
  await idle(receiver)
  edges.length = 0
  expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('R')
  await car.data({ Gear: 'N' }, { createdAt: new Date().toISOString() })
  expect(edges).toEqual(['Gear "R">"N"'])
  await receiver.drain()
})

test('A document that `client.refill` fetches closes a gap: what is the same is certain again, and what changed is a change across it', async () => {
  const { client, clock } = stub(({ path }) =>
    json({
      response: path.includes('vehicle_data')
        ? {
            charge_state: { battery_level: 50, charge_limit_soc: null, charging_state: 'Charging', timestamp: clock.now() },
            drive_state: { shift_state: null, timestamp: clock.now() },
          }
        : [],
    })(),
  )
  const { receiver, send, told } = vehicleScene({ clock, vehicles: { fields: ['BatteryLevel', 'ChargeLimitSoc', 'DetailedChargeState', 'Gear', 'Locked'] } })
  const edges: string[] = []
  receiver.when(becomes('DetailedChargeState', 'Charging'), ({ change, event }) => void edges.push(`${event.topic} ${shown(change)}`))
  receiver.on('gap', (gap) => void receiver.from(client.refill({ ...gap, vin })))
  await send({ BatteryLevel: 50.4, ChargeLimitSoc: 80, DetailedChargeState: 'Stopped', Gear: 'P', Locked: true }, { vin })
  const from = new Date(clock.now() - 100)
  await receiver.from({
    async feed(sink) {
      await sink.tell({
        ...{ topic: 'gap', vin, from, to: new Date(clock.now()), reason: 'stream_interrupted', missed: 0 },
        ...{ createdAt: from.toISOString(), at: from, receivedAt: new Date(clock.now()) },
        ...{ format: null, raw: null, meta: {}, id: 'a gap' },
      })
    },
  })
  for (let turn = 0; turn < 20; turn += 1) await clock.advance(10)
  const state = await receiver.vehicles.get(vin)
  const certain = (['BatteryLevel', 'ChargeLimitSoc', 'DetailedChargeState', 'Gear', 'Locked'] as const).map((field) => state?.isCertain(field))
  // The document has no value for `Locked`, and none for the charge limit.
  expect(state?.invalidSince('ChargeLimitSoc')).toBeUndefined()
  expect(certain).toEqual([true, false, true, true, false])
  // The telemetry knows more digits.
  expect(state?.value('BatteryLevel')).toBe(50.4)
  expect(edges).toEqual(['vehicle_data DetailedChargeState "Stopped">"Charging"~'])
  await send({ Gear: 'D' }, { vin })
  expect(told.at(-1)?.changes).toEqual(['Gear "P">"D"'])
}) // prettier-ignore
