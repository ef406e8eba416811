import { createReceiver, memoryInbox, vehicles, type Vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { movedState, Slots, VehicleState } from '../../src/vehicles/state.ts'
import { inForm } from '../form.ts'
import { places } from './places.ts'
import { silent, vin } from './scene.ts'

/** Histories of a vehicle whose truth is made first. Then some values are replaced by odd ones, and messages get lost, doubled, late or without a value. */

const fields = ['ACChargingEnergyIn', 'BatteryLevel', 'EnergyRemaining', 'Location', 'Odometer'] as const
type Field = (typeof fields)[number]
type Value = number | { readonly latitude: number; readonly longitude: number } | null

interface Message {
  readonly atMs: number
  readonly arrivesMs: number
  readonly data: { readonly [Name in Field]?: Value }
  /** The fields whose value is odd. */
  readonly odd: ReadonlySet<Field>
}

type Random = (below: number) => number

function randomOf(seed: number): Random {
  let state = seed >>> 0
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return (state / 2 ** 32) * below
  }
}

const startMs = Date.UTC(2026, 0, 5, 8)

/** What no law believes after days: these are odd however late messages come. */
const oddValues: Readonly<Record<Field, (value: Value, random: Random) => Value>> = {
  ACChargingEnergyIn: (value, random) => (random(2) < 1 ? -Number(value) - 1 : Number(value) + 4_500),
  BatteryLevel: (_, random) => [-1, 127, 655.35][Math.floor(random(3))] ?? -1,
  EnergyRemaining: (_, random) => [-0.5, 65_535][Math.floor(random(2))] ?? -1,
  Location: (_, random) =>
    [
      { latitude: 0, longitude: 0 },
      { latitude: -31, longitude: 115 },
      { latitude: 91, longitude: 4 },
    ][Math.floor(random(3))] ?? null,
  Odometer: (value, random) => [0, 12, Number(value) * 2, 429_496, 4_294_967_295][Math.floor(random(5))] ?? 0,
}

/** A drive, or a charge, or a parked car, moved on by some seconds or hours. */
function moved(truth: Record<Field, Value>, seconds: number, random: Random): Record<Field, Value> {
  const minutes = seconds / 60
  const miles = random(1.6) * minutes
  const { latitude, longitude } = truth.Location as { latitude: number; longitude: number } // oxlint-disable-line no-unsafe-type-assertion
  const share = Math.max(-40, Math.min(40, (random(9) - 4) * minutes))
  return {
    ACChargingEnergyIn: Number(truth.ACChargingEnergyIn) + Math.min(80, random(0.36) * minutes),
    BatteryLevel: Math.max(0, Math.min(100, Number(truth.BatteryLevel) + share)),
    EnergyRemaining: Math.max(0, Number(truth.EnergyRemaining) + share * 0.7),
    Location: { latitude: Math.min(60, latitude + (miles * 1_609 * random(1)) / 111_195), longitude },
    Odometer: Number(truth.Odometer) + miles,
  }
}

/** The messages in the order of arrival. `mostLateMs`: how late single ones come. */
function historyOf(seed: number, count: number, mostLateMs: number): readonly Message[] {
  const random = randomOf(seed)
  let truth: Record<Field, Value> = {
    ...{ ACChargingEnergyIn: 1, BatteryLevel: 60, EnergyRemaining: 40, Odometer: 21_000 + random(100_000) },
    Location: { latitude: 50, longitude: 4.9 },
  }
  const calm = new Map<Field, number>(fields.map((field) => [field, 0]))
  const messages: Message[] = []
  let atMs = startMs
  for (let number = 0; number < count; number += 1) {
    const seconds = random(15) < 1 ? 3_600 * (1 + random(7)) : 5 + random(55)
    atMs += Math.round(seconds * 1_000)
    truth = moved(truth, seconds, random)
    const odd = new Set<Field>()
    const data: Partial<Record<Field, Value>> = {}
    for (const field of fields) {
      // All are known from the start, and told at the end.
      if (number > 0 && number < count - 3 && random(2) < 1) continue
      const wasCalm = calm.get(field) ?? 0
      calm.set(field, wasCalm + 1)
      if (random(20) < 1 && number > 0 && number < count - 3) data[field] = null
      else if (wasCalm > 5 && number < count - 8 && random(8) < 1) {
        calm.set(field, 0)
        odd.add(field)
        data[field] = oddValues[field](truth[field], random)
      } else data[field] = truth[field]
    }
    const lateMs = number > 0 && random(4) < 1 ? random(mostLateMs) : 200
    messages.push({ atMs, arrivesMs: atMs + Math.round(lateMs), data, odd })
    // The vehicle or the maker sends it again.
    if (random(8) < 1) messages.push({ atMs, arrivesMs: atMs + Math.round(lateMs + random(20_000)), data, odd })
  }
  return messages.toSorted((one, other) => one.arrivesMs - other.arrivesMs)
}

/** The newest values that are true, by the vehicle's clock, of the messages that have come so far. */
class Truth {
  readonly #newest = new Map<Field, { readonly atMs: number; readonly value: Value }>()

  take({ atMs, data, odd }: Message): void {
    for (const field of fields) {
      const value = data[field]
      if (value === undefined || value === null || odd.has(field)) continue
      if (atMs >= (this.#newest.get(field)?.atMs ?? -Infinity)) this.#newest.set(field, { atMs, value })
    }
  }

  get shown(): unknown {
    return Object.fromEntries(fields.map((field) => [field, this.#newest.get(field)]))
  }
}

/** A receiver at the times at which messages arrive. */
function receiving(create: InboxFactory) {
  let now = startMs
  const clock = { now: () => now, after: systemClock.after }
  const make = () =>
    createReceiver({ secret: false, log: silent, clock, inbox: create, parts: [vehicles({ fields })] as const })
  const receiver = make()
  return {
    receiver,
    async post({ atMs, arrivesMs, data }: Message): Promise<void> {
      now = Math.max(now, arrivesMs)
      const body = { vin, createdAt: new Date(atMs).toISOString(), data }
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
      while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setImmediate(resolve))
    },
  }
}

async function shownOf(states: Vehicles): Promise<Record<Field, unknown>> {
  const vehicle = await states.get(vin)
  const shown = fields.map((field) => [field, { atMs: vehicle?.at(field)?.getTime(), value: vehicle?.value(field) }])
  return Object.fromEntries(shown) as Record<Field, unknown> // oxlint-disable-line no-unsafe-type-assertion
}

const histories = fc.record({ seed: fc.nat(), mostLateMs: fc.constantFrom(200, 40_000, 200_000) })

test('the newest state is the newest true value after each message: one odd value is never in it, and nothing true is delayed', async () => {
  let unbelieved = 0
  const run = async ({ seed, mostLateMs }: { seed: number; mostLateMs: number }): Promise<void> => {
    const { receiver, post } = receiving(memoryInbox())
    const truth = new Truth()
    for (const one of historyOf(seed, 80, mostLateMs)) {
      await post(one)
      truth.take(one)
      expect(await shownOf(receiver.vehicles)).toEqual(truth.shown)
    }
    expect((await receiver.vehicles.get(vin))?.odd?.filter(({ held }) => held !== undefined)).toEqual([])
    unbelieved += receiver.stats().unbelieved
    await receiver.drain()
  }
  const numRuns = inForm({ short: 25, full: 1_000, long: 10_000 })
  await fc.assert(fc.asyncProperty(histories, run), { seed: 41, numRuns, endOnFailure: true })
  expect(unbelieved).toBeGreaterThan(10 * numRuns)
}, 600_000)

/** All that is known of the vehicle, with what was not believed. */
async function wholeOf(states: Vehicles): Promise<unknown> {
  const vehicle = await states.get(vin)
  return [fields.map((field) => [vehicle?.value(field), vehicle?.at(field), vehicle?.since(field)]), vehicle?.odd]
}

test.each(places)(
  'a state is the same %s, with restarts between any two messages',
  async (where, open) => {
    for (let seed = 1; seed <= inForm({ short: 1, full: 20 }); seed += 1) {
      const messages = historyOf(seed, 60, 40_000)
      const plain = receiving(memoryInbox())
      const place = open()
      let other = receiving(place.next())
      for (const [number, one] of messages.entries()) {
        await plain.post(one)
        await other.post(one)
        expect(await wholeOf(other.receiver.vehicles)).toEqual(await wholeOf(plain.receiver.vehicles))
        if (where === 'in memory' || number % 7 > 0) continue
        await other.receiver.drain()
        other = receiving(place.next())
        await other.receiver.open()
      }
      await other.receiver.drain()
      await plain.receiver.drain()
      place.end()
    }
  },
  600_000,
)

test('what is held and what was left out survives a move to another store', () => {
  const slots = new Slots({ fields })
  const text = JSON.stringify({
    fields: { Odometer: [100, 1_000, 7, 1_000], Location: [{ latitude: 1, longitude: 2 }, 1_000, 7, 1_000] },
    odd: { Odometer: [2, 2_000, 9_000], Location: [1] },
  })
  const row = { vin, seq: 7, seenMs: 3_000, text }
  const state = VehicleState.read(row, slots)
  const { odd } = JSON.parse(text)
  expect(JSON.parse(state.text()).odd).toEqual(odd)
  expect(JSON.parse(movedState(row, -1).text()).odd).toEqual(odd)
  // Of a field that has no limits any more, nothing waits.
  const others = new Slots({ fields }, { Odometer: { number: {} } })
  expect(JSON.parse(VehicleState.read(row, others).text()).odd).toEqual({ Location: [1] })
})
