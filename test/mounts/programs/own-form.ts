// What Bun and `deno serve` run as it is: a module whose default export has `fetch`.
import { createReceiver, type Receiver } from '../../../src/index.ts'
import { Hono } from 'hono'

const events: unknown[] = []
const receiver: Receiver = createReceiver({ secret: 'a-long-random-value' }).on('*', (event) => events.push(event))
const host = new Hono().get('/events', (c) => c.json(events))

const own: { readonly port: number; readonly fetch: typeof receiver.fetch } = {
  port: 0,
  fetch: (request, env, context) =>
    request.url.endsWith('/events') ? host.fetch(request) : receiver.fetch(request, env, context),
}
export default own
