import { createReceiver, type Format, memoryInbox } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'

const secret = 'a-long-random-value'
const silent = { debug() {}, info() {}, warn() {}, error() {} }
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
  const receiver = createReceiver({
    secret: false,
    clock,
    log: silent,
    retry: { attempts: 3, minMs: 20_000, maxMs: 40_000 },
  })
  receiver.observe({ failed: () => {} })
  receiver.on('state', () => {
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

describe('settled', () => {
  test('waits longer than any runtime would hold a request', async () => {
    const clock = fakeClock()
    let release = (): void => {}
    const receiver = createReceiver({ secret: false, clock, timeoutMs: 600_000 }).on('state', () => {
      return new Promise<void>((resolve) => {
        release = resolve
      })
    })
    const { settled } = await deliver(receiver, message.state())
    await clock.advance(300_000)
    expect(receiver.stats()).toMatchObject({ handled: 0, lost: 0 })
    release()
    await settled
    expect(receiver.stats()).toMatchObject({ handled: 1, lost: 0 })
  })

  test('resolves when the message is a dead letter', async () => {
    const clock = fakeClock()
    const receiver = createReceiver({ secret: false, clock, log: silent, retry: { attempts: 2, minMs: 10, maxMs: 10 } })
    receiver.on('state', () => {
      throw new Error('never')
    })
    const { settled } = await deliver(receiver, message.state())
    await clock.advance(1_000)
    await settled
    expect(await Array.fromAsync(receiver.deadLetters.list())).toHaveLength(1)
  })

  test('resolves when a drain gives the message up', async () => {
    const clock = fakeClock()
    const receiver = createReceiver({ secret: false, clock, log: silent }).on('state', () => new Promise(() => {}))
    const { settled } = await deliver(receiver, message.state())
    const drained = receiver.drain({ deadlineMs: 100 })
    await clock.advance(100)
    await Promise.all([drained, settled])
  })

  test.each(['received', 'stored', 'handled'] as const)(
    "waits for the handlers also with ack: '%s' and a durable inbox",
    async (ack) => {
      const inbox: InboxFactory = (settings) => {
        const kept = memoryInbox()(settings)
        return {
          ...kept,
          durability: 'disk',
          async put(messages) {
            await new Promise((resolve) => setTimeout(resolve, 10))
            await kept.put(messages)
          },
        }
      }
      const seen: string[] = []
      const receiver = createReceiver({ secret: false, ack, inbox }).on('state', async (event) => {
        await new Promise((resolve) => setTimeout(resolve, 10))
        seen.push(event.state)
      })
      const { settled } = await deliver(receiver, message.state('asleep'))
      await settled
      expect(seen).toEqual(['asleep'])
    },
  )
})

test('alerts and errors need only a name', async () => {
  const seen: unknown[] = []
  const receiver = createReceiver({ secret: false })
    .on('alerts', ({ alerts }) => seen.push(alerts))
    .on('errors', ({ errors }) => seen.push(errors))
  await (
    await deliver(receiver, message.alerts([{ name: 'A' }]))
  ).settled
  await (
    await deliver(receiver, message.errors([{ name: 'E' }]))
  ).settled
  expect(seen).toEqual([[{ name: 'A', audiences: ['Customer'] }], [{ name: 'E', tags: {} }]])
})
