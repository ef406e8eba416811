import { checkOptions, isObject, numberBetween, required } from '../base/options.ts'
import type { Location } from '../events/values.ts'
import type { AnyVehicleView, Condition, EdgeMemory } from '../vehicles/edge.ts'
import { isPlace, metersBetween } from '../vehicles/places.ts'
import { positionField } from './conditions.ts'
import { type Duration, readDuration } from './duration.ts'

/** What a gear says. A vehicle that falls asleep says `SNA`; the other two say nothing. */
const inGear: Readonly<Record<string, boolean | undefined>> = { D: true, R: true, N: true, P: false, SNA: false }

/**
 * True while a vehicle is driven: by its `Gear`, and by `VehicleSpeed` (above 0) as long as no gear was ever reported. `P` and `SNA`, which is what
 * a sleeping vehicle says, are false; `Unknown` and `Invalid` say nothing. The part `vehicles` must keep both fields.
 *
 * @example
 * ```ts
 * import { drives, episode, span, starts } from 'fleethook/when'
 *
 * export const trip = episode('trip', { during: drives(), joins: { minutes: 3 }, measures: { odometer: span('Odometer') } })
 * export const longDrive = starts(drives()).after({ hours: 4 })
 * ```
 */
export function drives(): Condition {
  return {
    name: 'drives()',
    fields: ['Gear', 'VehicleSpeed'],
    test(vehicle) {
      const gear = vehicle.value('Gear')
      if (gear !== undefined) return vehicle.isCertain('Gear') ? inGear[String(gear)] : undefined
      const speed = vehicle.value('VehicleSpeed')
      return typeof speed === 'number' && vehicle.isCertain('VehicleSpeed') ? speed > 0 : undefined
    },
  }
}

/** What {@link moves} takes. */
export interface MovesOptions {
  /** A position this far from where the vehicle stood is a move. Positions of a parked vehicle jump by some meters. From 1 to 100,000. */
  readonly meters: number
  /** It moves until it has stayed in this distance for so long, by its own clock. */
  readonly within: Duration
}

/** Where a vehicle is, as `moves` remembers it. */
interface Stay {
  readonly from: Location
  /** Since when it has been there. */
  readonly sinceMs: number
  /** `new`: nobody knows yet whether it came or stood. */
  readonly is: 'new' | 'moving' | 'resting'
  readonly last: Location
}

/**
 * True while a vehicle moves, by its positions alone: from the first position that is more than `meters` away from where it stood, until it has stayed
 * within `meters` for the time `within`. It ends when that time is over, also when no message comes. `drives()` is exact where gears are streamed.
 *
 * Throws `option_invalid` for meters out of range, and an invalid time.
 *
 * @example
 * ```ts
 * import { ends, moves } from 'fleethook/when'
 *
 * export const arrives = ends(moves({ meters: 100, within: { minutes: 5 } }))
 * ```
 */
export function moves(options: MovesOptions): Condition {
  checkOptions<MovesOptions>('moves', options, {
    meters: required(numberBetween(1, 100_000)),
    within: required({ must: 'must be a time', accepts: isObject, hint: 'For instance { minutes: 5 }.' }),
  })
  const { meters } = options
  const { ms, name: seconds } = readDuration('within', options.within)
  const name = `moves(${meters},${seconds})`
  const stayOf = (vehicle: AnyVehicleView): Stay | undefined =>
    vehicle.isCertain(positionField) ? read(vehicle.trace(name)) : undefined
  const isOver = ({ is, sinceMs }: Stay, atMs: number): boolean => is === 'resting' || atMs - sinceMs >= ms
  return {
    name,
    fields: [positionField],
    traces: [
      {
        name,
        field: positionField,
        next(remembered, value, atMs) {
          if (!isPlace(value)) return remembered ?? null
          const place = { latitude: value.latitude, longitude: value.longitude }
          const stay = read(remembered)
          if (stay === undefined) return JSON.stringify({ from: place, sinceMs: atMs, is: 'new', last: place })
          const isResting = isOver(stay, atMs)
          // Compare a parked vehicle with its last position. With its first one at that place, jumps at the edge of the circle would be moves.
          const from = isResting && stay.is !== 'resting' ? stay.last : stay.from
          const next: Stay =
            metersBetween(from, place) > meters
              ? { from: place, sinceMs: atMs, is: 'moving', last: place }
              : { from, sinceMs: stay.sinceMs, is: isResting ? 'resting' : stay.is, last: place }
          return JSON.stringify(next)
        },
      },
    ],
    test(vehicle) {
      const stay = stayOf(vehicle)
      if (stay === undefined) return undefined
      if (isOver(stay, vehicle.moment.getTime())) return false
      return stay.is === 'moving' ? true : undefined
    },
    changesAt(vehicle) {
      const stay = stayOf(vehicle)
      return stay === undefined || isOver(stay, vehicle.moment.getTime()) ? undefined : stay.sinceMs + ms
    },
  }
}

function read(remembered: EdgeMemory | undefined): Stay | undefined {
  if (typeof remembered !== 'string') return undefined
  const stay: Stay = JSON.parse(remembered)
  return stay
}
