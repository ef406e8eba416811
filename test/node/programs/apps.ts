// Two receivers with secrets of their own, deep in one app: apps in apps, one of which has its own error handler.
import { once } from 'node:events'
import { env } from 'node:process'
import { Hono } from 'hono'
import { serve } from '../../../adapters/node.ts'
import { createReceiver, type Receiver } from '../../../src/index.ts'

const stopping = once(process, 'SIGTERM')
const slow = (secret: string): Receiver =>
  createReceiver({ secret }).on('*', async (event) => {
    await stopping
    await new Promise((resolve) => setTimeout(resolve, 100))
    console.log(`handled ${event.vin}`)
  })

const plain = new Hono().route('/telemetry', slow('one').routes())
const guarded = new Hono()
  .onError((_error, c) => c.text('an error', 500))
  .use(async (c, next) => {
    await next()
    c.header('x-host', 'guarded')
  })
  .route('/telemetry', slow('two').routes())
const app = new Hono()
  .get('/', (c) => c.text('home'))
  .route('/plain', plain)
  .route('/deep', new Hono().route('/guarded', guarded))

const server = await serve(app, JSON.parse(env['SERVE'] ?? '{}'))
console.log(`closed ${JSON.stringify(await server.closed)}`)
