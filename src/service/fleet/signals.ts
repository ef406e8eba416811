import {
  type BuiltInFields,
  builtInFields,
  type FieldCatalogue,
  plainType,
  type UnlimitedType,
  type ValueOf,
} from '../../events/fields.ts'
import type { FieldValue, Location } from '../../events/values.ts'
import { isAmerican, isAtHome, socPercent, type StreamedField, type Vehicle } from './vehicle.ts'

/** A field's value now. `null` when there is none, as for many fields of a parked vehicle. */
type ReadSignal<Value> = (vehicle: Vehicle) => Value | null

/** A simulated field: what a vehicle of a fleet streams it at, in seconds, and its value. 0 sends every change at once. */
type Signals = {
  readonly [Field in keyof BuiltInFields]?: readonly [every: number, read: ReadSignal<ValueOf<BuiltInFields[Field]>>]
}

export const round = (value: number, digits: number): number => Number(value.toFixed(digits))
export const place = ({ latitude, longitude }: Location): Location => ({
  latitude: round(latitude, 6),
  longitude: round(longitude, 6),
})
const miles = (meters: number): number => meters / 1_609.344
const inDrive = (v: Vehicle): boolean => v.drive.gear !== 'P'
const rangeMiles = (whPerMile: number): ReadSignal<number> => {
  return (v) => round(v.battery.energyWh / whPerMile, 2)
}
const packVolts = (v: Vehicle): number => round(330 + 0.6 * socPercent(v) - v.battery.watts / 12_000, 2)
const isCharging = (v: Vehicle): boolean => v.battery.charging?.state === 'Charging'
const chargingWatts = (v: Vehicle, kind: 'ac' | 'dc'): number =>
  v.battery.charging?.kind === kind && isCharging(v) ? v.battery.charging.watts : 0
const energyIn = (kind: 'ac' | 'dc'): ReadSignal<number> => {
  return (v) => (v.battery.charging?.kind === kind ? round(v.battery.charging.energyInWh / 1_000, 2) : 0)
}
/** Warm air has more pressure. */
const bars: ReadSignal<number> = (v) => round((2.9 * (273 + v.cabin.outsideCelsius + (inDrive(v) ? 15 : 0))) / 288, 2)
const degrees = (radians: number): number => (Math.round((radians * 180) / Math.PI) + 360) % 360
const carTypes = { '3': 'Model3', Y: 'ModelY', S: 'ModelS', X: 'ModelX' } as const

/** Fields that old firmware writes as text. */
const older: Signals = {
  VehicleSpeed: [2, (v) => (inDrive(v) ? round(miles(v.drive.metersPerSecond * 3_600), 3) : null)],
  Location: [3, place],
  GpsHeading: [10, (v) => degrees(v.drive.headingRadians)],
  Odometer: [30, (v) => round(miles(v.drive.odometerMeters), 3)],
  Gear: [0, (v) => v.drive.gear],
  Soc: [31, (v) => round(socPercent(v), 3)],
  BatteryLevel: [60, (v) => round(socPercent(v), 1)],
  EnergyRemaining: [61, (v) => round(v.battery.energyWh / 1_000, 2)],
  RatedRange: [62, rangeMiles(245)],
  IdealBatteryRange: [120, rangeMiles(230)],
  EstBatteryRange: [121, rangeMiles(275)],
  PackVoltage: [32, (v) => (inDrive(v) || v.battery.charging ? packVolts(v) : null)],
  PackCurrent: [33, (v) => (inDrive(v) || v.battery.charging ? round(-v.battery.watts / packVolts(v), 1) : null)],
  ChargeState: [
    0,
    (v) =>
      v.battery.charging === undefined || v.battery.charging.state === 'Disconnected'
        ? 'Idle'
        : v.battery.charging.state,
  ],
  ACChargingPower: [20, (v) => round(chargingWatts(v, 'ac') / 1_000, 1)],
  DCChargingPower: [20, (v) => round(chargingWatts(v, 'dc') / 1_000, 1)],
  ACChargingEnergyIn: [60, energyIn('ac')],
  DCChargingEnergyIn: [60, energyIn('dc')],
  ChargeAmps: [60, (v) => round(chargingWatts(v, 'ac') / 230, 0)],
  ChargeLimitSoc: [0, (v) => v.battery.chargeLimitPercent],
  TimeToFullCharge: [60, hoursToLimit],
  FastChargerPresent: [0, (v) => v.battery.charging?.kind === 'dc'],
  ChargePortLatch: [0, (v) => (v.battery.charging ? 'Engaged' : 'Disengaged')],
  InsideTemp: [63, (v) => (v.cabin.climateOn ? v.cabin.wantedCelsius : v.cabin.outsideCelsius + 2)],
  OutsideTemp: [120, (v) => v.cabin.outsideCelsius],
  TpmsPressureFl: [122, bars],
  TpmsPressureFr: [123, bars],
  TpmsPressureRl: [124, bars],
  TpmsPressureRr: [125, bars],
  DoorState: [
    0,
    (v) => ({
      driverFront: v.cabin.driverDoorOpen,
      driverRear: false,
      passengerFront: false,
      passengerRear: false,
      trunkFront: false,
      trunkRear: v.cabin.trunkOpen,
    }),
  ],
  Locked: [0, (v) => v.cabin.locked],
  DriverSeatOccupied: [0, (v) => v.cabin.occupied],
  DriverSeatBelt: [0, (v) => v.cabin.occupied && inDrive(v)],
  SentryMode: [0, (v) => (v.cabin.locked && !v.cabin.occupied ? 'Armed' : 'Off')],
  DestinationName: [0, (v) => v.drive.trip?.name ?? null],
  DestinationLocation: [0, (v) => (v.drive.trip ? place(v.drive.trip.destination) : null)],
  OriginLocation: [0, (v) => (v.drive.trip ? place(v.drive.trip.origin) : null)],
  MilesToArrival: [34, (v) => (v.drive.trip ? round(miles(v.drive.trip.metersLeft), 2) : null)],
  MinutesToArrival: [35, (v) => (v.drive.trip ? round(v.drive.trip.metersLeft / 60 / 17, 1) : null)],
  CarType: [0, (v) => carTypes[v.model]],
  Version: [0, (v) => v.firmware.version],
  VehicleName: [0, (v) => v.name],
}

/** Fields that are newer than typed values, so every firmware writes them with their types. */
const newer: Signals = {
  DetailedChargeState: [0, (v) => v.battery.charging?.state ?? 'Disconnected'],
  ChargePortDoorOpen: [0, (v) => v.battery.portOpen],
  ChargingCableType: [0, (v) => (v.battery.charging ? (isAmerican(v) ? 'SAE' : 'IEC') : 'SNA')],
  ChargerVoltage: [60, (v) => (isCharging(v) ? (v.battery.charging?.kind === 'ac' ? 230 : round(packVolts(v), 0)) : 2)],
  CenterDisplay: [0, (v) => (inDrive(v) ? 'Driving' : v.cabin.occupied ? 'On' : isCharging(v) ? 'Charging' : 'Off')],
  HvacPower: [0, (v) => (v.cabin.climateOn ? 'On' : 'Off')],
  HvacLeftTemperatureRequest: [0, (v) => v.cabin.wantedCelsius],
  LocatedAtHome: [0, isAtHome],
}

function hoursToLimit(v: Vehicle): number | null {
  if (!v.battery.charging || v.battery.charging.watts === 0) return null
  const missingWh = (v.battery.capacityWh * v.battery.chargeLimitPercent) / 100 - v.battery.energyWh
  return round(Math.max(0, missingWh) / v.battery.charging.watts, 2)
}

const signals: ReadonlyMap<string, readonly [every: number, read: ReadSignal<FieldValue>]> = new Map(
  Object.entries({ ...older, ...newer }),
)
const catalogue: FieldCatalogue = builtInFields

/** The value of a field. A field that nothing moves always has the same one. */
export function reading(vehicle: Vehicle, field: string): FieldValue {
  const [, read] = signals.get(field) ?? []
  return read === undefined ? fixedValue(plainType(catalogue[field] ?? 'any')) : read(vehicle)
}

function fixedValue(type: UnlimitedType): FieldValue {
  if (typeof type === 'object') return type.enum.find((constant) => constant !== 'Unknown') ?? null
  return type === 'boolean' ? false : type === 'number' ? 0 : type === 'string' ? '' : null
}

/** Whether even old firmware writes this field with its type. */
export function isAlwaysTyped(field: string): boolean {
  return !Object.hasOwn(older, field)
}

/** What a vehicle of a fleet streams. */
export const fleetFields: Readonly<Record<string, StreamedField>> = Object.fromEntries(
  [...signals].map(([field, [every]]) => [field, { interval_seconds: every }]),
)
