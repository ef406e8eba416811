import { Hono } from 'hono'
import { readFields } from './config-fields.ts'
import { refuse } from './refusal.ts'
import type { KeptFields } from './store.ts'
import type { SharedVehicle, World } from './world.ts'

/** `/api/config/{vin}`: what one vehicle streams. */
export function configRoutes(world: World): Hono {
  async function set(
    vin: string,
    request: Request,
    merge: (vehicle: SharedVehicle, sent: KeptFields) => KeptFields,
  ): Promise<Response> {
    const vehicle = world.vehicle(vin)
    if (vehicle === undefined) return notShared(vin)
    const read = await readFields(request)
    if (read instanceof Response) return read
    world.run()
    const fields = merge(vehicle, read.fields)
    world.setFields(vehicle, fields)
    return Response.json({ fields, ignoredFields: read.ignoredFields })
  }

  return new Hono()
    .get('/:vin', ({ req }) => {
      const vehicle = world.vehicle(req.param('vin'))
      if (vehicle === undefined) return notShared(req.param('vin'))
      const { fields } = vehicle.kept
      return fields === undefined
        ? refuse('config_not_found', 'The vehicle does not stream.')
        : Response.json({ fields })
    })
    .patch('/:vin', ({ req }) => set(req.param('vin'), req.raw, ({ kept }, sent) => ({ ...kept.fields, ...sent })))
    .post('/:vin', ({ req }) => set(req.param('vin'), req.raw, (_, sent) => sent))
    .delete('/:vin', ({ req }) => {
      const vehicle = world.vehicle(req.param('vin'))
      if (vehicle === undefined) return notShared(req.param('vin'))
      world.run()
      world.setFields(vehicle, undefined)
      return Response.json({ response: true })
    })
}

/** The refusal of a vehicle that nobody shares with the business. */
export function notShared(vin: string): Response {
  return refuse('vehicle_not_found', `No vehicle ${vin.slice(0, 17)} is shared with this business.`)
}
