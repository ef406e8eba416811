import { createReceiver } from 'fleethook'
import { post } from '../post.js'

const secret = 'a-secret-of-the-consumer'

/** The handlers of a route: a POST goes to a receiver, a GET posts to this route and answers what came of it. */
export function receiving(options) {
  const handled = []
  const receiver = createReceiver({ secret: () => secret, ack: 'handled', ...options }).on('data', (event) => {
    handled.push(`${event.format} ${event.vin} ${event.data.BatteryLevel}`)
  })
  return {
    POST: (request) => receiver.fetch(new Request(new URL('/', request.url), request)),
    GET: async (request) => Response.json({ statuses: await post(request.url, secret), handled }),
  }
}
