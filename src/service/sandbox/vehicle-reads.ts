import { vehicleDocument } from '../fleet/document.ts'
import { placeAt } from '../fleet/physics.ts'
import type { SharedVehicle, World } from './world.ts'

type Read = (vehicle: SharedVehicle, world: World) => unknown

/** What `/api/1/vehicles/{vin}` says whatever the vehicle's state. */
export function summary({ vin, car, kept }: SharedVehicle, world: World): unknown {
  return {
    id: 100_000_021_000_000 + kept.index,
    vehicle_id: 1_200_000_000 + kept.index,
    vin,
    display_name: car.vehicle.name,
    state: car.state(world.now()) === 'driving' ? 'online' : car.state(world.now()),
    in_service: false,
    access_type: 'OWNER',
    api_version: 92,
  }
}

/** What is answered without the vehicle: from what the service has. */
export const keptReads: Readonly<Record<string, Read>> = {
  telemetry: ({ vin, known }) => known.telemetry(vin),
  fleet_telemetry_config: ({ kept: { fields } }) => ({
    synced: fields !== undefined,
    config: fields === undefined ? null : { fields },
    limit_reached: false,
    key_paired: true,
  }),
  fleet_telemetry_errors: ({ known }) => ({ fleet_telemetry_errors: known.errors }),
  charge_history: ({ car: { vehicle } }) => ({
    charging_history_graph: { data_points: [] },
    total_charged: { value: String(Math.round((vehicle.charging?.energyInWh ?? 0) / 1_000)), raw_value: 0 },
    total_charged_breakdown: {},
  }),
  recent_alerts: ({ known }) => ({ recent_alerts: known.alerts }),
  release_notes: ({ car: { vehicle } }) => ({
    release_notes: [
      {
        title: 'Minor fixes',
        subtitle: vehicle.version.split(' ')[0],
        description: 'This release contains minor fixes and improvements.',
      },
    ],
  }),
  drivers: () => [],
  invitations: () => [],
}

/** What only the vehicle knows: refused while it cannot be reached. */
export const liveReads: Readonly<Record<string, Read>> = {
  vehicle_data: ({ car }) => vehicleDocument(car.vehicle),
  nearby_charging_sites: ({ car: { vehicle } }, world) => {
    const site = (name: string, meters: number, radians: number): object => {
      const { latitude, longitude } = placeAt(vehicle, meters, radians)
      return {
        name,
        location: { lat: latitude, long: longitude },
        distance_miles: meters / 1_609.344,
        site_closed: false,
      }
    }
    return {
      congestion_sync_time_utc_secs: Math.floor(world.now() / 1_000),
      destination_charging: [site('Lakeside Hotel', 1_900, 1)],
      superchargers: [{ ...site('North Station', 4_200, 4), available_stalls: 6, total_stalls: 8 }],
      timestamp: world.now(),
    }
  },
}
