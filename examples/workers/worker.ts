import { createReceiver, summarize } from 'fleethook'
import { worker } from 'fleethook/workers'

interface Env {
  WEBHOOK_SECRET: string
}

const receiver = createReceiver({ secret: (env: Env) => env.WEBHOOK_SECRET }).on(
  ['data', 'alerts', 'errors'],
  (event) => console.log(summarize(event)),
) // your business code goes here

export default worker(receiver)
