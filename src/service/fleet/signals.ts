import {
  type BuiltInFields,
  builtInFields,
  type FieldCatalogue,
  type FieldType,
  type ValueOf,
} from '../../events/fields.ts'
import type { Doors, FieldValue, Location, TimeOfDay } from '../../events/values.ts'
import { tiresWithoutWarning } from '../../wire/field-types.ts'
import { courseTo, phases } from './physics.ts'
import { outsideCelsius, socPercent, type Vehicle } from './vehicle.ts'

/** A field's value now. `null` when there is none, as for many fields of a parked vehicle. */
type ReadSignal<Value> = (vehicle: Vehicle) => Value | null

type Signals = { readonly [Field in keyof BuiltInFields]?: ReadSignal<ValueOf<BuiltInFields[Field]>> }

const round = (value: number, digits: number): number => Number(value.toFixed(digits))
const place = ({ latitude, longitude }: Location): Location => ({
  latitude: round(latitude, 6),
  longitude: round(longitude, 6),
})
const miles = (meters: number): number => meters / 1_609.344
const mph = (metersPerSecond: number): number => miles(metersPerSecond * 3_600)
const seconds = (ms: number): number => Math.floor(ms / 1_000)
const always =
  <Value>(value: Value): (() => Value) =>
  () =>
    value

const inDrive = (v: Vehicle): boolean => v.gear !== 'P'
const isAwake = (v: Vehicle): boolean => v.state !== 'asleep'
const rangeMiles = (v: Vehicle, whPerMile: number): number => round(v.energyWh / whPerMile, 2)
const packVolts = (v: Vehicle): number => 330 + 0.6 * socPercent(v) - v.watts / 12_000
const brickVolts = (v: Vehicle): number => packVolts(v) / 96
const kelvin = (celsius: number): number => celsius + 273.15
const bars = (wheel: 0 | 1 | 2 | 3): ReadSignal<number> => {
  return (v) => (v.tiresSeen ? round(v.coldBars[wheel] * (kelvin(v.tireCelsius) / kelvin(15)), 2) : null)
}
const isCharging = (v: Vehicle): boolean => v.charging?.state === 'Charging'
const charges = (v: Vehicle, kind: 'ac' | 'dc'): boolean => v.charging?.kind === kind && isCharging(v)
const chargingKw = (kind: 'ac' | 'dc'): ReadSignal<number> => {
  return (v) => (v.charging && charges(v, kind) ? round(v.charging.watts / 1_000, 1) : 0)
}
const energyInKwh = (kind: 'ac' | 'dc'): ReadSignal<number> => {
  return (v) => (v.charging?.kind === kind ? round(v.charging.energyInWh / 1_000, 2) : 0)
}
const amps = (v: Vehicle): number =>
  v.charging && charges(v, 'ac') ? round(v.charging.watts / (230 * phases(v.charging)), 0) : 0
const mostAmps = (v: Vehicle): number =>
  v.charging?.kind === 'ac' ? Math.round(v.charging.maxWatts / (230 * phases(v.charging))) : 32
const hoursToLimit: ReadSignal<number> = (v) => {
  if (!v.charging || v.charging.watts === 0) return null
  const missingWh = (v.capacityWh * v.chargeLimitPercent) / 100 - v.energyWh
  return round(Math.max(0, missingWh) / v.charging.watts, 2)
}
const doors: ReadSignal<Doors> = (v) => ({
  driverFront: v.driverDoorOpen,
  driverRear: false,
  passengerFront: v.driverDoorOpen && v.passengerBuckled,
  passengerRear: false,
  trunkFront: false,
  trunkRear: v.trunkOpen,
})
const window: ReadSignal<'Closed' | 'PartiallyOpen'> = (v) => (v.vented ? 'PartiallyOpen' : 'Closed')

const packVoltage: ReadSignal<number> = (v) => (inDrive(v) || v.charging ? round(packVolts(v), 2) : null)

const isEuropean = ({ home }: Vehicle): boolean => home.latitude > 35 && home.longitude > -30
const isAmerican = ({ home }: Vehicle): boolean => home.longitude < -30
/** In the United Kingdom and in Australia. */
const isRightHandDrive = ({ home }: Vehicle): boolean => home.latitude < 0 || (home.latitude > 52 && home.longitude < 0)
const atHome = (v: Vehicle): boolean => courseTo(v, v.home).meters < 100
const dayMs = 86_400_000
/** The next time at which it is this hour, in seconds since the epoch. */
const nextHour = (v: Vehicle, hour: number): number => {
  const today = Math.floor(v.now / dayMs) * dayMs + hour * 3_600_000
  return seconds(today > v.now ? today : today + dayMs)
}
const schedule = ({ index }: Vehicle): 'StartAt' | 'DepartBy' | 'Off' =>
  index % 5 === 3 ? 'StartAt' : index % 5 === 1 ? 'DepartBy' : 'Off'
const timeOfDay = (ms: number): TimeOfDay => {
  const time = new Date(ms)
  return { hour: time.getUTCHours(), minute: time.getUTCMinutes(), second: time.getUTCSeconds() }
}
const carTypes = { '3': 'Model3', Y: 'ModelY', S: 'ModelS', X: 'ModelX' } as const

/** Fields that old firmware writes as text. */
const older: Signals = {
  ChargeState: (v) => (v.charging === undefined || v.charging.state === 'Disconnected' ? 'Idle' : v.charging.state),
  VehicleSpeed: (v) => (inDrive(v) ? round(mph(v.metersPerSecond), 3) : null),
  Odometer: (v) => round(miles(v.odometerMeters), 3),
  PackVoltage: packVoltage,
  PackCurrent: (v) => (inDrive(v) || v.charging ? round(-v.watts / packVolts(v), 1) : null),
  Soc: (v) => round(socPercent(v), 3),
  Gear: (v) => v.gear,
  PedalPosition: (v) => (v.metersPerSecond > 0 ? round(Math.max(0, Math.min(100, v.watts / 1_200)), 1) : 0),
  BrakePedal: (v) => v.acceleration < -1,
  Location: place,
  GpsState: isAwake,
  GpsHeading: (v) => round((((v.headingRadians * 180) / Math.PI) % 360) + 360, 0) % 360,
  BrickVoltageMax: (v) => round(brickVolts(v) + 0.004, 3),
  BrickVoltageMin: (v) => round(brickVolts(v) - 0.006, 3),
  ModuleTempMax: (v) => round(v.batteryCelsius + 1, 1),
  ModuleTempMin: (v) => round(v.batteryCelsius - 0.5, 1),
  RatedRange: (v) => rangeMiles(v, 245),
  DCChargingEnergyIn: energyInKwh('dc'),
  DCChargingPower: chargingKw('dc'),
  ACChargingEnergyIn: energyInKwh('ac'),
  ACChargingPower: chargingKw('ac'),
  ChargeLimitSoc: (v) => v.chargeLimitPercent,
  FastChargerPresent: (v) => v.charging?.kind === 'dc',
  EstBatteryRange: (v) => rangeMiles(v, 275),
  IdealBatteryRange: (v) => rangeMiles(v, 230),
  BatteryLevel: (v) => round(socPercent(v), 1),
  TimeToFullCharge: hoursToLimit,
  ScheduledChargingStartTime: (v) => (schedule(v) === 'StartAt' ? nextHour(v, 23) : null),
  ScheduledChargingMode: schedule,
  ChargeAmps: amps,
  ChargeEnableRequest: (v) => v.charging?.state !== 'Stopped',
  ChargerPhases: (v) => (v.charging && charges(v, 'ac') ? phases(v.charging) : null),
  ChargeCurrentRequest: (v) => Math.min(v.chargingAmps, mostAmps(v)),
  ChargeCurrentRequestMax: mostAmps,
  BatteryHeaterOn: (v) => isCharging(v) && v.batteryCelsius < 5,
  DoorState: doors,
  Locked: (v) => v.locked,
  FdWindow: (v) => (v.windowOpen ? 'PartiallyOpen' : window(v)),
  FpWindow: window,
  RdWindow: window,
  RpWindow: window,
  VehicleName: (v) => v.name,
  SentryMode: (v) => (v.sentry && v.locked && !v.occupied ? 'Armed' : 'Off'),
  Version: (v) => v.version,
  TpmsPressureFl: bars(0),
  TpmsPressureFr: bars(1),
  TpmsPressureRl: bars(2),
  TpmsPressureRr: bars(3),
  InsideTemp: (v) => round(v.cabinCelsius, 1),
  OutsideTemp: (v) => round(2 * outsideCelsius(v), 0) / 2,
  DriverSeatBelt: (v) => v.buckled,
  PassengerSeatBelt: (v) => (v.passengerBuckled ? 'Latched' : 'Unlatched'),
  DriverSeatOccupied: (v) => v.occupied,
  LateralAcceleration: (v) => round(v.lateral, 2),
  LongitudinalAcceleration: (v) => round(v.acceleration, 2),
  CruiseSetSpeed: (v) => (v.metersPerSecond > 27 ? 70 : 0),
  RouteLastUpdated: (v) => (v.trip ? timeOfDay(Math.floor(v.now / 60_000) * 60_000) : null),
  MilesToArrival: (v) => (v.trip ? round(miles(v.trip.metersLeft), 2) : null),
  MinutesToArrival: (v) => (v.trip ? round(v.trip.metersLeft / 60 / 17, 1) : null),
  OriginLocation: (v) => (v.trip ? place(v.trip.origin) : null),
  DestinationLocation: (v) => (v.trip ? place(v.trip.destination) : null),
  CarType: (v) => carTypes[v.model],
  Trim: trimOf,
  ExteriorColor: colorOf,
  ChargePort: (v) => (isAmerican(v) ? 'US' : 'CCS'),
  ChargePortLatch: (v) => (v.charging ? 'Engaged' : 'Disengaged'),
  EnergyRemaining: (v) => round(v.energyWh / 1_000, 2),
  BMSState: (v) => (inDrive(v) ? 'Drive' : isCharging(v) ? 'Charge' : 'Support'),
  DestinationName: (v) => v.trip?.name ?? null,
}

/** Fields that are newer than typed values, so every firmware writes them with their types. */
const newer: Signals = {
  DetailedChargeState: (v) => v.charging?.state ?? 'Disconnected',
  CenterDisplay: (v) => (inDrive(v) ? 'Driving' : v.occupied ? 'On' : isCharging(v) ? 'Charging' : 'Off'),
  ChargePortDoorOpen: (v) => v.portOpen,
  ChargerVoltage: (v) => (charges(v, 'ac') ? 230 : charges(v, 'dc') ? round(packVolts(v), 0) : 2),
  ChargingCableType: (v) => (v.charging ? (isAmerican(v) ? 'SAE' : 'IEC') : 'SNA'),
  ClimateKeeperMode: always('Off'),
  EstimatedHoursToChargeTermination: hoursToLimit,
  EuropeVehicle: isEuropean,
  ExpectedEnergyPercentAtTripArrival: (v) =>
    v.trip ? Math.max(0, Math.floor(socPercent(v) - (v.trip.metersLeft * 16) / v.capacityWh)) : null,
  FastChargerType: (v) => (v.charging?.kind === 'dc' ? (isAmerican(v) ? 'Supercharger' : 'Combo') : null),
  HvacACEnabled: (v) => v.climateOn,
  HvacFanSpeed: (v) => (v.climateOn ? 4 : 0),
  HvacFanStatus: (v) => (v.climateOn ? 3 : 0),
  HvacLeftTemperatureRequest: (v) => v.wantedCelsius,
  HvacPower: (v) => (v.climateOn ? 'On' : 'Off'),
  HvacRightTemperatureRequest: (v) => v.wantedCelsius,
  RightHandDrive: isRightHandDrive,
  TpmsHardWarnings: always(tiresWithoutWarning),
  TpmsSoftWarnings: always(tiresWithoutWarning),
  WheelType: wheelsOf,
  LocatedAtHome: atHome,
  LocatedAtWork: (v) => v.trip === undefined && !atHome(v) && v.index % 2 === 0,
  SettingDistanceUnit: (v) => (isAmerican(v) || (isRightHandDrive(v) && isEuropean(v)) ? 'Miles' : 'Kilometers'),
  SettingTemperatureUnit: (v) => (isAmerican(v) ? 'Fahrenheit' : 'Celsius'),
  Setting24HourTime: (v) => !isAmerican(v),
  SettingTirePressureUnit: (v) => (isAmerican(v) ? 'Psi' : 'Bar'),
  ChargeRateMilePerHour: (v) => (v.charging && isCharging(v) ? round(v.charging.watts / 245, 1) : 0),
  NominalFullPackEnergyKwh: (v) => round(v.capacityWh / 1_000, 1),
}

export function trimOf({ model, capacityWh }: Vehicle): string {
  return model === 'S' || model === 'X' ? 'P95D' : `${Math.floor(capacityWh / 1_000)}${model === 'Y' ? 'D' : ''}`
}

export function colorOf({ index }: Vehicle): string {
  return ['MidnightSilver', 'PearlWhite', 'DeepBlue', 'RedMulticoat', 'SolidBlack'][index % 5] ?? 'PearlWhite'
}

export function wheelsOf({ model }: Vehicle): string {
  return { '3': 'Photon18', Y: 'Gemini19', S: 'Tempest19', X: 'Cyberstream20' }[model]
}

const readers: ReadonlyMap<string, ReadSignal<FieldValue>> = new Map(Object.entries({ ...older, ...newer }))
const catalogue: FieldCatalogue = builtInFields

/** The value of a field. A field that nothing moves always has the same one. */
export function reading(vehicle: Vehicle, field: string): FieldValue {
  const read = readers.get(field)
  return read === undefined ? fixedValue(catalogue[field]) : read(vehicle)
}

function fixedValue(type: FieldType = 'any'): FieldValue {
  if (typeof type === 'object') return type.enum.find((constant) => constant !== 'Unknown') ?? null
  return type === 'boolean' ? false : type === 'number' ? 0 : type === 'string' ? '' : null
}

/** Whether even old firmware writes this field with its type. */
export function isAlwaysTyped(field: string): boolean {
  return !Object.hasOwn(older, field)
}

/** What a vehicle streams without a config, and its `interval_seconds`. 0 sends every change at once. */
const intervals: { readonly [Field in keyof BuiltInFields]?: number } = {
  VehicleSpeed: 2,
  Location: 3,
  GpsHeading: 10,
  Odometer: 30,
  Gear: 0,
  BrakePedal: 4,
  PedalPosition: 10,
  LongitudinalAcceleration: 15,
  CruiseSetSpeed: 0,
  Soc: 30,
  BatteryLevel: 60,
  EnergyRemaining: 60,
  RatedRange: 60,
  IdealBatteryRange: 120,
  EstBatteryRange: 120,
  PackVoltage: 30,
  PackCurrent: 30,
  BrickVoltageMax: 60,
  BrickVoltageMin: 60,
  ModuleTempMax: 120,
  ModuleTempMin: 120,
  BMSState: 0,
  DetailedChargeState: 0,
  ACChargingPower: 20,
  DCChargingPower: 20,
  ACChargingEnergyIn: 60,
  DCChargingEnergyIn: 60,
  ChargerVoltage: 60,
  ChargeAmps: 60,
  TimeToFullCharge: 60,
  ChargeLimitSoc: 0,
  FastChargerPresent: 0,
  FastChargerType: 0,
  ChargingCableType: 0,
  ChargePortDoorOpen: 0,
  ChargePortLatch: 0,
  ScheduledChargingStartTime: 0,
  InsideTemp: 60,
  OutsideTemp: 120,
  HvacPower: 0,
  HvacLeftTemperatureRequest: 0,
  TpmsPressureFl: 120,
  TpmsPressureFr: 120,
  TpmsPressureRl: 120,
  TpmsPressureRr: 120,
  TpmsSoftWarnings: 0,
  DoorState: 0,
  Locked: 0,
  FdWindow: 0,
  DriverSeatOccupied: 0,
  DriverSeatBelt: 0,
  PassengerSeatBelt: 0,
  SentryMode: 0,
  CenterDisplay: 0,
  DestinationName: 0,
  DestinationLocation: 0,
  MilesToArrival: 30,
  MinutesToArrival: 30,
  LocatedAtHome: 0,
  Version: 0,
  VehicleName: 0,
}

export const fleetSignals: readonly { readonly field: string; readonly every: number }[] = Object.entries(
  intervals,
).map(([field, every]) => ({ field, every }))
