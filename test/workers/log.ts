import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A handler's report of a message, stored outside the process under test, so that no kill removes it. */
export interface Entry {
  readonly vin: string
  readonly number: number
  readonly delivery: string
  readonly attempt: number
  readonly redelivered: boolean
  readonly replayed: boolean
  /** What happened to the vehicle, with the id of the occurrence. Left out: a message was handled. */
  readonly happened?: { readonly id: string; readonly line: string; readonly from?: unknown; readonly to?: unknown }
}

/** The place where handlers record what they handled. */
export interface HandledLog<Of = Entry> extends AsyncDisposable {
  readonly port: number
  readonly entries: Of[]
}

/** `released`: a handler's report is answered after it. */
export async function startLog<Of = Entry>(released: Promise<unknown> = Promise.resolve()): Promise<HandledLog<Of>> {
  const entries: Of[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8')
    request.on('data', (chunk: string) => {
      text += chunk
    })
    request.on('end', () => {
      entries.push(JSON.parse(text))
      void released.then(() => response.end())
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo
  return {
    port,
    entries,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => {
        server.close(resolve)
      })
    },
  }
}
