import type { JsonObject } from '../../wire/record.ts'
import { readOptionalBody } from './body.ts'
import { notShared } from './config-routes.ts'
import { refuse } from './refusal.ts'
import { carryOut, isChargingCommand } from './vehicle-commands.ts'
import { keptReads, liveReads, summary } from './vehicle-reads.ts'
import type { SharedVehicle, World } from './world.ts'

/** A command is sent to the vehicle so many times before it has failed. */
const attempts = 3

/** Answers a request below `/api/1/vehicles/{vin}`. */
export async function answerVehicle(world: World, vin: string, rest: string, request: Request): Promise<Response> {
  const vehicle = world.vehicle(vin)
  if (vehicle === undefined) return notShared(vin)
  world.run()
  const name = rest === 'wake_up' ? rest : /^command\/([a-z][a-z0-9_]*)$/.exec(rest)?.[1]
  if (name !== undefined) {
    if (request.method !== 'POST') return notAllowed('POST')
    return command(world, vehicle, name, request)
  }
  const isKept = Object.hasOwn(keptReads, rest)
  const read =
    rest === '' ? summary : isKept ? keptReads[rest] : Object.hasOwn(liveReads, rest) ? liveReads[rest] : undefined
  if (read === undefined) return refuse('not_found', 'There is no such path.')
  if (request.method !== 'GET' && request.method !== 'HEAD') return notAllowed('GET')
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
  if (body === undefined) return refuse('invalid_request', 'The body is no JSON object.')
  // It says that it is online, and with which connection, before anything else happens. Without a network nothing wakes it.
  if (vehicle.car.hasNetwork(world.now())) world.say(vehicle, vehicle.car.wake(world.now()))
  return deliver(world, vehicle, name, body)
}

/** The service sends a command again when it did not reach the vehicle. */
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

/** The refusal of another method. */
export function notAllowed(allow: string): Response {
  return refuse('method_not_allowed', `Only ${allow} is allowed here.`, { allow })
}
