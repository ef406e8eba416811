import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { type Answer, type Refusal, success } from '../src/http/answers.ts'
import { type Body, type Chunks, isGzip, readChunks, tooLarge } from '../src/http/body.ts'
import type { PathTarget } from '../src/http/paths.ts'
import type { Incoming } from '../src/http/routes.ts'
import type { HostedReceiver } from '../src/receiver/hosted.ts'

/** Hosts that are certainly valid, with a port below 60,000. */
const plainHost = /^[a-z\d._-]+(?::[1-5]?\d{1,4})?$/

/**
 * Reads a request of `node:http` without a `Request`, which would cost as much as the rest of the receiver. Only for
 * plain paths and hosts: a `Request` knows what a valid URL is.
 */
export class NodeRequest implements Incoming {
  readonly method: string
  readonly target: PathTarget | undefined
  readonly authorization: string | undefined
  readonly env: unknown
  /** Node ends no work with its request. */
  readonly context: undefined
  readonly #incoming: IncomingMessage

  constructor(incoming: IncomingMessage, env: unknown, targets: HostedReceiver['targets'] | undefined) {
    const { method = '', url = '' } = incoming
    const { host } = incoming.headers
    const query = url.indexOf('?')
    const isOurs = host === undefined || plainHost.test(host)
    this.method = method
    this.target = isOurs ? targets?.get(query === -1 ? url : url.slice(0, query)) : undefined
    this.authorization = authorizationOf(incoming.rawHeaders)
    this.env = env
    this.context = undefined
    this.#incoming = incoming
  }

  *headers(): Generator<readonly [name: string, value: string]> {
    const { rawHeaders } = this.#incoming
    for (let at = 0; at < rawHeaders.length; at += 2)
      yield [(rawHeaders[at] ?? '').toLowerCase(), rawHeaders[at + 1] ?? '']
  }

  read(limitBytes: number): Promise<Body | Refusal> {
    const incoming = this.#incoming
    const { 'content-encoding': encoding, 'content-length': length } = incoming.headers
    const gzip = encoding === undefined ? false : isGzip(encoding)
    if (gzip === undefined) return Promise.resolve({ error: 'encoding_unsupported' })
    if (Number(length) > limitBytes) return Promise.resolve(tooLarge(limitBytes))
    if (gzip) return readChunks(chunksOf(incoming), true, limitBytes)
    return new Promise((resolve) => {
      const chunks: Buffer[] = []
      let bytes = 0
      const add = (chunk: Buffer): void => {
        chunks.push(chunk)
        bytes += chunk.length
        if (bytes <= limitBytes) return
        incoming.off('data', add).pause()
        chunks.length = 0
        resolve(tooLarge(limitBytes))
      }
      const end = (): void => {
        const [first] = chunks
        // `TextDecoder` would cost twice as much.
        const text = (first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks)).toString()
        // A byte order mark is no part of the text, as in `Request.text()`.
        resolve({ text: text.charCodeAt(0) === 0xfeff ? text.slice(1) : text })
      }
      const close = (): void => {
        if (incoming.readableEnded) return
        if (!incoming.complete) return resolve({ error: 'body_interrupted' })
        // The client went away once it had sent everything. The rest of the body waits in the stream.
        const rest: unknown = incoming.read()
        if (rest instanceof Buffer) add(rest)
        end()
      }
      if (incoming.destroyed) close()
      else incoming.on('data', add).on('end', end).on('close', close)
    })
  }
}

/** Every Authorization header, as a `Request` would join them: Node's own `headers` keep only the first. */
function authorizationOf(rawHeaders: readonly string[]): string | undefined {
  let found: string | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    // The length alone rules out most headers.
    const name = rawHeaders[at]
    if (name?.length !== 13 || name.toLowerCase() !== 'authorization') continue
    found = found === undefined ? rawHeaders[at + 1] : `${found}, ${rawHeaders[at + 1]}`
  }
  return found
}

/** The bytes of a request. The request stays open when no more bytes are wanted, because its answer is still to be written. */
function chunksOf(incoming: IncomingMessage): Chunks {
  const chunks: AsyncIterator<Buffer<ArrayBuffer>, undefined> = incoming.iterator({ destroyOnReturn: false })
  return {
    next: async () => (await chunks.next()).value,
    cancel: () => incoming.pause(),
  }
}

const successHeaders = headerList(success)

function headerList({ headers, body }: Answer): string[] {
  return [...Object.entries(headers).flat(), 'content-length', String(Buffer.byteLength(body))]
}

/** Writes the answer to a request. With `isLast` the connection ends with it. */
export function writeAnswer(
  answer: Answer,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  isLast: boolean,
): void {
  if (isLast) outgoing.shouldKeepAlive = false
  outgoing.writeHead(answer.status, answer === success ? successHeaders : headerList(answer))
  outgoing.end(answer.body)
  if (!incoming.readableEnded) drop(incoming)
}

/** Connections of which the last answer was given. Requests that still come on them are not handled. */
export const answeredLast: WeakSet<Socket> = new WeakSet()

/** How long a client may go on sending a body that was refused, in milliseconds. */
const lingerMs = 500

/** Ends the connection with the answer, if the request has not come whole. A client that still sends may not see it. */
export async function closeUnlessWhole(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  // A body that came with its head is complete only after the code that the head has woken.
  if (!incoming.complete) await setImmediate()
  if (incoming.complete) return
  const { socket } = incoming
  outgoing.shouldKeepAlive = false
  answeredLast.add(socket)
  // Node calls this after the last answer.
  socket.destroySoon = () => {
    socket.end()
    drop(incoming)
    const timer = setTimeout(() => socket.destroy(), lingerMs)
    timer.unref()
    socket.once('close', () => clearTimeout(timer))
  }
}

/** Reads what is left of a body, so that Node gets to the next request. `resume` does nothing while an iterator waits. */
function drop(incoming: IncomingMessage): void {
  const read = (): void => {
    while (incoming.read() !== null);
  }
  incoming.on('readable', read)
  read()
}
