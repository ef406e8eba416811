import type { FieldValue } from '../events/values.ts'
import { isJsonObject, type JsonObject } from '../wire/record.ts'
import { isTimeSet, readTime } from '../wire/scalars.ts'

/** A value of a `vehicle_data` document under the name of its telemetry field. */
interface DocumentValue {
  readonly field: string
  readonly value: FieldValue
  /** When the section was read in the vehicle, in milliseconds since the epoch. */
  readonly atMs: number
  /** The document rounds: a smaller difference from the telemetry's value does not count. 0: it does not round. */
  readonly tolerance: number
}

/** The field that a member of a document gives a value, and how to read that value. */
type FieldSource =
  | string
  | readonly [field: string, tolerance: number]
  | { readonly field: string; readonly read: Readonly<Record<string, FieldValue>> }

const openWindow = { '0': 'Closed' } as const

/**
 * The members of a document that have the same meaning and unit as a telemetry field. Values are spelled as in the telemetry:
 * `Closed`, not 0. A member is missing here if its meaning differs, or if it says less (an armed sentry is `true` in a document, and
 * one of five constants in the telemetry). With a `read`, values that it does not list are ignored.
 */
export const documentFields: Readonly<Record<string, Readonly<Record<string, FieldSource>>>> = {
  charge_state: {
    battery_level: ['BatteryLevel', 1],
    battery_range: ['RatedRange', 0.1],
    charge_current_request: 'ChargeCurrentRequest',
    charge_current_request_max: 'ChargeCurrentRequestMax',
    charge_enable_request: 'ChargeEnableRequest',
    charge_limit_soc: 'ChargeLimitSoc',
    charge_port_cold_weather_mode: 'ChargePortColdWeatherMode',
    charge_port_door_open: 'ChargePortDoorOpen',
    charge_port_latch: {
      field: 'ChargePortLatch',
      read: { Engaged: 'Engaged', Disengaged: 'Disengaged', Blocking: 'Blocking' },
    },
    charger_actual_current: ['ChargeAmps', 1],
    charger_voltage: ['ChargerVoltage', 1],
    charging_state: {
      field: 'DetailedChargeState',
      read: {
        Disconnected: 'Disconnected',
        NoPower: 'NoPower',
        Starting: 'Starting',
        Charging: 'Charging',
        Complete: 'Complete',
        Stopped: 'Stopped',
      },
    },
    est_battery_range: ['EstBatteryRange', 0.1],
    fast_charger_present: 'FastChargerPresent',
    ideal_battery_range: ['IdealBatteryRange', 0.1],
    preconditioning_enabled: 'PreconditioningEnabled',
    scheduled_charging_pending: 'ScheduledChargingPending',
  },
  climate_state: {
    driver_temp_setting: ['HvacLeftTemperatureRequest', 0.1],
    inside_temp: ['InsideTemp', 0.1],
    outside_temp: ['OutsideTemp', 0.1],
    passenger_temp_setting: ['HvacRightTemperatureRequest', 0.1],
    seat_heater_left: 'SeatHeaterLeft',
    seat_heater_rear_center: 'SeatHeaterRearCenter',
    seat_heater_rear_left: 'SeatHeaterRearLeft',
    seat_heater_rear_right: 'SeatHeaterRearRight',
    seat_heater_right: 'SeatHeaterRight',
  },
  drive_state: {
    active_route_destination: 'DestinationName',
    heading: ['GpsHeading', 1],
    shift_state: { field: 'Gear', read: { P: 'P', R: 'R', N: 'N', D: 'D', null: 'P' } },
    speed: ['VehicleSpeed', 1],
  },
  vehicle_config: {
    eu_vehicle: 'EuropeVehicle',
    rhd: 'RightHandDrive',
  },
  vehicle_state: {
    car_version: 'Version',
    fd_window: { field: 'FdWindow', read: openWindow },
    fp_window: { field: 'FpWindow', read: openWindow },
    locked: 'Locked',
    odometer: ['Odometer', 0.1],
    rd_window: { field: 'RdWindow', read: openWindow },
    remote_start_enabled: 'RemoteStartEnabled',
    rp_window: { field: 'RpWindow', read: openWindow },
    sentry_mode: { field: 'SentryMode', read: { false: 'Off' } },
    tpms_pressure_fl: ['TpmsPressureFl', 0.05],
    tpms_pressure_fr: ['TpmsPressureFr', 0.05],
    tpms_pressure_rl: ['TpmsPressureRl', 0.05],
    tpms_pressure_rr: ['TpmsPressureRr', 0.05],
    valet_mode: 'ValetModeEnabled',
    vehicle_name: 'VehicleName',
  },
}

/** The members of `vehicle_state` that together are the value of `DoorState`. */
const doorMembers = {
  df: 'driverFront',
  dr: 'driverRear',
  pf: 'passengerFront',
  pr: 'passengerRear',
  ft: 'trunkFront',
  rt: 'trunkRear',
} as const

/** The values of telemetry fields in a document. Members that are missing, or have another shape, are ignored. */
export function* documentValues(document: JsonObject, createdMs: number): Generator<DocumentValue, void> {
  for (const [section, entries] of Object.entries(documentFields)) {
    const members = record(document[section])
    if (members === undefined) continue
    const atMs = timeOf(members, createdMs)
    for (const [member, entry] of Object.entries(entries)) {
      const found = read(entry, members[member])
      if (found !== undefined) yield { ...found, atMs }
    }
  }
  yield* doors(record(document['vehicle_state']), createdMs)
  yield* place(record(document['drive_state']) ?? record(document['location_data']), createdMs)
}

function read(entry: FieldSource, value: unknown): Omit<DocumentValue, 'atMs'> | undefined {
  if (typeof entry === 'object' && 'field' in entry) {
    if (value === undefined || (typeof value === 'object' && value !== null)) return undefined
    const known = Object.hasOwn(entry.read, String(value)) ? entry.read[String(value)] : undefined
    return known === undefined ? undefined : { field: entry.field, value: known, tolerance: 0 }
  }
  const [field, tolerance] = typeof entry === 'string' ? [entry, 0] : entry
  // The maker writes '<invalid>' for "no value".
  const isValue = (typeof value === 'string' && value !== '<invalid>') || typeof value === 'boolean'
  if (isValue || typeof value === 'number') return { field, value, tolerance }
  // The field decides whether `null` means none.
  return value === null ? { field, value, tolerance: 0 } : undefined
}

function* doors(members: JsonObject | undefined, createdMs: number): Generator<DocumentValue, void> {
  if (members === undefined) return
  const entries = Object.entries(doorMembers).map(([member, door]) => [door, members[member]] as const)
  if (!entries.every(([, value]) => typeof value === 'number')) return
  const value = Object.fromEntries(entries.map(([door, open]) => [door, open !== 0]))
  yield { field: 'DoorState', value, atMs: timeOf(members, createdMs), tolerance: 0 }
}

/** The location is only in a document whose request asked for it. */
function* place(members: JsonObject | undefined, createdMs: number): Generator<DocumentValue, void> {
  if (members === undefined) return
  const { latitude, longitude, gps_as_of: readAt, timestamp } = members
  if (typeof latitude !== 'number' || typeof longitude !== 'number') return
  const atMs = timeOf({ timestamp: isTimeSet(readTime(readAt)) ? readAt : timestamp }, createdMs)
  yield { field: 'Location', value: { latitude, longitude }, atMs, tolerance: 0 }
}

const record = (value: unknown): JsonObject | undefined => (isJsonObject(value) ? value : undefined)

/** When a section was read, as it says itself. It is never newer than the document. */
function timeOf({ timestamp }: JsonObject, createdMs: number): number {
  const readMs = readTime(timestamp)
  return isTimeSet(readMs) ? Math.min(readMs, createdMs) : createdMs
}
