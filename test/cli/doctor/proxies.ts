import {
  createServer as createHttpServer,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  request,
  type ServerResponse,
} from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'

/** What a proxy does with a request before it passes it on. */
export interface Fault {
  /** The headers that go on. */
  readonly headers?: (headers: IncomingHttpHeaders) => OutgoingHttpHeaders
  /** Answers instead of the receiver. Returns whether it did. */
  readonly answer?: (
    about: { readonly headers: IncomingHttpHeaders; readonly path: string; readonly body: Buffer },
    response: ServerResponse,
  ) => boolean
}

/** A reverse proxy on a free port, as faulty as the test wants it. */
export async function proxy(
  upstream: string,
  { headers: passOn = (headers) => headers, answer = () => false }: Fault = {},
  tls?: { readonly key: string; readonly cert: string },
): Promise<{ readonly url: URL } & AsyncDisposable> {
  const server = tls === undefined ? createHttpServer() : createHttpsServer(tls)
  server.on('request', (incoming, response) => {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.once('end', () => {
      const body = Buffer.concat(chunks)
      const { headers, method, url: path = '/' } = incoming
      if (answer({ headers, path, body }, response)) return
      const { host: _, connection: __, ...rest } = passOn(headers)
      const onward = request(new URL(path, upstream), { method, headers: rest }, (answered) => {
        response.writeHead(answered.statusCode ?? 502, answered.headers)
        answered.pipe(response)
      })
      onward.once('error', () => response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>Bad Gateway</h1>'))
      onward.end(body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: new URL(`${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}/telemetry`),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
