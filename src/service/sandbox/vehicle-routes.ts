import { sectionNames, vehicleDocument, vehicleIdentity } from '../fleet/document.ts'
import type { Vehicle } from '../fleet/vehicle.ts'
import type { JsonObject } from '../../wire/record.ts'
import { readOptionalBody, refuse, refuseBody, refuseMethod, refusePath, refuseProduct } from './answers.ts'
import { carryOut, problemWithCommand, vehicleCommands } from './commands.ts'
import { streamTopics, type SharedVehicle, type World } from './world.ts'

/** A vehicle that a customer shares, or why the service does not answer for it. */
export function accessTo(world: World, vin: string): SharedVehicle | Response {
  const vehicle = world.vehicle(vin)
  switch (vehicle?.fault) {
    case 'customer_reconnect_required':
      return refuse(vehicle.fault, 'The connection of the customer is gone. The customer must sign in again.')
    case 'customer_scope_missing':
      return refuse(vehicle.fault, 'The customer granted less than this needs. The customer must connect again.')
    default:
      return vehicle ?? refuseProduct(vin)
  }
}

export async function answerVehicle(world: World, vin: string, rest: string, request: Request): Promise<Response> {
  const vehicle = accessTo(world, vin)
  if (vehicle instanceof Response) return vehicle
  world.run()
  const name = rest === 'wake_up' ? rest : /^command\/(.+)$/.exec(rest)?.[1]
  if (name !== undefined) {
    if (request.method !== 'POST') return refuseMethod('POST')
    return command(world, vehicle, name, request)
  }
  const isKept = Object.hasOwn(keptReads, rest)
  const read = isKept ? keptReads[rest] : Object.hasOwn(liveReads, rest) ? liveReads[rest] : undefined
  if (read === undefined) return refusePath()
  const allowed = rest === 'charge_history' ? ['POST'] : ['GET', 'HEAD']
  if (!allowed.includes(request.method)) return refuseMethod(allowed[0] ?? 'GET')
  const query = new URL(request.url).searchParams
  const problem = rest === 'vehicle_data' ? problemWithEndpoints(query) : undefined
  if (problem !== undefined) return refuse('invalid_request', problem)
  if (rest === 'charge_history' && (await readOptionalBody(request)) === undefined) return refuseBody()
  if (!isKept && !vehicle.car.isReachable(world.now())) return unavailable(world, vehicle)
  return Response.json({ response: read(vehicle, world, query) })
}

async function command(world: World, vehicle: SharedVehicle, name: string, request: Request): Promise<Response> {
  const body = await readOptionalBody(request)
  if (body === undefined) return refuseBody()
  const problem = problemWithCommand(vehicleCommands, name, body)
  if (problem !== undefined) return refuse('invalid_command', problem)
  // A vehicle that wakes reports its connection and its state first.
  world.publishFrom(vehicle, vehicle.car.wake(world.now()))
  if (!vehicle.car.isReachable(world.now())) {
    return refuse('vehicle_unavailable', 'The command did not reach the vehicle in three attempts. Try again later.')
  }
  const result = name === 'wake_up' ? summary(vehicle, world) : carryOut(vehicle.car.vehicle, name, body)
  vehicle.commands += 1
  const balance = Math.max(0, firstBalance - price * vehicle.commands)
  world.stream(vehicle.vin, 'credits', { credits: { type: 'command', name, cost: price, balance } })
  return Response.json({ response: result }, { headers: { 'x-attempts': '1' } })
}

/** The credits that the business begins with, and the price of a command. */
const firstBalance = 1_000
const price = 1

function unavailable(world: World, { car }: SharedVehicle): Response {
  return refuse(
    'vehicle_unavailable',
    `The vehicle is ${car.state(world.now())}. A read does not wake it: send wake_up first.`,
  )
}

function problemWithEndpoints(query: URLSearchParams): string | undefined {
  const asked = sectionsIn(query)
  const unknown = asked?.find((name) => !sectionNames.includes(name))
  if (unknown === undefined) return undefined
  return `\`endpoints\` must be a list of ${sectionNames.join(', ')}, separated by semicolons.`
}

function sectionsIn(query: URLSearchParams): readonly string[] | undefined {
  const text = query.get('endpoints')
  return text === null || text.trim() === '' ? undefined : text.split(';').map((name) => name.trim())
}

type VehicleRead = (vehicle: SharedVehicle, world: World, query: URLSearchParams) => unknown

/** `/api/1/vehicles/{vin}`, which is answered in every state of the vehicle. */
function summary({ car }: SharedVehicle, world: World): JsonObject {
  const state = car.state(world.now())
  return {
    ...vehicleIdentity(car.vehicle),
    display_name: car.vehicle.name,
    state: state === 'driving' ? 'online' : state,
  }
}

/** Reads that the service answers itself. */
const keptReads: Readonly<Record<string, VehicleRead>> = {
  '': summary,
  telemetry: ({ memory }) => memory.telemetry(),
  fleet_telemetry_config: ({ fields, fault }) => ({
    synced:
      fields !== undefined && !['config_not_synced', 'key_not_installed', 'stream_limit_reached'].includes(fault ?? ''),
    config: fields === undefined ? null : { fields },
    limit_reached: fault === 'stream_limit_reached',
    key_paired: fault !== 'key_not_installed',
  }),
  fleet_telemetry_errors: ({ memory }) => ({ fleet_telemetry_errors: memory.errors }),
  charge_history: ({ car: { vehicle } }) => {
    const kwh = Math.round((vehicle.battery.charging?.energyInWh ?? 0) / 1_000)
    const value = { value: String(kwh), after_adornment: 'kWh', title: 'Total charged', raw_value: kwh }
    return {
      screen_title: 'Charging history',
      total_charged: value,
      total_charged_breakdown: { home: { ...value, sub_title: 'Home' } },
      charging_history_graph: { data_points: [], period: { start_timestamp: null, end_timestamp: null }, interval: 2 },
      vin_list: [vehicle.vin],
    }
  },
  recent_alerts: ({ memory }) => ({ recent_alerts: memory.alerts }),
  release_notes: ({ car: { vehicle } }) => ({
    release_notes: [
      {
        title: 'Minor fixes',
        subtitle: vehicle.firmware.version.split(' ')[0],
        description: 'This release contains minor fixes and improvements.',
        customer_version: vehicle.firmware.version.split(' ')[0],
      },
    ],
  }),
  drivers: () => [],
  invitations: () => [],
}

/** Reads that only the vehicle can answer. Refused while it cannot be reached. */
const liveReads: Readonly<Record<string, VehicleRead>> = {
  vehicle_data: ({ car }, _world, query) => vehicleDocument(car.vehicle, sectionsIn(query)),
  nearby_charging_sites: ({ car: { vehicle } }, world) => ({
    congestion_sync_time_utc_secs: Math.floor(world.now() / 1_000),
    destination_charging: [],
    superchargers: [
      {
        name: 'North Station',
        location: { lat: Number(vehicle.home.latitude.toFixed(6)), long: Number(vehicle.home.longitude.toFixed(6)) },
        distance_miles: 2.61,
        site_closed: false,
        available_stalls: 6,
        total_stalls: 8,
      },
    ],
    timestamp: world.now(),
  }),
}

export function answerStream(world: World, product: string, field: string | undefined, request: Request): Response {
  const vehicle = world.site(product) === undefined ? accessTo(world, product) : undefined
  if (vehicle instanceof Response) return vehicle
  const asked = new URL(request.url).searchParams
    .get('topics')
    ?.split(',')
    .map((name) => name.trim())
  if (asked?.some((name) => !streamTopics.includes(name)) === true) {
    return refuse('invalid_request', `\`topics\` must be a list of ${streamTopics.join(', ')}, separated by commas.`)
  }
  const headers = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' }
  // Nobody would read the stream.
  if (request.method === 'HEAD') return new Response(null, { headers })
  world.run()
  return new Response(world.sse.open({ product, field, topics: asked }, world.snapshot(product)), { headers })
}

export function vehicleImage({ model }: Vehicle): Response {
  const car = 'M30 150 Q34 122 80 114 Q138 72 218 72 Q292 74 330 112 Q368 118 372 150 Z'
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 200"><title>Model ${model}</title><path d="${car}"/></svg>`
  return new Response(svg, { headers: { 'content-type': 'image/svg+xml' } })
}
