import { connect, type Socket } from 'node:net'

/** Load on one server. */
export interface LoadOptions {
  readonly port: number
  /** Whole requests, made before the clock starts. They are sent in order, and again from the first after the last. */
  readonly requests: readonly Buffer[]
  readonly connections: number
  readonly count: number
  /** Without it, each connection sends its next request as soon as the last one was answered. */
  readonly ratePerSecond?: number
}

/** The result. */
export interface LoadResult {
  readonly seconds: number
  /** The time from writing a request (with a rate: from when it was due) to the last byte of its answer, in milliseconds. */
  readonly ackMs: Float64Array
  /** Answers other than 200. */
  readonly refused: number
  /** The share of polls that found no answer. Near 0, the load generator and not the server was the limit. */
  readonly spare: number
}

/** One request as the service sends it, ready to be written to a socket. */
export function requestOf(body: string, authorization: string): Buffer {
  return Buffer.from(
    'POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: webhook\r\nContent-Type: application/json\r\n' +
      `Authorization: ${authorization}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

/** Posts `count` requests over connections that stay open, one at a time on each. */
export async function load({ port, requests, connections, count, ratePerSecond }: LoadOptions): Promise<LoadResult> {
  const ackMs = new Float64Array(count)
  const sockets = await Promise.all(Array.from({ length: connections }, () => connected(port)))
  const free: Line[] = []
  let sent = 0
  let answered = 0
  let refused = 0
  let looks = 0
  let spareLooks = 0
  let answeredBefore = 0
  const { promise: done, resolve, reject } = Promise.withResolvers<void>()

  interface Line {
    send(since: number): void
  }

  function line(socket: Socket): Line {
    let since = 0
    let at = 0
    let received: Buffer = Buffer.alloc(0)
    const self: Line = {
      send(from) {
        since = from
        at = sent++
        socket.write(requests[at % requests.length] ?? '')
      },
    }
    socket.on('data', (chunk: Buffer) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
      if (!isWhole(received)) return
      ackMs[at] = performance.now() - since
      // The tenth byte of `HTTP/1.1 200` is the first of the status.
      if (received.toString('latin1', 9, 12) !== '200') refused += 1
      received = Buffer.alloc(0)
      answered += 1
      if (answered === count) resolve()
      else if (ratePerSecond !== undefined) free.push(self)
      else if (sent < count) self.send(performance.now())
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error(`The server closed a connection after ${answered} answers.`)))
    return self
  }

  const lines = sockets.map(line)
  const startedAt = performance.now()
  const dueAt = (index: number): number => startedAt + ((index + 1) * 1000) / (ratePerSecond ?? Infinity)

  /**
   * Polls for answers without ever sleeping. A server that writes to a sleeping client has to wake its core, which in a
   * virtual machine costs as much as all the rest of a request: a slow server would be charged for the client's leisure.
   */
  function poll(): void {
    looks += 1
    if (answered === answeredBefore) spareLooks += 1
    answeredBefore = answered
    while (free.length > 0 && sent < count && dueAt(sent) <= performance.now()) free.shift()?.send(dueAt(sent))
    if (answered < count) setImmediate(poll)
  }

  if (ratePerSecond === undefined) for (const each of lines.slice(0, count)) each.send(startedAt)
  else free.push(...lines)
  poll()
  await done
  const seconds = (performance.now() - startedAt) / 1000
  for (const socket of sockets) socket.removeAllListeners('close').destroy()
  return { seconds, ackMs, refused, spare: spareLooks / looks }
}

function connected(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => resolve(socket))
    socket.once('error', reject)
  })
}

/** Whether the whole answer was received. Every server sends `Content-Length`. */
function isWhole(received: Buffer): boolean {
  const head = received.indexOf('\r\n\r\n')
  if (head === -1) return false
  const found = /content-length: (\d+)/i.exec(received.toString('latin1', 0, head + 2))?.[1]
  if (found === undefined) throw new Error(`An answer without a length: ${received.toString('latin1', 0, head)}`)
  return received.length >= head + 4 + Number(found)
}
