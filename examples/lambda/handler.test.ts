import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import type { Format } from 'fleethook'
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
