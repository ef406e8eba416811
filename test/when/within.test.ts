// `within` finds the episodes of a whole fleet each night: in one pass over the messages, in bounded memory, and as `in` finds them.
import { join } from 'node:path'
import { createReceiver, type FieldValues, type FleetEvent, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { episode, is, span } from 'fleethook/when'
import { expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const trip = episode('trip', {
  during: is('Gear', 'D'),
  silence: { minutes: 50 },
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})
const start = Date.UTC(2026, 0, 1, 8)
const at = (minutes: number): Date => new Date(start + minutes * 60_000)
const day = { from: at(-60), to: at(24 * 60) }
const drive: readonly (readonly [minutes: number, data: FieldValues])[] = [
  [-10, { Gear: 'P', Odometer: 1_000 }],
  [0, { Gear: 'D' }],
  [30, { Odometer: 1_013 }],
  [31, { Gear: 'P' }],
]

const dataOf = (vin: string, minutes: number, data: FieldValues): readonly FleetEvent[] =>
  normalize([encode(message.data(data, { vin, createdAt: at(minutes).toISOString() }), 'service')], {
    receivedAt: at(minutes),
  })

const documentOf = (vin: string, minutes: number, document: object): readonly FleetEvent[] =>
  normalize([{ vin, createdAt: at(minutes).toISOString(), vehicle_data: document }], { receivedAt: at(minutes) })

/** A receiver that has these events, by VIN, and counts how often they are listed and read. */
function fleet(vins: readonly string[], eventsOf: (vin: string) => readonly FleetEvent[]) {
  const counts = { lists: 0, read: 0 }
  async function* list() {
    counts.lists += 1
    // The newest one of any vehicle comes first.
    for (const vin of vins.toReversed())
      for (const event of eventsOf(vin).toReversed()) {
        counts.read += 1
        yield { id: '', event, text: '', bytes: 0, state: 'settled' as const }
      }
  }
  async function* known() {
    for (const vin of vins.toSorted()) yield { vin }
  }
  return { counts, receiver: { vehicles: { list: known }, messages: { list } } }
}

const named = (count: number): string[] => Array.from({ length: count }, (_, number) => `VIN${10_000 + number}`)

test('one list of the messages is enough for thousands of vehicles', async () => {
  const count = inForm({ short: 2_000, full: 10_000 })
  const small = fleet(named(100), (vin) => drive.flatMap(([minutes, data]) => dataOf(vin, minutes, data)))
  const large = fleet(named(count), (vin) => drive.flatMap(([minutes, data]) => dataOf(vin, minutes, data)))
  expect(await Array.fromAsync(trip.within(small.receiver, day))).toHaveLength(100)
  const found = await Array.fromAsync(trip.within(large.receiver, day))
  expect(small.counts).toEqual({ lists: 1, read: 400 })
  expect(large.counts).toEqual({ lists: 1, read: 4 * count })
  expect(new Set(found.map(({ vin }) => vin)).size).toBe(count)
  expect(found.filter(({ odometer: { from, to } }) => from !== 1_000 || to !== 1_013)).toEqual([])
})

test('what does not fit into memory is listed again, for other vehicles, and each of them is found once', async () => {
  const vins = named(9)
  const large = { drive_state: { shift_state: 'D' }, filler: 'x'.repeat(4_000_000) }
  // One vehicle alone has more than fits.
  const documents = (vin: string): number => (vin === vins[4] ? 14 : 3)
  const { receiver, counts } = fleet(vins, (vin) => [
    ...drive.flatMap(([minutes, data]) => dataOf(vin, minutes, data)),
    ...Array.from({ length: documents(vin) }, (_, number) => documentOf(vin, 100 + number, large)).flat(),
  ])
  const found = await Array.fromAsync(trip.within(receiver, { ...day, to: at(50) }))
  expect(found.map(({ vin }) => vin)).toEqual(vins)
  expect(found.every(({ odometer: { to } }) => to === 1_013)).toBe(true)
  expect(counts.lists).toBeGreaterThan(2)
  expect(counts.lists).toBeLessThan(vins.length)
})

test('the episodes are those that `in` finds in the events of each vehicle, whatever messages say and how late they come', async () => {
  const receiver = createReceiver({
    secret: false,
    log,
    inbox: sqliteInbox({ path: join(newFolder('within'), 'inbox.db') }),
    parts: [vehicles({ fields: ['Gear', 'Odometer', 'EnergyRemaining'] })],
  }).when(trip, () => {})
  const now = Date.now()
  const createdAt = (minutes: number): string => new Date(now + (minutes - 1_200) * 60_000).toISOString()
  const say = (vin: string, minutes: number, said: object): unknown =>
    receiver.accept({ headers: {}, body: { vin, createdAt: createdAt(minutes), ...said } })
  for (const vin of ['A', 'B']) {
    for (const [minutes, data] of drive) await say(vin, minutes, { data })
    // A gear that cannot be read, one without a time, and fields that no episode has.
    await say(vin, 12, { data: { Gear: { odd: true }, Odometer: 1_004, VehicleSpeed: 30 } })
    await say(vin, 90, { data: { Gear: 'D', Soc: 50 } })
    await say(vin, 130, { state: 'driving' })
    await say(vin, 175, { alerts: [{ name: 'Fine', audiences: [] }] })
    await say(vin, 220, { vehicle_data: { drive_state: { shift_state: 'D' }, vehicle_state: { odometer: 1_050.04 } } })
    await say(vin, 240, { data: { Gear: 'P', Odometer: 1_060 } })
    // A day's last word, and one that comes late.
    await say(vin, 300, { data: { Gear: null, VehicleSpeed: 0 } })
    await say(vin, 95, { data: { EnergyRemaining: vin === 'A' ? 44 : null } })
  }
  await expect.poll(() => receiver.stats().handled).toBe(24)
  const time = { from: new Date(now - 1_440 * 60_000), to: new Date(now + 3_600_000) }
  const found = await Array.fromAsync(trip.within(receiver, time))
  const one = async (vin: string) => trip.in(await receiver.messages.events({ vin, ...time }))
  expect(found).toEqual([...(await one('A')), ...(await one('B'))])
  expect(found.map(({ odometer }) => odometer.to)).toEqual([1_013, 1_060, 1_013, 1_060])
  await receiver.drain()
})
