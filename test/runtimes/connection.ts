import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { secret } from './targets.ts'

/** A connection on which a test decides what to send and when. */
export interface Connection extends Disposable {
  send(bytes: string): void
  /** The received text, when the server has closed the connection or a reset ended it. */
  readonly received: Promise<string>
}

/** The beginning of a request, up to its body. */
export const head = (bodyBytes: number): string =>
  `POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: ${secret}\r\ncontent-length: ${bodyBytes}\r\n\r\n`

/** Connects, and resolves when the first bytes were sent. */
export async function open(url: string, bytes = ''): Promise<Connection> {
  const socket: Socket = connect(Number(new URL(url).port), '127.0.0.1')
  let before = ''
  socket.on('data', (chunk: Buffer) => {
    before += chunk.toString()
  })
  const received = text(socket).then(
    (whole) => whole,
    () => before,
  )
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  await new Promise<void>((resolve) => {
    socket.write(bytes, () => resolve())
  })
  return {
    send: (more) => void socket.write(more),
    received,
    [Symbol.dispose]: () => void socket.destroy(),
  }
}
