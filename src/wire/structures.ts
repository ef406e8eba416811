import type { Doors, Location, Tires, TimeOfDay } from '../events/values.ts'
import { readDecimal } from './decimal.ts'
import { isJsonObject, type JsonObject } from './record.ts'

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] }

const snake = (name: string): string => name.replaceAll(/[A-Z]|\d/g, (part) => `_${part.toLowerCase()}`)
const pascal = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)

/** Every spelling of a name (`driverFront`, `DriverFront`, `driver_front`) to the name. */
function spellings<Name extends string>(names: readonly Name[]): ReadonlyMap<string, Name> {
  return new Map(names.flatMap((name) => [name, pascal(name), snake(name)].map((spelling) => [spelling, name])))
}

const doorNames: ReadonlyMap<string, keyof Doors> = /* @__PURE__ */ spellings([
  'driverFront',
  'driverRear',
  'passengerFront',
  'passengerRear',
  'trunkFront',
  'trunkRear',
])

const tireNames: ReadonlyMap<string, keyof Tires> = /* @__PURE__ */ spellings([
  'frontLeft',
  'frontRight',
  'rearLeft',
  'rearRight',
  'semiMiddleAxleLeft2',
  'semiMiddleAxleRight2',
  'semiRearAxleLeft',
  'semiRearAxleRight',
  'semiRearAxleLeft2',
  'semiRearAxleRight2',
])

function closedDoors(): Mutable<Doors> {
  return {
    driverFront: false,
    driverRear: false,
    passengerFront: false,
    passengerRear: false,
    trunkFront: false,
    trunkRear: false,
  }
}

function quietTires(): Mutable<Tires> {
  return {
    frontLeft: false,
    frontRight: false,
    rearLeft: false,
    rearRight: false,
    semiMiddleAxleLeft2: false,
    semiMiddleAxleRight2: false,
    semiRearAxleLeft: false,
    semiRearAxleRight: false,
    semiRearAxleLeft2: false,
    semiRearAxleRight2: false,
  }
}

function fill<Name extends string>(
  flags: Record<Name, boolean>,
  names: ReadonlyMap<string, Name>,
  sent: JsonObject,
): boolean {
  for (const key in sent) {
    const name = names.get(key)
    const flag = sent[key]
    if (name === undefined || typeof flag !== 'boolean') return false
    flags[name] = flag
  }
  return true
}

/** `"DriverFront|TrunkRear"`, `""`, or an object of flags in any spelling of the names. */
export function readDoors(value: unknown): Doors | undefined {
  const doors = closedDoors()
  if (isJsonObject(value)) return fill(doors, doorNames, value) ? doors : undefined
  if (typeof value !== 'string') return undefined
  if (value === '') return doors
  for (const part of value.split('|')) {
    const name = doorNames.get(part.trim())
    if (name === undefined) return undefined
    doors[name] = true
  }
  return doors
}

/** An object of flags in any spelling of the names. */
export function readTires(value: unknown): Tires | undefined {
  const tires = quietTires()
  return isJsonObject(value) && fill(tires, tireNames, value) ? tires : undefined
}

const locationText = /^\(?\s*(\d+(?:\.\d*)?)\s*([NS])\s*,\s*(\d+(?:\.\d*)?)\s*([EW])\s*\)?$/

function locationOf(latitude: unknown, longitude: unknown): Location | undefined {
  if (typeof latitude !== 'number' || typeof longitude !== 'number') return undefined
  if (!Number.isFinite(latitude) || !Number.isFinite(longitude)) return undefined
  return { latitude: latitude + 0, longitude: longitude + 0 }
}

/**
 * An object with two finite numbers, or `(37.41 N, 122.14 W)`. One coordinate may be missing inside the maker's wrapper,
 * whose emitters leave out zero; both cannot: that would be a guess.
 */
export function readLocation(value: unknown, wrapped: boolean): Location | undefined {
  if (isJsonObject(value)) {
    const { latitude, longitude } = value
    if (wrapped && latitude === undefined) return locationOf(0, longitude)
    if (wrapped && longitude === undefined) return locationOf(latitude, 0)
    return locationOf(latitude, longitude)
  }
  if (typeof value !== 'string') return undefined
  const [, degreesNorth = '', north, degreesEast = '', east] = locationText.exec(value.trim()) ?? []
  const latitude = readDecimal(degreesNorth)
  const longitude = readDecimal(degreesEast)
  return locationOf(north === 'S' ? -latitude : latitude, east === 'W' ? -longitude : longitude)
}

function timeOf(hour: unknown, minute: unknown, second: unknown): TimeOfDay | undefined {
  if (typeof hour !== 'number' || typeof minute !== 'number' || typeof second !== 'number') return undefined
  if (!Number.isInteger(hour) || !Number.isInteger(minute) || !Number.isInteger(second)) return undefined
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return undefined
  return { hour: hour + 0, minute: minute + 0, second: second + 0 }
}

const clockText = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/

/** An object of hour, minute and second, of which emitters leave out zeros, or `HH:MM[:SS]`. */
export function readTimeOfDay(value: unknown): TimeOfDay | undefined {
  if (isJsonObject(value)) {
    for (const key in value) if (key !== 'hour' && key !== 'minute' && key !== 'second') return undefined
    const { hour = 0, minute = 0, second = 0 } = value
    return timeOf(hour, minute, second)
  }
  if (typeof value !== 'string') return undefined
  const [, hour = '', minute = '', second = '0'] = clockText.exec(value.trim()) ?? []
  return timeOf(readDecimal(hour), readDecimal(minute), readDecimal(second))
}

function size(value: JsonObject): number {
  let keys = 0
  for (const _ in value) keys++
  return keys
}

/**
 * One of the structures above, for fields of no certain type: when the maker's wrapper says which, or when every part of
 * one is there and nothing else. `undefined` when it is none.
 */
export function readStructure(
  value: JsonObject,
  wrapper: string | undefined,
): Location | Doors | Tires | TimeOfDay | undefined {
  switch (wrapper) {
    case 'locationValue':
    case 'location_value':
      return readLocation(value, true)
    case 'doorValue':
    case 'door_value':
      return readDoors(value)
    case 'tireLocationValue':
    case 'tire_location_value':
      return readTires(value)
    case 'timeValue':
    case 'time_value':
      return readTimeOfDay(value)
    default:
      return readShape(value)
  }
}

function readShape(value: JsonObject): Location | Doors | Tires | TimeOfDay | undefined {
  switch (size(value)) {
    case 2:
      return readLocation(value, false)
    case 3:
      return readTimeOfDay(value)
    case 6:
      return readDoors(value)
    case 10:
      return readTires(value)
    default:
      return undefined
  }
}
