import { FleethookError } from 'fleethook'
import { createClient, ServiceError } from 'fleethook/client'
import { describe, expect, test } from 'vitest'
import { remember } from '../http/ways.ts'
import { apiKey, baseUrl, json, refusal, rejection, stub, vin } from './stub.ts'

const once = { retry: { attempts: 1 } }

describe('an error has the code of the service, wherever its body has it', () => {
  test.each([
    [{ error: 'insufficient_scope' }, 'insufficient_scope'],
    [{ response: null, error: 'insufficient_scope', error_description: 'No.' }, 'insufficient_scope'],
    [{ error: { code: 'insufficient_scope', message: 'No.' } }, 'insufficient_scope'],
    [{ code: 'insufficient_scope', message: 'No.' }, 'insufficient_scope'],
    [{ response: null, error: 'vehicle unavailable: vehicle is offline or asleep' }, 'vehicle_unavailable'],
    [{ error: 'Vehicle is asleep' }, 'vehicle_unavailable'],
    [{ error: 'You may not do that' }, 'refused'],
    [{ error: 'A vehicle unavailable' }, 'refused'],
    [{ error: 5 }, 'refused'],
    [[], 'refused'],
    ['no', 'refused'],
    [null, 'refused'],
  ])('%j', async (body, code) => {
    const { client } = stub(json(body, 403), once)
    const error = await rejection(client.products())
    expect(error).toBeInstanceOf(ServiceError)
    expect(error).toMatchObject({ name: 'ServiceError', code, status: 403 })
  })

  test('and an HTML page is reported by its status', async () => {
    const { client } = stub(() => new Response('<html>gateway hunter2</html>', { status: 502 }), once)
    const error = await rejection(client.products())
    expect(error).toMatchObject({ code: 'refused', status: 502 })
    expect(String(error)).not.toContain('html')
  })
})

describe('an answer of any size is given up before it fills the memory', () => {
  const endless = (status: number): { readonly answer: () => Response; readonly sent: () => number } => {
    let sent = 0
    const chunk = new Uint8Array(1_048_576).fill(32)
    const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
      sent += chunk.length
      controller.enqueue(chunk)
    }
    return { answer: () => new Response(new ReadableStream({ pull }), { status }), sent: () => sent }
  }

  test('a good one is an error that says so', async () => {
    const { answer, sent } = endless(200)
    const { client } = stub(answer)
    const error = await rejection(client.products())
    expect(error).toMatchObject({ code: 'answer_unreadable', status: 200 })
    expect(String(error)).toContain('more than 32 MiB')
    expect(await rejection(client.vehicle(vin).image())).toMatchObject({ code: 'answer_unreadable' })
    expect(sent()).toBeLessThan(80 * 1_048_576)
  })

  test('an error is reported by its status', async () => {
    const { answer, sent } = endless(502)
    const { client } = stub(answer, once)
    expect(await rejection(client.products())).toMatchObject({ code: 'refused', status: 502 })
    expect(sent()).toBeLessThan(4 * 1_048_576)
  })
})

test.each(['x-request-id', 'x-txid'])('the id of the request is read from %s', async (header) => {
  const { client } = stub(refusal(404, 'not_found', { [header]: 'req-1' }), once)
  expect(await rejection(client.products())).toMatchObject({ requestId: 'req-1' })
})

test('the message names the request, the status, the code and the service’s text, and the hint says what to do', async () => {
  const { client } = stub(refusal(404, 'webhook_not_found'))
  const error = await rejection(client.webhook.get())
  expect(String(error)).toBe(
    'ServiceError: GET /api/business/webhook was answered with 404 webhook_not_found: The service says webhook_not_found.',
  )
  expect(error).toMatchObject({ hint: 'Set one with `webhook.set`.' })
})

describe('the hint explains what the service refuses by rule', () => {
  const { client } = stub(refusal(403, 'insufficient_scope'), once)
  test.each([
    ['a command', () => client.command(vin, 'door_unlock'), 'command access to vehicles'],
    ['waking', () => client.wakeUp(vin), 'command access to vehicles'],
    ['an energy setting', () => client.energySite('7').command('storm_mode'), 'command access to energy sites'],
    ['drivers', () => client.vehicle(vin).get('drivers'), 'customer’s own account'],
    ['invitations', () => client.vehicle(vin).get('invitations/5'), 'customer’s own account'],
    ['a path without a product', () => client.products(), '`products()`'],
  ])('%s', async (_name, run, hint) => {
    const error = await rejection(run())
    expect(error).toMatchObject({ code: 'insufficient_scope', status: 403 })
    expect(error instanceof ServiceError && error.hint).toContain(hint)
  })
})

test.each([
  [401, 'unauthorized', 'apiKey'],
  [401, '', 'apiKey'],
  [429, '', 'retryAfterMs'],
  [500, '', 'try again later'],
  [401, 'invalid_token', 'apiKey'],
  [400, 'invalid_command', 'parameter'],
  [403, 'business_product_not_consented', 'products()'],
  [403, 'business_not_active', 'Ask the service'],
  [403, 'business_route_not_allowed', 'products()'],
  [403, 'business_permission_missing', 'streaming:write'],
  [403, 'customer_reconnect_required', 'sign in and connect again'],
  [403, 'customer_scope_missing', 'connect again and to allow everything'],
  [503, 'business_auth_unavailable', 'retryAfterMs'],
  [408, 'vehicle_unavailable', 'wakeUp'],
  [404, 'vehicle_not_found', 'products()'],
  [400, 'invalid_webhook_url', 'internet'],
  [302, '', 'baseUrl'],
])('%i %s has a hint', async (status, code, hint) => {
  const { client } = stub(refusal(status, code), once)
  const error = await rejection(client.products())
  expect(error instanceof ServiceError && error.hint).toContain(hint)
})

test('a body that cannot be JSON rejects with a TypeError, and nothing is sent', async () => {
  const { client, asked } = stub(json({}))
  expect(await rejection(client.command(vin, 'charge_start', { amps: 5n }))).toBeInstanceOf(TypeError)
  expect(asked).toEqual([])
})

test('the client follows no redirection with the key', async () => {
  const seen: (string | undefined)[] = []
  const { client } = stub((_asked, init) => {
    seen.push(init.redirect)
    return Response.redirect('https://elsewhere.example/', 301)
  }, once)
  expect(await rejection(client.products())).toMatchObject({ status: 301 })
  expect(seen).toEqual(['manual'])
})

test('`unreachable` names the address and the reason that the platform gives, and never the key', async () => {
  const refused = new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code: 'ECONNREFUSED' }) })
  for (const [thrown, said] of [
    [refused, 'ECONNREFUSED'],
    [new Error('no route'), 'no route'],
    ['thrown text', 'a string was thrown'],
  ] as const) {
    const { client } = stub(() => Promise.reject(thrown), once)
    const error = await rejection(client.products())
    expect(error).toMatchObject({ code: 'unreachable', cause: thrown })
    expect(String(error)).toContain(`GET /api/business/products: no answer from ${baseUrl}, ${said}.`)
    expect(String(error)).not.toContain(apiKey)
  }
})

test('an answer that is not JSON, or not of the shape, is answer_unreadable', async () => {
  for (const answer of [() => new Response('<html>'), json({ response: 5 }), json({ response: [{}] })]) {
    expect(await rejection(stub(answer).client.products())).toMatchObject({ code: 'answer_unreadable' })
  }
})

test('neither the key nor the value of auth is in any error or log, whatever the service says about them', async () => {
  const auth = 'the-secret-of-the-webhook'
  const quoting = (_asked: unknown, init: RequestInit): Response =>
    Response.json(
      {
        error: 'invalid_request',
        error_description: `You sent ${String(init.body)} with ${JSON.stringify(init.headers)}`,
      },
      { status: 400 },
    )
  const { client, log } = stub(quoting)
  const errors = [
    await rejection(client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth })),
    await rejection(client.webhook.get()),
    await rejection(client.command(vin, 'charge_start')),
  ]
  const { inspect } = await import('node:util')
  const told = `${errors.map((error) => inspect(error, { depth: 9 })).join('\n')}\n${log.lines.join('\n')}`
  expect(told).toContain('You sent')
  expect(told).not.toContain(auth)
  expect(told).not.toContain(apiKey)
})

test('nor as a code, as the request id, or escaped in JSON', async () => {
  const auth = 'a"secret\\of the webhook'
  const { client } = stub(
    (_asked, init) =>
      Response.json(
        { error: apiKey.replaceAll('-', '_'), error_description: `You sent ${String(init.body)}` },
        { status: 400, headers: { 'x-request-id': apiKey.replaceAll('-', '_') } },
      ),
    { apiKey: apiKey.replaceAll('-', '_') },
  )
  const error = await rejection(client.webhook.set({ url: 'https://receiver.example/', format: 'service', auth }))
  expect(error).toMatchObject({ code: 'refused', status: 400, requestId: '…' })
  expect(String(error)).toContain('You sent')
  expect(String(error)).not.toContain('of the webhook')
  expect(String(error)).not.toContain(apiKey.replaceAll('-', '_'))
})

describe('a wrong option is refused at construction, and the error does not show the key', () => {
  test.each([
    [{ apiKey }, '`baseUrl`'],
    [{ baseUrl: undefined, apiKey }, '`baseUrl`'],
    [{ baseUrl: 'service.example', apiKey }, '`baseUrl`'],
    [{ baseUrl: 'ftp://service.example', apiKey }, '`baseUrl`'],
    [{ baseUrl: 'https://user:hunter2@service.example', apiKey }, '`baseUrl`'],
    [{ baseUrl: 'https://service.example/?key=hunter2', apiKey }, '`baseUrl`'],
    [{ baseUrl }, '`apiKey`'],
    [{ baseUrl, apiKey: '' }, '`apiKey`'],
    [{ baseUrl, apiKey: 'Bearer hunter2' }, '`apiKey`'],
    [{ baseUrl, apiKey: 'hunter2\n' }, '`apiKey`'],
    [{ baseUrl, apiKey, timeout: 5 }, '`timeout`'],
    [{ baseUrl, apiKey, timeoutMs: 0 }, '`timeoutMs`'],
    [{ baseUrl, apiKey, retry: { attempts: 0 } }, '`retry.attempts`'],
    [{ baseUrl, apiKey, retry: { minMs: -1 } }, '`retry.minMs`'],
    [{ baseUrl, apiKey, fields: { Mood: 'colour' } }, 'fields.Mood'],
  ])('%j', (options, said) => {
    const make = (): unknown => createClient(options as never)
    expect(make).toThrow(FleethookError)
    expect(make).toThrow(said)
    expect(make).not.toThrow(/hunter2/)
  })
})

test('the base address can have a path and a slash at its end', async () => {
  const seen: string[] = []
  const client = createClient({
    baseUrl: 'https://proxy.example/service/',
    apiKey,
    fetch: (url) => {
      seen.push(url)
      return Response.json({ response: [] })
    },
  })
  await client.products()
  expect(seen).toEqual(['https://proxy.example/service/api/business/products'])
})

test('the log warns of a key that would travel without encryption, unless it stays on this machine', () => {
  const log = remember()
  for (const address of ['http://localhost:4000', 'http://127.0.0.1', 'http://[::1]:80', baseUrl]) {
    createClient({ baseUrl: address, apiKey, log })
  }
  expect(log.lines).toEqual([])
  createClient({ baseUrl: 'http://service.example', apiKey, log })
  expect(log.lines).toHaveLength(1)
})
