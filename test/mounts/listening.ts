import type { Server } from 'node:http'
import { once } from 'node:events'

/** A server of a host that listens on a free port until it is disposed of. */
export async function listening(server: Server): Promise<{ readonly url: string } & AsyncDisposable> {
  if (!server.listening) server.listen(0, '127.0.0.1')
  if (!server.listening) await once(server, 'listening')
  const address = server.address()
  return {
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
