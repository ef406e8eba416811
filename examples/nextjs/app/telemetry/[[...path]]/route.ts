import { createReceiver, summarize } from 'fleethook'
import { Hono } from 'hono'

// Where the platform may freeze after the response, the answer waits until the handlers are done.
const receiver = createReceiver({
  secret: () => process.env.WEBHOOK_SECRET, // asked when a message comes: at build time there is none
  ack: 'handled',
  timeoutMs: 10_000,
  retry: { attempts: 2 },
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event))) // your business code goes here

const app = new Hono().basePath('/telemetry').route('/', receiver.routes())

const handle = (request: Request): Response | Promise<Response> => app.fetch(request)

export { handle as GET, handle as OPTIONS, handle as POST }
