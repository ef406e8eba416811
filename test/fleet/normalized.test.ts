import { normalize } from 'fleethook/normalize'
import { expect, test } from 'vitest'
import type { Format, WireEvent } from '../../src/events/event.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { type SimulatedMessage, wireMessage } from '../../src/service/fleet/messages.ts'

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
const startAt = Date.UTC(2026, 10, 1, 8)

const messages: SimulatedMessage[] = []
for (const message of createFleet({ vins: 30, seed: 11, startAt, firmware: 'mixed' })) {
  messages.push(message)
  if (messages.length === 12_000) break
}

function normalized({ at, event }: SimulatedMessage, format: Format): WireEvent {
  const [only, ...more] = normalize(JSON.stringify(wireMessage(event, format)), { receivedAt: at })
  if (!only || more.length > 0) throw new Error(`One message was read as ${more.length + (only ? 1 : 0)}.`)
  return only
}

test.each(formats)(
  'every message of a simulated fleet normalizes to its topic and vehicle, and no value is left undecoded, written as %s',
  (format) => {
    let values = 0
    const wrong: unknown[] = []
    for (const message of messages) {
      const event = normalized(message, format)
      const { topic, vin, createdAt } = message.event
      const lostMs = Math.abs(event.at.getTime() - Date.parse(createdAt))
      const undecoded = event.topic === 'data' ? event.undecoded : {}
      if (event.topic !== topic || event.vin !== vin || !(lostMs <= 1) || Object.keys(undecoded).length > 0)
        wrong.push({ event, message })
      if (event.topic === 'data') values += Object.keys(event.data).length
    }
    expect(wrong).toEqual([])
    expect(values).toBeGreaterThan(10_000)
  },
)

const shapesOf = (firmware: 'today' | 'old', format: Format): ReadonlyMap<string, Set<string>> => {
  const shapes = new Map<string, Set<string>>()
  const note = (field: string, value: unknown): void => {
    if (value === null) return
    const shape = typeof value === 'object' ? Object.keys(value).slice(0, 2).join() : JSON.stringify(value)
    shapes.set(field, (shapes.get(field) ?? new Set()).add(shape))
  }
  let left = 4_000
  for (const { event } of createFleet({ vins: 12, seed: 3, startAt, firmware })) {
    if (left-- === 0) break
    const message = wireMessage(event, format)
    const data: unknown = event.topic === 'data' ? message['data'] : {}
    if (Array.isArray(data)) for (const { key, value } of data) note(key, value)
    else for (const [field, value] of Object.entries(Object(data))) note(field, value)
  }
  return shapes
}
const everyShape = (shapes: ReadonlyMap<string, Set<string>>, field: string): readonly string[] => [
  ...(shapes.get(field) ?? []),
]

test('today’s vehicles send locations as objects, constants by their full names, and numbers as numbers', () => {
  const shapes = shapesOf('today', 'service')
  expect(everyShape(shapes, 'Location')).toEqual(['latitude,longitude'])
  expect(everyShape(shapes, 'Gear').toSorted()).toEqual(['"ShiftStateD"', '"ShiftStateP"', '"ShiftStateR"'])
  expect(everyShape(shapes, 'DetailedChargeState')).toContain('"DetailedChargeStateCharging"')
  for (const field of ['VehicleSpeed', 'Soc', 'Odometer']) {
    expect(everyShape(shapes, field).every((shape) => /^[-\d.]+$/.test(shape))).toBe(true)
  }
  expect(everyShape(shapesOf('today', 'vehicle_maker'), 'Gear')).toEqual(['shiftStateValue'])
})

test('old firmware sends text, except for fields that are newer than typed values', () => {
  const shapes = shapesOf('old', 'service')
  expect(everyShape(shapes, 'Location').every((shape) => /^"\([\d.]+ [NS], [\d.]+ [EW]\)"$/.test(shape))).toBe(true)
  expect(everyShape(shapes, 'Gear').toSorted()).toEqual(['"D"', '"P"', '"R"'])
  expect(everyShape(shapes, 'Locked').toSorted()).toEqual(['"false"', '"true"'])
  expect(everyShape(shapes, 'Soc').every((shape) => /^"[\d.]+"$/.test(shape))).toBe(true)
  expect(everyShape(shapes, 'DetailedChargeState')).toContain('"DetailedChargeStateCharging"')
  expect(everyShape(shapesOf('old', 'vehicle_maker'), 'Gear')).toEqual(['stringValue'])
})
