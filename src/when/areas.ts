import { FleethookError } from '../base/errors.ts'
import { checkOptions, numberBetween, type Rule } from '../base/options.ts'
import type { Location } from '../events/values.ts'
import type { Bounds } from '../vehicles/edge.ts'
import { degree, isPlace, latitude, longitude, metersBetween, metersPerDegree } from '../vehicles/places.ts'
import { fnv1a } from '../wire/identity.ts'

/** A part of the earth's surface: the result of {@link circle} or {@link polygon}. */
export interface Area {
  /** Derived from the shape: the same in every process. */
  readonly name: string
  /** The box around the area. */
  readonly bounds: Bounds
  /** What it is made of: a center and a radius, or corners. A fact keeps it. */
  readonly shape: Circle | readonly Location[]
  /** The meters from a location to the area: 0 inside. */
  metersTo(location: Location): number
}

/** The center and the size of a {@link circle}. */
export interface Circle extends Location {
  /** Above 0, up to 1,000,000. */
  readonly radiusMeters: number
}

/** How far outside an area is outside. */
export interface MarginOption {
  /**
   * A vehicle that was inside is outside when it is more than this many meters away from the area. Positions of a parked vehicle
   * jump by some meters, and without a margin each jump over the line counts. When the area itself changes, only a vehicle inside the
   * new one counts as inside. From 0 to 100,000. Default 0.
   */
  readonly marginMeters?: number
}

export const aMargin: Rule = numberBetween(0, 100_000)

/** More corners cost time with every location and are hardly drawn by a person. */
const mostCorners = 1_000

/**
 * A circle on the earth, for `inside`, `enters` and `leaves`. Distances are measured on a sphere, which is right to 0.6 %.
 *
 * Throws `option_invalid` for a place that is not on the earth, or a radius that is not above 0 and at most 1,000,000 meters.
 *
 * @example
 * ```ts
 * import { circle, enters } from 'fleethook/when'
 *
 * export const arrives = enters(circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 }))
 * ```
 */
export function circle(options: Circle): Area {
  checkOptions<Circle>('circle', options, {
    latitude,
    longitude,
    radiusMeters: {
      must: 'must be a number of meters above 0, up to 1000000',
      accepts: (value) => typeof value === 'number' && value > 0 && value <= 1_000_000,
      isRequired: true,
    },
  })
  const { radiusMeters, ...center } = options
  return {
    name: `circle(${center.latitude},${center.longitude},${radiusMeters})`,
    bounds: widened(
      { south: center.latitude, west: center.longitude, north: center.latitude, east: center.longitude },
      radiusMeters,
    ),
    shape: { ...center, radiusMeters },
    metersTo: (location) => Math.max(0, metersBetween(center, location) - radiusMeters),
  }
}

/**
 * A polygon on the earth, for `inside`, `enters` and `leaves`: its corners in order, in either direction. The last corner may
 * repeat the first, as in GeoJSON. Its sides are straight lines of latitude and longitude, as in GeoJSON, RFC 7946. A location on
 * a side can count as inside or outside.
 *
 * Throws `option_invalid` for fewer than 3 or more than 1,000 corners, a corner that is not on the earth, sides that cross or
 * touch each other, and a side that crosses the date line (its ends differ by more than 180 degrees of longitude).
 *
 * @example
 * ```ts
 * import { leaves, polygon } from 'fleethook/when'
 *
 * export const yard = polygon([
 *   { latitude: 52.372, longitude: 4.89 },
 *   { latitude: 52.372, longitude: 4.895 },
 *   { latitude: 52.375, longitude: 4.893 },
 * ])
 * export const departs = leaves(yard, { marginMeters: 50 })
 * ```
 */
export function polygon(corners: readonly Location[]): Area {
  const ring = checkedRing(corners)
  const sides = sidesOf(ring)
  const latitudes = ring.map((corner) => corner.latitude)
  const longitudes = ring.map((corner) => corner.longitude)
  return {
    name: `polygon(${fnv1a(ring.map((corner) => `${corner.latitude},${corner.longitude}`).join(' ')).slice(0, 16)})`,
    bounds: widened(
      {
        south: Math.min(...latitudes),
        west: Math.min(...longitudes),
        north: Math.max(...latitudes),
        east: Math.max(...longitudes),
      },
      0,
    ),
    shape: ring,
    metersTo: (location) =>
      surrounds(sides, location) ? 0 : Math.min(...sides.map((side) => metersToSide(location, side))),
  }
}

/** A box with at least `meters` added on each side. At a pole or the date line it goes all around the earth. */
export function widened({ south, west, north, east }: Bounds, meters: number): Bounds {
  // A little more, at least 0.1 mm, because the box must not cut off what rounding puts on its side.
  const latitudes = (meters / metersPerDegree) * 1.001 + 1e-9
  const [lowest, highest] = [south - latitudes, north + latitudes]
  // A circle is widest nearer to the pole than its center, by this much (Bronstein, spherical right triangles).
  const narrowest = Math.cos(Math.max(Math.abs(south), Math.abs(north)) * degree)
  const ratio = Math.sin(latitudes * degree) / narrowest
  const longitudes = ratio >= 1 ? 360 : Math.asin(ratio) / degree
  const isWhole = lowest < -90 || highest > 90 || west - longitudes < -180 || east + longitudes > 180
  return {
    south: Math.max(lowest, -90),
    north: Math.min(highest, 90),
    west: isWhole ? -180 : west - longitudes,
    east: isWhole ? 180 : east + longitudes,
  }
}

type Side = readonly [from: Location, to: Location]

function checkedRing(corners: unknown): readonly Location[] {
  if (!Array.isArray(corners))
    throw invalid('takes a list of corners', 'Write { latitude, longitude } for each corner.')
  const places = corners.map((corner: unknown, at) => {
    if (!isPlace(corner)) {
      const given = JSON.stringify(corner)?.slice(0, 80) ?? String(corner)
      throw invalid(
        `has the corner ${given} at index ${at}, which is not on the earth`,
        'Latitudes are from -90 to 90 and longitudes from -180 to 180. GeoJSON writes the longitude first.',
      )
    }
    return { latitude: corner.latitude, longitude: corner.longitude }
  })
  // A corner that repeats the one before it, or at the end the first one, changes nothing.
  const ring = places.filter((place, at) => at === 0 || !isSame(place, places[at - 1]))
  if (ring.length > 1 && isSame(places[0], ring.at(-1))) ring.pop()
  if (ring.length < 3 || ring.length > mostCorners) {
    throw invalid(
      `has ${ring.length} different corners, not 3 to ${mostCorners}`,
      ring.length < 3 ? 'Add corners, or use `circle`.' : 'Simplify its outline.',
    )
  }
  const sides = sidesOf(ring)
  for (const [index, [from, to]] of sides.entries()) {
    if (Math.abs(from.longitude - to.longitude) > 180) {
      throw invalid(
        `crosses the date line at its corner ${index + 1}`,
        'Write one polygon for each side of the line, and join them: any(inside(west), inside(east)).',
      )
    }
    for (let other = index + 1; other < sides.length; other++)
      if (meet(sides, index, other))
        throw invalid(
          `crosses or touches itself: side ${index + 1} meets side ${other + 1}`,
          'Give the corners in their order around the area.',
        )
  }
  return ring
}

const isSame = (one: Location | undefined, other: Location | undefined): boolean =>
  one?.latitude === other?.latitude && one?.longitude === other?.longitude

function invalid(what: string, hint: string): FleethookError {
  return new FleethookError('option_invalid', `The polygon ${what}.`, { hint })
}

const sidesOf = (ring: readonly Location[]): readonly Side[] =>
  ring.flatMap((from, at) => {
    const to = ring[(at + 1) % ring.length]
    return to === undefined ? [] : [[from, to] as const]
  })

/** Above 0 when `c` lies to the left of the way from `a` to `b`, below 0 to its right, and 0 on its line. */
const turn = (a: Location, b: Location, c: Location): number =>
  (b.longitude - a.longitude) * (c.latitude - a.latitude) - (b.latitude - a.latitude) * (c.longitude - a.longitude)

/** Whether two sides of a ring share a point, other than the corner of two neighbors. */
function meet(sides: readonly Side[], index: number, other: number): boolean {
  const [one, two] = [sides[index], sides[other]]
  if (one === undefined || two === undefined) return false
  const [a, b] = one
  const [c, d] = two
  // Neighbors meet elsewhere only when one goes back along the other.
  if (other === index + 1) return isBack(a, b, d)
  if (index === 0 && other === sides.length - 1) return isBack(c, a, b)
  const [c1, d1, a1, b1] = [turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)]
  if (c1 * d1 < 0 && a1 * b1 < 0) return true
  return (
    (c1 === 0 && isBetween(a, b, c)) ||
    (d1 === 0 && isBetween(a, b, d)) ||
    (a1 === 0 && isBetween(c, d, a)) ||
    (b1 === 0 && isBetween(c, d, b))
  )
}

/** Whether the way from `b` to `c` goes back along the way from `a` to `b`. */
function isBack(a: Location, b: Location, c: Location): boolean {
  const along =
    (a.longitude - b.longitude) * (c.longitude - b.longitude) + (a.latitude - b.latitude) * (c.latitude - b.latitude)
  return turn(a, b, c) === 0 && along > 0
}

/** Whether `c`, which is on the line through `a` and `b`, is between them. */
function isBetween(a: Location, b: Location, c: Location): boolean {
  return (
    Math.min(a.longitude, b.longitude) <= c.longitude &&
    c.longitude <= Math.max(a.longitude, b.longitude) &&
    Math.min(a.latitude, b.latitude) <= c.latitude &&
    c.latitude <= Math.max(a.latitude, b.latitude)
  )
}

/** Whether an odd number of sides is west of the location. */
function surrounds(sides: readonly Side[], at: Location): boolean {
  let isInside = false
  for (const [from, to] of sides) {
    if (from.latitude > at.latitude === to.latitude > at.latitude) continue
    // The lower end comes first: two areas must see a shared side in the same way.
    const [low, high] = from.latitude < to.latitude ? [from, to] : [to, from]
    if (turn(low, high, at) < 0) isInside = !isInside
  }
  return isInside
}

/** On a plane that touches the earth at the location: right where it counts, near the side. */
function metersToSide(at: Location, [from, to]: Side): number {
  const shrink = Math.cos(at.latitude * degree)
  const x = (place: Location): number => (place.longitude - at.longitude) * shrink
  const y = (place: Location): number => place.latitude - at.latitude
  const [dx, dy] = [x(to) - x(from), y(to) - y(from)]
  const length = dx * dx + dy * dy
  // At a pole all longitudes are one place.
  const part = length === 0 ? 0 : Math.min(1, Math.max(0, -(x(from) * dx + y(from) * dy) / length))
  return Math.hypot(x(from) + part * dx, y(from) + part * dy) * metersPerDegree
}
