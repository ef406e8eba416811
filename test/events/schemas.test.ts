import * as fc from 'fast-check'
import type { FleetEvent } from 'fleethook'
import * as schemas from 'fleethook/schemas'
import { createNormalizer, encode } from 'fleethook/normalize'
import { describe, expect, expectTypeOf, test } from 'vitest'
import * as z from 'zod/mini'
import { anyObject, formats } from '../wire/arbitrary.ts'

const normalizer = createNormalizer()
const byTopic = {
  data: schemas.dataEvent,
  state: schemas.stateEvent,
  vehicle_data: schemas.vehicleDataEvent,
  alerts: schemas.alertsEvent,
  errors: schemas.errorsEvent,
  connectivity: schemas.connectivityEvent,
  unknown: schemas.unknownEvent,
}
const gap: FleetEvent = {
  topic: 'gap',
  vin: 'V',
  createdAt: '2024-02-24T04:58:44.983Z',
  at: new Date(0),
  receivedAt: new Date(0),
  id: 'x',
  meta: {},
  from: new Date(0),
  to: new Date(0),
  reason: 'inbox_full',
  missed: 3,
  format: null,
  raw: null,
}

describe('whatever the normalizer yields', () => {
  test('satisfies the schema of its topic and that of the union', () => {
    fc.assert(
      fc.property(anyObject, (message) => {
        const event = normalizer.normalize(message)
        expect(z.safeParse(byTopic[event.topic], event).error).toBeUndefined()
        expect(z.safeParse(schemas.fleetEvent, event).error).toBeUndefined()
      }),
      { numRuns: 1000 },
    )
  })

  test('satisfies no schema of another topic', () => {
    const event = normalizer.normalize({ state: 'online', vin: 'V', createdAt: '2024-02-24T04:58:44Z' })
    for (const [topic, schema] of Object.entries(byTopic))
      expect(z.safeParse(schema, event).success).toBe(topic === 'state')
  })

  test('has the static type that the schema has', () => {
    expectTypeOf<z.output<typeof schemas.fleetEvent>>().toEqualTypeOf<FleetEvent>()
    expectTypeOf<ReturnType<typeof normalizer.normalize>>().toExtend<z.output<typeof schemas.fleetEvent>>()
  })
})

test('a schema limits data to the types of the catalogue', () => {
  const event = normalizer.normalize({ data: { Gear: 'D', Soc: 5, NeverSeen: [1] }, vin: 'V' })
  const schema = z.looseObject({ data: z.unknown() })
  const { data, ...rest } = z.parse(schema, { ...event, id: event.id })
  expect(data).toEqual({ Gear: 'D', Soc: 5, NeverSeen: [1] })
  expect(z.safeParse(schemas.dataEvent, { ...rest, data }).success).toBe(true)
  for (const wrong of [{ Gear: 'ShiftStateD' }, { Soc: '5' }, { Location: { latitude: 5 } }, { DoorState: {} }]) {
    expect(z.safeParse(schemas.dataEvent, { ...rest, data: wrong }).success).toBe(false)
  }
})

test('a gap satisfies its schema and that of the union', () => {
  expect(z.parse(schemas.gapEvent, gap)).toEqual(gap)
  expect(z.parse(schemas.fleetEvent, gap)).toEqual(gap)
})

describe('JSON Schema', () => {
  test.each(Object.entries(schemas))('derives from %s', (_, schema) => {
    expect(z.toJSONSchema(schema)).toHaveProperty('$schema')
  })

  test('has dates as JSON writes them, and the fields of the catalogue', () => {
    expect(z.toJSONSchema(schemas.dataEvent)).toMatchObject({
      properties: {
        topic: { const: 'data' },
        at: { type: 'string', format: 'date-time' },
        data: {
          properties: {
            BatteryLevel: { type: ['number', 'null'] },
            Gear: { anyOf: [{ enum: ['Unknown', 'Invalid', 'P', 'R', 'N', 'D', 'SNA'] }, { type: 'null' }] },
          },
        },
      },
    })
  })
})

describe('messages as they are posted', () => {
  const schemaOf = {
    service: schemas.serviceMessage,
    vehicle_maker: schemas.vehicleMakerMessage,
    event_collector: schemas.eventCollectorMessage,
  }

  test('satisfy the schema of their format, and that of all', () => {
    fc.assert(
      fc.property(anyObject, fc.constantFrom(...formats), (message, format) => {
        const event = normalizer.normalize(message)
        fc.pre(event.topic !== 'unknown')
        const sent = encode(event, format)
        expect(z.safeParse(schemaOf[format], sent).error).toBeUndefined()
        expect(z.safeParse(schemas.wireMessage, sent).error).toBeUndefined()
      }),
    )
  })

  test('of another format, or of none, do not', () => {
    const data = { data: { Gear: 'D' }, vin: 'V', createdAt: '2024-02-24T04:58:44Z' }
    expect(z.safeParse(schemas.vehicleMakerMessage, data).success).toBe(false)
    expect(z.safeParse(schemas.eventCollectorMessage, data).success).toBe(false)
    expect(z.safeParse(schemas.wireMessage, { vin: 'V' }).success).toBe(false)
  })
})
