import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import { createParser } from 'eventsource-parser'
import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { Hono } from 'hono'
import { expect, onTestFinished, test } from 'vitest'

const secret = 'an-operator-of-the-tests'
const messages = 5_000
/** Each message is received and settled. */
const items = messages * 2

/** A reader of the feed that has connected and has read nothing. */
async function reader(url: string): Promise<IncomingMessage> {
  const asked = get(`${url}/operator/feed`, { agent: false, headers: { authorization: secret } })
  const [response]: IncomingMessage[] = await once(asked, 'response')
  if (response?.statusCode !== 200) throw new Error('there is no feed')
  onTestFinished(() => void response.destroy())
  return response
}

test('a page that does not read delays no acknowledgment, holds no messages, and learns what it missed', async () => {
  const receiver = createReceiver({ secret: false, limits: { pendingMessages: items } }).on('data', () => {})
  const app = new Hono().route('/operator', operatorRoutes(receiver, { secret }))
  const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [] })
  onTestFinished(() => server.close().then(() => {}))
  const slow = await reader(server.url.replace(/\/$/, ''))
  const dead = await reader(server.url.replace(/\/$/, ''))

  const name = 'x'.repeat(2_000)
  const statuses = new Set<number>()
  for (let n = 0; n < messages; n += 1) {
    const body = { vin: `V${n % 100}`, createdAt: '2026-11-21T10:00:00Z', data: { VehicleName: name, Odometer: n } }
    statuses.add((await receiver.accept({ authorization: undefined, body })).status)
    if (n % 20 === 0) await setImmediate()
    if (n === messages / 2) dead.destroy()
  }
  expect(statuses).toEqual(new Set([200]))
  await expect.poll(() => receiver.stats().handled).toBe(messages)

  let [shown, missed, bytes] = [0, 0, 0]
  const parser = createParser({
    onEvent({ data }) {
      const batch: { readonly items: readonly unknown[]; readonly missed?: number } = JSON.parse(data)
      shown += batch.items.length
      missed += batch.missed ?? 0
    },
  })
  slow.setEncoding('utf8').on('data', (text: string) => {
    bytes += text.length
    parser.feed(text)
  })
  await expect.poll(() => shown + missed).toBe(items)
  expect(missed).toBeGreaterThan(0)
  // All items together have about 45 MB. At most two batches waited for the reader, beside what the sockets hold.
  expect(bytes).toBeLessThan(15_000_000)
})
