// Hono on Node that only reads JSON and answers.
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { answerBody, answerType } from './answer.ts'
import { measured } from './measured.ts'

const app = new Hono()
app.post('/', async (c) => {
  await c.req.json()
  return c.body(answerBody, 200, { 'content-type': answerType })
})
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => measured(port))
