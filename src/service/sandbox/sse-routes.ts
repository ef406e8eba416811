import { Hono } from 'hono'
import type { WireTopic } from '../../events/event.ts'
import { notShared } from './config-routes.ts'
import { refuse } from './refusal.ts'
import type { World } from './world.ts'

const topics: readonly WireTopic[] = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

/** `/sse/{vin}` and `/sse/{vin}/{field}`. */
export function sseRoutes(world: World): Hono {
  return new Hono().get('/:vin/:field?', ({ req }) => {
    const { vin, field } = req.param()
    if (world.vehicle(vin) === undefined) return notShared(vin)
    const asked = req.query('topics')?.split(',')
    const known = asked?.flatMap((name) => topics.filter((topic) => topic === name.trim()))
    if (known?.length !== asked?.length) {
      return refuse('invalid_request', `\`topics\` is a list of ${topics.join(', ')} with commas between.`)
    }
    const lastEventId = req.header('last-event-id')
    return new Response(world.sse.listen({ vin, field, topics: known, lastEventId }), {
      headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
    })
  })
}
