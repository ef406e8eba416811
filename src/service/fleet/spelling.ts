import type { FieldValue } from '../../events/values.ts'

/** How a vehicle's firmware writes values: with their types, or, as older firmware does, as text. */
export type Spelling = 'typed' | 'text'

const isTrue = ([, value]: [string, unknown]): boolean => value === true
const capitalised = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)
const degrees = (value: number, positive: string, negative: string): string =>
  `${Math.abs(value).toFixed(6)} ${value < 0 ? negative : positive}`

/** The text in which older firmware writes a value: `"34.797"`, `"true"`, `"DriverFront|TrunkRear"`. */
export function asText(value: FieldValue): FieldValue {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value
  if ('latitude' in value && typeof value.latitude === 'number' && typeof value.longitude === 'number') {
    return `(${degrees(value.latitude, 'N', 'S')}, ${degrees(value.longitude, 'E', 'W')})`
  }
  if ('driverFront' in value) {
    return Object.entries(value)
      .filter(isTrue)
      .map(([door]) => capitalised(door))
      .join('|')
  }
  return value
}
