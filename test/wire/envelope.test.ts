import { checkEnvelope } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const envelope = { time: 5, source: 'V', sourcetype: 'v:telemetry:data', event: {} }

describe('at the collector’s own paths an event is required', () => {
  test.each([
    ['event_missing', {}],
    ['event_missing', { ...envelope, event: null }],
    ['event_missing', { data: {}, vin: 'V' }],
    ['event_blank', { ...envelope, event: '' }],
    [undefined, envelope],
    [undefined, { event: 'hello' }],
    [undefined, { event: 0 }],
    [undefined, { event: false }],
    [undefined, { event: ' ' }],
  ])('%s: %j', (fault, message) => {
    expect(checkEnvelope(message, 'collector')).toBe(fault)
  })

  test('but not at the root', () => {
    for (const message of [{}, { ...envelope, event: null }, { ...envelope, event: '' }, { data: {}, vin: 'V' }]) {
      expect(checkEnvelope(message, 'root')).toBeUndefined()
    }
  })
})

describe('an invalid time is refused wherever the envelope is recognized', () => {
  test.each([
    [true],
    ['noon'],
    [''],
    ['0x10'],
    [{}],
    [[]],
    [1e300],
    [-1e300],
    ['9'.repeat(30)],
    [Number.NaN],
    [8.64e21 + 1e7],
  ])('%j', (time) => {
    expect(checkEnvelope({ ...envelope, time }, 'root')).toBe('time_invalid')
    expect(checkEnvelope({ ...envelope, time }, 'collector')).toBe('time_invalid')
  })

  test.each([
    [undefined],
    [null],
    [0],
    [-5],
    [1708750724.983],
    ['1708750724.983'],
    [1708750724983],
    [1708750724983607],
    [1708750724983607300],
    ['1708750724983607402'],
    [8.64e21],
    [' 5 '],
    ['1.7e9'],
  ])('%j is one', (time) => {
    expect(checkEnvelope({ ...envelope, time }, 'root')).toBeUndefined()
    expect(checkEnvelope({ ...envelope, time }, 'collector')).toBeUndefined()
  })

  test('a service message may have a time of its own', () => {
    expect(checkEnvelope({ data: {}, vin: 'V', time: 'noon' }, 'root')).toBeUndefined()
  })
})
