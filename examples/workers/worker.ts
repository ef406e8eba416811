import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'

interface Env {
  Bindings: { WEBHOOK_SECRET: string }
}

const receiver = createReceiver<Env>({ secret: (env) => env.WEBHOOK_SECRET })
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))

export default worker(receiver)
