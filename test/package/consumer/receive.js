// Runs on every runtime that serves: posts to the installed package, stops it, and says what came of it.
import { argv } from 'node:process'
import { createReceiver } from 'fleethook'
import { post } from './post.js'

const secret = 'a-secret-of-the-consumer'
const { serve } = await import(`fleethook/${argv[2]}`)
const handled = []
const receiver = createReceiver({ secret }).on('data', (event) => {
  handled.push(`${event.format} ${event.vin} ${event.data.BatteryLevel}`)
})
const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })
const statuses = await post(server.url, secret)
await server.close()
console.log(JSON.stringify({ statuses, handled }))
