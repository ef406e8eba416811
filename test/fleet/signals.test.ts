import { normalize } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import { builtInFields, type FieldCatalogue, type FieldType } from '../../src/events/fields.ts'
import type { FieldValue } from '../../src/events/values.ts'
import { vehicleDocument } from '../../src/service/fleet/document.ts'
import { type StartActivity, life } from '../../src/service/fleet/life.ts'
import { wireMessage } from '../../src/service/fleet/messages.ts'
import { reading } from '../../src/service/fleet/signals.ts'
import { streamingOf } from '../../src/service/fleet/streaming.ts'
import { Vehicle } from '../../src/service/fleet/vehicle.ts'

const startAt = Date.UTC(2026, 10, 1, 8)
const catalogue: FieldCatalogue = builtInFields
const names = Object.keys(catalogue)

/** The values of all fields in one moment. */
type Moment = { readonly [field: string]: FieldValue }
const momentOf = (vehicle: Vehicle): Moment => Object.fromEntries(names.map((name) => [name, reading(vehicle, name)]))

/** A vehicle's moments, the first of every `every` steps of its day. */
function* dayOf(index: number, seed: number, activity: StartActivity, steps: number, every: number): Generator<Moment> {
  const vehicle = new Vehicle(index, seed, startAt)
  const day = life(vehicle, activity)
  for (let step = 0; step < steps; step += 1) {
    day.next()
    if (step % every === 0) yield momentOf(vehicle)
  }
}

function isOfType(value: FieldValue, type: FieldType): boolean {
  if (value === null || type === 'any') return true
  if (typeof type === 'object' && 'enum' in type)
    return typeof value === 'string' && type.enum.includes(value) && value !== 'Unknown'
  if (type === 'number' || type === 'timestamp') return typeof value === 'number' && Number.isFinite(value)
  if (type === 'string' || type === 'boolean') return typeof value === type
  return typeof value === 'object'
}

describe('every field of the catalogue', () => {
  const days = Array.from({ length: 8 }, (_, index) => {
    const activity: StartActivity = index % 2 === 0 ? 'leave' : 'charge'
    return [...dayOf(index, 100 + index, activity, 3_000, 10)]
  }).flat()

  test('has a value of its type', () => {
    for (const moment of days) {
      const wrong = names.filter((name) => !isOfType(moment[name] ?? null, catalogue[name] ?? 'any'))
      expect(wrong).toEqual([])
    }
  })

  test.each(['today', 'old'] as const)(
    'is streamed by a config, and is read by its type, with %s firmware',
    (firmware) => {
      const vehicle = new Vehicle(2, 5, startAt, firmware)
      vehicle.link.streaming = streamingOf(Object.fromEntries(names.map((name) => [name, null])))
      const seen = new Set<string>()
      const day = life(vehicle, 'leave')
      for (let step = 0; step < 600; step += 1) {
        const message = day.next().value
        if (message?.event.topic !== 'data') continue
        for (const format of ['service', 'vehicle_maker', 'event_collector'] as const) {
          const [event] = normalize(JSON.stringify(wireMessage(message.event, format)), { receivedAt: message.at })
          if (event?.topic !== 'data') throw new Error('It is read as another topic.')
          expect(event.undecoded).toEqual({})
          for (const field of Object.keys(event.data)) seen.add(field)
        }
      }
      expect(names.filter((name) => !seen.has(name))).toEqual([])
    },
  )
})

describe('the full document', () => {
  const vehicle = new Vehicle(1, 9, startAt)
  const day = life(vehicle, 'leave')
  for (let step = 0; step < 300; step += 1) day.next()

  test('has the requested sections, and the location only when it is requested', () => {
    const sections = (asked?: readonly string[]): readonly string[] =>
      Object.entries(vehicleDocument(vehicle, asked)).flatMap(([name, value]) =>
        typeof value === 'object' && value !== null && 'timestamp' in value ? [name] : [],
      )
    expect(sections(['charge_state', 'climate_state'])).toEqual(['charge_state', 'climate_state'])
    expect(sections(['location_data']).toSorted()).toEqual(['drive_state', 'location_data'])
    expect(sections()).toContain('vehicle_config')
    expect(sections()).not.toContain('location_data')
    expect(Object(vehicleDocument(vehicle)['drive_state'])).not.toHaveProperty('latitude')
    expect(Object(vehicleDocument(vehicle, ['location_data'])['drive_state'])).toHaveProperty('latitude')
  })
})
