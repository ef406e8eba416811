import { createServer, type IncomingMessage } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { pathToFileURL } from 'node:url'
import { beforeAll, expect, test, vi } from 'vitest'
import { conforms, secret } from './checks.ts'
import { listening } from './listening.ts'

/** The template's, as far as its event is made here. */
interface Lambda {
  readonly handler: (event: object) => Promise<{
    readonly statusCode: number
    readonly headers?: Readonly<Record<string, string>>
    /** In place of `headers`, when the event had them. */
    readonly multiValueHeaders?: Readonly<Record<string, readonly string[]>>
    readonly body: string
  }>
}

/** What events of both versions have. */
interface Body {
  readonly body?: string
  readonly isBase64Encoded: boolean
}

/** A request as the platform passes it on. */
type Version = (url: URL, request: Pick<IncomingMessage, 'method' | 'headers'>, body: Body) => object

/** Of a function URL and an HTTP API. */
const version2: Version = ({ pathname, search }, { method, headers }, body) => ({
  version: '2.0',
  rawPath: pathname,
  rawQueryString: search.slice(1),
  requestContext: { domainName: 'function.test', http: { method, path: pathname } },
  headers,
  ...body,
})

/** Of a REST API, which leaves the names of headers as the client wrote them. */
const version1: Version = ({ pathname, searchParams }, { method, headers }, body) => {
  const inCapitals = Object.entries(headers).map(([name, value]) => [name.toUpperCase(), String(value)] as const)
  return {
    path: pathname,
    httpMethod: method,
    requestContext: { domainName: 'api.test', httpMethod: method, path: pathname },
    queryStringParameters: Object.fromEntries(searchParams),
    headers: Object.fromEntries(inCapitals),
    multiValueHeaders: Object.fromEntries(inCapitals.map(([name, value]) => [name, [value]])),
    ...body,
  }
}

let handler: Lambda['handler']
const log = vi.spyOn(console, 'log').mockImplementation(() => {})

beforeAll(async () => {
  vi.stubEnv('WEBHOOK_SECRET', secret)
  const template: string = pathToFileURL('examples/lambda/handler.ts').href
  const { handler: imported }: Lambda = await import(template)
  handler = imported
})

/** The body as text when its type says so, otherwise as base64. */
async function bodyOf(request: IncomingMessage): Promise<Body> {
  const { headers } = request
  const bytes = await buffer(request)
  const isText = headers['content-type']?.startsWith('application/json') === true && !('content-encoding' in headers)
  if (bytes.length === 0) return { isBase64Encoded: false }
  return { body: bytes.toString(isText ? 'utf8' : 'base64'), isBase64Encoded: !isText }
}

test.each([
  ['a function URL and an HTTP API', version2],
  ['a REST API', version1],
])(
  'the handler of the Lambda template, given the events of %s, passes the whole suite',
  { timeout: 180_000 },
  async (_of, version) => {
    const platform = createServer(async (request, response) => {
      const { statusCode, headers, multiValueHeaders, body } = await handler(
        version(new URL(request.url ?? '/', 'http://platform.test'), request, await bodyOf(request)),
      )
      const all = Object.entries({ ...headers, ...multiValueHeaders }).map(([name, value]) => [name, String(value)])
      response.writeHead(statusCode, Object.fromEntries(all)).end(body)
    })
    await using server = await listening(platform)
    await conforms(server.url, undefined, (name) => /before the body has arrived/.test(name))
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
  const given = { body: encoded, isBase64Encoded: type === undefined }
  const { statusCode } = await handler(version2(new URL('http://platform.test/'), { method: 'POST', headers }, given))
  expect(statusCode).toBe(200)
  expect(log.mock.calls).toEqual([
    [expect.stringMatching(/^\d\d:\d\d:\d\d .* 0FLEETV14T0000004 service +data +BatteryLevel 81\.5$/)],
  ])
})
