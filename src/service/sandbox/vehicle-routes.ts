import { vehicleDocument } from '../fleet/document.ts'
import { placeAt } from '../fleet/physics.ts'
import type { JsonObject } from '../../wire/record.ts'
import { readOptionalBody, refuse, refuseBody, refuseMethod, refusePath, refuseVehicle } from './answers.ts'
import { carryOut, isChargingCommand } from './vehicle-commands.ts'
import type { SharedVehicle, World } from './world.ts'

/** The number of times that the service sends a command before the command has failed. */
const attempts = 3

/** Answers a request below `/api/1/vehicles/{vin}`. */
export async function answerVehicle(world: World, vin: string, rest: string, request: Request): Promise<Response> {
  const vehicle = world.vehicle(vin)
  if (vehicle === undefined) return refuseVehicle(vin)
  world.run()
  const name = rest === 'wake_up' ? rest : /^command\/([a-z][a-z0-9_]*)$/.exec(rest)?.[1]
  if (name !== undefined) {
    if (request.method !== 'POST') return refuseMethod('POST')
    return command(world, vehicle, name, request)
  }
  const isKept = Object.hasOwn(keptReads, rest)
  const read =
    rest === '' ? summary : isKept ? keptReads[rest] : Object.hasOwn(liveReads, rest) ? liveReads[rest] : undefined
  if (read === undefined) return refusePath()
  if (request.method !== 'GET' && request.method !== 'HEAD') return refuseMethod('GET')
  if (rest !== '' && !isKept && !vehicle.car.isReachable(world.now())) return unavailable(world, vehicle)
  return Response.json({ response: read(vehicle, world) })
}

async function command(world: World, vehicle: SharedVehicle, name: string, request: Request): Promise<Response> {
  const { vehicle: access } = world.settings.commands
  if (access === 'none') {
    return refuse('insufficient_scope', 'This business did not ask for command access to vehicles.')
  }
  if (access === 'charging' && !isChargingCommand(name)) {
    return refuse('insufficient_scope', 'This customer granted charging commands only.')
  }
  const body = await readOptionalBody(request)
  if (body === undefined) return refuseBody()
  // A vehicle that wakes reports its connection and its state first. Without a network it cannot be woken.
  if (vehicle.car.hasNetwork(world.now())) world.publishFrom(vehicle, vehicle.car.wake(world.now()))
  return deliver(world, vehicle, name, body)
}

/** Retries a command that did not reach the vehicle, as the service does. */
function deliver(world: World, vehicle: SharedVehicle, name: string, body: JsonObject): Response {
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    if (vehicle.failures > 0) vehicle.failures -= 1
    else if (vehicle.car.isReachable(world.now())) {
      const answer = carryOut(vehicle.car.vehicle, name, body)
      return Response.json({ response: answer }, { headers: { 'x-attempts': String(attempt) } })
    }
  }
  return refuse('vehicle_unavailable', `The command did not reach the vehicle in ${attempts} attempts.`)
}

function unavailable(world: World, { car }: SharedVehicle): Response {
  return refuse('vehicle_unavailable', `The vehicle is ${car.state(world.now())}.`)
}

type VehicleRead = (vehicle: SharedVehicle, world: World) => unknown

/** `/api/1/vehicles/{vin}`, which is answered in every state of the vehicle. */
function summary({ vin, car, kept }: SharedVehicle, world: World): unknown {
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

/** Reads that the service answers itself. */
const keptReads: Readonly<Record<string, VehicleRead>> = {
  telemetry: ({ vin, memory }) => memory.telemetry(vin),
  fleet_telemetry_config: ({ kept: { fields } }) => ({
    synced: fields !== undefined,
    config: fields === undefined ? null : { fields },
    limit_reached: false,
    key_paired: true,
  }),
  fleet_telemetry_errors: ({ memory }) => ({ fleet_telemetry_errors: memory.errors }),
  charge_history: ({ car: { vehicle } }) => ({
    charging_history_graph: { data_points: [] },
    total_charged: { value: String(Math.round((vehicle.charging?.energyInWh ?? 0) / 1_000)), raw_value: 0 },
    total_charged_breakdown: {},
  }),
  recent_alerts: ({ memory }) => ({ recent_alerts: memory.alerts }),
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

/** Reads that only the vehicle can answer. Refused while it cannot be reached. */
const liveReads: Readonly<Record<string, VehicleRead>> = {
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

/** One gray pixel as PNG. */
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=='

/** The image of every vehicle. */
export function vehicleImage(): Response {
  return new Response(
    Uint8Array.from(atob(png), (character) => character.charCodeAt(0)),
    { headers: { 'content-type': 'image/png' } },
  )
}
