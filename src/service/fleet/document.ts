import type { JsonObject } from '../../wire/record.ts'
import { place, reading, round } from './signals.ts'
import { isAmerican, socPercent, type Vehicle } from './vehicle.ts'

const sections: { readonly [section: string]: (vehicle: Vehicle) => JsonObject } = {
  charge_state: chargeState,
  climate_state: (vehicle) => ({
    driver_temp_setting: vehicle.cabin.wantedCelsius,
    inside_temp: reading(vehicle, 'InsideTemp'),
    is_climate_on: vehicle.cabin.climateOn,
    outside_temp: vehicle.cabin.outsideCelsius,
    passenger_temp_setting: vehicle.cabin.wantedCelsius,
  }),
  closures_state: closures,
  drive_state: driveState,
  gui_settings: (vehicle) => ({ gui_distance_units: isAmerican(vehicle) ? 'mi/hr' : 'km/hr' }),
  location_data: locationData,
  vehicle_config: ({ model }) => ({
    car_type: { '3': 'model3', Y: 'modely', S: 'models2', X: 'modelx' }[model],
    exterior_color: 'PearlWhite',
  }),
  vehicle_state: (vehicle) => ({
    ...closures(vehicle),
    car_version: vehicle.firmware.version,
    is_user_present: vehicle.cabin.occupied,
    odometer: reading(vehicle, 'Odometer'),
    sentry_mode: reading(vehicle, 'SentryMode') === 'Armed',
    tpms_pressure_fl: reading(vehicle, 'TpmsPressureFl'),
    tpms_pressure_fr: reading(vehicle, 'TpmsPressureFr'),
    tpms_pressure_rl: reading(vehicle, 'TpmsPressureRl'),
    tpms_pressure_rr: reading(vehicle, 'TpmsPressureRr'),
    vehicle_name: vehicle.name,
  }),
  charge_schedule_data: (vehicle) => ({ charge_schedules: schedules(vehicle) }),
  preconditioning_schedule_data: (vehicle) => ({ precondition_schedules: schedules(vehicle) }),
}

/** The names of the sections that `endpoints` can ask for. */
export const sectionNames: readonly string[] = [...Object.keys(sections), 'vehicle_data_combo']

/** The document of `vehicle_data`: what the vehicle's own state decides. The location is there only when asked for. */
export function vehicleDocument(vehicle: Vehicle, asked?: readonly string[]): JsonObject {
  const isAsked = (name: string): boolean =>
    asked === undefined
      ? name !== 'location_data'
      : asked.includes(name) || (asked.includes('vehicle_data_combo') && name !== 'location_data')
  const document: { [member: string]: unknown } = { ...vehicleIdentity(vehicle), state: 'online' }
  for (const [name, read] of Object.entries(sections))
    if (isAsked(name)) document[name] = stamped(vehicle, read(vehicle))
  // The maker also puts the location into `drive_state`.
  if (asked?.includes('location_data')) {
    const drive = isAsked('drive_state') ? driveState(vehicle) : {}
    document['drive_state'] = stamped(vehicle, { ...drive, ...locationData(vehicle) })
  }
  return document
}

/** What the service knows about a vehicle in every state. */
export function vehicleIdentity({ vin, index, model }: Vehicle): JsonObject {
  const id = 100_000_021_000_000 + index
  return {
    id,
    user_id: 800_000 + index,
    vehicle_id: 1_200_000_000 + index,
    vin,
    color: null,
    access_type: 'OWNER',
    granular_access: { hide_private: false },
    tokens: [],
    option_codes: `MD${model},COUS`,
    in_service: false,
    id_s: String(id),
    calendar_enabled: true,
    api_version: 92,
  }
}

const stamped = ({ now }: Vehicle, section: JsonObject): JsonObject => ({ ...section, timestamp: Math.round(now) })

function locationData(vehicle: Vehicle): JsonObject {
  const { latitude, longitude } = place(vehicle)
  return {
    gps_as_of: Math.floor(vehicle.now / 1_000) - 1,
    heading: reading(vehicle, 'GpsHeading'),
    latitude,
    longitude,
    native_latitude: latitude,
    native_location_supported: 1,
    native_longitude: longitude,
    native_type: 'wgs',
  }
}

function driveState(vehicle: Vehicle): JsonObject {
  const isParked = vehicle.drive.gear === 'P'
  return {
    active_route_destination: vehicle.drive.trip?.name ?? null,
    power: Math.round(vehicle.battery.watts / 1_000),
    shift_state: isParked ? null : vehicle.drive.gear,
    speed: isParked ? null : Math.round(Number(reading(vehicle, 'VehicleSpeed'))),
  }
}

/** Many, because a document of the service has about ten kilobytes. */
function schedules({ index, home }: Vehicle): readonly JsonObject[] {
  return Array.from({ length: 22 }, (_, number) => ({
    id: 1_760_000_000 + 100 * index + number,
    name: number === 0 ? 'Weekdays' : '',
    days_of_week: number === 0 ? 62 : 1 << (number % 7),
    enabled: number < 2,
    start_time: 60 * number,
    end_time: 60 * (number + 5),
    ...place(home),
  }))
}

function chargeState(vehicle: Vehicle): JsonObject {
  const { charging } = vehicle.battery
  return {
    battery_level: Math.floor(socPercent(vehicle)),
    battery_range: reading(vehicle, 'RatedRange'),
    charge_energy_added: round((charging?.energyInWh ?? 0) / 1_000, 2),
    charge_limit_soc: vehicle.battery.chargeLimitPercent,
    charge_port_door_open: vehicle.battery.portOpen,
    charge_port_latch: reading(vehicle, 'ChargePortLatch'),
    charger_actual_current: reading(vehicle, 'ChargeAmps'),
    charger_power: Math.round((charging?.watts ?? 0) / 1_000),
    charger_voltage: reading(vehicle, 'ChargerVoltage'),
    charging_state: charging?.state ?? 'Disconnected',
    est_battery_range: reading(vehicle, 'EstBatteryRange'),
    fast_charger_present: charging?.kind === 'dc',
    ideal_battery_range: reading(vehicle, 'IdealBatteryRange'),
    time_to_full_charge: reading(vehicle, 'TimeToFullCharge') ?? 0,
    usable_battery_level: Math.floor(socPercent(vehicle)),
  }
}

function closures(vehicle: Vehicle): JsonObject {
  return {
    df: vehicle.cabin.driverDoorOpen ? 1 : 0,
    dr: 0,
    ft: 0,
    locked: vehicle.cabin.locked,
    pf: 0,
    pr: 0,
    rt: vehicle.cabin.trunkOpen ? 1 : 0,
  }
}
