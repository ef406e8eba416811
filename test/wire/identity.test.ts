import { createNormalizer, type WireEvent } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const createdAt = '2024-02-24T04:58:44.983607402Z'
const normalizer = createNormalizer()
const read = (message: object): WireEvent => normalizer.normalize(message, 0)
const data = { Soc: '81.5', Gear: 'ShiftStateD', Location: { latitude: 1, longitude: 2 } }

test('the same message in any of the three formats has the same id', () => {
  const service = read({ data, vin: 'V', createdAt })
  const maker = read({
    data: [
      { key: 'Location', value: { locationValue: { longitude: 2, latitude: 1 } } },
      { key: 'Gear', value: { stringValue: 'D' } },
      { key: 'Soc', value: { doubleValue: 81.5 } },
    ],
    vin: 'V',
    createdAt: '2024-02-24T04:58:44.983Z',
    isResend: true,
  })
  const collector = read({ time: 1708750724.983, source: 'V', sourcetype: 'v:telemetry:data', event: data })
  expect(new Set([service.id, maker.id, collector.id]).size).toBe(1)
})

test('it stays the same from release to release', () => {
  expect(read({ data, vin: 'V', createdAt }).id).toMatchInlineSnapshot(`"3ad429019631a7e9235766a2dc6c8f5d"`)
  expect(read({ state: 'online', vin: 'V', createdAt }).id).toMatchInlineSnapshot(`"969910dbf62ec8220ac200b7859f0554"`)
})

test('it is made of vin, topic, time to the millisecond and payload', () => {
  const message = { data: { Soc: 5 }, vin: 'V', createdAt }
  const others = [
    message,
    { ...message, vin: 'W' },
    { ...message, createdAt: '2024-02-24T04:58:44.984Z' },
    { ...message, data: { Soc: 6 } },
    { ...message, data: { Soc: null } },
    { ...message, data: { Soc: 'x' } },
    { ...message, data: { Soc: 'y' } },
    { ...message, data: {} },
    { state: '5', vin: 'V', createdAt },
    { vehicle_data: { Soc: 5 }, vin: 'V', createdAt },
    { alerts: [{ name: 'Soc' }], vin: 'V', createdAt },
    { errors: [{ name: 'Soc' }], vin: 'V', createdAt },
    { status: 'a', networkInterface: 'b', vin: 'V', createdAt },
    { status: 'a', networkInterface: 'b', connectionId: 'c', vin: 'V', createdAt },
    { config: 5, vin: 'V', createdAt },
  ]
  expect(new Set(others.map((other) => read(other).id)).size).toBe(others.length)
  expect(read({ ...message, isCache: true, createdAt: '2024-02-24T04:58:44.983999Z' }).id).toBe(read(message).id)
})

describe('it can be computed for anything', () => {
  test('for a message nested deeper than the call stack allows', () => {
    let nested: unknown = 1
    for (let depth = 0; depth < 200_000; depth++) nested = depth % 2 ? [nested] : { a: nested }
    expect(read({ vehicle_data: { nested }, vin: 'V', createdAt }).id).toMatch(/^[0-9a-f]{32}$/)
  })

  test('for values of another parser that JSON could not hold', () => {
    const circle: Record<string, unknown> = {}
    circle['self'] = circle
    const odd = {
      big: 5n,
      symbol: Symbol('s'),
      none: undefined,
      run: () => 1,
      at: new Date(0),
      not: Number.NaN,
      circle,
    }
    expect(read({ vehicle_data: odd, vin: 'V', createdAt }).id).toMatch(/^[0-9a-f]{32}$/)
  })

  test('for text that is not valid Unicode', () => {
    expect(read({ state: '\ud800', vin: 'V', createdAt }).id).not.toBe(
      read({ state: '\ud801', vin: 'V', createdAt }).id,
    )
  })
})
