import type { BuiltInFields, ValueOf } from '../../events/fields.ts'
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
/** No model of the simulated vehicles has this part. */
const missing = (): null => null

const inDrive = (v: Vehicle): boolean => v.gear !== 'P'
const isAwake = (v: Vehicle): boolean => v.state !== 'asleep'
const rangeMiles = (v: Vehicle, whPerMile: number): number => round(v.energyWh / whPerMile, 2)
const packVolts = (v: Vehicle): number => 330 + 0.6 * socPercent(v) - v.watts / 12_000
const brickVolts = (v: Vehicle): number => packVolts(v) / 96
const kelvin = (celsius: number): number => celsius + 273.15
const bars = (wheel: 0 | 1 | 2 | 3): ReadSignal<number> => {
  return (v) => (v.tiresSeen ? round(v.coldBars[wheel] * (kelvin(v.tireCelsius) / kelvin(15)), 2) : null)
}
const tiresSeenAt: ReadSignal<number> = (v) => (v.tiresSeen ? seconds(v.tiresSeenAt) : null)
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
const window: ReadSignal<'Closed' | 'PartiallyOpen'> = (v) => (v.settings.vented ? 'PartiallyOpen' : 'Closed')

// One motor, two, or three: which model has which.
type Motor = 'front' | 'rear' | 'side'
const hasMotor = ({ model }: Vehicle, motor: Motor): boolean =>
  motor === 'rear' || (motor === 'front' ? model !== '3' : model === 'S' || model === 'X')
const motorState = (motor: Motor): ReadSignal<'Enable' | 'Standby' | 'Unavailable'> => {
  return (v) => (!hasMotor(v, motor) ? 'Unavailable' : inDrive(v) ? 'Enable' : 'Standby')
}
/** A value of a motor, or `null` when the vehicle does not have that motor. */
const ofMotor = (motor: Motor, read: ReadSignal<number>): ReadSignal<number> => {
  return (v) => (hasMotor(v, motor) ? read(v) : null)
}
const axleRpm: ReadSignal<number> = (v) => round((v.metersPerSecond / 0.34 / (2 * Math.PI)) * 60, 1)
const torque: ReadSignal<number> = (v) =>
  v.metersPerSecond < 0.5 ? 0 : round(Math.max(-300, Math.min(400, (v.watts * 0.34) / v.metersPerSecond / 9)), 1)
const motorAmps: ReadSignal<number> = (v) => (inDrive(v) ? round(Math.abs(v.watts) / packVolts(v), 1) : 0)
const warmer = (by: number): ReadSignal<number> => {
  return (v) => round(v.batteryCelsius + by + Math.min(30, Math.abs(v.watts) / 6_000), 0)
}
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
const hasUpdate = ({ index }: Vehicle): boolean => index % 4 === 1
const timeOfDay = (ms: number): TimeOfDay => {
  const time = new Date(ms)
  return { hour: time.getUTCHours(), minute: time.getUTCMinutes(), second: time.getUTCSeconds() }
}
const songSeconds = 214
const isPlaying = (v: Vehicle): boolean => v.occupied && !v.settings.mediaPaused
const whileMedia = <Value>(read: ReadSignal<Value>): ReadSignal<Value> => {
  return (v) => (v.occupied ? read(v) : null)
}
const carTypes = { '3': 'Model3', Y: 'ModelY', S: 'ModelS', X: 'ModelX' } as const
const lifetimeMiles = (v: Vehicle): number => miles(v.odometerMeters)

/** Fields that old firmware writes as text. */
const older: Signals = {
  DriveRail: (v) => v.occupied || inDrive(v),
  ChargeState: (v) => (v.charging === undefined || v.charging.state === 'Disconnected' ? 'Idle' : v.charging.state),
  BmsFullchargecomplete: (v) => v.charging?.state === 'Complete' && v.chargeLimitPercent === 100,
  VehicleSpeed: (v) => (inDrive(v) ? round(mph(v.metersPerSecond), 3) : null),
  Odometer: (v) => round(miles(v.odometerMeters), 3),
  PackVoltage: packVoltage,
  PackCurrent: (v) => (inDrive(v) || v.charging ? round(-v.watts / packVolts(v), 1) : null),
  Soc: (v) => round(socPercent(v), 3),
  DCDCEnable: isAwake,
  Gear: (v) => v.gear,
  IsolationResistance: (v) => 2_400 + (v.index % 7) * 90,
  PedalPosition: (v) => (v.metersPerSecond > 0 ? round(Math.max(0, Math.min(100, v.watts / 1_200)), 1) : 0),
  BrakePedal: (v) => v.acceleration < -1,
  DiStateR: motorState('rear'),
  DiHeatsinkTR: warmer(6),
  DiAxleSpeedR: axleRpm,
  DiTorquemotor: torque,
  DiStatorTempR: warmer(12),
  DiVBatR: packVoltage,
  DiMotorCurrentR: motorAmps,
  Location: place,
  GpsState: isAwake,
  GpsHeading: (v) => round((((v.headingRadians * 180) / Math.PI) % 360) + 360, 0) % 360,
  NumBrickVoltageMax: (v) => 3 + (v.index % 90),
  BrickVoltageMax: (v) => round(brickVolts(v) + 0.004, 3),
  NumBrickVoltageMin: (v) => 5 + ((v.index * 7) % 90),
  BrickVoltageMin: (v) => round(brickVolts(v) - 0.006, 3),
  NumModuleTempMax: (v) => 1 + (v.index % 4),
  ModuleTempMax: (v) => round(v.batteryCelsius + 1, 1),
  NumModuleTempMin: (v) => 1 + ((v.index + 2) % 4),
  ModuleTempMin: (v) => round(v.batteryCelsius - 0.5, 1),
  RatedRange: (v) => rangeMiles(v, 245),
  Hvil: always('OK'),
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
  ScheduledChargingPending: (v) => schedule(v) === 'StartAt' && v.charging?.state === 'Stopped',
  ScheduledDepartureTime: (v) => (schedule(v) === 'DepartBy' ? nextHour(v, 7) : null),
  PreconditioningEnabled: (v) => schedule(v) === 'DepartBy',
  ScheduledChargingMode: schedule,
  ChargeAmps: amps,
  ChargeEnableRequest: (v) => v.charging?.state !== 'Stopped',
  ChargerPhases: (v) => (v.charging && charges(v, 'ac') ? phases(v.charging) : null),
  ChargePortColdWeatherMode: (v) => outsideCelsius(v) < 0,
  ChargeCurrentRequest: (v) => Math.min(v.settings.chargingAmps, mostAmps(v)),
  ChargeCurrentRequestMax: mostAmps,
  BatteryHeaterOn: (v) => isCharging(v) && v.batteryCelsius < 5,
  NotEnoughPowerToHeat: (v) => (v.charging ? false : null),
  SuperchargerSessionTripPlanner: always(false),
  DoorState: doors,
  Locked: (v) => v.locked,
  FdWindow: (v) => (v.windowOpen ? 'PartiallyOpen' : window(v)),
  FpWindow: window,
  RdWindow: window,
  RpWindow: window,
  VehicleName: (v) => v.name,
  SentryMode: (v) => (v.settings.sentry && v.locked && !v.occupied ? 'Armed' : 'Off'),
  SpeedLimitMode: (v) => v.settings.speedLimit,
  CurrentLimitMph: (v) => v.settings.speedLimitMph,
  Version: (v) => v.version,
  TpmsPressureFl: bars(0),
  TpmsPressureFr: bars(1),
  TpmsPressureRl: bars(2),
  TpmsPressureRr: bars(3),
  SemitruckTpmsPressureRe1L0: missing,
  SemitruckTpmsPressureRe1L1: missing,
  SemitruckTpmsPressureRe1R0: missing,
  SemitruckTpmsPressureRe1R1: missing,
  SemitruckTpmsPressureRe2L0: missing,
  SemitruckTpmsPressureRe2L1: missing,
  SemitruckTpmsPressureRe2R0: missing,
  SemitruckTpmsPressureRe2R1: missing,
  TpmsLastSeenPressureTimeFl: tiresSeenAt,
  TpmsLastSeenPressureTimeFr: tiresSeenAt,
  TpmsLastSeenPressureTimeRl: tiresSeenAt,
  TpmsLastSeenPressureTimeRr: tiresSeenAt,
  InsideTemp: (v) => round(v.cabinCelsius, 1),
  OutsideTemp: (v) => round(2 * outsideCelsius(v), 0) / 2,
  SeatHeaterLeft: (v) => v.settings.seatHeat[0] ?? 0,
  SeatHeaterRight: (v) => v.settings.seatHeat[1] ?? 0,
  SeatHeaterRearLeft: (v) => v.settings.seatHeat[2] ?? 0,
  SeatHeaterRearCenter: (v) => v.settings.seatHeat[3] ?? 0,
  SeatHeaterRearRight: (v) => v.settings.seatHeat[4] ?? 0,
  AutoSeatClimateLeft: always(true),
  AutoSeatClimateRight: always(true),
  DriverSeatBelt: (v) => v.buckled,
  PassengerSeatBelt: (v) => (v.passengerBuckled ? 'Latched' : 'Unlatched'),
  DriverSeatOccupied: (v) => v.occupied,
  SemitruckPassengerSeatFoldPosition: always('SNA'),
  LateralAcceleration: (v) => round(v.lateral, 2),
  LongitudinalAcceleration: (v) => round(v.acceleration, 2),
  CruiseSetSpeed: (v) => (v.metersPerSecond > 27 ? 70 : 0),
  LifetimeEnergyUsed: (v) => round(lifetimeMiles(v) * 0.29, 2),
  LifetimeEnergyUsedDrive: (v) => round(lifetimeMiles(v) * 0.26, 2),
  SemitruckTractorParkBrakeStatus: always('NotAvailable'),
  SemitruckTrailerParkBrakeStatus: always('SNA'),
  BrakePedalPos: (v) => (v.acceleration < -1 ? round(Math.min(100, -20 * v.acceleration), 1) : 0),
  RouteLastUpdated: (v) => (v.trip ? timeOfDay(Math.floor(v.now / 60_000) * 60_000) : null),
  RouteLine: (v) => (v.trip ? polyline([place(v.trip.origin), place(v.trip.destination)]) : null),
  MilesToArrival: (v) => (v.trip ? round(miles(v.trip.metersLeft), 2) : null),
  MinutesToArrival: (v) => (v.trip ? round(v.trip.metersLeft / 60 / 17, 1) : null),
  OriginLocation: (v) => (v.trip ? place(v.trip.origin) : null),
  DestinationLocation: (v) => (v.trip ? place(v.trip.destination) : null),
  CarType: (v) => carTypes[v.model],
  Trim: trimOf,
  ExteriorColor: colorOf,
  RoofColor: always('RoofColorGlass'),
  ChargePort: (v) => (isAmerican(v) ? 'US' : 'CCS'),
  ChargePortLatch: (v) => (v.charging ? 'Engaged' : 'Disengaged'),
  GuestModeEnabled: (v) => v.settings.guest,
  PinToDriveEnabled: (v) => v.settings.pinToDrive,
  PairedPhoneKeyAndKeyFobQty: (v) => 2 + (v.index % 3),
  CruiseFollowDistance: always('3'),
  AutomaticBlindSpotCamera: always(true),
  BlindSpotCollisionWarningChime: always(true),
  SpeedLimitWarning: always('Display'),
  ForwardCollisionWarning: always('Average'),
  LaneDepartureAvoidance: always('Assist'),
  EmergencyLaneDepartureAvoidance: always(true),
  AutomaticEmergencyBrakingOff: always(false),
  LifetimeEnergyGainedRegen: (v) => round(lifetimeMiles(v) * 0.05, 2),
  DiStateF: motorState('front'),
  DiStateREL: motorState('side'),
  DiStateRER: motorState('side'),
  DiHeatsinkTF: ofMotor('front', warmer(5)),
  DiHeatsinkTREL: ofMotor('side', warmer(6)),
  DiHeatsinkTRER: ofMotor('side', warmer(6)),
  DiAxleSpeedF: ofMotor('front', axleRpm),
  DiAxleSpeedREL: ofMotor('side', axleRpm),
  DiAxleSpeedRER: ofMotor('side', axleRpm),
  DiSlaveTorqueCmd: ofMotor('front', torque),
  DiTorqueActualR: torque,
  DiTorqueActualF: ofMotor('front', torque),
  DiTorqueActualREL: ofMotor('side', torque),
  DiTorqueActualRER: ofMotor('side', torque),
  DiStatorTempF: ofMotor('front', warmer(10)),
  DiStatorTempREL: ofMotor('side', warmer(12)),
  DiStatorTempRER: ofMotor('side', warmer(12)),
  DiVBatF: ofMotor('front', packVoltage),
  DiVBatREL: ofMotor('side', packVoltage),
  DiVBatRER: ofMotor('side', packVoltage),
  DiMotorCurrentF: ofMotor('front', motorAmps),
  DiMotorCurrentREL: ofMotor('side', motorAmps),
  DiMotorCurrentRER: ofMotor('side', motorAmps),
  EnergyRemaining: (v) => round(v.energyWh / 1_000, 2),
  ServiceMode: always(false),
  BMSState: (v) => (inDrive(v) ? 'Drive' : isCharging(v) ? 'Charge' : 'Support'),
  GuestModeMobileAccessState: (v) => (v.settings.guest ? 'NotAuthenticated' : 'Init'),
  DestinationName: (v) => v.trip?.name ?? null,
  DiInverterTR: warmer(8),
  DiInverterTF: ofMotor('front', warmer(7)),
  DiInverterTREL: ofMotor('side', warmer(8)),
  DiInverterTRER: ofMotor('side', warmer(8)),
}

/** Fields that are newer than typed values, so every firmware writes them with their types. */
const newer: Signals = {
  DetailedChargeState: (v) => v.charging?.state ?? 'Disconnected',
  CabinOverheatProtectionMode: (v) => v.settings.overheat,
  CabinOverheatProtectionTemperatureLimit: (v) => v.settings.overheatLimit,
  CenterDisplay: (v) => (inDrive(v) ? 'Driving' : v.occupied ? 'On' : isCharging(v) ? 'Charging' : 'Off'),
  ChargePortDoorOpen: (v) => v.portOpen,
  ChargerVoltage: (v) => (charges(v, 'ac') ? 230 : charges(v, 'dc') ? round(packVolts(v), 0) : 2),
  ChargingCableType: (v) => (v.charging ? (isAmerican(v) ? 'SAE' : 'IEC') : 'SNA'),
  ClimateKeeperMode: (v) => v.settings.keeper,
  DefrostForPreconditioning: always(false),
  DefrostMode: (v) => (v.settings.defrost ? 'Max' : 'Off'),
  EfficiencyPackage: always('Default'),
  EstimatedHoursToChargeTermination: hoursToLimit,
  EuropeVehicle: isEuropean,
  ExpectedEnergyPercentAtTripArrival: (v) =>
    v.trip ? Math.max(0, Math.floor(socPercent(v) - (v.trip.metersLeft * 16) / v.capacityWh)) : null,
  FastChargerType: (v) => (v.charging?.kind === 'dc' ? (isAmerican(v) ? 'Supercharger' : 'Combo') : null),
  HomelinkDeviceCount: (v) => v.index % 3,
  HomelinkNearby: (v) => v.index % 3 > 0 && atHome(v),
  HvacACEnabled: (v) => v.climateOn,
  HvacAutoMode: always('On'),
  HvacFanSpeed: (v) => (v.climateOn ? 4 : 0),
  HvacFanStatus: (v) => (v.climateOn ? 3 : 0),
  HvacLeftTemperatureRequest: (v) => v.wantedCelsius,
  HvacPower: (v) => (v.climateOn ? 'On' : 'Off'),
  HvacRightTemperatureRequest: (v) => v.wantedCelsius,
  HvacSteeringWheelHeatAuto: always(false),
  HvacSteeringWheelHeatLevel: (v) => v.settings.wheelHeat,
  OffroadLightbarPresent: always(false),
  PowershareHoursLeft: always(0),
  PowershareInstantaneousPowerKW: always(0),
  PowershareStatus: always('Inactive'),
  PowershareStopReason: always('None'),
  PowershareType: always('None'),
  RearDisplayHvacEnabled: always(false),
  RearSeatHeaters: always('1'),
  RemoteStartEnabled: always(true),
  RightHandDrive: isRightHandDrive,
  RouteTrafficMinutesDelay: (v) => (v.trip ? round(v.trip.metersLeft / 30_000, 1) : null),
  SoftwareUpdateDownloadPercentComplete: (v) => (hasUpdate(v) ? 100 : 0),
  SoftwareUpdateExpectedDurationMinutes: (v) => (hasUpdate(v) ? 25 : 0),
  SoftwareUpdateInstallationPercentComplete: always(0),
  SoftwareUpdateScheduledStartTime: (v) => (v.settings.updateAt === undefined ? null : seconds(v.settings.updateAt)),
  SoftwareUpdateVersion: (v) => (hasUpdate(v) ? '2026.44.3' : ' '),
  TonneauOpenPercent: missing,
  TonneauPosition: always('Invalid'),
  TonneauTentMode: always('Inactive'),
  TpmsHardWarnings: always(tiresWithoutWarning),
  TpmsSoftWarnings: always(tiresWithoutWarning),
  ValetModeEnabled: (v) => v.settings.valet,
  WheelType: wheelsOf,
  WiperHeatEnabled: always(false),
  LocatedAtHome: atHome,
  LocatedAtWork: (v) => v.trip === undefined && !atHome(v) && v.index % 2 === 0,
  LocatedAtFavorite: always(false),
  SettingDistanceUnit: (v) => (isAmerican(v) || (isRightHandDrive(v) && isEuropean(v)) ? 'Miles' : 'Kilometers'),
  SettingTemperatureUnit: (v) => (isAmerican(v) ? 'Fahrenheit' : 'Celsius'),
  Setting24HourTime: (v) => !isAmerican(v),
  SettingTirePressureUnit: (v) => (isAmerican(v) ? 'Psi' : 'Bar'),
  SettingChargeUnit: always('Percent'),
  ClimateSeatCoolingFrontLeft: (v) => v.settings.seatCool[0] ?? 0,
  ClimateSeatCoolingFrontRight: (v) => v.settings.seatCool[1] ?? 0,
  LightsHazardsActive: always(false),
  LightsTurnSignal: (v) => (v.lateral > 1.5 ? 'Right' : v.lateral < -1.5 ? 'Left' : 'Off'),
  LightsHighBeams: always(false),
  MediaPlaybackStatus: (v) => (isPlaying(v) ? 'Playing' : v.occupied ? 'Paused' : 'Stopped'),
  MediaPlaybackSource: whileMedia(always('Streaming')),
  MediaAudioVolume: (v) => v.settings.volume,
  MediaNowPlayingDuration: whileMedia(always(songSeconds * 1_000)),
  MediaNowPlayingElapsed: whileMedia((v) => (seconds(v.now) % songSeconds) * 1_000),
  MediaNowPlayingArtist: whileMedia(always('The Test Drivers')),
  MediaNowPlayingTitle: whileMedia(always('Road to Nowhere Real')),
  MediaNowPlayingAlbum: whileMedia(always('Synthetic Miles')),
  MediaNowPlayingStation: whileMedia(always('')),
  MediaAudioVolumeIncrement: always(0.333333),
  MediaAudioVolumeMax: always(10.333333),
  SunroofInstalled: always('NotInstalled'),
  SeatVentEnabled: (v) => v.settings.seatCool.some((level) => level > 0),
  RearDefrostEnabled: (v) => v.settings.defrost,
  ChargeRateMilePerHour: (v) => (v.charging && isCharging(v) ? round(v.charging.watts / 245, 1) : 0),
  MilesSinceReset: (v) => round(lifetimeMiles(v) % 10_000, 2),
  SelfDrivingMilesSinceReset: (v) => round((lifetimeMiles(v) % 10_000) * 0.4, 2),
  GpsAccuracyMeters: (v) => (v.metersPerSecond > 0 ? 3 : 5),
  LifetimeEnergyChargedKwh: (v) => round(lifetimeMiles(v) * 0.29 + v.energyWh / 1_000, 2),
  BrickSocMinPercent: (v) => round(Math.max(0, socPercent(v) - 0.4), 2),
  NominalFullPackEnergyKwh: (v) => round(v.capacityWh / 1_000, 1),
  GradeEstimatePercent: (v) => (inDrive(v) ? round(3 * Math.sin(v.odometerMeters / 900), 1) : 0),
  MaxSpeedToReachDestinationMph: (v) => (v.trip && socPercent(v) < 15 ? 65 : null),
  SoftwareUpdateAvailable: hasUpdate,
  SoftwareUpdateInProgress: always(false),
  RemoteStartActive: always(false),
  SemiCruiseSpeedLimitMph: missing,
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

/** A line of locations as text: each is its difference from the one before, in hundred-thousandths of a degree. */
function polyline(line: readonly Location[]): string {
  let text = ''
  let from = [0, 0]
  for (const { latitude, longitude } of line) {
    const to = [Math.round(latitude * 1e5), Math.round(longitude * 1e5)]
    for (const [axis, value] of to.entries()) {
      const step = value - (from[axis] ?? 0)
      let rest = step < 0 ? -2 * step - 1 : 2 * step
      for (; rest >= 32; rest = Math.floor(rest / 32)) text += String.fromCharCode((32 | (rest % 32)) + 63)
      text += String.fromCharCode(rest + 63)
    }
    from = to
  }
  return text
}

/** The value of every field of the catalogue. */
const signals: Signals = { ...older, ...newer }

export function reading(vehicle: Vehicle, field: string): FieldValue {
  return readers.get(field)?.(vehicle) ?? null
}

const readers: ReadonlyMap<string, ReadSignal<FieldValue>> = new Map(Object.entries(signals))

/** Whether even old firmware writes this field with its type. */
export function isAlwaysTyped(field: string): boolean {
  return !Object.hasOwn(older, field)
}

/**
 * What a vehicle of a fleet streams without a config, and the shortest time between two values in seconds, as
 * `interval_seconds`. 0 sends every change at once.
 */
const intervals: { readonly [Field in keyof BuiltInFields]?: number } = {
  ...{ VehicleSpeed: 2, Location: 3, GpsHeading: 10, Odometer: 30, Gear: 0, BrakePedal: 4, PedalPosition: 10 },
  ...{ LongitudinalAcceleration: 15, CruiseSetSpeed: 0, Soc: 30, BatteryLevel: 60, EnergyRemaining: 60 },
  ...{ RatedRange: 60, IdealBatteryRange: 120, EstBatteryRange: 120, PackVoltage: 30, PackCurrent: 30 },
  ...{ BrickVoltageMax: 60, BrickVoltageMin: 60, ModuleTempMax: 120, ModuleTempMin: 120, BMSState: 0 },
  ...{ DetailedChargeState: 0, ACChargingPower: 20, DCChargingPower: 20, ACChargingEnergyIn: 60 },
  ...{ DCChargingEnergyIn: 60, ChargerVoltage: 60, ChargeAmps: 60, TimeToFullCharge: 60, ChargeLimitSoc: 0 },
  ...{ FastChargerPresent: 0, FastChargerType: 0, ChargingCableType: 0, ChargePortDoorOpen: 0, ChargePortLatch: 0 },
  ...{ ScheduledChargingStartTime: 0, InsideTemp: 60, OutsideTemp: 120, HvacPower: 0, HvacLeftTemperatureRequest: 0 },
  ...{ TpmsPressureFl: 120, TpmsPressureFr: 120, TpmsPressureRl: 120, TpmsPressureRr: 120, TpmsSoftWarnings: 0 },
  ...{ DoorState: 0, Locked: 0, FdWindow: 0, DriverSeatOccupied: 0, DriverSeatBelt: 0, PassengerSeatBelt: 0 },
  ...{ SentryMode: 0, CenterDisplay: 0, DestinationName: 0, DestinationLocation: 0, MilesToArrival: 30 },
  ...{ MinutesToArrival: 30, LocatedAtHome: 0, Version: 0, VehicleName: 0 },
}

/** The fields that a fleet streams, as a list. */
export const fleetSignals: readonly { readonly field: string; readonly every: number }[] = Object.entries(
  intervals,
).map(([field, every]) => ({ field, every }))
