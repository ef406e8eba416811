import type { Location } from '../../events/values.ts'
import { type Charging, outsideCelsius, socPercent, type Vehicle } from './vehicle.ts'

const metersPerDegree = 111_195
const gravity = 9.81
const airDensity = 1.2
const dragArea = 0.62
const rollingResistance = 0.0095
const drivetrainEfficiency = 0.9
const recuperationEfficiency = 0.65
const asleepWatts = 5
const awakeWatts = 120
const climateWatts = 900

const turnOf = (radians: number): number => Math.atan2(Math.sin(radians), Math.cos(radians))

/** The distance in meters, and the direction clockwise from north. Exact enough for a day's driving. */
export function courseTo(from: Location, to: Location): { readonly meters: number; readonly radians: number } {
  const north = (to.latitude - from.latitude) * metersPerDegree
  const middle = ((from.latitude + to.latitude) / 2) * (Math.PI / 180)
  const east = (to.longitude - from.longitude) * metersPerDegree * Math.cos(middle)
  return { meters: Math.hypot(north, east), radians: Math.atan2(east, north) }
}

export function placeAt(from: Location, meters: number, radians: number): Location {
  const north = meters * Math.cos(radians)
  const east = meters * Math.sin(radians)
  const latitude = from.latitude + north / metersPerDegree
  const middle = ((from.latitude + latitude) / 2) * (Math.PI / 180)
  return { latitude, longitude: from.longitude + east / (metersPerDegree * Math.cos(middle)) }
}

/** Moves a vehicle for some seconds along a winding road, with the power that air, tires and its mass require. */
export function move(vehicle: Vehicle, seconds: number, wantedMetersPerSecond: number): void {
  const before = vehicle.metersPerSecond
  const wantedAcceleration = (wantedMetersPerSecond - before) / Math.max(1.5, seconds)
  const eased = before + Math.min(1.8, Math.max(-2.6, wantedAcceleration)) * seconds
  const after = Math.abs(wantedMetersPerSecond - eased) < 0.3 ? wantedMetersPerSecond : eased
  const mean = (before + after) / 2
  const meters = mean * seconds
  vehicle.metersPerSecond = after
  vehicle.acceleration = (after - before) / seconds

  const heading = vehicle.headingRadians
  if (vehicle.trip && vehicle.gear === 'D') turn(vehicle, vehicle.trip.destination, mean, seconds)
  vehicle.lateral = (mean * (vehicle.headingRadians - heading)) / seconds
  const direction = vehicle.gear === 'R' ? vehicle.headingRadians + Math.PI : vehicle.headingRadians
  const place = placeAt(vehicle, meters, direction)
  vehicle.latitude = place.latitude
  vehicle.longitude = place.longitude
  vehicle.odometerMeters += meters
  if (vehicle.trip) vehicle.trip.metersLeft = courseTo(vehicle, vehicle.trip.destination).meters
  if (meters > 0) Object.assign(vehicle, { tiresSeen: true, tiresSeenAt: vehicle.now })

  const rolling = vehicle.massKg * gravity * rollingResistance
  const force =
    (mean > 0 ? rolling : 0) + 0.5 * airDensity * dragArea * mean ** 2 + vehicle.massKg * vehicle.acceleration
  const wheelWatts = force * mean
  vehicle.watts = wheelWatts > 0 ? wheelWatts / drivetrainEfficiency : wheelWatts * recuperationEfficiency
}

function turn(vehicle: Vehicle, destination: Location, metersPerSecond: number, seconds: number): void {
  const course = courseTo(vehicle, destination)
  const winding = Math.min(1, course.meters / 3_000)
  const road = 0.55 * Math.sin(vehicle.odometerMeters / 640) + 0.35 * Math.sin(vehicle.odometerMeters / 2_310)
  const wanted = turnOf(course.radians + winding * road - vehicle.headingRadians)
  // Tires and arms limit the turn.
  const most = seconds * Math.min(0.6, 3 / Math.max(1, metersPerSecond))
  vehicle.headingRadians += Math.min(most, Math.max(-most, wanted))
}

/** Takes the energy of the last seconds out of the battery. Only a charger raises the gauge. */
export function spend(vehicle: Vehicle, seconds: number, awake = true): void {
  vehicle.watts += awake ? awakeWatts + (vehicle.climateOn ? climateWatts : 0) : asleepWatts
  const wh = (vehicle.watts * seconds) / 3_600 - vehicle.recuperatedWh
  vehicle.recuperatedWh = Math.max(0, -wh)
  vehicle.energyWh = Math.max(0, vehicle.energyWh - Math.max(0, wh))
}

/** The phases of a charger with alternating current: a small one has one, a large one three. */
export function phases({ maxWatts }: Charging): 1 | 3 {
  return maxWatts > 7_400 ? 3 : 1
}

/** The power that the battery takes now: all of it while it is empty, and less as it fills. */
export function chargingWatts(vehicle: Vehicle): number {
  if (!vehicle.charging) return 0
  const soc = socPercent(vehicle)
  const { kind, maxWatts } = vehicle.charging
  if (kind === 'ac') {
    const watts = Math.min(maxWatts, vehicle.chargingAmps * 230 * phases(vehicle.charging))
    return soc < 96 ? watts : watts * Math.max(0.12, (101 - soc) / 5)
  }
  return soc < 45 ? maxWatts : maxWatts * Math.max(0.06, 1 - (soc - 45) / 58)
}

/** Puts the energy of the last seconds into the battery, up to the limit. Returns whether the limit is reached. */
export function fill(vehicle: Vehicle, seconds: number): boolean {
  const { charging } = vehicle
  if (!charging) return true
  const limitWh = (vehicle.capacityWh * vehicle.chargeLimitPercent) / 100
  const before = vehicle.energyWh
  charging.watts = chargingWatts(vehicle)
  vehicle.watts = -charging.watts
  vehicle.energyWh = Math.max(before, Math.min(limitWh, before + (charging.watts * 0.94 * seconds) / 3_600))
  charging.energyInWh += (charging.watts * seconds) / 3_600
  return vehicle.energyWh >= limitWh
}

/** Moves the temperatures of cabin, tires and battery toward what warms or cools them. */
export function warm(vehicle: Vehicle, seconds: number): void {
  const outside = outsideCelsius(vehicle)
  const follow = (from: number, to: number, minutes: number): number =>
    from + (to - from) * (1 - Math.exp(-seconds / (minutes * 60)))
  vehicle.cabinCelsius = vehicle.climateOn
    ? follow(vehicle.cabinCelsius, vehicle.wantedCelsius, 5)
    : follow(vehicle.cabinCelsius, outside + 2, 40)
  vehicle.tireCelsius = follow(vehicle.tireCelsius, outside + 0.8 * vehicle.metersPerSecond, 14)
  const load = Math.min(25, Math.abs(vehicle.watts) / 4_000)
  vehicle.batteryCelsius = follow(vehicle.batteryCelsius, outside + 4 + load, 45)
}
