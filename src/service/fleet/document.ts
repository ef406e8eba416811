import type { JsonObject } from '../../wire/record.ts'
import { colorOf, reading, trimOf, wheelsOf } from './signals.ts'
import { socPercent, type Vehicle } from './vehicle.ts'

/** The sections of the full document. */
const sections: { readonly [section: string]: (vehicle: Vehicle) => JsonObject } = {
  charge_state: chargeState,
  climate_state: climateState,
  closures_state: closures,
  drive_state: driveState,
  gui_settings: guiSettings,
  location_data: locationData,
  vehicle_config: vehicleConfig,
  vehicle_state: vehicleState,
  charge_schedule_data: (vehicle) => ({ ...schedules(vehicle, 'charge_schedules'), charge_buffer: 15 }),
  preconditioning_schedule_data: (vehicle) => schedules(vehicle, 'precondition_schedules'),
}

/** The names of the sections that `endpoints` can ask for. */
export const sectionNames: readonly string[] = [...Object.keys(sections), 'vehicle_data_combo']

/**
 * The document of a vehicle, as `vehicle_data` has it: about 10 kB, with the vehicle's own state. `asked` names its sections.
 * It has the location of the vehicle only with `location_data`. Without `asked`, it has all sections but that one.
 */
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
    gui_charge_rate_units: 'kW',
    gui_distance_units: inMiles ? 'mi/hr' : 'km/hr',
    gui_range_display: 'Rated',
    gui_temperature_units: reading(vehicle, 'SettingTemperatureUnit') === 'Celsius' ? 'C' : 'F',
    gui_tirepressure_units: reading(vehicle, 'SettingTirePressureUnit'),
    show_range_units: false,
  }
}

/** The location of the vehicle, and the end of its route. */
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
    active_route_traffic_minutes_delay: reading(vehicle, 'RouteTrafficMinutesDelay') ?? 0,
    power: Math.round(vehicle.watts / 1_000),
    shift_state: vehicle.gear === 'P' ? null : vehicle.gear,
    speed: vehicle.gear === 'P' ? null : Math.round(Number(reading(vehicle, 'VehicleSpeed'))),
  }
}

function schedules(vehicle: Vehicle, key: string): JsonObject {
  const entries = Array.from({ length: 5 }, (_, index) => ({
    id: 1_760_000_000 + 100 * vehicle.index + index,
    name: index === 0 ? 'Weekdays' : '',
    days_of_week: index === 0 ? 62 : 1 << index,
    enabled: index < 2,
    one_time: false,
    start_enabled: true,
    start_time: 60 * index,
    end_enabled: true,
    end_time: 60 * (index + 5),
    latitude: round(vehicle.home.latitude, 6),
    longitude: round(vehicle.home.longitude, 6),
  }))
  return { [key]: entries, next_schedule: false, schedule_window: entries[0] }
}

function chargeState(vehicle: Vehicle): JsonObject {
  const { charging } = vehicle
  const watts = charging?.watts ?? 0
  return {
    battery_heater_on: false,
    battery_level: Math.floor(socPercent(vehicle)),
    battery_range: reading(vehicle, 'RatedRange'),
    charge_amps: reading(vehicle, 'ChargeCurrentRequest'),
    charge_current_request: reading(vehicle, 'ChargeCurrentRequest'),
    charge_current_request_max: reading(vehicle, 'ChargeCurrentRequestMax'),
    charge_enable_request: reading(vehicle, 'ChargeEnableRequest'),
    charge_energy_added: Math.round((charging?.energyInWh ?? 0) / 10) / 100,
    charge_limit_soc: vehicle.chargeLimitPercent,
    charge_limit_soc_max: 100,
    charge_limit_soc_min: 50,
    charge_limit_soc_std: 80,
    charge_miles_added_ideal: Math.round((charging?.energyInWh ?? 0) / 230),
    charge_miles_added_rated: Math.round((charging?.energyInWh ?? 0) / 245),
    charge_port_cold_weather_mode: false,
    charge_port_color: '<invalid>',
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
    fast_charger_brand: '<invalid>',
    fast_charger_present: charging?.kind === 'dc',
    fast_charger_type: reading(vehicle, 'FastChargerType') ?? '<invalid>',
    ideal_battery_range: reading(vehicle, 'IdealBatteryRange'),
    managed_charging_active: false,
    managed_charging_start_time: null,
    managed_charging_user_canceled: false,
    max_range_charge_counter: 0,
    minutes_to_full_charge: Math.round(60 * Number(reading(vehicle, 'TimeToFullCharge'))),
    not_enough_power_to_heat: null,
    off_peak_charging_enabled: false,
    off_peak_charging_times: 'all_week',
    off_peak_hours_end_time: 360,
    preconditioning_enabled: reading(vehicle, 'PreconditioningEnabled'),
    preconditioning_times: 'all_week',
    scheduled_charging_mode: reading(vehicle, 'ScheduledChargingMode'),
    scheduled_charging_pending: reading(vehicle, 'ScheduledChargingPending'),
    scheduled_charging_start_time: reading(vehicle, 'ScheduledChargingStartTime'),
    scheduled_departure_time: reading(vehicle, 'ScheduledDepartureTime'),
    supercharger_session_trip_planner: false,
    time_to_full_charge: reading(vehicle, 'TimeToFullCharge') ?? 0,
    trip_charging: false,
    usable_battery_level: Math.floor(socPercent(vehicle)),
    user_charge_enable_request: null,
  }
}

function climateState(vehicle: Vehicle): JsonObject {
  return {
    allow_cabin_overheat_protection: true,
    auto_seat_climate_left: true,
    auto_seat_climate_right: true,
    auto_steering_wheel_heat: false,
    battery_heater: false,
    battery_heater_no_power: null,
    cabin_overheat_protection: reading(vehicle, 'CabinOverheatProtectionMode'),
    cabin_overheat_protection_actively_cooling: false,
    climate_keeper_mode: 'off',
    cop_activation_temperature: reading(vehicle, 'CabinOverheatProtectionTemperatureLimit'),
    defrost_mode: 0,
    driver_temp_setting: vehicle.wantedCelsius,
    fan_status: vehicle.climateOn ? 3 : 0,
    hvac_auto_request: 'On',
    inside_temp: reading(vehicle, 'InsideTemp'),
    is_auto_conditioning_on: vehicle.climateOn,
    is_climate_on: vehicle.climateOn,
    is_front_defroster_on: false,
    is_preconditioning: false,
    is_rear_defroster_on: false,
    left_temp_direction: -66,
    max_avail_temp: 28,
    min_avail_temp: 15,
    outside_temp: reading(vehicle, 'OutsideTemp'),
    passenger_temp_setting: vehicle.wantedCelsius,
    remote_heater_control_enabled: false,
    right_temp_direction: -66,
    seat_heater_left: reading(vehicle, 'SeatHeaterLeft'),
    seat_heater_rear_center: reading(vehicle, 'SeatHeaterRearCenter'),
    seat_heater_rear_left: reading(vehicle, 'SeatHeaterRearLeft'),
    seat_heater_rear_right: reading(vehicle, 'SeatHeaterRearRight'),
    seat_heater_right: reading(vehicle, 'SeatHeaterRight'),
    side_mirror_heaters: false,
    steering_wheel_heat_level: 0,
    steering_wheel_heater: false,
    supports_fan_only_cabin_overheat_protection: true,
    wiper_blade_heater: false,
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
    sun_roof_percent_open: null,
    sun_roof_state: 'unknown',
    tonneau_in_motion: null,
    tonneau_percent_open: null,
    tonneau_state: null,
  }
}

function vehicleState(vehicle: Vehicle): JsonObject {
  const seen = vehicle.tiresSeen ? Math.floor(vehicle.tiresSeenAt / 1_000) : null
  return {
    ...closures(vehicle),
    autopark_state_v3: 'ready',
    autopark_style: 'standard',
    calendar_supported: true,
    car_version: vehicle.version,
    center_display_state: vehicle.occupied ? 2 : 0,
    dashcam_clip_save_available: false,
    dashcam_state: 'Unavailable',
    feature_bitmask: 'fbdffbff,187ff',
    is_user_present: vehicle.occupied,
    last_autopark_error: 'no_error',
    media_info: {
      a2dp_source_name: '',
      audio_volume: reading(vehicle, 'MediaAudioVolume'),
      audio_volume_increment: 0.333333,
      audio_volume_max: 10.333333,
      media_playback_status: reading(vehicle, 'MediaPlaybackStatus'),
      now_playing_album: reading(vehicle, 'MediaNowPlayingAlbum') ?? '',
      now_playing_artist: reading(vehicle, 'MediaNowPlayingArtist') ?? '',
      now_playing_duration: reading(vehicle, 'MediaNowPlayingDuration') ?? 0,
      now_playing_elapsed: reading(vehicle, 'MediaNowPlayingElapsed') ?? 0,
      now_playing_source: reading(vehicle, 'MediaPlaybackSource') ?? '',
      now_playing_station: reading(vehicle, 'MediaNowPlayingStation') ?? '',
      now_playing_title: reading(vehicle, 'MediaNowPlayingTitle') ?? '',
    },
    media_state: { remote_control_enabled: true },
    notifications_supported: true,
    odometer: reading(vehicle, 'Odometer'),
    parsed_calendar_supported: true,
    pws_software_version: '(DEV)',
    remote_start: false,
    remote_start_enabled: true,
    remote_start_supported: true,
    sentry_mode: reading(vehicle, 'SentryMode') === 'Armed',
    sentry_mode_available: true,
    service_mode: false,
    service_mode_plus: false,
    smart_summon_available: false,
    software_update: {
      download_perc: reading(vehicle, 'SoftwareUpdateDownloadPercentComplete'),
      expected_duration_sec: 60 * Number(reading(vehicle, 'SoftwareUpdateExpectedDurationMinutes')),
      install_perc: reading(vehicle, 'SoftwareUpdateInstallationPercentComplete'),
      status: reading(vehicle, 'SoftwareUpdateAvailable') ? 'available' : '',
      version: reading(vehicle, 'SoftwareUpdateVersion'),
    },
    speed_limit_mode: {
      active: false,
      current_limit_mph: reading(vehicle, 'CurrentLimitMph'),
      max_limit_mph: 120,
      min_limit_mph: 50,
      pin_code_set: false,
    },
    summon_standby_mode_enabled: false,
    tpms_hard_warning_fl: false,
    tpms_hard_warning_fr: false,
    tpms_hard_warning_rl: false,
    tpms_hard_warning_rr: false,
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
    tpms_soft_warning_fl: false,
    tpms_soft_warning_fr: false,
    tpms_soft_warning_rl: false,
    tpms_soft_warning_rr: false,
    valet_mode: false,
    valet_pin_needed: true,
    vehicle_name: vehicle.name,
    vehicle_self_test_progress: 0,
    vehicle_self_test_requested: false,
    webcam_available: true,
  }
}

/** `vehicle_config` of the full document, without the members that differ between models. */
const modelConfig: JsonObject = {
  aux_park_lamps: 'Eu',
  badge_version: 0,
  can_accept_navigation_requests: true,
  can_actuate_trunks: true,
  car_special_type: 'base',
  cop_user_set_temp_supported: true,
  dashcam_clip_save_supported: true,
  default_charge_to_max: false,
  driver_assist: 'SIMULATED',
  ece_restrictions: true,
  efficiency_package: 'Default',
  exterior_trim: 'Black',
  exterior_trim_override: '',
  has_air_suspension: false,
  has_seat_cooling: false,
  headlamp_type: 'Global',
  interior_trim_type: 'Black2',
  key_version: 2,
  motorized_charge_port: true,
  paint_color_override: '19,20,22,0.8,0.04',
  performance_package: 'Base',
  plg: true,
  pws: true,
  rear_seat_heaters: 1,
  rear_seat_type: 0,
  roof_color: 'RoofColorGlass',
  seat_type: null,
  spoiler_type: 'None',
  sun_roof_installed: null,
  supports_qr_pairing: false,
  third_row_seats: 'None',
  use_range_badging: true,
  utc_offset: 0,
  webcam_selfie_supported: true,
  webcam_supported: true,
}

function vehicleConfig(vehicle: Vehicle): JsonObject {
  return {
    ...modelConfig,
    car_type: { '3': 'model3', Y: 'modely', S: 'models2', X: 'modelx' }[vehicle.model],
    charge_port_type: reading(vehicle, 'ChargePort'),
    eu_vehicle: reading(vehicle, 'EuropeVehicle'),
    exterior_color: colorOf(vehicle),
    rhd: reading(vehicle, 'RightHandDrive'),
    trim_badging: trimOf(vehicle).toLowerCase(),
    wheel_type: wheelsOf(vehicle),
  }
}
