import { createReceiver, dedupe, type Handler, type Receiver, vehicles } from 'fleethook'
import { becomes, type VehicleView } from 'fleethook/when'
import {
  createNormalizer,
  normalize,
  type BuiltInFields,
  type DataEvent,
  type Doors,
  type Location,
  type Tires,
  type WireEvent,
} from 'fleethook/normalize'
import { describe, expectTypeOf, test } from 'vitest'

type Values = DataEvent['data']

describe('types of event.data follow from the catalogue', () => {
  test('each field has the type of the catalogue, or null, or is absent', () => {
    expectTypeOf<Values['BatteryLevel']>().toEqualTypeOf<number | null | undefined>()
    expectTypeOf<Values['Locked']>().toEqualTypeOf<boolean | null | undefined>()
    expectTypeOf<Values['ChargeState']>().toEqualTypeOf<string | null | undefined>()
    expectTypeOf<Values['ScheduledChargingStartTime']>().toEqualTypeOf<number | null | undefined>()
    expectTypeOf<Values['Hvil']>().not.toBeAny()
    expectTypeOf<Values['ChargeLimitSoc']>().toEqualTypeOf<number | null | undefined>()
    expectTypeOf<Values['LocatedAtHome']>().toEqualTypeOf<boolean | null | undefined>()
    expectTypeOf<Values['Hvil']>().toEqualTypeOf<'Unknown' | 'Fault' | 'OK' | null | undefined>()
    expectTypeOf<Values['Location']>().toExtend<Location | null | undefined>()
    expectTypeOf<Values['DoorState']>().toExtend<Doors | null | undefined>()
    expectTypeOf<Values['TpmsHardWarnings']>().toExtend<Tires | null | undefined>()
  })

  test('a misspelled name is an error, in every way of writing it', () => {
    const read = (data: Values, name: string): unknown[] => [
      // @ts-expect-error: BatteryLevel
      data.BateryLevel,
      // @ts-expect-error: BatteryLevel
      data['BateryLevel'],
      // @ts-expect-error: a text can be any name
      data[name],
    ]
    // @ts-expect-error: BatteryLevel
    const destructured = ({ BateryLevel }: Values): unknown => BateryLevel
    // @ts-expect-error: BatteryLevel
    const written: Values = { BateryLevel: 80 }
    void [read, destructured, written]
  })
})

test('a normalizer without fields of the user’s own yields the built-in types', () => {
  expectTypeOf(createNormalizer().normalize({})).toEqualTypeOf<WireEvent>()
  expectTypeOf(normalize('[]')).toEqualTypeOf<WireEvent[]>()
})

describe('a receiver with bindings and own fields', () => {
  interface Env {
    readonly WEBHOOK_SECRET: string
  }
  const secret = 'a-long-random-value'
  const fields = { Mood: { enum: ['Good', 'Bad'] } } as const
  type Mood = 'Good' | 'Bad' | null | undefined

  test('infers both from its options', () => {
    createReceiver({
      secret: (env: Env) => env.WEBHOOK_SECRET,
      fields: { Mood: { enum: ['Good', 'Bad'] } },
      parts: [vehicles({ fields: ['Mood'] })],
    })
      .on('data', (event, { env, vehicle }) => {
        expectTypeOf(env).toEqualTypeOf<Env>()
        expectTypeOf(event.data.Mood).toEqualTypeOf<Mood>()
        expectTypeOf(event.data.BatteryLevel).toEqualTypeOf<number | null | undefined>()
        expectTypeOf(vehicle.value('Mood')).toEqualTypeOf<Mood>()
      })
      .batch('data', { size: 2, withinMs: 1 }, (events, { env, vehicles: all }) => {
        expectTypeOf(env).toEqualTypeOf<Env>()
        expectTypeOf(events[0]?.data.Mood).toEqualTypeOf<Mood>()
        expectTypeOf(all[0]?.value('Mood')).toEqualTypeOf<Mood>()
      })
  })

  test('knows the vehicle of a message that has one, when it has the part', () => {
    const topics = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity'] as const
    const parts = [dedupe({ withinMs: 1_000 }), vehicles({ fields: ['Gear'] })] as const
    createReceiver({ secret, parts })
      .on('data', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView>())
      .on(topics, (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView>())
      .on('data', { changed: ['Gear'] }, (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView>())
      .when(becomes('Gear', 'P'), (_, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView>())
      .batch('data', { size: 2, withinMs: 1 }, (_events, { vehicles: all }) =>
        expectTypeOf(all).toEqualTypeOf<readonly VehicleView[]>(),
      )
      .on(['data', 'gap'], (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView | undefined>())
      .on('unknown', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView | undefined>())
      .on('*', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView | undefined>())
    createReceiver({ secret }).on('data', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<undefined>())
    createReceiver({ secret, parts: [dedupe({ withinMs: 1_000 })] })
      .on('data', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<undefined>())
      .batch('data', { size: 2, withinMs: 1 }, (_events, { vehicles: all }) =>
        expectTypeOf(all).toEqualTypeOf<readonly undefined[]>(),
      )
    const some: readonly ReturnType<typeof vehicles<'Gear'>>[] = []
    const may = createReceiver({ secret, parts: some })
    may.on('data', (_event, { vehicle }) => expectTypeOf(vehicle).toEqualTypeOf<VehicleView | undefined>())
    expectTypeOf(createReceiver({ secret, parts })).toExtend<Receiver>()
    expectTypeOf<Receiver>().toExtend<Receiver<object, BuiltInFields, true>>()
  })

  test('takes both as type arguments, and its own fields are not lost when the second is missing', () => {
    createReceiver<Env>({ secret }).on('data', (_event, { env }) => expectTypeOf(env).toEqualTypeOf<Env>())
    createReceiver<Env, typeof fields>({ secret, fields }).on('data', (event, { env }) => {
      expectTypeOf(env).toEqualTypeOf<Env>()
      expectTypeOf(event.data.Mood).toEqualTypeOf<Mood>()
    })
    // @ts-expect-error: the second type argument is missing
    createReceiver<Env>({ secret, fields })
    // @ts-expect-error: not the bindings, but the type of Hono that has them
    createReceiver<{ Bindings: Env }>({ secret })
  })

  test('takes a handler of the built-in catalogue, unless a field has another type there', () => {
    const onData: Handler<'data'> = (event, { vehicle }) => [event.data.BatteryLevel, vehicle?.value('BatteryLevel')]
    createReceiver({ secret, fields })
      .on('data', onData)
      .batch('data', { size: 2, withinMs: 1 }, () => {})
    const other = createReceiver({ secret, fields: { BatteryLevel: 'string' } })
    // @ts-expect-error: its level is text
    other.on('data', onData)
    expectTypeOf(createReceiver({ secret, fields })).toExtend<Receiver>()
    expectTypeOf<VehicleView>().not.toExtend<VehicleView<typeof fields>>()
  })
})
