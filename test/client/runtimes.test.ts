import { once } from 'node:events'
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Runtime } from '../../scripts/runtimes.ts'
import { everywhere, inThisForm } from '../runtimes/targets.ts'
import { type Program, seenOn } from './running.ts'

/** A service with everything that the journey has to cope with: it ends streams, is busy once, is slow, redirects. */
function service(): Hono {
  const item = (id: number): string =>
    `id: ${id}\ndata: {"vin":"X","createdAt":"2026-11-21T10:00:00Z","data":{"BatteryLevel":"${id}"}}\n\n`
  let webhook: object | undefined
  let busy = 0
  return new Hono()
    .use(async (c, next) =>
      c.req.header('authorization')?.startsWith('Bearer ') ? next() : c.json({ error: 'unauthorized' }, 401),
    )
    .get('/api/business/webhook', (c) =>
      webhook ? c.json({ response: webhook }) : c.json({ error: 'webhook_not_found' }, 404),
    )
    .put('/api/business/webhook', async (c) => {
      const { auth, ...rest }: { auth: string } = await c.req.json()
      webhook = { verify: true, enabled: true, updated_at: 'now', ...rest, auth: auth === 'a-long-random-value' }
      return c.json({ response: webhook })
    })
    .delete('/api/business/webhook', (c) => {
      webhook = undefined
      return c.json({ response: true })
    })
    .patch('/api/config/:vin', (c) => c.json({ ignoredFields: ['Gear'] }))
    .get('/api/image/:vin', (c) => c.body(new Uint8Array(1_000), 200, { 'content-type': 'image/png' }))
    .get('/api/business/products', (c) => {
      busy += 1
      return busy % 2 === 1
        ? c.json({ error: 'too_many_requests' }, 429, { 'retry-after': '0' })
        : c.json({ response: [] })
    })
    .get('/api/1/vehicles/SLOW', () => new Promise(() => {}))
    .get('/api/1/vehicles/MOVED', (c) => c.redirect('/api/1/vehicles/ELSEWHERE', 301))
    .get('/api/1/vehicles/ELSEWHERE', (c) => c.json({ response: { followed: true } }))
    .get('/api/1/vehicles/:vin/vehicle_data', (c) => c.json({ response: { full: true } }))
    .get('/sse/SILENT', (c) => {
      const first = new TextEncoder().encode(item(0))
      return c.body(new ReadableStream({ start: (controller) => controller.enqueue(first) }), 200, {
        'content-type': 'text/event-stream',
      })
    })
    .get('/sse/:vin', (c) => {
      const last = Number(c.req.header('last-event-id') ?? 0)
      return c.body(`retry: 1\n\n: hello\n${item(last + 1)}${item(last + 2)}`, 200, {
        'content-type': 'text/event-stream',
      })
    })
}

const server = serve({ fetch: service().fetch, port: 0, hostname: '127.0.0.1' })
let url = ''
beforeAll(async () => {
  if (!server.listening) await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('The server has no port.')
  url = `http://127.0.0.1:${address.port}`
})
afterAll(() => {
  if ('closeAllConnections' in server) server.closeAllConnections()
  server.close()
})

const program: Program = {
  file: 'run.ts',
  imports: "import { journey } from './journey.ts'",
  call: 'journey(service)',
}

test.each<Runtime>((['node20', ...everywhere] as const).filter(inThisForm))(
  'a business uses the whole service on %s, with the runtime’s own fetch and streams',
  async (runtime) => {
    const { gone, ...seen } = Object(await seenOn(runtime, program, url, 'key'))
    expect(seen).toEqual({
      before: ['webhook_not_found', 404],
      auth: true,
      local: ['invalid_webhook_url', null],
      ignored: ['Gear'],
      image: 1_000,
      levels: [1, 2, 3, 4],
      aborted: 'data',
      refilled: [{ full: true }],
      handled: [1, 2, 3, 4],
      patient: [],
      late: ['timeout', null],
      moved: ['refused', 301],
    })
    expect(gone).toEqual(['unreachable', null])
  },
)
