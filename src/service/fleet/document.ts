import type { JsonObject } from '../../wire/record.ts'
import { colorOf, reading, trimOf, wheelsOf } from './signals.ts'
import { socPercent, type Vehicle } from './vehicle.ts'

const sections: { readonly [section: string]: (vehicle: Vehicle) => JsonObject } = {
  charge_state: chargeState,
  climate_state: climateState,
  closures_state: closures,
  drive_state: driveState,
  gui_settings: guiSettings,
  location_data: locationData,
  vehicle_config: vehicleConfig,
  vehicle_state: vehicleState,
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
    backseat_token: null,
    backseat_token_updated_at: null,
  }
}

const stamped = ({ now }: Vehicle, section: JsonObject): JsonObject => ({ ...section, timestamp: Math.round(now) })
const round = (value: number, digits: number): number => Number(value.toFixed(digits))

function guiSettings(vehicle: Vehicle): JsonObject {
  const inMiles = reading(vehicle, 'SettingDistanceUnit') === 'Miles'
  return {
    gui_24_hour_time: reading(vehicle, 'Setting24HourTime'),
    gui_distance_units: inMiles ? 'mi/hr' : 'km/hr',
    gui_temperature_units: reading(vehicle, 'SettingTemperatureUnit') === 'Celsius' ? 'C' : 'F',
    gui_tirepressure_units: reading(vehicle, 'SettingTirePressureUnit'),
  }
}

function locationData(vehicle: Vehicle): JsonObject {
  const latitude = round(vehicle.latitude, 6)
  const longitude = round(vehicle.longitude, 6)
  const end = vehicle.trip?.destination
  return {
    active_route_latitude: end === undefined ? null : round(end.latitude, 6),
    active_route_longitude: end === undefined ? null : round(end.longitude, 6),
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
  return {
    active_route_destination: vehicle.trip?.name ?? null,
    active_route_miles_to_arrival: reading(vehicle, 'MilesToArrival'),
    active_route_minutes_to_arrival: reading(vehicle, 'MinutesToArrival'),
    power: Math.round(vehicle.watts / 1_000),
    shift_state: vehicle.gear === 'P' ? null : vehicle.gear,
    speed: vehicle.gear === 'P' ? null : Math.round(Number(reading(vehicle, 'VehicleSpeed'))),
  }
}

/** Many, because a document of the service has about ten kilobytes. */
function schedules(vehicle: Vehicle): readonly JsonObject[] {
  return Array.from({ length: 17 }, (_, index) => ({
    id: 1_760_000_000 + 100 * vehicle.index + index,
    name: index === 0 ? 'Weekdays' : '',
    days_of_week: index === 0 ? 62 : 1 << (index % 7),
    enabled: index < 2,
    start_time: 60 * index,
    end_time: 60 * (index + 5),
    latitude: round(vehicle.home.latitude, 6),
    longitude: round(vehicle.home.longitude, 6),
  }))
}

function chargeState(vehicle: Vehicle): JsonObject {
  const { charging } = vehicle
  const watts = charging?.watts ?? 0
  return {
    battery_level: Math.floor(socPercent(vehicle)),
    battery_range: reading(vehicle, 'RatedRange'),
    charge_amps: reading(vehicle, 'ChargeCurrentRequest'),
    charge_current_request: reading(vehicle, 'ChargeCurrentRequest'),
    charge_current_request_max: reading(vehicle, 'ChargeCurrentRequestMax'),
    charge_enable_request: reading(vehicle, 'ChargeEnableRequest'),
    charge_energy_added: Math.round((charging?.energyInWh ?? 0) / 10) / 100,
    charge_limit_soc: vehicle.chargeLimitPercent,
    charge_miles_added_ideal: Math.round((charging?.energyInWh ?? 0) / 230),
    charge_miles_added_rated: Math.round((charging?.energyInWh ?? 0) / 245),
    charge_port_door_open: vehicle.portOpen,
    charge_port_latch: charging ? 'Engaged' : 'Disengaged',
    charge_rate: Math.round(watts / 24.5) / 10,
    charger_actual_current: reading(vehicle, 'ChargeAmps'),
    charger_phases: reading(vehicle, 'ChargerPhases'),
    charger_pilot_current: reading(vehicle, 'ChargeCurrentRequestMax'),
    charger_power: Math.round(watts / 1_000),
    charger_voltage: reading(vehicle, 'ChargerVoltage'),
    charging_state: charging?.state ?? 'Disconnected',
    conn_charge_cable: charging ? reading(vehicle, 'ChargingCableType') : '<invalid>',
    est_battery_range: reading(vehicle, 'EstBatteryRange'),
    fast_charger_present: charging?.kind === 'dc',
    fast_charger_type: reading(vehicle, 'FastChargerType') ?? '<invalid>',
    ideal_battery_range: reading(vehicle, 'IdealBatteryRange'),
    minutes_to_full_charge: Math.round(60 * Number(reading(vehicle, 'TimeToFullCharge'))),
    preconditioning_enabled: reading(vehicle, 'PreconditioningEnabled'),
    scheduled_charging_mode: reading(vehicle, 'ScheduledChargingMode'),
    scheduled_charging_pending: reading(vehicle, 'ScheduledChargingPending'),
    scheduled_charging_start_time: reading(vehicle, 'ScheduledChargingStartTime'),
    scheduled_departure_time: reading(vehicle, 'ScheduledDepartureTime'),
    time_to_full_charge: reading(vehicle, 'TimeToFullCharge') ?? 0,
    usable_battery_level: Math.floor(socPercent(vehicle)),
  }
}

function climateState(vehicle: Vehicle): JsonObject {
  return {
    driver_temp_setting: vehicle.wantedCelsius,
    fan_status: vehicle.climateOn ? 3 : 0,
    inside_temp: reading(vehicle, 'InsideTemp'),
    is_auto_conditioning_on: vehicle.climateOn,
    is_climate_on: vehicle.climateOn,
    outside_temp: reading(vehicle, 'OutsideTemp'),
    passenger_temp_setting: vehicle.wantedCelsius,
  }
}

function closures(vehicle: Vehicle): JsonObject {
  return {
    df: vehicle.driverDoorOpen ? 1 : 0,
    dr: 0,
    fd_window: vehicle.windowOpen || vehicle.vented ? 1 : 0,
    fp_window: vehicle.vented ? 1 : 0,
    ft: 0,
    locked: vehicle.locked,
    pf: vehicle.driverDoorOpen && vehicle.passengerBuckled ? 1 : 0,
    pr: 0,
    rd_window: vehicle.vented ? 1 : 0,
    rp_window: vehicle.vented ? 1 : 0,
    rt: vehicle.trunkOpen ? 1 : 0,
  }
}

function vehicleState(vehicle: Vehicle): JsonObject {
  const seen = vehicle.tiresSeen ? Math.floor(vehicle.tiresSeenAt / 1_000) : null
  return {
    ...closures(vehicle),
    car_version: vehicle.version,
    center_display_state: vehicle.occupied ? 2 : 0,
    is_user_present: vehicle.occupied,
    odometer: reading(vehicle, 'Odometer'),
    sentry_mode: reading(vehicle, 'SentryMode') === 'Armed',
    tpms_last_seen_pressure_time_fl: seen,
    tpms_last_seen_pressure_time_fr: seen,
    tpms_last_seen_pressure_time_rl: seen,
    tpms_last_seen_pressure_time_rr: seen,
    tpms_pressure_fl: reading(vehicle, 'TpmsPressureFl'),
    tpms_pressure_fr: reading(vehicle, 'TpmsPressureFr'),
    tpms_pressure_rl: reading(vehicle, 'TpmsPressureRl'),
    tpms_pressure_rr: reading(vehicle, 'TpmsPressureRr'),
    tpms_rcp_front_value: round(vehicle.coldBars[0], 2),
    tpms_rcp_rear_value: round(vehicle.coldBars[2], 2),
    vehicle_name: vehicle.name,
  }
}

function vehicleConfig(vehicle: Vehicle): JsonObject {
  return {
    car_type: { '3': 'model3', Y: 'modely', S: 'models2', X: 'modelx' }[vehicle.model],
    charge_port_type: reading(vehicle, 'ChargePort'),
    eu_vehicle: reading(vehicle, 'EuropeVehicle'),
    exterior_color: colorOf(vehicle),
    rhd: reading(vehicle, 'RightHandDrive'),
    trim_badging: trimOf(vehicle).toLowerCase(),
    wheel_type: wheelsOf(vehicle),
  }
}
