import type { Location } from '../../events/values.ts'
import type { Vehicle } from './vehicle.ts'

const metersPerDegree = 111_195
const gravity = 9.81
const airDensity = 1.2
const dragArea = 0.62
const rollingResistance = 0.0095
const drivetrainEfficiency = 0.9
const recuperationEfficiency = 0.65

const turnOf = (radians: number): number => Math.atan2(Math.sin(radians), Math.cos(radians))

/** Metres over the ground, and the direction clockwise from north. Exact enough for a day's driving. */
export function courseTo(from: Location, to: Location): { readonly meters: number; readonly radians: number } {
  const north = (to.latitude - from.latitude) * metersPerDegree
  const middle = ((from.latitude + to.latitude) / 2) * (Math.PI / 180)
  const east = (to.longitude - from.longitude) * metersPerDegree * Math.cos(middle)
  return { meters: Math.hypot(north, east), radians: Math.atan2(east, north) }
}

/** The place that lies so far in that direction. */
export function placeAt(from: Location, meters: number, radians: number): Location {
  const north = meters * Math.cos(radians)
  const east = meters * Math.sin(radians)
  const latitude = from.latitude + north / metersPerDegree
  const middle = ((from.latitude + latitude) / 2) * (Math.PI / 180)
  return { latitude, longitude: from.longitude + east / (metersPerDegree * Math.cos(middle)) }
}

/**
 * Moves a vehicle for some seconds: it takes up the speed wanted as fast as people do, turns towards its destination along a
 * road that winds, and spends what air, tyres and its own mass ask for.
 */
export function move(vehicle: Vehicle, seconds: number, wantedMetersPerSecond: number): void {
  const before = vehicle.metersPerSecond
  const wish = (wantedMetersPerSecond - before) / Math.max(1.5, seconds)
  const eased = before + Math.min(1.8, Math.max(-2.6, wish)) * seconds
  const after = Math.abs(wantedMetersPerSecond - eased) < 0.3 ? wantedMetersPerSecond : eased
  const mean = (before + after) / 2
  const meters = mean * seconds
  vehicle.metersPerSecond = after
  vehicle.acceleration = (after - before) / seconds

  if (vehicle.trip && vehicle.gear === 'D') turn(vehicle, vehicle.trip.destination, mean, seconds)
  const direction = vehicle.gear === 'R' ? vehicle.headingRadians + Math.PI : vehicle.headingRadians
  const place = placeAt(vehicle, meters, direction)
  vehicle.latitude = place.latitude
  vehicle.longitude = place.longitude
  vehicle.odometerMeters += meters
  if (vehicle.trip) vehicle.trip.metersLeft = courseTo(vehicle, vehicle.trip.destination).meters
  if (meters > 0) vehicle.tyresSeen = true

  const rolling = vehicle.massKg * gravity * rollingResistance
  const force =
    (mean > 0 ? rolling : 0) + 0.5 * airDensity * dragArea * mean ** 2 + vehicle.massKg * vehicle.acceleration
  const atTheWheels = force * mean
  vehicle.watts = atTheWheels > 0 ? atTheWheels / drivetrainEfficiency : atTheWheels * recuperationEfficiency
}

function turn(vehicle: Vehicle, destination: Location, metersPerSecond: number, seconds: number): void {
  const course = courseTo(vehicle, destination)
  const wind = Math.min(1, course.meters / 3_000)
  const road = 0.55 * Math.sin(vehicle.odometerMeters / 640) + 0.35 * Math.sin(vehicle.odometerMeters / 2_310)
  const wanted = turnOf(course.radians + wind * road - vehicle.headingRadians)
  // No faster than tyres hold and arms turn.
  const most = seconds * Math.min(0.6, 3 / Math.max(1, metersPerSecond))
  vehicle.headingRadians += Math.min(most, Math.max(-most, wanted))
}
