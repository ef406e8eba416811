import { createNormalizer } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const { normalize } = createNormalizer()
const vin = '0FLEETV14T0000004'
const createdAt = '2024-02-24T04:58:44Z'
const messages = {
  data: { vin, createdAt, data: { BatteryLevel: 81.5 } },
  state: { vin, createdAt, state: 'online' },
  unknown: { weather: 'sunny' },
  'state from a collector': { event: 'online', source: vin, sourcetype: 'maker:telemetry:state', time: 1708750724 },
}

/** What arrives behind `postMessage`. */
async function posted(value: object): Promise<unknown> {
  const { port1, port2 } = new MessageChannel()
  const arrived = new Promise((resolve) => {
    port2.addEventListener('message', ({ data }) => resolve(data))
    port2.start()
  })
  port1.postMessage(value)
  const copy = await arrived
  port1.close()
  port2.close()
  return copy
}

const copies: Readonly<Record<string, (event: object) => unknown>> = {
  'spreading it': (event) => ({ ...event }),
  'Object.assign': (event) => Object.assign({}, event),
  structuredClone: (event) => structuredClone(event),
  postMessage: posted,
  JSON: (event) => JSON.parse(JSON.stringify(event)),
  'a rest pattern': (event) => {
    const { ...copy } = event
    return copy
  },
}

describe.each(Object.entries(messages))('an event of %s', (_name, message) => {
  test.each(Object.entries(copies))('keeps its id in a copy by %s', async (_how, copyOf) => {
    const event = normalize(message, 0)
    const copy = await copyOf(event)
    expect(copy).toHaveProperty('id', normalize(message, 0).id)
    expect(copy).toHaveProperty('id', event.id)
  })
})

test('an id is computed when it is asked for, and once', () => {
  let reads = 0
  const document = {
    get charge() {
      reads += 1
      return 81.5
    },
  }
  const event = normalize({ vin, createdAt, vehicle_data: document })
  reads = 0
  expect([event.topic, event.vin, Object.keys(event).includes('id')]).toEqual(['vehicle_data', vin, true])
  expect(reads).toBe(0)
  const { id } = event
  expect(reads).toBe(1)
  expect([event.id, reads]).toEqual([id, 1])
})

test('the id of a frozen event can be read', () => {
  const event = normalize(messages.state)
  const { id } = Object.freeze(event)
  expect(event.id).toBe(id)
  expect(normalize(messages.state).id).toBe(id)
})

test('JSON and consoles show the id before what the wire carried', () => {
  expect(Object.keys(JSON.parse(JSON.stringify(normalize(messages.state))))).toEqual(
    'topic vin createdAt at receivedAt format state id meta raw'.split(' '),
  )
})
