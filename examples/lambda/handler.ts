import { createReceiver, summarize } from 'fleethook'
import { handle } from 'hono/aws-lambda'

// A function is frozen after its response, so the answer waits until the handlers are done.
const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  ack: 'handled',
  timeoutMs: 10_000,
  retry: { attempts: 2 },
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event))) // your business code goes here

/** For a function URL, API Gateway (REST and HTTP APIs) and load balancers. Give the function 30 seconds. */
export const handler = handle(receiver.routes())
