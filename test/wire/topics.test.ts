import { createNormalizer, type WireEvent } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const receivedAt = new Date('2026-01-02T03:04:05.678Z')
const vin = '0FLEETV14T0000004'
const createdAt = '2024-02-24T04:58:44.983607402Z'

function read(message: object, options: Parameters<typeof createNormalizer>[0] = {}): WireEvent {
  return createNormalizer(options).normalize(message, receivedAt)
}

type EventOf<T> = Extract<WireEvent, { topic: T }>

function readAs<T extends WireEvent['topic']>(topic: T, message: object): EventOf<T> {
  const event = read(message)
  const isTopic = (candidate: WireEvent): candidate is EventOf<T> => candidate.topic === topic
  if (!isTopic(event)) throw new Error(`read as ${event.topic}, not as ${topic}`)
  return event
}

describe('what every event has', () => {
  test('receivedAt may be milliseconds, and is now when it is left out', () => {
    const normalizer = createNormalizer()
    expect(normalizer.normalize({ state: 'x', vin }, 5).receivedAt).toEqual(new Date(5))
    const before = Date.now()
    expect(normalizer.normalize({ state: 'x', vin }).receivedAt.getTime()).toBeGreaterThanOrEqual(before)
    expect(normalizer.normalize({ state: 'x', vin }, Number.NaN).receivedAt.getTime()).toBeGreaterThanOrEqual(before)
  })

  test('meta carries whatever the wire carried beside the payload', () => {
    const message = { data: {}, vin, createdAt, isResend: true, connectionId: 'c', credits: 7, state: null }
    expect(read(message).meta).toEqual({ isResend: true, connectionId: 'c', credits: 7, state: null })
    const envelope = {
      time: 1708750724,
      host: 'h',
      source: vin,
      sourcetype: 'v:telemetry:data',
      index: 'main',
      event: {},
    }
    expect(read(envelope).meta).toEqual({ host: 'h', sourcetype: 'v:telemetry:data', index: 'main' })
  })

  test('meta keeps its types: a value of another type is only in raw, and the wire cannot set what fleethook adds', () => {
    const message = { state: 'x', vin, createdAt, isResend: 'yes', host: 5, createdAtMissing: true }
    expect(read(message).meta).toEqual({})
  })
})

describe('topics are found by top-level key, first hit wins', () => {
  test('connectivity, known by networkInterface, in lower case', () => {
    const message = { vin, status: 'CONNECTED', networkInterface: 'Cellular', connectionId: 'A1', createdAt }
    expect(readAs('connectivity', message)).toMatchObject({
      status: 'connected',
      networkInterface: 'cellular',
      connectionId: 'A1',
      raw: { status: 'CONNECTED' },
    })
    expect('connectionId' in readAs('connectivity', { vin, status: 'x', networkInterface: 'wifi' })).toBe(false)
  })

  test('a key whose value is null names no topic', () => {
    expect(read({ state: null, data: { Gear: 'D' }, vin, createdAt }).topic).toBe('data')
    expect(read({ state: null, vin, createdAt })).toMatchObject({ topic: 'unknown', reason: 'no_topic' })
  })

  test('the order is state, data, errors, alerts, networkInterface, vehicle_data', () => {
    const all = {
      vehicle_data: {},
      networkInterface: 'wifi',
      status: 'x',
      alerts: [],
      errors: [],
      data: {},
      state: 'x',
      vin,
    }
    const seen: string[] = []
    const left: Record<string, unknown> = { ...all }
    for (const key of ['state', 'data', 'errors', 'alerts', 'networkInterface', 'vehicle_data']) {
      seen.push(read(left).topic)
      delete left[key]
    }
    expect(seen).toEqual(['state', 'data', 'errors', 'alerts', 'connectivity', 'vehicle_data'])
  })
})

describe('alerts and errors from a list or keyed by name, value one entry or a list', () => {
  const started = '2024-02-24T04:58:44Z'

  test('alerts', () => {
    const expected = [
      { name: 'A', startedAt: started, audiences: ['Customer'], text: 'x' },
      { name: 'B', startedAt: started, endedAt: started, audiences: [] },
    ]
    const list = [
      { name: 'A', startedAt: started, endedAt: null, audiences: ['Customer'], text: 'x' },
      { name: 'B', startedAt: started, endedAt: started },
    ]
    const keyed = {
      A: { startedAt: started, audiences: ['Customer'], text: 'x' },
      B: [{ name: 'B', startedAt: started, endedAt: started, audiences: null }],
    }
    expect(readAs('alerts', { alerts: list, vin, createdAt }).alerts).toEqual(expected)
    expect(readAs('alerts', { alerts: keyed, vin, createdAt }).alerts).toEqual(expected)
    expect(read({ alerts: list, vin, createdAt }).id).toBe(read({ alerts: keyed, vin, createdAt }).id)
  })

  test('errors', () => {
    const expected = [
      { name: 'E', createdAt: started, tags: { a: 'b', n: '5' }, body: 'text', extra: [1] },
      { name: 'F', tags: {} },
    ]
    const list = [
      { name: 'E', createdAt: started, tags: { a: 'b', n: 5, o: {} }, body: 'text', extra: [1] },
      { name: 'F' },
    ]
    const keyed = { E: { createdAt: started, tags: { a: 'b', n: 5 }, body: 'text', extra: [1] }, F: [{}] }
    expect(readAs('errors', { errors: list, vin, createdAt }).errors).toEqual(expected)
    expect(readAs('errors', { errors: keyed, vin, createdAt }).errors).toEqual(expected)
  })

  test('several entries of one name stay several', () => {
    const { alerts } = readAs('alerts', { alerts: { A: [{ startedAt: '1' }, { startedAt: '2' }] }, vin, createdAt })
    expect(alerts.map(({ name, startedAt }) => [name, startedAt])).toEqual([
      ['A', '1'],
      ['A', '2'],
    ])
  })

  test('no alerts are an empty list; an entry that is not an object, or has no name, is not an alert', () => {
    expect(readAs('alerts', { alerts: {}, vin }).alerts).toEqual([])
    expect(readAs('errors', { errors: [], vin }).errors).toEqual([])
    for (const alerts of ['x', 5, [5], [{}], { A: 'x' }, { A: [null] }]) {
      expect(read({ alerts, vin })).toMatchObject({ topic: 'unknown', reason: 'payload_mismatch' })
    }
  })
})

describe('unknown: an authentic JSON object of no known topic', () => {
  test.each([
    ['no_topic', {}],
    ['no_topic', { credits: 5 }],
    ['no_topic', { config: {}, vin }],
    ['payload_mismatch', { state: 5, vin }],
    ['payload_mismatch', { data: 'x', vin }],
    ['payload_mismatch', { data: [5], vin }],
    ['payload_mismatch', { data: [{ key: {}, value: {} }], vin }],
    ['payload_mismatch', { data: [{ BatteryLevel: 80 }], vin }],
    ['payload_mismatch', { data: { key: 'BatteryLevel', value: { doubleValue: 80 } }, vin }],
    ['payload_mismatch', { data: [{ key: 'Gear', value: { stringValue: 'D' } }, { BatteryLevel: 80 }], vin }],
    ['payload_mismatch', { data: [{}], vin }],
    ['payload_mismatch', { data: [{ name: 'BatteryLevel', value: 80 }], vin }],
    ['payload_mismatch', { data: [{ key: 'BatteryLevel', doubleValue: 80 }], vin }],
    ['payload_mismatch', { data: [[]], vin }],
    ['payload_mismatch', { event: [{ BatteryLevel: 80 }], source: vin, sourcetype: 'v:telemetry:data' }],
    ['payload_mismatch', { state: '', vin }],
    ['payload_mismatch', { alerts: [{ name: '' }], vin }],
    ['payload_mismatch', { errors: { '': {} }, vin }],
    ['payload_mismatch', { networkInterface: 'wifi', status: '', vin }],
    ['payload_mismatch', { networkInterface: 'wifi', status: 1, vin }],
    ['payload_mismatch', { vehicle_data: [], vin }],
    ['payload_mismatch', { networkInterface: 'wifi', vin }],
    ['vin_missing', { state: 'online' }],
    ['vin_missing', { state: 'online', vin: '' }],
    ['vin_missing', { state: 'online', vin: 5 }],
    ['vin_missing', { state: 'online', vin: 'V'.repeat(65) }],
    ['vin_missing', { event: {}, source: 'V'.repeat(65), sourcetype: 'v:telemetry:data' }],
    ['vin_missing', { state: 'online', vin: '\0V' }],
    ['vin_missing', { state: 'online', vin: 'V\u0085' }],
    ['vin_missing', { state: 'online', vin: 'V\ud800' }],
    ['vin_missing', { event: {}, source: '\udc00V', sourcetype: 'v:telemetry:data' }],
    ['foreign_event', { event: 'text', source: vin, sourcetype: 'v:telemetry:data' }],
    ['foreign_event', { event: {}, sourcetype: 'v:telemetry:data' }],
    ['foreign_event', { event: {}, source: 'syslog', sourcetype: 'access_log' }],
    ['foreign_event', { event: { a: 1 }, time: 1708750724 }],
    ['foreign_event', { event: 'hello', host: 'h' }],
    ['vin_missing', { event: {}, source: '', sourcetype: 'v:telemetry:data' }],
    ['payload_mismatch', { event: { data: 5 }, source: vin, sourcetype: 'v:telemetry:alerts' }],
  ])('%s: %j', (reason, message) => {
    const event = read(message)
    expect(event).toMatchObject({ topic: 'unknown', reason, raw: message })
    expect(event.meta.createdAtMissing).toBe('time' in message ? undefined : true)
  })

  test('a VIN has at most 64 characters', () => {
    expect(read({ state: 'online', vin: 'V'.repeat(64) })).toMatchObject({ topic: 'state', vin: 'V'.repeat(64) })
    expect('vin' in read({ config: {}, vin: 'V'.repeat(65) })).toBe(false)
  })

  test('a VIN may have any character that every store keeps', () => {
    for (const text of ['V🚗', 'é', 'a b']) expect(read({ state: 'online', vin: text }).vin).toBe(text)
  })

  test('a data message has at most 2,000 fields', () => {
    const names = Array.from({ length: 2_001 }, (_, n) => `Field${n}`)
    const map = Object.fromEntries(names.map((name) => [name, 1]))
    const list = names.map((key) => ({ key, value: { intValue: 1 } }))
    for (const data of [map, list])
      expect(read({ data, vin })).toMatchObject({ topic: 'unknown', reason: 'payload_mismatch', vin })
    delete map['Field0']
    for (const data of [map, list.slice(1)]) expect(Object.keys(readAs('data', { data, vin }).data)).toHaveLength(2_000)
  })

  test('has a vin only if the message has one', () => {
    expect(read({ config: {}, vin }).vin).toBe(vin)
    expect('vin' in read({ config: {} })).toBe(false)
    expect('vin' in read({ event: 'x', source: '/var/log/messages', sourcetype: 'syslog' })).toBe(false)
  })

  test('does not carry what was read of a payload before the payload turned out not to fit', () => {
    expect(Object.keys(read({ state: 5, vin }))).not.toContain('state')
  })
})

describe('event_collector', () => {
  const envelope = {
    time: 1708750724.983,
    host: 'h',
    source: vin,
    sourcetype: 'maker:telemetry:data',
    event: { Gear: 'D' },
  }

  test('the label names the topic in any case; without one the event does, or it is data', () => {
    expect(read({ ...envelope, sourcetype: 'Maker:Telemetry:State', event: { state: 'asleep' } })).toMatchObject({
      state: 'asleep',
    })
    const { sourcetype: _, ...unlabelled } = envelope
    expect(read({ ...unlabelled, event: { state: 'asleep' } })).toMatchObject({ topic: 'state', state: 'asleep' })
    expect(read({ ...unlabelled, event: { Soc: 5 } })).toMatchObject({ topic: 'data', data: { Soc: 5 } })
    expect(read({ ...unlabelled, event: { data: { Soc: 5 } } })).toMatchObject({ topic: 'data', data: { Soc: 5 } })
  })

  test('a labelled data event is the map itself, whatever its fields are called', () => {
    expect(readAs('data', { ...envelope, event: { state: 'x', data: 5 } }).data).toEqual({ state: 'x', data: 5 })
  })

  test.each([
    ['state', { state: 'online' }, { state: 'online' }],
    ['state', 'online', { state: 'online' }],
    ['alerts', { alerts: { A: {} } }, { alerts: [{ name: 'A', audiences: [] }] }],
    ['alerts', { A: {} }, { alerts: [{ name: 'A', audiences: [] }] }],
    ['alerts', [{ name: 'A' }], { alerts: [{ name: 'A', audiences: [] }] }],
    ['errors', { errors: [{ name: 'E' }] }, { errors: [{ name: 'E', tags: {} }] }],
    ['vehicle_data', { vehicle_data: { a: 1 } }, { vehicleData: { a: 1 } }],
    ['vehicle_data', { a: 1 }, { vehicleData: { a: 1 } }],
    [
      'connectivity',
      { status: 'CONNECTED', networkInterface: 'wifi' },
      { status: 'connected', networkInterface: 'wifi' },
    ],
  ])('%s: %j, under its key or by itself', (topic, event, expected) => {
    expect(read({ ...envelope, sourcetype: `maker:telemetry:${topic}`, event })).toMatchObject({ topic, ...expected })
  })

  test('a service message that happens to have a time or a host is still a service message', () => {
    expect(read({ event: 'x', time: 5, data: { Gear: 'D' }, vin, createdAt })).toMatchObject({
      format: 'service',
      topic: 'data',
    })
  })
})

describe('a pinned format', () => {
  const messages = {
    service: { data: { Gear: 'D' }, vin, createdAt },
    vehicle_maker: { data: [{ key: 'Gear', value: { stringValue: 'D' } }], vin, createdAt },
    event_collector: { time: 1, source: vin, sourcetype: 'v:telemetry:data', event: { Gear: 'D' } },
  } as const

  for (const format of ['service', 'vehicle_maker', 'event_collector'] as const) {
    for (const shape of ['service', 'vehicle_maker', 'event_collector'] as const) {
      test(`${format} that meets ${shape}`, () => {
        const event = read(messages[shape], { format })
        expect(event.format).toBe(shape)
        expect(event).toMatchObject(
          format === shape ? { topic: 'data', data: { Gear: 'D' } } : { topic: 'unknown', reason: 'format_mismatch' },
        )
      })
    }
  }

  test('topics that are the same in the first two formats fit both', () => {
    const message = { state: 'online', vin, createdAt }
    expect(read(message)).toMatchObject({ topic: 'state', format: 'service' })
    expect(read(message, { format: 'service' })).toMatchObject({ topic: 'state', format: 'service' })
    expect(read(message, { format: 'vehicle_maker' })).toMatchObject({ topic: 'state', format: 'vehicle_maker' })
    expect(read(message, { format: 'event_collector' })).toMatchObject({ reason: 'format_mismatch' })
  })
})
