import { closures, vehicleConfig, vehicleState } from './document-body.ts'
import { chargeState, climateState } from './document-energy.ts'
import { whole } from './random.ts'
import { reading } from './signals.ts'
import type { Vehicle } from './vehicle.ts'

/** The full document of a vehicle, as a request for it would answer: about 10 kB, and true to the vehicle's state. */
export function vehicleDocument(vehicle: Vehicle): { readonly [key: string]: unknown } {
  const timestamp = Math.round(vehicle.now)
  return {
    id: 100_000_021_000_000 + Number(vehicle.vin.slice(-6)),
    user_id: null,
    vehicle_id: 1_200_000_000 + Number(vehicle.vin.slice(-6)),
    vin: vehicle.vin,
    color: null,
    access_type: 'OWNER',
    granular_access: { hide_private: false },
    tokens: null,
    state: 'online',
    in_service: false,
    id_s: `100000021${vehicle.vin.slice(-6)}`,
    calendar_enabled: true,
    api_version: 92,
    charge_state: { ...chargeState(vehicle), timestamp },
    climate_state: { ...climateState(vehicle), timestamp },
    closures_state: { ...closures(vehicle), timestamp },
    drive_state: { ...driveState(vehicle), timestamp },
    gui_settings: {
      gui_24_hour_time: true,
      gui_charge_rate_units: 'kW',
      gui_distance_units: 'km/hr',
      gui_range_display: 'Rated',
      gui_temperature_units: 'C',
      gui_tirepressure_units: 'Bar',
      show_range_units: false,
      timestamp,
    },
    vehicle_config: { ...vehicleConfig, timestamp },
    vehicle_state: { ...vehicleState(vehicle), timestamp },
    charge_schedule_data: { ...schedules(vehicle, 'charge_schedules'), charge_buffer: 15, timestamp },
    preconditioning_schedule_data: { ...schedules(vehicle, 'precondition_schedules'), timestamp },
  }
}

function driveState(vehicle: Vehicle): { readonly [key: string]: unknown } {
  return {
    active_route_latitude: vehicle.trip?.destination.latitude ?? null,
    active_route_longitude: vehicle.trip?.destination.longitude ?? null,
    active_route_destination: vehicle.trip?.name ?? null,
    active_route_traffic_minutes_delay: 0,
    gps_as_of: Math.floor(vehicle.now / 1_000) - 1,
    heading: reading(vehicle, 'GpsHeading'),
    latitude: vehicle.latitude,
    longitude: vehicle.longitude,
    native_latitude: vehicle.latitude,
    native_location_supported: 1,
    native_longitude: vehicle.longitude,
    native_type: 'wgs',
    power: Math.round(vehicle.watts / 1_000),
    shift_state: vehicle.gear === 'P' ? null : vehicle.gear,
    speed: reading(vehicle, 'VehicleSpeed'),
  }
}

function schedules(vehicle: Vehicle, key: string): { readonly [key: string]: unknown } {
  const entries = Array.from({ length: 5 }, (_, index) => ({
    id: 1_760_000_000 + whole(vehicle.random, 0, 9_999_999),
    name: index === 0 ? 'Weekdays' : '',
    days_of_week: index === 0 ? 62 : 1 << index,
    enabled: index < 2,
    one_time: false,
    start_enabled: true,
    start_time: 60 * whole(vehicle.random, 0, 6),
    end_enabled: true,
    end_time: 60 * whole(vehicle.random, 6, 9),
    latitude: vehicle.home.latitude,
    longitude: vehicle.home.longitude,
  }))
  return { [key]: entries, next_schedule: false, schedule_window: entries[0] }
}
