import { createServer, type IncomingMessage } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import { beforeAll, expect, test, vi } from 'vitest'
import { answeredByHost, conforms, secret } from './checks.ts'
import { listening } from './listening.ts'

/** The template's, as far as its event is made here. */
interface Lambda {
  readonly handler: (event: FunctionUrlEvent) => Promise<{
    readonly statusCode: number
    readonly headers: Readonly<Record<string, string>>
    readonly body: string
  }>
}

interface FunctionUrlEvent {
  readonly version: '2.0'
  readonly rawPath: string
  readonly rawQueryString: string
  readonly headers: IncomingMessage['headers']
  readonly body?: string
  readonly isBase64Encoded: boolean
}

let handler: Lambda['handler']
const log = vi.spyOn(console, 'log').mockImplementation(() => {})

beforeAll(async () => {
  vi.stubEnv('WEBHOOK_SECRET', secret)
  const template: string = pathToFileURL('examples/lambda/handler.ts').href
  const { handler: imported }: Lambda = await import(template)
  handler = imported
})

/** A request as a function URL passes it on: as text when its type says so, otherwise as base64. */
async function eventOf(request: IncomingMessage): Promise<FunctionUrlEvent> {
  const { pathname, search } = new URL(request.url ?? '/', 'http://function.test')
  const { headers } = request
  const bytes = await buffer(request)
  const isText = headers['content-type']?.startsWith('application/json') === true && !('content-encoding' in headers)
  const body = bytes.length === 0 ? {} : { body: bytes.toString(isText ? 'utf8' : 'base64') }
  return {
    version: '2.0',
    rawPath: pathname,
    rawQueryString: search.slice(1),
    headers,
    isBase64Encoded: !isText && bytes.length > 0,
    ...body,
  }
}

test(
  'the handler of the Lambda template, given the events of a function URL, passes the whole suite',
  {
    timeout: 60_000,
  },
  async () => {
    const functionUrl = createServer(async (request, response) => {
      const { statusCode, headers, body } = await handler(await eventOf(request))
      response.writeHead(statusCode, headers).end(body)
    })
    await using server = await listening(functionUrl)
    await conforms(server.url, undefined, answeredByHost)
  },
)

test.each([
  ['text', 'application/json'],
  ['base64', undefined],
])('a body that comes as %s has reached the handlers when the answer is there', async (_how, type) => {
  log.mockClear()
  const headers = { authorization: secret, ...(type === undefined ? {} : { 'content-type': type }) }
  const body = '{"vin":"0FLEETV14T0000004","createdAt":"2026-11-21T10:00:00Z","data":{"BatteryLevel":81.5}}'
  const encoded = type === undefined ? Buffer.from(body).toString('base64') : body
  const { statusCode } = await handler({
    version: '2.0',
    rawPath: '/',
    rawQueryString: '',
    headers,
    body: encoded,
    isBase64Encoded: type === undefined,
  })
  expect(statusCode).toBe(200)
  expect(log.mock.calls).toEqual([
    [expect.stringMatching(/^\d\d:\d\d:\d\d .* 0FLEETV14T0000004 service +data +BatteryLevel 81\.5$/)],
  ])
})
