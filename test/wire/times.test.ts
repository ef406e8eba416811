import * as fc from 'fast-check'
import { createNormalizer, encode } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const receivedAt = new Date('2026-01-02T03:04:05.678Z')
const normalizer = createNormalizer()
/** A clock that was never set counts from 1970. */
const isSet = (at: Date): boolean => at.getUTCFullYear() !== 1970
const read = (createdAt: unknown) => normalizer.normalize({ state: 'online', vin: 'V', createdAt }, receivedAt)

describe('createdAt is verbatim, and at is the same time to the millisecond', () => {
  test.each([
    ['2024-02-24T04:58:44Z', '2024-02-24T04:58:44.000Z'],
    ['2024-02-24T04:58:44.983Z', '2024-02-24T04:58:44.983Z'],
    ['2024-02-24T04:58:44.983607Z', '2024-02-24T04:58:44.983Z'],
    ['2024-02-24T04:58:44.983607402Z', '2024-02-24T04:58:44.983Z'],
    ['2024-02-24T04:58:44.9Z', '2024-02-24T04:58:44.900Z'],
    ['2024-02-24T04:58:44.98Z', '2024-02-24T04:58:44.980Z'],
    ['2024-02-24T04:58:44.9999999999Z', '2024-02-24T04:58:44.999Z'],
    ['2024-02-24t04:58:44z', '2024-02-24T04:58:44.000Z'],
    ['2024-02-24 04:58:44', '2024-02-24T04:58:44.000Z'],
    ['2024-02-24T04:58:44+02:00', '2024-02-24T02:58:44.000Z'],
    ['2024-02-24T04:58:44.5-0330', '2024-02-24T08:28:44.500Z'],
    ['2024-02-24T04:58:44+02', '2024-02-24T02:58:44.000Z'],
    ['2016-12-31T23:59:60Z', '2017-01-01T00:00:00.000Z'],
    ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
    ['0000-02-29T00:00:00Z', '0000-02-29T00:00:00.000Z'],
    ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ])('%s', (createdAt, at) => {
    const event = read(createdAt)
    expect(event.createdAt).toBe(createdAt)
    expect(event.at.toISOString()).toBe(at)
    expect(event.meta).toEqual({})
  })

  test('one without a zone is UTC', () => {
    expect(read('2024-02-24T04:58:44.983607').at.toISOString()).toBe('2024-02-24T04:58:44.983Z')
  })

  test('every millisecond that a Date prints is read as itself, outside of 1970', () => {
    const written = { min: new Date('0000-01-01T00:00:00Z'), max: new Date('9999-12-31T23:59:59.999Z') }
    const date = fc.oneof(fc.date({ ...written, noInvalidDate: true }), fc.date({ noInvalidDate: true }))
    fc.assert(
      fc.property(date.filter(isSet), (at) => {
        const event = read(at.toISOString())
        expect(event.at).toEqual(at)
        expect(event.meta).toEqual({})
      }),
    )
  })

  test('a time of an envelope so far ahead that its year has six digits is the same in all formats', () => {
    const event = normalizer.normalize({ event: 'online', source: 'V', sourcetype: 'v:telemetry:state', time: 1.77e21 })
    expect(event.createdAt).toBe('+058059-01-25T02:40:00.000Z')
    for (const format of ['service', 'event_collector'] as const) {
      const again = normalizer.normalize(encode(event, format), receivedAt)
      expect([again.at, again.id]).toEqual([event.at, event.id])
    }
  })

  test('every second of a collector is written as a Date prints it', () => {
    const ms = fc.integer({ min: -8.64e15, max: 9.9e13 })
    fc.assert(
      fc.property(
        ms.filter((at) => isSet(new Date(at))),
        (at) => {
          const event = normalizer.normalize({ event: { state: 'x' }, source: 'V', time: at / 1000 }, receivedAt)
          expect(event.createdAt).toBe(event.at.toISOString())
          expect(event.at.getTime()).toBe(Math.round((at / 1000) * 1000))
        },
      ),
    )
  })
})

describe('a missing or unreadable one, and one of a clock that was never set, is replaced by receivedAt, and meta says so', () => {
  test.each([
    ...[undefined, null, '', true, {}, '17x', 1e300, 0, '0', 77, '1970-01-01T00:00:00Z', '1970-01-01T00:07:12.5Z'],
    ...['1970-12-31T23:59:59', 'yesterday', '2024-02-24', '2024-02-24T04:58Z', '2024-02-30T04:58:44Z'],
    ...['2023-02-29T04:58:44Z', '2024-13-01T04:58:44Z', '2024-00-01T04:58:44Z', '2024-02-24T24:00:00Z'],
    ...['2024-02-24T04:60:00Z', '2024-02-24T04:58:61Z', '2024-02-24T04:58:44.Z', '2024-02-24T04:58:44ZZ'],
    ...['2024-02-24T04:58:44+2', '2024-02-24T04:58:44+24:00', '2024-02-24T04:58:44+02:0'],
    ...['2024-02-24T04:58:44+02:00Z', '20x4-02-24T04:58:44Z', '+002024-02-24T04:58:44Z', '-000000-02-24T04:58:44Z'],
    ...['+275760-09-13T00:00:00.001Z', '+012024-02-30T04:58:44Z', '+12024-02-24T04:58:44Z'],
    ...['++12024-02-24T04:58:44Z', 'Sat Feb 24 2024'],
  ])('%s', (createdAt) => {
    expect(read(createdAt)).toMatchObject({
      topic: 'state',
      createdAt: receivedAt.toISOString(),
      at: receivedAt,
      meta: { createdAtMissing: true },
    })
  })
})

/** One moment in every unit in which relays and vehicles write it. */
const moment = '2024-02-24T04:58:44.983Z'
const units: readonly (readonly [unit: string, time: number])[] = [
  ['seconds', 1708750724.983],
  ['milliseconds', 1708750724983],
  ['microseconds', 1708750724983607],
  ['nanoseconds', 1708750724983607300],
]

describe.each(units)('a time in %s', (_, time) => {
  test.each([time, String(time), ` ${time} `])('of a message in each format: %j', (written) => {
    const event = { event: 'online', source: 'V', sourcetype: 'v:telemetry:state', time: written }
    for (const read of [
      normalizer.normalize(event),
      normalizer.normalize({ state: 'x', vin: 'V', createdAt: written }),
    ]) {
      expect([read.createdAt, read.at.toISOString(), read.meta.createdAtMissing]).toEqual([moment, moment, undefined])
    }
  })

  test('of an alert and of an error', () => {
    const alert = { name: 'A', startedAt: time, endedAt: String(time) }
    expect(normalizer.normalize({ alerts: [alert], vin: 'V' })).toMatchObject({
      alerts: [{ startedAt: moment, endedAt: moment }],
    })
    expect(normalizer.normalize({ errors: { E: { createdAt: time } }, vin: 'V' })).toMatchObject({
      errors: [{ createdAt: moment }],
    })
  })
})

test('a time of a collector that was never set is the time of receipt, and meta says so', () => {
  for (const time of [0, '0', 0.5, 1, '86400', -0]) {
    const event = { event: 'online', source: 'V', sourcetype: 'v:telemetry:state', time }
    expect(normalizer.normalize(event, receivedAt)).toMatchObject({ at: receivedAt, meta: { createdAtMissing: true } })
  }
})

test('an empty end of an alert is none, and an end that is no time is not understood', () => {
  for (const endedAt of [null, '', 0, '0', '1970-01-01T00:00:00Z', '0001-01-01T00:00:00Z'])
    expect(normalizer.normalize({ alerts: [{ name: 'A', endedAt }], vin: 'V' })).toMatchObject({
      alerts: [{ name: 'A', audiences: [] }],
    })
  for (const endedAt of [true, {}, [5], 1e300])
    expect(normalizer.normalize({ alerts: [{ name: 'A', endedAt }], vin: 'V' })).toMatchObject({
      reason: 'payload_mismatch',
    })
})

test('nothing is dropped for being old or for being ahead of the clock', () => {
  expect(read('1999-01-01T00:00:00Z').topic).toBe('state')
  expect(read('2026-01-02T03:09:05.678Z').topic).toBe('state')
  expect(read('2099-01-01T00:00:00Z').topic).toBe('state')
})
