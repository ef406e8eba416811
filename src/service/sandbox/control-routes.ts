import { Hono } from 'hono'
import { createNormalizer } from '../../wire/normalizer.ts'
import { isJsonObject, isTextList, type JsonObject } from '../../wire/record.ts'
import { readBody, refuse, refuseBody, refuseProduct } from './answers.ts'
import { type Customer, permissions, type SharedVehicle, vehicleFaults, type World } from './world.ts'

const longestSeconds = 366 * 86_400

/** `/sandbox`: controls that the real service does not have. */
export function controlRoutes(world: World): Hono {
  const normalizer = createNormalizer()
  return new Hono()
    .route('/vehicles', vehicleControls(world))
    .get('/business', () => Response.json({ response: standingBody(world) }))
    .post('/business', async ({ req }) => setStanding(world, (await readBody(req.raw)) ?? {}))
    .post('/messages', async ({ req }) => {
      const message = await readBody(req.raw)
      if (message === undefined) return refuseBody()
      const now = world.now()
      const isDated = 'createdAt' in message || 'time' in message
      const event = normalizer.normalize(
        isDated ? message : { ...message, createdAt: new Date(now).toISOString() },
        now,
      )
      const { site_id: site } = message
      const product = event.vin ?? (typeof site === 'string' ? site : undefined)
      world.publish(product, event.topic === 'unknown' ? { ...event, raw: message } : event)
      await world.deliveries.settled()
      return Response.json({ response: { topic: event.topic, vin: event.vin ?? null } })
    })
    .get('/clock', () => Response.json({ response: clockBody(world) }))
    .post('/clock', async ({ req }) => {
      const seconds = (await readBody(req.raw))?.['advance_seconds']
      if (typeof seconds !== 'number' || !(seconds >= 0 && seconds <= longestSeconds)) {
        return refuse('invalid_request', `\`advance_seconds\` must be a number from 0 to ${longestSeconds}.`)
      }
      await world.advance(seconds * 1_000)
      return Response.json({ response: clockBody(world) })
    })
    .get('/deliveries', async () => {
      await world.deliveries.settled()
      return Response.json({ response: world.deliveries.list() })
    })
    .delete('/deliveries', () => {
      world.deliveries.clear()
      return Response.json({ response: true })
    })
}

/** What is done to one vehicle. */
function vehicleControls(world: World): Hono {
  const control = async (vin: string, act: (vehicle: SharedVehicle) => unknown): Promise<Response> => {
    const vehicle = world.vehicle(vin)
    if (vehicle === undefined) return refuseProduct(vin)
    world.run()
    act(vehicle)
    await world.deliveries.settled()
    return Response.json({ response: vehicleBody(vehicle, world) })
  }

  return new Hono()
    .get('/', () => Response.json({ response: world.vehicles().map((vehicle) => vehicleBody(vehicle, world)) }))
    .post('/', async ({ req }) => {
      const body = await readBody(req.raw)
      if (body === undefined) return refuseBody()
      const { vin, customer } = body
      if (vin !== undefined && typeof vin !== 'string') return refuse('invalid_request', '`vin` must be a string.')
      if (customer !== undefined && !isCustomer(customer)) {
        return refuse('invalid_request', '`customer` must be {"id": "…", "ref": "…" or null}.')
      }
      const vehicle = world.share(vin, { customer })
      if (vehicle !== undefined) return Response.json({ response: vehicleBody(vehicle, world) })
      return refuse('not_found', 'No simulated vehicle has this VIN, or all of them were shared already.')
    })
    .delete('/:vin', ({ req }) => control(req.param('vin'), (vehicle) => world.unshare(vehicle)))
    .post('/:vin/sleep', ({ req }) =>
      control(req.param('vin'), (vehicle) => world.publishFrom(vehicle, vehicle.car.sleep(world.now()))),
    )
    .post('/:vin/wake', ({ req }) =>
      control(req.param('vin'), (vehicle) => world.publishFrom(vehicle, vehicle.car.wake(world.now()))),
    )
    .post('/:vin/fault', async ({ req }) => {
      const fault = (await readBody(req.raw))?.['fault']
      const known = vehicleFaults.find((one) => one === fault)
      if (known === undefined && fault !== null) {
        return refuse('invalid_request', `\`fault\` must be null or one of ${vehicleFaults.join(', ')}.`)
      }
      return control(req.param('vin'), (vehicle) => world.setFault(vehicle, known))
    })
}

function setStanding(world: World, asked: JsonObject): Response {
  const { active = world.standing.active, permissions: allowed = world.standing.permissions } = asked
  const { auth_unavailable_seconds: seconds = 0 } = asked
  if (
    typeof active !== 'boolean' ||
    !isTextList(allowed) ||
    !allowed.every((one) => permissions.includes(one)) ||
    typeof seconds !== 'number'
  ) {
    return refuse(
      'invalid_request',
      `\`active\` is true or false, \`permissions\` a list of ${permissions.join(', ')}, \`auth_unavailable_seconds\` a number.`,
    )
  }
  world.standing = { active, permissions: allowed, unavailableUntil: world.settings.clock.now() + seconds * 1_000 }
  return Response.json({ response: standingBody(world) })
}

function standingBody({ standing, settings: { clock } }: World): JsonObject {
  const { active, permissions: allowed, unavailableUntil } = standing
  const seconds = Math.max(0, Math.ceil((unavailableUntil - clock.now()) / 1_000))
  return { active, permissions: allowed, auth_unavailable_seconds: seconds }
}

function clockBody(world: World): JsonObject {
  return { now: new Date(world.now()).toISOString(), speed: world.settings.speed }
}

function vehicleBody({ vin, car, fields, customer, fault }: SharedVehicle, world: World): JsonObject {
  return {
    vin,
    state: car.state(world.now()),
    reachable: car.isReachable(world.now()),
    streaming: fields !== undefined,
    fault: fault ?? null,
    customer,
  }
}

function isCustomer(value: unknown): value is Customer {
  return (
    isJsonObject(value) &&
    typeof value['id'] === 'string' &&
    (value['ref'] === null || typeof value['ref'] === 'string')
  )
}
