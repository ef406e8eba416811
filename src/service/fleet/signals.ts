import type { BuiltInFields, ValueOf } from '../../events/fields.ts'
import type { Doors, FieldValue, Location, Tires } from '../../events/values.ts'
import { courseTo } from './physics.ts'
import { outsideCelsius, socPercent, type Vehicle } from './vehicle.ts'

interface Signal<Value> {
  /** The shortest time between two values, in seconds, as `interval_seconds`. 0 sends every change at once. */
  readonly every: number
  /** The value now. `null` when there is none, as for many fields of a parked vehicle. */
  readonly read: (vehicle: Vehicle) => Value | null
  /** Newer than the firmware that writes text, so every vehicle sends it with its type. */
  readonly alwaysTyped?: true
}

type Signals = { readonly [Field in keyof BuiltInFields]?: Signal<ValueOf<BuiltInFields[Field]>> }

const metersPerMile = 1_609.344
const round = (value: number, digits: number): number => Number(value.toFixed(digits))
const place = ({ latitude, longitude }: Location): Location => ({
  latitude: round(latitude, 6),
  longitude: round(longitude, 6),
})
const miles = (meters: number): number => meters / metersPerMile
const rangeMiles = (vehicle: Vehicle, whPerMile: number): number => round(vehicle.energyWh / whPerMile, 2)
const inDrive = (vehicle: Vehicle): boolean => vehicle.gear !== 'P'
const packVolts = (vehicle: Vehicle): number => 330 + 0.6 * socPercent(vehicle) - vehicle.watts / 12_000
const brickVolts = (vehicle: Vehicle): number => packVolts(vehicle) / 96
const kelvin = (celsius: number): number => celsius + 273.15
const bars = (vehicle: Vehicle, wheel: 0 | 1 | 2 | 3): number | null =>
  vehicle.tiresSeen ? round(vehicle.coldBars[wheel] * (kelvin(vehicle.tireCelsius) / kelvin(15)), 2) : null
const charges = (vehicle: Vehicle, kind: 'ac' | 'dc'): boolean =>
  vehicle.charging?.kind === kind && vehicle.charging.state === 'Charging'
const chargingKw = (vehicle: Vehicle, kind: 'ac' | 'dc'): number =>
  vehicle.charging && charges(vehicle, kind) ? round(vehicle.charging.watts / 1_000, 1) : 0
const energyInKwh = (vehicle: Vehicle, kind: 'ac' | 'dc'): number =>
  vehicle.charging?.kind === kind ? round(vehicle.charging.energyInWh / 1_000, 2) : 0
const hoursToLimit = (vehicle: Vehicle): number | null => {
  if (!vehicle.charging || vehicle.charging.watts === 0) return null
  const missingWh = (vehicle.capacityWh * vehicle.chargeLimitPercent) / 100 - vehicle.energyWh
  return round(Math.max(0, missingWh) / vehicle.charging.watts, 2)
}
const doors = (vehicle: Vehicle): Doors => ({
  driverFront: vehicle.driverDoorOpen,
  driverRear: false,
  passengerFront: vehicle.driverDoorOpen && vehicle.passengerBuckled,
  passengerRear: false,
  trunkFront: false,
  trunkRear: vehicle.trunkOpen,
})
const noWarnings: Tires = {
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

/** The streaming config of the fleet: what every vehicle measures, and its interval. */
const signals: Signals = {
  VehicleSpeed: { every: 2, read: (v) => (inDrive(v) ? round(miles(v.metersPerSecond * 3_600), 3) : null) },
  Location: { every: 3, read: place },
  GpsHeading: { every: 10, read: (v) => round((((v.headingRadians * 180) / Math.PI) % 360) + 360, 0) % 360 },
  Odometer: { every: 30, read: (v) => round(miles(v.odometerMeters), 3) },
  Gear: { every: 0, read: (v) => v.gear },
  BrakePedal: { every: 4, read: (v) => v.acceleration < -1 },
  PedalPosition: {
    every: 10,
    read: (v) => (v.metersPerSecond > 0 ? round(Math.max(0, Math.min(100, v.watts / 1_200)), 1) : 0),
  },
  LongitudinalAcceleration: { every: 15, read: (v) => round(v.acceleration, 2) },
  CruiseSetSpeed: { every: 0, read: (v) => (v.metersPerSecond > 27 ? 70 : 0) },

  Soc: { every: 30, read: (v) => round(socPercent(v), 3) },
  BatteryLevel: { every: 60, read: (v) => round(socPercent(v), 1) },
  EnergyRemaining: { every: 60, read: (v) => round(v.energyWh / 1_000, 2) },
  RatedRange: { every: 60, read: (v) => rangeMiles(v, 245) },
  IdealBatteryRange: { every: 120, read: (v) => rangeMiles(v, 230) },
  EstBatteryRange: { every: 120, read: (v) => rangeMiles(v, 275) },
  PackVoltage: { every: 30, read: (v) => (inDrive(v) || v.charging ? round(packVolts(v), 2) : null) },
  PackCurrent: { every: 30, read: (v) => (inDrive(v) || v.charging ? round(-v.watts / packVolts(v), 1) : null) },
  BrickVoltageMax: { every: 60, read: (v) => round(brickVolts(v) + 0.004, 3) },
  BrickVoltageMin: { every: 60, read: (v) => round(brickVolts(v) - 0.006, 3) },
  ModuleTempMax: { every: 120, read: (v) => round(v.batteryCelsius + 1, 1) },
  ModuleTempMin: { every: 120, read: (v) => round(v.batteryCelsius - 0.5, 1) },
  BMSState: { every: 0, read: (v) => (inDrive(v) ? 'Drive' : v.charging?.state === 'Charging' ? 'Charge' : 'Support') },

  DetailedChargeState: { every: 0, read: (v) => v.charging?.state ?? 'Disconnected', alwaysTyped: true },
  ACChargingPower: { every: 20, read: (v) => chargingKw(v, 'ac') },
  DCChargingPower: { every: 20, read: (v) => chargingKw(v, 'dc') },
  ACChargingEnergyIn: { every: 60, read: (v) => energyInKwh(v, 'ac') },
  DCChargingEnergyIn: { every: 60, read: (v) => energyInKwh(v, 'dc') },
  ChargerVoltage: { every: 60, read: (v) => (charges(v, 'ac') ? 230 : charges(v, 'dc') ? round(packVolts(v), 0) : 2) },
  ChargeAmps: { every: 60, read: (v) => (charges(v, 'ac') ? round((v.charging?.watts ?? 0) / 690, 0) : 0) },
  TimeToFullCharge: { every: 60, read: hoursToLimit },
  ChargeLimitSoc: { every: 0, read: (v) => v.chargeLimitPercent },
  FastChargerPresent: { every: 0, read: (v) => v.charging?.kind === 'dc' },
  FastChargerType: { every: 0, read: (v) => (v.charging?.kind === 'dc' ? 'Combo' : null), alwaysTyped: true },
  ChargingCableType: { every: 0, read: (v) => (v.charging ? 'IEC' : 'SNA'), alwaysTyped: true },
  ChargePortDoorOpen: { every: 0, read: (v) => v.portOpen, alwaysTyped: true },
  ChargePortLatch: { every: 0, read: (v) => (v.charging ? 'Engaged' : 'Disengaged') },
  ScheduledChargingStartTime: { every: 0, read: () => null },

  InsideTemp: { every: 60, read: (v) => round(v.cabinCelsius, 1) },
  OutsideTemp: { every: 120, read: (v) => round(2 * outsideCelsius(v), 0) / 2 },
  HvacPower: { every: 0, read: (v) => (v.climateOn ? 'On' : 'Off'), alwaysTyped: true },
  HvacLeftTemperatureRequest: { every: 0, read: (v) => v.wantedCelsius, alwaysTyped: true },
  TpmsPressureFl: { every: 120, read: (v) => bars(v, 0) },
  TpmsPressureFr: { every: 120, read: (v) => bars(v, 1) },
  TpmsPressureRl: { every: 120, read: (v) => bars(v, 2) },
  TpmsPressureRr: { every: 120, read: (v) => bars(v, 3) },
  TpmsSoftWarnings: { every: 0, read: () => noWarnings, alwaysTyped: true },

  DoorState: { every: 0, read: doors },
  Locked: { every: 0, read: (v) => v.locked },
  FdWindow: { every: 0, read: (v) => (v.windowOpen ? 'PartiallyOpen' : 'Closed') },
  DriverSeatOccupied: { every: 0, read: (v) => v.occupied },
  DriverSeatBelt: { every: 0, read: (v) => v.buckled },
  PassengerSeatBelt: { every: 0, read: (v) => (v.passengerBuckled ? 'Latched' : 'Unlatched') },
  SentryMode: { every: 0, read: (v) => (v.locked && !v.occupied ? 'Armed' : 'Off') },
  CenterDisplay: { every: 0, read: (v) => (inDrive(v) ? 'Driving' : v.occupied ? 'On' : 'Off'), alwaysTyped: true },

  DestinationName: { every: 0, read: (v) => v.trip?.name ?? null },
  DestinationLocation: { every: 0, read: (v) => (v.trip ? place(v.trip.destination) : null) },
  MilesToArrival: { every: 30, read: (v) => (v.trip ? round(miles(v.trip.metersLeft), 2) : null) },
  MinutesToArrival: { every: 30, read: (v) => (v.trip ? round(v.trip.metersLeft / 60 / 17, 1) : null) },
  LocatedAtHome: { every: 0, read: (v) => courseTo(v, v.home).meters < 100, alwaysTyped: true },

  Version: { every: 0, read: (v) => v.version },
  VehicleName: { every: 0, read: (v) => v.name },
}

/** The value of a field now. */
export function reading(vehicle: Vehicle, field: keyof BuiltInFields): FieldValue {
  return signals[field]?.read(vehicle) ?? null
}

/** The signals as a list. */
export const signalList: readonly (Signal<FieldValue> & { readonly field: string })[] = Object.entries(signals).map(
  ([field, signal]) => ({ field, ...signal }),
)
