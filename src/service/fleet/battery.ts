import { outsideCelsius, socPercent, type Vehicle } from './vehicle.ts'

const asleepWatts = 5
const awakeWatts = 120
const climateWatts = 900

/** Takes from the battery what the last seconds cost. Only a charger makes the gauge rise. */
export function spend(vehicle: Vehicle, seconds: number, awake = true): void {
  vehicle.watts += awake ? awakeWatts + (vehicle.climateOn ? climateWatts : 0) : asleepWatts
  const wh = (vehicle.watts * seconds) / 3_600 - vehicle.recuperatedWh
  vehicle.recuperatedWh = Math.max(0, -wh)
  vehicle.energyWh = Math.max(0, vehicle.energyWh - Math.max(0, wh))
}

/** The power that the battery takes now: all of it while it is empty, less as it fills. */
export function chargingWatts(vehicle: Vehicle): number {
  if (!vehicle.charging) return 0
  const soc = socPercent(vehicle)
  const { kind, maxWatts } = vehicle.charging
  if (kind === 'ac') return soc < 96 ? maxWatts : maxWatts * Math.max(0.12, (101 - soc) / 5)
  return soc < 45 ? maxWatts : maxWatts * Math.max(0.06, 1 - (soc - 45) / 58)
}

/** Puts into the battery what the last seconds brought, up to the limit. True when the limit is reached. */
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

/** Lets cabin, tyres and battery follow what warms and cools them. */
export function warm(vehicle: Vehicle, seconds: number): void {
  const outside = outsideCelsius(vehicle)
  const follow = (from: number, to: number, minutes: number): number =>
    from + (to - from) * (1 - Math.exp(-seconds / (minutes * 60)))
  vehicle.cabinCelsius = vehicle.climateOn
    ? follow(vehicle.cabinCelsius, vehicle.wantedCelsius, 5)
    : follow(vehicle.cabinCelsius, outside + 2, 40)
  vehicle.tyreCelsius = follow(vehicle.tyreCelsius, outside + 0.8 * vehicle.metersPerSecond, 14)
  const load = Math.min(25, Math.abs(vehicle.watts) / 4_000)
  vehicle.batteryCelsius = follow(vehicle.batteryCelsius, outside + 4 + load, 45)
}
