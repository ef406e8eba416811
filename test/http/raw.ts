import { connect, type Socket } from 'node:net'

/** A connection that sends bytes unchanged, and the bytes that it received. */
export interface RawConnection extends Disposable {
  /** Resolves when the bytes were sent. Rejects when the connection is closed. */
  readonly send: (bytes: string | Uint8Array) => Promise<void>
  /** The received text, when it contains `text`. Rejects when the connection closes before. */
  readonly until: (text: string) => Promise<string>
  readonly closed: Promise<void>
  readonly received: () => string
  /** The received text, when the server has closed the connection or a reset ended it. */
  readonly whole: Promise<string>
  readonly socket: Socket
}

/** Connects to a server on this machine. Resolves when the first bytes were sent. */
export async function rawConnection(url: string, bytes = ''): Promise<RawConnection> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  let received = ''
  let isClosed = false
  let wake = (): void => {}
  socket.setEncoding('latin1')
  socket.on('data', (chunk: string) => {
    received += chunk
    wake()
  })
  // A reset is an end like another.
  socket.on('error', () => {})
  const closed = new Promise<void>((resolve) => {
    socket.on('close', () => {
      isClosed = true
      wake()
      resolve()
    })
  })
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  await new Promise((resolve) => socket.write(bytes, resolve))
  return {
    socket,
    closed,
    received: () => received,
    whole: closed.then(() => received),
    [Symbol.dispose]: () => void socket.destroy(),
    send: (bytes) =>
      new Promise((resolve, reject) => {
        socket.write(bytes, (error) => (error ? reject(error) : resolve()))
      }),
    async until(text) {
      while (!received.includes(text)) {
        if (isClosed) throw new Error(`closed after ${JSON.stringify(received)}`)
        await new Promise<void>((resolve) => (wake = resolve))
      }
      return received
    },
  }
}
