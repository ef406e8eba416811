import type { Server as HttpServer } from 'node:http'
import type { RuntimeRefusal } from '../src/hosting/drainable.ts'

/** Counts the requests that Node refuses before a handler sees them. Node answers them as it always does. */
export function countRefusals(server: HttpServer, refused: (error: RuntimeRefusal) => void): void {
  // A listener for `clientError` would have to answer instead of Node, with what only Node knows of the connection.
  const emit: (name: string, ...args: unknown[]) => boolean = server.emit.bind(server)
  Object.defineProperty(server, 'emit', {
    value(name: string, ...args: unknown[]): boolean {
      const why = name === 'clientError' ? reasonOf(...args) : undefined
      if (why !== undefined) refused(why)
      return emit(name, ...args)
    },
  })
  server.on('checkExpectation', (_incoming, outgoing) => {
    refused('expectation_unsupported')
    outgoing.writeHead(417).end()
  })
  // A connection over `maxConnections`.
  server.on('drop', () => refused('connections_exceeded'))
}

/** `undefined` when no request was refused: the connection broke, or the receiver answers the request that is under way. */
function reasonOf(error?: unknown, socket?: unknown): RuntimeRefusal | undefined {
  if (!(error instanceof Error) || !('code' in error) || typeof socket !== 'object' || socket === null) return undefined
  if (Reflect.get(socket, '_httpMessage') || Reflect.get(socket, 'bytesRead') === 0) return undefined
  if (error.code === 'HPE_HEADER_OVERFLOW') return 'headers_too_large'
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout'
  return String(error.code).startsWith('HPE_') ? 'request_malformed' : undefined
}
