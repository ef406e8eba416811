// What Bun and `deno serve` run directly: a module whose default export has `fetch`, here separate from its receiver.
import { createReceiver, type Receiver } from '../../../src/index.ts'

const events: unknown[] = []
const receiver: Receiver = createReceiver({ secret: 'a-long-random-value' }).on('*', (event) => events.push(event))
// A variable of its own, so that `this` is not bound.
const fetch: typeof receiver.fetch = receiver.fetch

const own: { readonly port: number; readonly hostname: string; readonly fetch: typeof fetch } = {
  port: 0,
  hostname: '127.0.0.1',
  fetch: (request, env, context) =>
    request.url.endsWith('/events') ? Response.json(events) : fetch(request, env, context),
}
export default own
