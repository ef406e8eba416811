import { createReceiver, type Format } from 'fleethook'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'

const secret = 'a-long-random-value'
const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

describe.each(formats)('a message delivered as %s', (as) => {
  test.each(Object.entries(message))(
    '%s is accepted, and its handler has the same event as in every format',
    async (_name, make) => {
      const ids: string[] = []
      const receiver = createReceiver({ secret }).on('*', (event) => ids.push(event.id))
      for (const other of [as, ...formats]) {
        const { status, body, settled } = await deliver(receiver, make(), { as: other, secret })
        await settled
        expect({ status, body }).toEqual({ status: 200, body: { text: 'Success', code: 0 } })
      }
      expect(ids).toHaveLength(4)
      expect(new Set(ids).size).toBe(1)
      expect(receiver.stats().topics['unknown']).toBeUndefined()
    },
  )
})

test('values, vehicle and time of a message are as they were given', async () => {
  const seen: unknown[] = []
  const receiver = createReceiver({ secret: false }).on('data', (event) =>
    seen.push([event.vin, event.createdAt, event.data.Gear]),
  )
  const details = { vin: 'VIN1', createdAt: '2026-01-02T03:04:05.678901234Z' }
  await (
    await deliver(receiver, message.data({ Gear: 'R' }, details))
  ).settled
  expect(seen).toEqual([['VIN1', details.createdAt, 'R']])
})

test('settled waits for retries, which come when the fake clock says so', async () => {
  const clock = fakeClock()
  let runs = 0
  const receiver = createReceiver({ secret: false, clock, retry: { attempts: 3, minMs: 20_000, maxMs: 40_000 } })
  receiver
    .onError(() => {})
    .on('state', () => {
      runs += 1
      if (runs < 3) throw new Error('not yet')
    })
  const { settled } = await deliver(receiver, message.state())
  let over = false
  void settled.then(() => (over = true))
  await clock.advance(9_000)
  expect([runs, over]).toEqual([1, false])
  await clock.advance(60_000)
  await settled
  expect(runs).toBe(3)
})

test('a refused message has its status and code, and settles at once', async () => {
  const receiver = createReceiver({ secret })
  const { status, body, settled } = await deliver(receiver, message.state(), { secret: 'wrong' })
  await settled
  expect(status).toBe(403)
  expect(body).toMatchObject({ code: 4, error: 'secret_wrong' })
})

test('a receiver mounted in an app is delivered to at its path, with the bindings of the runtime', async () => {
  const seen: unknown[] = []
  const receiver = createReceiver<{ Bindings: { SECRET: string } }>({ secret: (env) => env.SECRET }).on(
    'state',
    (_event, { env }) => seen.push(env.SECRET),
  )
  const app = new Hono<{ Bindings: { SECRET: string } }>().route('/telemetry', receiver.routes())
  const { status, settled } = await deliver(app, message.state(), {
    path: '/telemetry',
    secret,
    env: { SECRET: secret },
  })
  await settled
  expect(status).toBe(200)
  expect(seen).toEqual([secret])
})
