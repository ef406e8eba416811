import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import type { LambdaEvent } from 'hono/aws-lambda'

const secret = 'a-secret-for-this-test'
process.env.WEBHOOK_SECRET = secret
// The bundle that is uploaded, loaded as the platform does.
const { handler }: typeof import('./handler.ts') = createRequire(import.meta.url)('./dist/index.cjs')

const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

interface Posted {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly isBase64Encoded?: boolean
}

function posted(format: Format): Posted {
  const body = JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format))
  return { headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret }, body }
}

/** As a function URL and an HTTP API of API Gateway send it. */
function version2(given: Posted): LambdaEvent {
  const requestContext = { domainName: 'function.test', http: { method: 'POST' } }
  const event: object = { version: '2.0', rawPath: '/', requestContext, isBase64Encoded: false, ...given }
  return event as LambdaEvent
}

/** As a REST API of API Gateway sends it: names of headers are as the client wrote them. */
function version1({ headers: { authorization }, ...given }: Posted): LambdaEvent {
  const headers = { headers: { Authorization: authorization }, multiValueHeaders: { Authorization: [authorization] } }
  const requestContext = { domainName: 'api.test' }
  const event: object = { path: '/', httpMethod: 'POST', requestContext, isBase64Encoded: false, ...headers, ...given }
  return event as LambdaEvent
}

for (const format of formats) {
  test(`takes a ${format} message`, async () => {
    assert.equal((await handler(version2(posted(format)))).statusCode, 200)
    assert.equal((await handler(version1(posted(format)))).statusCode, 200)
  })
}

test('takes a body that the platform has encoded as base64', async () => {
  const { body, headers } = posted('service')
  const gzipped = gzipSync(body).toString('base64')
  const event = version2({ body: gzipped, isBase64Encoded: true, headers: { ...headers, 'content-encoding': 'gzip' } })
  assert.equal((await handler(event)).statusCode, 200)
})

test('has handled a message when it answers', async (t) => {
  const log = t.mock.method(console, 'log', () => {})
  await handler(version2(posted('service')))
  assert.match(log.mock.calls.at(-1)?.arguments.join(' ') ?? '', /BatteryLevel 81.5/)
})

test('handles fields that come late, in pieces and twice, each message when it comes', async (t) => {
  const log = t.mock.method(console, 'log', () => {})
  const said: [minute: number, data: FieldValues][] = [
    [10, { BatteryLevel: 81.5 }],
    [10, { Gear: 'P' }],
    [2, { Odometer: 1000 }],
    [10, { Gear: 'P' }],
  ]
  for (const format of formats) {
    for (const [minute, data] of said) {
      const createdAt = new Date(Date.UTC(2026, 0, 1, 8, minute)).toISOString()
      const body = JSON.stringify(encode(message.data(data, { vin: `VIN-${format}`, createdAt }), format))
      assert.equal((await handler(version2({ ...posted(format), body }))).statusCode, 200)
    }
  }
  const printed = (text: string) => log.mock.calls.filter(({ arguments: [line] }) => String(line).includes(text)).length
  assert.deepEqual(['BatteryLevel 81.5', 'Odometer 1000', 'Gear P'].map(printed), [3, 3, 6])
})

test('takes any Content-Type and none, and a batch of 2 MiB from a relay', async (t) => {
  t.mock.method(console, 'log', () => {})
  for (const type of ['text/html', ';;', 'application/json; charset=latin1', undefined]) {
    const { headers, body } = posted('service')
    const given = type === undefined ? headers : { ...headers, 'content-type': type }
    assert.equal((await handler(version2({ body, headers: given }))).statusCode, 200)
  }
  const one = JSON.stringify(encode(message.data({ VehicleName: 'x'.repeat(1_000) }), 'event_collector'))
  const batch = Array.from({ length: Math.ceil(2_097_152 / one.length) }, () => one).join('\n')
  const event = { ...version2({ ...posted('event_collector'), body: batch }), rawPath: '/services/collector/event' }
  assert.equal((await handler(event)).statusCode, 200)
})

test('answers 500 when the handler fails in its last attempt: a frozen function keeps nothing', async (t) => {
  t.mock.method(console, 'log', () => {
    throw new Error('the database is down')
  })
  for (const level of ['warn', 'error'] as const) t.mock.method(console, level, () => {})
  const { statusCode, body } = await handler(version2(posted('service')))
  assert.equal(statusCode, 500)
  assert.match(body, /not_handled/)
})

test('refuses a sender without the secret', async () => {
  assert.equal((await handler(version2({ ...posted('service'), headers: { authorization: 'wrong' } }))).statusCode, 403)
})
