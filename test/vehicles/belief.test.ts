import { join } from 'node:path'
import { type FieldCatalogue, createReceiver, memoryInbox, type ReceiverOptions, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, message } from 'fleethook/testing'
import { changed, circle, crosses, enters, falls, type Happening, leaves, rulesFor } from 'fleethook/when'
import { describe, expect, onTestFinished, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { silent, vehicleScene, vin } from './scene.ts'

const kept = {
  fields: [
    'ACChargingEnergyIn',
    'BatteryLevel',
    'DCChargingEnergyIn',
    'EnergyRemaining',
    'Gear',
    'Location',
    'Odometer',
  ],
} as const
type Field = (typeof kept.fields)[number]
const at = (latitude: number, longitude = 4.9): object => ({ latitude, longitude })

/** The newest value of a field after each of these, which the vehicle sends this many seconds apart. `undefined` is a message without the field. */
async function after(field: Field, values: readonly unknown[], seconds = 10): Promise<readonly unknown[]> {
  const { receiver, send, clock } = vehicleScene({ vehicles: kept })
  const newest: unknown[] = []
  for (const value of values) {
    await send(value === undefined ? { Gear: 'P' } : { [field]: value })
    newest.push((await receiver.vehicles.get(vin))?.value(field))
    await clock.advance((seconds - 1) * 1_000)
  }
  return newest
}

describe('one odd value is left out of the newest state', () => {
  test.each<readonly [what: string, field: Field, sent: readonly unknown[], newest: readonly unknown[]]>([
    ['an odometer of 0 after a reboot', 'Odometer', [12_000, 0, 12_000.1], [12_000, 12_000, 12_000.1]],
    ['an odometer that jumps', 'Odometer', [12_000, 429_496, 12_000.1], [12_000, 12_000, 12_000.1]],
    ['an odometer that no car can have', 'Odometer', [12, 4_294_967_295, 4_294_967_295], [12, 12, 12]],
    ['a level of 0', 'BatteryLevel', [80, 0, 79.9], [80, 80, 79.9]],
    ['a level below 0, however often', 'BatteryLevel', [80, -1, -1, -1], [80, 80, 80, 80]],
    ['a level above 100, however often', 'BatteryLevel', [80, 127, 127], [80, 80, 80]],
    ['an energy that doubles', 'EnergyRemaining', [50, 100, 50.1], [50, 50, 50.1]],
    ['a counter of 0 within a charge', 'ACChargingEnergyIn', [8, 0, 8.1], [8, 8, 8.1]],
    ['a counter that jumps', 'ACChargingEnergyIn', [8, 9_917, 8.2], [8, 8, 8.2]],
    ['0,0', 'Location', [at(52), at(0, 0), at(0, 0), at(52.001)], [at(52), at(52), at(52), at(52.001)]],
    ['a fix 17 km away', 'Location', [at(52), at(52.153), at(52.001)], [at(52), at(52), at(52.001)]],
    ['a place that is none', 'Location', [at(52), at(91), at(91)], [at(52), at(52), at(52)]],
  ])('%s', async (_, field, sent, newest) => {
    expect(await after(field, sent)).toEqual(newest)
  })
})

describe('a value that the next one confirms counts', () => {
  test.each<readonly [what: string, field: Field, sent: readonly unknown[], newest: readonly unknown[]]>([
    ['an odometer that was replaced', 'Odometer', [50_000, 12, 12.1], [50_000, 50_000, 12.1]],
    ['a counter that begins again', 'DCChargingEnergyIn', [19.24, 0, 0.2], [19.24, 19.24, 0.2]],
    ['a level after a repair', 'BatteryLevel', [80, 20, 20], [80, 80, 20]],
    ['a car on a plane', 'Location', [at(52), at(41), at(41)], [at(52), at(52), at(41)]],
    ['two odd values that agree: nobody can tell', 'Odometer', [100, 9_000, 9_000, 100.1], [100, 100, 9_000, 9_000]],
    ['after an odd first value', 'Odometer', [0, 12_000, 12_000.1], [0, 0, 12_000.1]],
    ['an odd value before it does not', 'BatteryLevel', [80, 0, 40, 40.1], [80, 80, 80, 40.1]],
    ['a message without the field does not', 'BatteryLevel', [80, 0, undefined, 79], [80, 80, 80, 79]],
    ['null does not', 'BatteryLevel', [80, 0, null, 79], [80, 80, 80, 79]],
    ['and null does not forget it', 'BatteryLevel', [80, 20, null, 20], [80, 80, 80, 20]],
  ])('%s', async (_, field, sent, newest) => {
    expect(await after(field, sent)).toEqual(newest)
  })

  test('a copy of its message does not confirm it', async () => {
    const { receiver, post, clock } = vehicleScene({ vehicles: kept })
    const value = async (Odometer: number, seconds: number): Promise<unknown> => {
      const createdAt = new Date(clock.now() - 60_000 + seconds * 1_000).toISOString()
      await (
        await post({ ...message.data({}, { vin, createdAt }), data: { Odometer } })
      ).settled
      return (await receiver.vehicles.get(vin))?.value('Odometer')
    }
    expect(await value(100, 0)).toBe(100)
    for (let copy = 0; copy < 3; copy += 1) expect(await value(9_000, 5)).toBe(100)
    expect(await value(9_000, 6)).toBe(9_000)
  })

  test('says since when it is so, and what was left out', async () => {
    const { receiver, send, clock, told } = vehicleScene({ vehicles: kept })
    const seen = async (): Promise<unknown> => (await receiver.vehicles.get(vin))?.odd
    await send({ BatteryLevel: 80 })
    const sentAt = new Date(clock.now())
    await send({ BatteryLevel: 30 })
    expect(await seen()).toEqual([{ field: 'BatteryLevel', held: { value: 30, at: sentAt }, leftOut: 0 }])
    await send({ BatteryLevel: 30 })
    const vehicle = await receiver.vehicles.get(vin)
    expect([vehicle?.since('BatteryLevel'), vehicle?.at('BatteryLevel')]).toEqual([
      sentAt,
      new Date(clock.now() - 1_000),
    ])
    expect(told.map(({ changes }) => changes)).toEqual([[], [], ['BatteryLevel 80>30']])
    expect(await seen()).toEqual([])
    await send({ BatteryLevel: 90 })
    await send({ BatteryLevel: 29 })
    expect(await seen()).toEqual([{ field: 'BatteryLevel', held: undefined, leftOut: 1 }])
  })
})

test('edges do not happen for one odd value, and happen with the message that confirms it, at the time of the first', async () => {
  const { receiver, send, clock } = vehicleScene({ vehicles: kept })
  const home = circle({ latitude: 52, longitude: 4.9, radiusMeters: 200 })
  const happened: string[] = []
  const startMs = clock.now()
  const note = ({ change, edge }: Happening): void =>
    void happened.push(`${edge} ${(change.at.getTime() - startMs) / 1_000}`)
  receiver.when(changed('Odometer'), note).when(falls('Odometer'), note)
  receiver
    .when(crosses('BatteryLevel', { below: 20 }), note)
    .when(enters(home), note)
    .when(leaves(home), note)
  await send({ BatteryLevel: 80, Odometer: 100, Location: at(52) })
  await send({ BatteryLevel: 0, Odometer: 0, Location: at(0, 0) })
  await send({ BatteryLevel: 80, Odometer: 100, Location: at(52) })
  await send({ BatteryLevel: 79.9, Odometer: 100, Location: at(52.153) })
  await send({ BatteryLevel: 79.9, Odometer: 100, Location: at(52) })
  expect(happened).toEqual([])
  for (let copy = 0; copy < 2; copy += 1) await send({ BatteryLevel: 10, Odometer: 2, Location: at(53) })
  expect(happened.toSorted()).toEqual([
    'changed(Odometer) 5',
    'crosses(BatteryLevel,below 20) 5',
    'falls(Odometer) 5',
    'leaves(circle(52,4.9,200)) 5',
  ])
})

describe('the time of a value', () => {
  const scene = () => {
    const { receiver, post, clock } = vehicleScene({ vehicles: kept })
    const send = async (data: object, sentMs: number | undefined): Promise<unknown> => {
      const createdAt = sentMs === undefined ? null : new Date(sentMs).toISOString()
      await (
        await post({ ...message.data({}, { vin }), createdAt, data } as never)
      ).settled
      return (await receiver.vehicles.get(vin))?.value('Odometer')
    }
    return { receiver, clock, send }
  }

  test('is that of the vehicle: hours after a dead zone, in one burst, nothing is delayed', async () => {
    const { send, clock, receiver } = scene()
    await clock.advance(10 * 3_600_000)
    for (let minute = 0; minute < 300; minute += 5)
      expect(await send({ Odometer: 100 + minute * 1.2 }, clock.now() - (300 - minute) * 60_000)).toBe(
        100 + minute * 1.2,
      )
    expect(receiver.stats().unbelieved).toBe(0)
  })

  test('says nothing when it is that of the receipt: then any value can follow, if it can be true', async () => {
    const { send } = scene()
    expect(await send({ Odometer: 100 }, undefined)).toBe(100)
    expect(await send({ Odometer: 113 }, undefined)).toBe(113)
    expect(await send({ Odometer: 12 }, undefined)).toBe(12)
    expect(await send({ Odometer: -1 }, undefined)).toBe(12)
    // A clock that was never set.
    expect(await send({ Odometer: 500 }, 0)).toBe(500)
  })

  test('that is ahead for years is no time either, and what it says of the time between two values counts', async () => {
    const { send, clock } = scene()
    const aheadMs = clock.now() + 10 * 365 * 86_400_000
    expect(await send({ Odometer: 100 }, aheadMs)).toBe(100)
    expect(await send({ Odometer: 160 }, aheadMs + 3_600_000)).toBe(160)
    expect(await send({ Odometer: 9_160 }, aheadMs + 3_601_000)).toBe(160)
    expect(await send({ Odometer: 161 }, aheadMs + 3_660_000)).toBe(161)
  })

  test('decides about a message that comes late as if it had come in time', async () => {
    const { send, clock } = scene()
    const now = clock.now() - 3_600_000
    const values: unknown[] = []
    // 104 cannot follow 100 in twenty seconds, and can follow 102.
    for (const [Odometer, seconds] of [
      [100, 0],
      [104, 30],
      [102, 15],
      [50, 40],
      [104.2, 35],
      [103, 5],
    ] as const)
      values.push(await send({ Odometer }, now + seconds * 1_000))
    expect(values).toEqual([100, 100, 104, 104, 104.2, 104.2])
  })

  test('a silence makes wide: after days, a far place and another level are believed at once', async () => {
    expect(await after('Location', [at(52), at(41)], 86_400)).toEqual([at(52), at(41)])
    expect(await after('BatteryLevel', [80, 10], 3_600)).toEqual([80, 10])
  })
})

test('a document goes through the same belief, and its rounding is no fall', async () => {
  const { receiver, send, post, clock } = vehicleScene({ vehicles: kept })
  const read = async (odometer: number, battery_level: number): Promise<unknown> => {
    const timestamp = clock.now()
    const vehicleData = { vin, charge_state: { battery_level, timestamp }, vehicle_state: { odometer, timestamp } }
    await (
      await post(message.vehicleData(vehicleData, { vin, createdAt: new Date(timestamp).toISOString() }))
    ).settled
    await clock.advance(1_000)
    const vehicle = await receiver.vehicles.get(vin)
    return [vehicle?.value('Odometer'), vehicle?.value('BatteryLevel')]
  }
  await send({ Odometer: 100.06, BatteryLevel: 80.4 })
  expect(await read(100, 80)).toEqual([100.06, 80.4])
  expect(receiver.stats().drift).toEqual([])
  expect(await read(0, -1)).toEqual([100.06, 80.4])
  expect(await read(100.2, 80)).toEqual([100.2, 80.4])
  expect(receiver.stats()).toMatchObject({ drifted: 2, unbelieved: 2 })
})

describe('what is left out', () => {
  test('is counted once a message by its field, over retries and replays, and the event keeps it', async () => {
    const clock = fakeClock()
    const inbox = sqliteInbox({ path: join(newFolder('odd'), 'inbox.db') })
    const { receiver, post } = vehicleScene({ clock, inbox, vehicles: kept, retry: { attempts: 3, minMs: 10 } })
    onTestFinished(async () => void (await receiver.drain()))
    const seen: unknown[] = []
    receiver.on('data', ({ data }, { delivery }) => {
      seen.push(data.Odometer)
      if (delivery.attempt < 3 && data.Odometer !== 100) throw new Error('again')
    })
    const send = async (data: Readonly<Record<string, unknown>>): Promise<void> => {
      const { settled } = await post({
        ...message.data({}, { vin, createdAt: new Date(clock.now()).toISOString() }),
        data,
      })
      await clock.advance(1_000)
      await settled
    }
    await send({ Odometer: 100, BatteryLevel: 50 })
    await send({ Odometer: 9_000, BatteryLevel: -5 })
    expect(receiver.stats().drift).toEqual([{ field: 'BatteryLevel', reason: 'impossible', seen: 'number', count: 1 }])
    await send({ Odometer: 100.1, BatteryLevel: 'many' })
    expect(receiver.stats().drift).toContainEqual({
      field: 'Odometer',
      reason: 'unconfirmed',
      seen: 'number',
      count: 1,
    })
    expect(receiver.stats().drift).toContainEqual({
      field: 'BatteryLevel',
      reason: 'undecoded',
      seen: 'string',
      count: 1,
    })
    expect(receiver.stats()).toMatchObject({ drifted: 3, unbelieved: 2 })
    expect(seen.splice(0)).toEqual([100, 9_000, 9_000, 9_000, 100.1, 100.1, 100.1])
    expect(await receiver.replay({ from: new Date(0), to: new Date(clock.now() + 1) })).toBe(3)
    for (let turn = 0; turn < 9; turn += 1) await clock.advance(1_000)
    expect(new Set(seen)).toEqual(new Set([100, 9_000, 100.1]))
    expect(receiver.stats().unbelieved).toBe(2)
  })
})

describe('the option `fields` says what physics allows', () => {
  const stateOf = async (
    fields: FieldCatalogue,
    field: string,
    values: readonly unknown[],
    options: Omit<Partial<ReceiverOptions>, 'parts' | 'fields'> = {},
  ): Promise<readonly unknown[]> => {
    const clock = fakeClock()
    const receiver = createReceiver({
      ...{ secret: false, log: silent, clock, inbox: memoryInbox() },
      ...options,
      fields,
      parts: [vehicles({ fields: [field as never] })],
    })
    const newest: unknown[] = []
    for (const value of values) {
      await receiver.accept({
        authorization: undefined,
        body: { vin, createdAt: new Date(clock.now()).toISOString(), data: { [field]: value } },
      })
      await clock.advance(10_000)
      newest.push((await receiver.vehicles.get(vin))?.value(field as never))
    }
    return newest
  }

  test.each<
    readonly [what: string, fields: FieldCatalogue, field: string, sent: readonly unknown[], newest: readonly unknown[]]
  >([
    [
      'of a number',
      { Tank: { number: { least: 0, most: 80, perMinute: 60, atOnce: 1 } } },
      'Tank',
      [10, 20, 90, 60, 21],
      [10, 20, 20, 20, 21],
    ],
    ['of a counter', { Hours: { number: { counter: true } } }, 'Hours', [10, 9, 9_000], [10, 10, 9_000]],
    [
      'of a counter that steps back',
      { Hours: { number: { counter: true, back: 1 } } },
      'Hours',
      [10, 9, 7, 8],
      [10, 9, 9, 8],
    ],
    [
      'of a place',
      { Trailer: { location: { perMinute: 600, atOnce: 100 } } },
      'Trailer',
      [at(1), at(1.001), at(1.1)],
      [at(1), at(1.001), at(1.001)],
    ],
    [
      'and replaces what the catalogue says',
      { Odometer: { number: { perMinute: 1_000 } } },
      'Odometer',
      [10, 160, 9_000],
      [10, 160, 160],
    ],
    ['and switches it off', { Odometer: { number: {} } }, 'Odometer', [10, 9_000, -1], [10, 9_000, -1]],
    ['and keeps it with the type alone', { Odometer: 'number' }, 'Odometer', [10, 9_000, 11], [10, 10, 11]],
    ['and has none with another type', { Odometer: 'any' }, 'Odometer', [10, 9_000, -1], [10, 9_000, -1]],
    [
      'but 0,0 is no place',
      { Location: { location: {} } },
      'Location',
      [at(1), at(50), at(0, 0)],
      [at(1), at(50), at(50)],
    ],
  ])('%s', async (_, fields, field, sent, newest) => {
    expect(await stateOf(fields, field, sent)).toEqual(newest)
  })

  test.each<readonly [fields: object, text: string, hint: string]>([
    [{ Tank: { number: { most: '80' } } }, 'fields.Tank.number.most is 80', 'It is a number.'],
    [{ Tank: { number: { perMinute: -1 } } }, 'fields.Tank.number.perMinute is -1', 'from 0 up'],
    [{ Tank: { number: { maximum: 80 } } }, 'fields.Tank.number.maximum is no limit', 'least'],
    [{ Tank: { number: { counter: false } } }, 'fields.Tank.number.counter is false', 'Write true'],
    [{ Trailer: { location: { least: 1 } } }, 'fields.Trailer.location.least is no limit', 'perMinute'],
    [{ Tank: { number: 80 } }, 'fields.Tank is {"number":80}', '{ number: { least: 0 } }'],
    [{ Tank: { text: {} } }, 'fields.Tank is {"text":{}}', '{ number: { least: 0 } }'],
  ])('%o is refused', (fields, text, hint) => {
    expect(() =>
      createReceiver({ secret: false, fields: fields as never, parts: [vehicles({ fields: ['Gear'] })] }),
    ).toThrow(
      expect.objectContaining({
        code: 'option_invalid',
        message: expect.stringContaining(text),
        hint: expect.stringContaining(hint),
      }),
    )
  })

  test('and rules over such fields are checked by their types', () => {
    const { above } = rulesFor({ Tank: { number: { least: 0 } } })
    expect(above('Tank', 5).name).toBe('above(Tank,5)')
  })
})
