import * as fc from 'fast-check'
import { createNormalizer, encode, normalize, type Format, type WireEvent } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import { formats, wireMessage } from './arbitrary.ts'

const receivedAt = new Date('2026-01-02T03:04:05.678Z')

/** The part of an event that every format can carry. The collector's format has milliseconds, and adds a host and a label. */
function essence(event: WireEvent, format: Format): unknown {
  const { raw: _raw, format: _format, createdAt, ...rest } = { ...event }
  const { host: _host, sourcetype: _sourcetype, ...meta } = event.meta
  return { ...rest, id: event.id, meta, ...(format !== 'event_collector' && { createdAt }) }
}

function resent(event: WireEvent, format: Format): WireEvent {
  const [again] = normalize(JSON.stringify(encode(event, format)), { receivedAt })
  if (again === undefined) throw new Error('nothing came back')
  return again
}

describe('for any event the three encodings normalize to the same event, within what each format can carry', () => {
  for (const format of formats) {
    test(`written as ${format}`, () => {
      const normalizer = createNormalizer()
      fc.assert(
        fc.property(wireMessage, (message) => {
          const event = normalizer.normalize(message, receivedAt)
          expect(essence(resent(event, format), format)).toEqual(essence(event, format))
        }),
        { numRuns: 1000 },
      )
    })
  }

  test('the format that is read is the one that was written, for data', () => {
    const [event] = normalize('{"data":{"Gear":"D"},"vin":"V","createdAt":"2024-02-24T04:58:44.983Z"}')
    for (const format of formats) expect(event && resent(event, format).format).toBe(format)
  })

  test('a collector message keeps the createdAt of a collector event exactly', () => {
    const text =
      '{"time":1708750724.983,"host":"h","source":"V","sourcetype":"v:telemetry:state","event":{"state":"online"}}'
    const [event] = normalize(text)
    expect(event && resent(event, 'event_collector').createdAt).toBe('2024-02-24T04:58:44.983Z')
    expect(event && encode(event, 'event_collector')).toEqual(JSON.parse(text))
  })

  test('times beyond the year 5138, where seconds look like milliseconds, survive the collector', () => {
    const [event] = normalize('{"state":"online","vin":"V","createdAt":"9999-12-31T23:59:59.999Z"}')
    expect(event && resent(event, 'event_collector').at.toISOString()).toBe('9999-12-31T23:59:59.999Z')
  })
})

describe('encode writes each format as its sender does', () => {
  const event = {
    topic: 'data',
    vin: '0FLEETV14T0000004',
    createdAt: '2024-02-24T04:58:44.983607402Z',
    data: {
      Gear: 'D',
      VehicleSpeed: 34.797,
      ScheduledChargingStartTime: 1708750724,
      Locked: false,
      Location: { latitude: 30.22, longitude: -97.62 },
      Soc: null,
    },
  } as const

  test('service: a map of field name to value', () => {
    expect(encode(event, 'service')).toEqual({ data: event.data, createdAt: event.createdAt, vin: event.vin })
  })

  test('vehicle_maker: a list of keys and wrapped values, enums with their prefix, long integers as text', () => {
    expect(encode(event, 'vehicle_maker')).toEqual({
      data: [
        { key: 'Gear', value: { shiftStateValue: 'ShiftStateD' } },
        { key: 'VehicleSpeed', value: { doubleValue: 34.797 } },
        { key: 'ScheduledChargingStartTime', value: { longValue: '1708750724' } },
        { key: 'Locked', value: { booleanValue: false } },
        { key: 'Location', value: { locationValue: { latitude: 30.22, longitude: -97.62 } } },
        { key: 'Soc', value: { invalid: true } },
      ],
      createdAt: event.createdAt,
      vin: event.vin,
    })
  })

  test('event_collector: an envelope around the map, with the time to the millisecond', () => {
    expect(encode(event, 'event_collector')).toEqual({
      time: 1708750724.983,
      host: 'localhost',
      source: event.vin,
      sourcetype: 'vehicle:telemetry:data',
      event: event.data,
    })
  })

  test('alerts are keyed by name for the service, a list for the maker, and a list where keys would change their order', () => {
    const base = { topic: 'alerts', vin: 'V', createdAt: '2024-02-24T04:58:44Z' } as const
    const alert = (name: string) => ({ name, audiences: [] })
    const two = { ...base, alerts: [alert('A'), alert('A'), alert('B')] }
    expect(encode(two, 'service')['alerts']).toEqual({
      A: [{ audiences: [] }, { audiences: [] }],
      B: { audiences: [] },
    })
    expect(encode(two, 'vehicle_maker')['alerts']).toEqual(two.alerts)
    const mixed = { ...base, alerts: [alert('A'), alert('B'), alert('A')] }
    expect(encode(mixed, 'service')['alerts']).toEqual(mixed.alerts)
  })

  test('a gap cannot be encoded, nor can a createdAt that is not a time as an envelope', () => {
    const gap = { topic: 'gap', vin: 'V', createdAt: '' }
    // @ts-expect-error A gap is not encodable.
    expect(() => encode(gap, 'service')).toThrow(expect.objectContaining({ code: 'encode_unsupported' }))
    expect(() => encode({ ...event, createdAt: 'noon' }, 'event_collector')).toThrow(
      expect.objectContaining({ code: 'encode_unsupported' }),
    )
  })
})
