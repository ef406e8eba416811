import type { Location } from 'fleethook'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isWithin } from '../../src/vehicles/edge-index.ts'
import { widened } from '../../src/when/areas.ts'
import { circle, metersBetween, polygon } from '../../src/when.ts'
import { inForm } from '../form.ts'

const numRuns = inForm({ short: 200, full: 3_000, long: 50_000 })
const at = (latitude: number, longitude: number): Location => ({ latitude, longitude })
const place = fc.record({
  latitude: fc.double({ min: -89, max: 89, noNaN: true }),
  longitude: fc.double({ min: -179, max: 179, noNaN: true }),
})

test('distances agree with known ones', () => {
  // A quarter of a meridian of a sphere with the mean radius, and Paris to Berlin by a geodesic calculator (ellipsoid).
  expect(metersBetween(at(0, 10), at(90, 55))).toBeCloseTo((6_371_008.8 * Math.PI) / 2, 3)
  const known = 878_540
  expect(Math.abs(metersBetween(at(48.8566, 2.3522), at(52.52, 13.405)) / known - 1)).toBeLessThan(0.006)
  expect(metersBetween(at(10, 179.999), at(10, -179.999))).toBeLessThan(220)
})

test('a circle has what is at most its radius away, also over the date line and at a pole', () => {
  const depot = circle({ latitude: 52, longitude: 5, radiusMeters: 200 })
  expect(depot.metersTo(at(52.0017, 5))).toBe(0)
  expect(depot.metersTo(at(52.0019, 5))).toBeCloseTo(11.27, 1)
  expect(circle({ latitude: 0, longitude: 180, radiusMeters: 300 }).metersTo(at(0, -179.998))).toBe(0)
  expect(circle({ latitude: 90, longitude: 0, radiusMeters: 300 }).metersTo(at(89.998, 120))).toBe(0)
})

test('nothing of a circle or of its margin is outside its bounds', () => {
  fc.assert(
    fc.property(
      place,
      fc.double({ min: 1, max: 1_000_000, noNaN: true }),
      fc.double({ min: 0, max: 5_000, noNaN: true }),
      fc.double({ min: 0, max: 2 * Math.PI, noNaN: true }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (center, radiusMeters, margin, bearing, part) => {
        const area = circle({ ...center, radiusMeters })
        const somewhere = moved(center, bearing, (radiusMeters + margin) * part)
        expect(isWithin(widened(area.bounds, margin), somewhere)).toBe(true)
      },
    ),
    { numRuns },
  )
})

test('nothing of a polygon is outside its bounds, and its margin is inside the wider ones', () => {
  fc.assert(
    fc.property(
      star,
      fc.double({ min: 0, max: 6.3, noNaN: true }),
      fc.double({ min: 0, max: 3_000, noNaN: true }),
      (shape, bearing, margin) => {
        const area = polygon(shape.corners)
        const corner = shape.corners[0] ?? shape.center
        const somewhere = moved(corner, bearing, margin)
        if (area.metersTo(somewhere) <= margin) expect(isWithin(widened(area.bounds, margin), somewhere)).toBe(true)
        if (area.metersTo(somewhere) === 0) expect(isWithin(area.bounds, somewhere)).toBe(true)
      },
    ),
    { numRuns },
  )
})

test('a corner that rounding puts outside of its polygon is inside its bounds', () => {
  const north = 0.006521311108430588
  const area = polygon([at(north, -0.009), at(-0.0095, 0.003), at(0, 0.053)])
  const above = at(north + 2 ** -60, -0.009)
  expect(above.latitude).toBeGreaterThan(north)
  expect(isWithin(area.bounds, above)).toBe(true)
})

/** A polygon whose corners go once around a center: every point of it can be seen from the center. */
const star = fc
  .record({
    center: place,
    rays: fc.array(
      fc.record({
        step: fc.double({ min: 0.2, max: 1, noNaN: true }),
        far: fc.double({ min: 0.01, max: 0.5, noNaN: true }),
      }),
      { minLength: 3, maxLength: 24 },
    ),
  })
  .map(({ center, rays }) => {
    const turn = (2 * Math.PI) / rays.reduce((all, { step }) => all + step, 0)
    let angle = 0
    const corners = rays.map(({ step, far }) => {
      angle += step * turn
      return {
        angle,
        latitude: center.latitude + far * Math.sin(angle),
        longitude: center.longitude + far * Math.cos(angle),
      }
    })
    return { center, corners }
  })
  // With a gap of half a turn between two rays, the center would be outside.
  .filter(({ corners }) =>
    corners.every((corner, index) => {
      const before = index === 0 ? (corners.at(-1)?.angle ?? 0) - 2 * Math.PI : (corners[index - 1]?.angle ?? 0)
      return corner.angle - before < 3
    }),
  )

test('a point is in a polygon exactly when the winding number around it is not 0', () => {
  fc.assert(
    fc.property(
      star,
      fc.double({ min: -0.6, max: 0.6, noNaN: true }),
      fc.double({ min: -0.6, max: 0.6, noNaN: true }),
      (shape, north, east) => {
        const point = at(shape.center.latitude + north, shape.center.longitude + east)
        const winding = windingOf(shape.corners, point)
        // On a side, both answers are right.
        if (Math.abs(Math.abs(winding) - 0.5) < 0.4) return
        expect(polygon(shape.corners).metersTo(point) === 0).toBe(Math.abs(winding) > 0.5)
      },
    ),
    { numRuns },
  )
})

test('direction, first corner, and a repeated last corner of a polygon change nothing', () => {
  fc.assert(
    fc.property(star, fc.nat(), fc.double({ min: -0.6, max: 0.6, noNaN: true }), (shape, shift, north) => {
      const { corners, center } = shape
      const turned = corners.map((_, index) => corners[(index + shift) % corners.length] ?? center).toReversed()
      const point = at(center.latitude + north, center.longitude)
      const closed = polygon([...corners, corners[0] ?? center])
      expect(closed.name).toBe(polygon(corners).name)
      const [one, two] = [polygon(corners).metersTo(point), polygon(turned).metersTo(point)]
      expect(Math.abs(one - two)).toBeLessThan(1e-3)
    }),
    { numRuns },
  )
})

test('no point of a common side of two polygons is outside both', () => {
  const west = polygon([at(0, 0), at(2, 0), at(2, 1), at(0, 1)])
  const east = polygon([at(0, 1), at(2, 1), at(2, 2), at(0, 2)])
  for (const latitude of [0, 0.1, 1, 1.7]) {
    const inside = [west, east].filter((area) => area.metersTo(at(latitude, 1)) === 0)
    expect(inside.length).toBeGreaterThanOrEqual(1)
  }
})

test('the distance to a polygon is the distance to its nearest side', () => {
  const yard = polygon([at(52, 5), at(52, 5.01), at(52.01, 5.01), at(52.01, 5)])
  expect(yard.metersTo(at(52.005, 5.005))).toBe(0)
  expect(yard.metersTo(at(52.011, 5.005))).toBeCloseTo(111.2, 0)
  const corner = at(52.011, 5.011)
  expect(yard.metersTo(corner)).toBeCloseTo(metersBetween(corner, at(52.01, 5.01)), 0)
})

test.each([
  [[at(0, 0), at(1, 1), at(0, 1), at(1, 0)], 'crosses or touches itself: side 1 meets side 3', 'in their order around'],
  [[at(0, 0), at(0, 2), at(0, 1)], 'crosses or touches itself', 'in their order'],
  [[at(0, 0), at(2, 0), at(1, 1), at(2, 2), at(0, 2), at(1, 1)], 'crosses or touches itself', 'in their order'],
  [[at(0, 179), at(1, -179), at(1, 179)], 'crosses the date line at its corner 1', 'any(inside(west), inside(east))'],
  [[at(0, 0), at(1, 1)], 'has 2 different corners, not 3 to 1000', 'or use `circle`'],
  [[at(0, 0), at(1, 1), at(0, 0)], 'has 2 different corners', 'Add corners'],
  [
    Array.from({ length: 1_001 }, (_, n) => at(Math.sin(n / 200), Math.cos(n / 200))),
    'has 1001 different corners',
    'Simplify',
  ],
  [[at(0, 0), at(91, 0), at(0, 1)], 'has the corner {"latitude":91,"longitude":0} at index 1', 'longitude first'],
  [[at(0, 0), at(1, Number.NaN), at(0, 1)], 'which is not on the earth', 'Latitudes are from'],
])('a polygon that can never be right is refused: %#', (corners, message, hint) => {
  expect(() => polygon(corners)).toThrow(
    expect.objectContaining({
      code: 'option_invalid',
      message: expect.stringContaining(message),
      hint: expect.stringContaining(hint),
    }),
  )
})

test.each([
  [
    [
      [5, 52],
      [5, 53],
      [6, 52],
    ],
    'has the corner [5,52] at index 0',
  ],
  ['52,5 52,6 53,5', 'takes a list of corners'],
  [undefined, 'takes a list of corners'],
  [[null], 'has the corner null'],
])('what is no polygon, as a program without types can give it, is refused: %#', (corners, message) => {
  expect(() => polygon(corners as never)).toThrow(
    expect.objectContaining({ message: expect.stringContaining(message) }),
  )
})

test.each([
  [{ latitude: 91, longitude: 0, radiusMeters: 1 }, 'Option `latitude` of circle must be a number from -90 to 90'],
  [{ latitude: 0, longitude: 181, radiusMeters: 1 }, 'Option `longitude` of circle must be'],
  [
    { latitude: 0, longitude: 0, radiusMeters: 0 },
    'Option `radiusMeters` of circle must be a number of meters above 0',
  ],
  [{ latitude: 0, longitude: 0, radiusMeters: Number.NaN }, 'Option `radiusMeters` of circle must be'],
  [{ latitude: 0, longitude: 0 } as never, 'Option `radiusMeters` of circle must be'],
  [{ latitude: 0, longitude: 0, radius: 200 } as never, 'circle has no option `radius`'],
])('a circle of %j is refused', (options, message) => {
  expect(() => circle(options)).toThrow(expect.objectContaining({ message: expect.stringContaining(message) }))
})

/** The turns of the corners around a point: an independent way to say whether it is inside. */
function windingOf(corners: readonly Location[], point: Location): number {
  let angle = 0
  for (const [index, from] of corners.entries()) {
    const to = corners[(index + 1) % corners.length] ?? from
    const [a, b] = [from, to].map((corner) =>
      Math.atan2(corner.latitude - point.latitude, corner.longitude - point.longitude),
    )
    const step = (b ?? 0) - (a ?? 0)
    angle += Math.atan2(Math.sin(step), Math.cos(step))
  }
  return angle / (2 * Math.PI)
}

/** The place at a distance and in a direction on a sphere. */
function moved({ latitude, longitude }: Location, bearing: number, meters: number): Location {
  const [radians, distance] = [latitude * (Math.PI / 180), meters / 6_371_008.8]
  const north = Math.asin(
    Math.sin(radians) * Math.cos(distance) + Math.cos(radians) * Math.sin(distance) * Math.cos(bearing),
  )
  const east = Math.atan2(
    Math.sin(bearing) * Math.sin(distance) * Math.cos(radians),
    Math.cos(distance) - Math.sin(radians) * Math.sin(north),
  )
  const around = longitude + east * (180 / Math.PI)
  return at(north * (180 / Math.PI), ((around + 540) % 360) - 180)
}
