import { ServiceError } from 'fleethook/client'
import { describe, expect, test } from 'vitest'
import { json, refusal, rejection, stub } from './stub.ts'

const url = 'https://receiver.example/telemetry'
const stored = {
  url,
  format: 'service',
  auth: true,
  verify: true,
  enabled: true,
  updated_at: '2026-11-21T10:00:00.000Z',
}

describe('webhook.set', () => {
  test.each([
    'http://localhost:3000/',
    'https://mac.local/',
    'https://10.0.0.1/',
    'https://[::ffff:127.0.0.1]/',
    'receiver',
  ])('refuses %s with the code of the service, and sends nothing', async (local) => {
    const { client, asked } = stub(json({ response: stored }))
    const error = await rejection(client.webhook.set({ url: local, format: 'service' }))
    expect(error).toBeInstanceOf(ServiceError)
    expect(error).toMatchObject({ code: 'invalid_webhook_url', status: undefined })
    expect(asked).toEqual([])
  })

  test.each([
    [{ url }, '`format`'],
    [{ url, format: 'xml' }, '`format`'],
    [{ format: 'service' }, '`url`'],
    [{ url, format: 'service', auth: undefined }, '`auth`'],
    [{ url, format: 'service', auth: '' }, '`auth`'],
    [{ url, format: 'service', auth: ' hunter2' }, '`auth`'],
    [{ url, format: 'service', auth: 'hunter2\n' }, '`auth`'],
    [{ url, format: 'service', auth: 'hünter2' }, '`auth`'],
    [{ url, format: 'service', verify: 'yes' }, '`verify`'],
    [{ url, format: 'service', enabled: 1 }, '`enabled`'],
  ])('refuses %j and says what is wrong with it, without the value of auth', async (webhook, said) => {
    const { client, asked } = stub(json({ response: stored }))
    const error = await rejection(client.webhook.set(webhook as never))
    expect(error).toMatchObject({ code: 'invalid_request' })
    expect(String(error)).toContain(said)
    expect(String(error)).not.toMatch(/h[uü]nter2/)
    expect(asked).toEqual([])
  })
})

test('webhook.delete resolves when a retry finds that the first attempt has deleted the webhook', async () => {
  const lost = (): never => {
    throw new TypeError('fetch failed')
  }
  const { client, asked, clock } = stub([lost, refusal(404, 'webhook_not_found')])
  const deleted = client.webhook.delete()
  await clock.advance(1_000)
  expect(await deleted).toBeUndefined()
  expect(asked).toHaveLength(2)
})

test('a value of `auth` is not passed on, even if a service returns it', async () => {
  const { client } = stub(json({ response: { ...stored, auth: 'hunter2' } }))
  expect(await client.webhook.get()).toEqual(stored)
})

test.each([
  [{ response: { ...stored, updated_at: 5 } }, 'updated_at'],
  [{ response: null }, 'top level'],
  [{}, 'url'],
  [[], 'top level'],
])('an answer of another shape is answer_unreadable, and says where: %j', async (body, said) => {
  const { client } = stub(json(body))
  const error = await rejection(client.webhook.get())
  expect(error).toMatchObject({ code: 'answer_unreadable' })
  expect(String(error)).toContain(said)
})
