import { numberBetween, required, type Rule } from '../base/options.ts'
import type { Location } from '../events/values.ts'

/** The mean radius of the earth. The earth is flatter, so distances are wrong by up to 0.6 %. */
const earthMeters = 6_371_008.8
export const degree: number = Math.PI / 180
export const metersPerDegree: number = earthMeters * degree

export const latitude: Rule = required(numberBetween(-90, 90), 'Latitudes are decimal degrees; north is positive.')
export const longitude: Rule = required(numberBetween(-180, 180), 'Longitudes are decimal degrees; east is positive.')

/** Whether a value is a place on the earth. A vehicle without a fix can send anything. */
export function isPlace(value: unknown): value is Location {
  if (typeof value !== 'object' || value === null || !('latitude' in value) || !('longitude' in value)) return false
  return latitude.accepts(value.latitude) && longitude.accepts(value.longitude)
}

/**
 * The distance in meters between two places on a sphere (haversine, which stays exact for small distances). It differs from that on the
 * earth by 0.6 % at most.
 *
 * @example
 * ```ts
 * import { metersBetween } from 'fleethook/when'
 *
 * console.log(metersBetween({ latitude: 52.37, longitude: 4.89 }, { latitude: 52.38, longitude: 4.89 })) // 1111.9508372419142
 * ```
 */
export function metersBetween(from: Location, to: Location): number {
  const half = Math.sin(((to.latitude - from.latitude) * degree) / 2) ** 2
  const around = Math.sin(((to.longitude - from.longitude) * degree) / 2) ** 2
  const chord = half + Math.cos(from.latitude * degree) * Math.cos(to.latitude * degree) * around
  return 2 * earthMeters * Math.asin(Math.min(1, Math.sqrt(chord)))
}
