import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import type { APIGatewayProxyEventV2 } from 'aws-lambda'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
process.env.WEBHOOK_SECRET = secret
// The bundle that is uploaded, loaded as the platform does.
const { handler }: typeof import('./handler.ts') = createRequire(import.meta.url)('./dist/index.cjs')

const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

function posted(format: Format, part: Partial<APIGatewayProxyEventV2> = {}): APIGatewayProxyEventV2 {
  const body = JSON.stringify(encode(message.data({ BatteryLevel: 81.5 }), format))
  const event: Partial<APIGatewayProxyEventV2> = {
    version: '2.0',
    rawPath: '/',
    headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
    body,
    isBase64Encoded: false,
    ...part,
  }
  return event as APIGatewayProxyEventV2
}

for (const format of formats) {
  test(`takes a ${format} message`, async () => {
    assert.equal((await handler(posted(format))).statusCode, 200)
  })
}

test('takes a body that the platform has encoded as base64', async () => {
  const { body = '', headers } = posted('service')
  const gzipped = gzipSync(body).toString('base64')
  const event = posted('service', {
    body: gzipped,
    isBase64Encoded: true,
    headers: { ...headers, 'content-encoding': 'gzip' },
  })
  assert.equal((await handler(event)).statusCode, 200)
})

test('has handled a message when it answers', async (t) => {
  const log = t.mock.method(console, 'log', () => {})
  await handler(posted('service'))
  assert.match(log.mock.calls.at(-1)?.arguments.join(' ') ?? '', /BatteryLevel 81.5/)
})

test('refuses a sender without the secret', async () => {
  assert.equal((await handler(posted('service', { headers: { authorization: 'wrong' } }))).statusCode, 403)
})
