import { inspect } from 'node:util'
import * as fc from 'fast-check'
import { createNormalizer, normalize, type OtherField } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import { anyObject, formats } from './arbitrary.ts'

const normalizers = [
  createNormalizer(),
  createNormalizer({ decode: false }),
  ...formats.map((format) => createNormalizer({ format })),
]

function deepFreeze(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return
  Object.freeze(value)
  Object.values(value).forEach(deepFreeze)
}

test('any JSON object is exactly one event; nothing throws, and the message stays as it was', () => {
  fc.assert(
    fc.property(anyObject, (message) => {
      const before = JSON.stringify(message)
      deepFreeze(message)
      for (const normalizer of normalizers) {
        const event = normalizer.normalize(message)
        expect(event.raw).toBe(message)
        expect(event.id).toMatch(/^[0-9a-f]{32}$/)
      }
      expect(JSON.stringify(message)).toBe(before)
    }),
    { numRuns: 1000 },
  )
})

test('a body that another parser read is accepted as well', () => {
  for (const value of [
    new Map(),
    new Date(),
    Object.create(null),
    { data: new Date(), vin: 'V' },
    { data: { Soc: 5n }, vin: 'V' },
  ]) {
    for (const normalizer of normalizers) expect(normalizer.normalize(value).raw).toBe(value)
  }
})

describe('__proto__, constructor and the like are names like any other and reach no prototype', () => {
  const text = `{"vin":"V","createdAt":"2024-02-24T04:58:44Z","__proto__":{"a":1},"constructor":{"prototype":{"a":1}},
    "data":{"__proto__":{"polluted":true},"constructor":"x","toString":5,"hasOwnProperty":{"booleanValue":true},"Gear":"?"}}`

  test('in data', () => {
    const [event] = normalize(text)
    if (event?.topic !== 'data') throw new Error('no data')
    expect(Object.keys(event.data)).toEqual(['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'Gear'])
    const valueOf = (name: string): unknown => event.data[name as OtherField]
    expect(valueOf('__proto__')).toEqual({ polluted: true })
    expect(valueOf('constructor')).toBe('x')
    expect(valueOf('toString')).toBe(5)
    expect(valueOf('hasOwnProperty')).toBe(true)
    expect(valueOf('polluted')).toBeUndefined()
    expect(valueOf('valueOf')).toBeUndefined()
  })

  test('in meta, undecoded, alerts and tags', () => {
    const [event] = normalize(text)
    expect(Object.keys(event?.meta ?? {})).toEqual(['__proto__', 'constructor'])
    expect(event?.meta['a']).toBeUndefined()
    const [list] = normalize(
      '[{"vin":"V","errors":{"__proto__":{"tags":{"__proto__":"x","constructor":"y"},"__proto__":{"a":1}}}}]',
    )
    if (list?.topic !== 'errors') throw new Error('no errors')
    const [error] = list.errors
    expect(error?.name).toBe('__proto__')
    expect(error?.['a']).toBeUndefined()
    const maker =
      '{"vin":"V","data":[{"key":"__proto__","value":{"objectValue":{"a":1}}},{"key":"Soc","value":{"__proto__":1}}]}'
    const [data] = normalize(maker)
    if (data?.topic !== 'data') throw new Error('no data')
    expect(Object.keys(data.data)).toEqual(['__proto__', 'Soc'])
    expect(data.data['a' as OtherField]).toBeUndefined()
  })
})

describe('the values behave like an object', () => {
  const [event] = normalize('{"vin":"V","createdAt":"2024-02-24T04:58:44Z","data":{"Soc":5,"__proto__":1,"Gear":"?"}}')
  if (event?.topic !== 'data') throw new Error('no data')

  test('spread, JSON, keys and comparison', () => {
    expect({ ...event.data }).toEqual(JSON.parse('{"Soc":5,"__proto__":1,"Gear":null}'))
    expect(JSON.stringify(event.data)).toBe('{"Soc":5,"__proto__":1,"Gear":null}')
    expect(Object.entries(event.undecoded)).toEqual([['Gear', '?']])
    expect(event.data).toMatchObject({ Soc: 5 })
    expect(structuredClone(event.data)).toEqual(JSON.parse('{"Soc":5,"__proto__":1,"Gear":null}'))
  })

  test('a console shows the values, and the event with its id', () => {
    expect(inspect(event.data)).toBe("{ Soc: 5, ['__proto__']: 1, Gear: null }")
    expect(inspect(event.undecoded)).toBe("{ Gear: '?' }")
    expect(inspect(event)).toContain(`id: '${event.id}'`)
    expect(inspect(event)).toMatch(/^\{\n {2}topic: 'data'/)
  })
})

test('field names that an engine gives the same hash take no longer than others', () => {
  const messages = (name: (n: number) => string): object[] =>
    Array.from({ length: 20 }, (_, message) => {
      const fields = Array.from({ length: 1_500 }, (__, n) => `"${name(message * 1_500 + n)}":1`)
      return JSON.parse(`{"vin":"V","data":{${fields.join(',')}}}`)
    })
  const takes = (name: (n: number) => string): number => {
    const read = messages(name)
    const startedAt = performance.now()
    for (const message of read) normalizers[0]?.normalize(message)
    return performance.now() - startedAt
  }
  const others = (n: number): string => String(100_000 + n)
  const alike = (n: number): string => String(((n * 2 ** 17) % 2 ** 32) + Math.floor((n * 2 ** 17) / 2 ** 32))
  takes(others)
  const ratios = Array.from({ length: 3 }, () => takes(alike) / takes(others))
  expect(Math.min(...ratios)).toBeLessThan(20)
})
