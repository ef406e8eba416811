import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * A queue that outlives the Worker, as the platform's does. workerd posts to it what a Worker sends, in the platform's
 * own protocol. A message comes again when the queue gets no result for it.
 */
export interface Broker extends AsyncDisposable {
  readonly port: number
  /** How many messages it has taken. */
  readonly taken: number
  /** How many it has left. */
  readonly left: number
  /** Delivers batches to the Worker at this address, until `stop`. */
  feed(url: string): { stop(): Promise<void> }
}

interface Queued {
  readonly id: string
  readonly body: unknown
  attempts: number
}

/** The result of the Worker's `queue` handler, as workerd reports it. */
interface Outcome {
  readonly outcome: string
  readonly ackAll: boolean
  readonly explicitAcks: readonly string[]
}

export async function startBroker(): Promise<Broker> {
  const queued: Queued[] = []
  let underWay = 0
  let taken = 0

  function take(body: unknown): void {
    taken += 1
    queued.push({ id: String(taken), body, attempts: 0 })
  }

  const server = createServer((request, response) => {
    void textOf(request).then((text) => {
      if (request.url === '/message') take(JSON.parse(text))
      else {
        const { messages }: { messages: readonly { readonly body: string }[] } = JSON.parse(text)
        for (const { body } of messages) take(JSON.parse(Buffer.from(body, 'base64').toString()))
      }
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ metadata: { metrics: { backlogCount: 0, backlogBytes: 0 } } }))
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })

  async function hand(url: string, batch: readonly Queued[]): Promise<void> {
    for (const message of batch) message.attempts += 1
    underWay += batch.length
    try {
      const answer = await fetch(url, { method: 'POST', body: JSON.stringify(batch) })
      const { outcome, ackAll, explicitAcks }: Outcome = JSON.parse(await answer.text())
      const isDone = ({ id }: Queued): boolean => outcome === 'ok' && (ackAll || explicitAcks.includes(id))
      queued.push(...batch.filter((message) => !isDone(message)))
    } catch {
      queued.push(...batch)
    } finally {
      underWay -= batch.length
    }
  }

  return {
    port: (server.address() as AddressInfo).port,
    get taken() {
      return taken
    },
    get left() {
      return queued.length + underWay
    },
    feed(url) {
      let going = true
      async function consumer(): Promise<void> {
        while (going) {
          if (queued.length > 0) await hand(url, queued.splice(0, 10))
          await sleep(5)
        }
      }
      const consumers = Promise.all([consumer(), consumer(), consumer()])
      return {
        async stop() {
          going = false
          await consumers
        },
      }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => {
        server.close(resolve)
      })
    },
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  request.setEncoding('utf8')
  let text = ''
  for await (const chunk of request) text += chunk
  return text
}
