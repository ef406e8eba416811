import { request as httpRequest } from 'node:http'
import { Hono } from 'hono'
import { Hono as TinyHono } from 'hono/tiny'
import { createReceiver, type GivenMessage, type Log, type Receiver, type ReceiverOptions } from 'fleethook'
import { serve } from 'fleethook/node'
import type { Sent } from '../../adapters/cli/conform/answer-table.ts'

/** An answer, from any of the ways. Header names are in lower case. */
export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly text: string
}

/** A receiver and one way into it. */
export interface Entrance {
  readonly receiver: Receiver
  readonly send: (sent: Sent) => Promise<Answered>
  readonly close: () => Promise<unknown>
}

/** A way into a receiver, with a name for people. */
export interface Way {
  readonly name: string
  /** Whether methods, paths and headers exist here, beside the two headers of `accept`. */
  readonly http: boolean
  /** Whether the receiver answers on paths that are not its own. */
  readonly alone: boolean
  readonly open: (options: ReceiverOptions) => Promise<Entrance>
}

/** What a log was told. */
export interface Remembered extends Log {
  readonly lines: readonly string[]
}

/** A log that remembers. */
export function remember(): Remembered {
  const lines: string[] = []
  const note =
    (level: string) =>
    (message: string, details?: Record<string, unknown>): void => {
      lines.push(`${level} ${message}${details ? ` ${JSON.stringify(details)}` : ''}`)
    }
  return { lines, debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') }
}

const nothing = async (): Promise<void> => {}

/** A body without a declared length, as over a chunked connection. */
export function streamed(
  ...chunks: readonly (string | Uint8Array<ArrayBuffer>)[]
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder()
  const left = [...chunks]
  return new ReadableStream({
    pull(controller) {
      const chunk = left.shift()
      if (chunk === undefined) return controller.close()
      controller.enqueue(typeof chunk === 'string' ? encoder.encode(chunk) : chunk)
    },
  })
}

/** A request whose body is on its way. */
export function streaming(
  path: string,
  headers: Readonly<Record<string, string>>,
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
): Request {
  // Node needs this option when the answer may come before the body has ended. The types do not have it.
  const init = { method: 'POST', headers, body, duplex: 'half' }
  return new Request(`http://receiver.test${path}`, init)
}

/** A request as a runtime passes it on, with the length of its body when it has one. */
export function requestOf({ method = 'POST', path = '/', headers = {}, body }: Sent, mount = ''): Request {
  const length = body === undefined ? undefined : Buffer.byteLength(body)
  return new Request(`http://receiver.test${mount}${path}`, {
    method,
    headers: length === undefined ? headers : { 'content-length': String(length), ...headers },
    ...(body === undefined ? {} : { body }),
  })
}

async function read(response: Response): Promise<Answered> {
  return { status: response.status, headers: Object.fromEntries(response.headers), text: await response.text() }
}

function mounted(
  name: string,
  mount: string,
  host: (receiver: Receiver) => { fetch(request: Request): Response | Promise<Response> },
): Way {
  return {
    name,
    http: true,
    alone: false,
    async open(options) {
      const receiver = createReceiver(options)
      const app = host(receiver)
      return { receiver, send: async (sent) => read(await app.fetch(requestOf(sent, mount))), close: nothing }
    },
  }
}

type GivenHeaders = Pick<Extract<GivenMessage, { readonly headers: unknown }>, 'headers'>
type GivenValues = Omit<Extract<GivenMessage, { readonly authorization: unknown }>, 'body' | 'path'>

function given(
  name: string,
  bodyOf: (body: Sent['body']) => unknown,
  headersOf: (headers: NonNullable<Sent['headers']>) => GivenHeaders | GivenValues = (headers) => ({
    authorization: headers['authorization'],
    contentEncoding: headers['content-encoding'],
  }),
): Way {
  return {
    name,
    http: false,
    alone: true,
    async open(options) {
      const receiver = createReceiver(options)
      return {
        receiver,
        close: nothing,
        async send({ path = '/', headers = {}, body }) {
          const answer = await receiver.accept({ path, body: bodyOf(body), ...headersOf(headers) })
          return { status: answer.status, headers: answer.headers, text: answer.body }
        },
      }
    },
  }
}

const bytesOf = (body: Sent['body']): unknown => (typeof body === 'object' ? body : Buffer.from(body ?? ''))

/** Sends exactly these bytes over a socket. `fetch` would add headers, and forbids some methods. */
export function post(url: string, { method = 'POST', path = '/', headers = {}, body }: Sent): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    const request = httpRequest({ hostname, port, path, method, headers }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => (text += chunk))
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: Object.fromEntries(Object.entries(response.headers).map(([key, value]) => [key, String(value)])),
          text,
        }),
      )
    })
    request.on('error', reject)
    request.end(body)
  })
}

function served(name: string, servedOf: (receiver: Receiver) => Parameters<typeof serve>[0], basePath = ''): Way {
  return {
    name,
    http: true,
    alone: true,
    async open(options) {
      const receiver = createReceiver(basePath === '' ? options : { ...options, basePath })
      const server = await serve(servedOf(receiver), {
        port: 0,
        hostname: '127.0.0.1',
        signals: false,
        announce: false,
      })
      const close = (): Promise<unknown> => Promise.all([server.close(), receiver.drain()])
      return { receiver, send: (sent) => post(server.url, { ...sent, path: basePath + (sent.path ?? '/') }), close }
    },
  }
}

function fetched(name: string, basePath: string): Way {
  return {
    name,
    http: true,
    alone: true,
    async open(options) {
      const receiver = createReceiver(basePath === '' ? options : { ...options, basePath })
      const { fetch } = receiver
      return { receiver, send: async (sent) => read(await fetch(requestOf(sent, basePath))), close: nothing }
    },
  }
}

/** Every way into a receiver. */
export const ways: readonly Way[] = [
  fetched('receiver.fetch', ''),
  fetched('receiver.fetch below its base path', '/api/telemetry'),
  mounted('routes() at the root of a host', '', (receiver) => new Hono().route('/', receiver.routes())),
  mounted('routes() below a path of a host', '/telemetry', (receiver) =>
    new Hono().get('/', (c) => c.text('host')).route('/telemetry', receiver.routes()),
  ),
  mounted('routes() below a path of a tiny host', '/telemetry', (receiver) =>
    new TinyHono().route('/telemetry', receiver.routes()),
  ),
  mounted('routes() below a base path', '/api/v1/telemetry', (receiver) =>
    new Hono().basePath('/api/v1').route('/telemetry', receiver.routes()),
  ),
  mounted('routes() behind a middleware and an error handler', '/a/b', (receiver) =>
    new Hono()
      .use(async (_, next) => next())
      .onError((_, c) => c.text('host', 500))
      .route('/a', new Hono().route('/b', receiver.routes())),
  ),
  mounted('fetch mounted in a host', '/telemetry', (receiver) => new Hono().mount('/telemetry', receiver.fetch)),
  // Node's own request, and a `Request` made of it.
  served('a socket of serve()', (receiver) => receiver),
  served('a socket of serve() with a host', ({ fetch }) => ({ fetch })),
  served('a socket of serve() below a base path', (receiver) => receiver, '/telemetry'),
  given('accept() with text', (body) => (typeof body === 'object' ? body : (body ?? ''))),
  given('accept() with bytes', bytesOf),
  given('accept() with Headers', bytesOf, (headers) => ({ headers: new Headers(headers) })),
  given('accept() with the lists of Node, in capitals', bytesOf, (headers) => ({
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]])),
  })),
  given('accept() with a part of a larger buffer', (body) => {
    const bytes = Buffer.from(body ?? '')
    return Buffer.concat([Buffer.from('xx'), bytes, Buffer.from('yy')]).subarray(2, 2 + bytes.length)
  }),
]
