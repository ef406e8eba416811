// The same as a Worker: posts to itself, and answers what came of it.
import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'
import { post } from './post.js'

const handled = []
const receiver = createReceiver({ secret: (env) => env.WEBHOOK_SECRET, ack: 'handled' }).on('data', (event) => {
  handled.push(`${event.format} ${event.vin} ${event.data.BatteryLevel}`)
})
const { fetch: receive } = worker(receiver)

export default {
  async fetch(request, env, context) {
    if (request.method === 'POST') return receive(request, env, context)
    const statuses = await post(request.url, env.WEBHOOK_SECRET, (url, init) => env.SELF.fetch(url, init))
    return Response.json({ statuses, handled })
  },
}
