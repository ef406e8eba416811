import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

/** One POST as it arrived. */
export interface Posted {
  readonly method: string | undefined
  readonly path: string | undefined
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** A server on a free port that writes down what it gets. */
export interface Endpoint extends AsyncDisposable {
  readonly url: string
  readonly posted: readonly Posted[]
  readonly connections: () => number
  /** Resolves once `count` messages have arrived. */
  readonly received: (count: number) => Promise<void>
}

/** Answers as told; without a word from the test, with the success of the collector protocol. */
export async function endpoint(
  answer: (posted: Posted, response: ServerResponse) => void = success,
): Promise<Endpoint> {
  const posted: Posted[] = []
  const awaited: { readonly count: number; readonly resolve: () => void }[] = []
  let connections = 0
  const server = createServer((request, response) => {
    void take(request, response)
  })
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method, url: path, headers } = request
    const post = { method, path, headers, body: await text(request) }
    posted.push(post)
    for (const { count, resolve } of awaited) if (posted.length >= count) resolve()
    answer(post, response)
  }
  server.on('connection', () => connections++)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${portOf(server.address())}/telemetry`,
    posted,
    connections: () => connections,
    received: (count) => new Promise((resolve) => awaited.push({ count, resolve })),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

export function success(_posted: Posted, response: ServerResponse): void {
  response.setHeader('content-type', 'application/json')
  response.end('{"text":"Success","code":0}')
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === 'string') throw new Error('The server has no port.')
  return address.port
}
