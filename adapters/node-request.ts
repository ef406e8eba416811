import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { consoleLog } from '../src/base/log.ts'
import { type Answer, type Refusal, success } from '../src/http/answers.ts'
import { type Body, type Chunks, isGzip, readChunks, tooLarge } from '../src/http/body.ts'
import type { PathTarget } from '../src/http/paths.ts'
import type { Admitted, Begun, Incoming } from '../src/http/routes.ts'
import type { HostedReceiver } from '../src/receiver/hosted.ts'
import { failureDetails } from '../src/reports/failure-details.ts'

/** Hosts that are certainly valid, with a port below 60,000. */
const plainHost = /^[a-z\d._-]+(?::[1-5]?\d{1,4})?$/

/**
 * Answers a request of `node:http` without a `Request`, which would cost as much as the rest of the receiver. Only for
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
  readonly #outgoing: ServerResponse

  constructor(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    env: unknown,
    targets: HostedReceiver['targets'] | undefined,
  ) {
    const { method = '', url = '', rawHeaders } = incoming
    const { host } = incoming.headers
    // Every Authorization header, as a `Request` would join them: Node's own `headers` keep only the first.
    let authorization: string | undefined
    for (let at = 0; at < rawHeaders.length; at += 2) {
      // The length alone rules out most headers.
      const name = rawHeaders[at]
      if (name?.length !== 13 || name.toLowerCase() !== 'authorization') continue
      authorization = authorization === undefined ? rawHeaders[at + 1] : `${authorization}, ${rawHeaders[at + 1]}`
    }
    const query = url.indexOf('?')
    const isOurs = host === undefined || plainHost.test(host)
    this.method = method
    this.target = isOurs ? targets?.get(query === -1 ? url : url.slice(0, query)) : undefined
    this.authorization = authorization
    this.env = env
    this.context = undefined
    this.#incoming = incoming
    this.#outgoing = outgoing
  }

  *headers(): Generator<readonly [name: string, value: string]> {
    const { rawHeaders } = this.#incoming
    for (let at = 0; at < rawHeaders.length; at += 2)
      yield [(rawHeaders[at] ?? '').toLowerCase(), rawHeaders[at + 1] ?? '']
  }

  /** Reads the body of a request that may send one, and writes the answer. Most messages need no promise for that. */
  answerBy(receiver: HostedReceiver): void {
    try {
      const begun = receiver.begin(this.target, this)
      if (begun instanceof Promise || !('take' in begun)) void this.#finish(begun)
      else this.#read(begun)
    } catch (error) {
      void this.#failed(error)
    }
  }

  #read(admitted: Admitted): void {
    const incoming = this.#incoming
    const { limitBytes } = admitted
    const take = (body: Body | Refusal): void => {
      try {
        const answer = admitted.take(body)
        if (answer instanceof Promise || !incoming.complete) void this.#finish(answer)
        else this.#write(answer)
      } catch (error) {
        void this.#failed(error)
      }
    }
    const { 'content-encoding': encoding, 'content-length': length } = incoming.headers
    const gzip = encoding === undefined ? false : isGzip(encoding)
    if (gzip === undefined) return take({ error: 'encoding_unsupported' })
    if (Number(length) > limitBytes) return take(tooLarge(limitBytes))
    if (gzip) return void readChunks(chunksOf(incoming), true, limitBytes).then(take)
    const chunks: Buffer[] = []
    let bytes = 0
    const add = (chunk: Buffer): boolean => {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes <= limitBytes) return true
      incoming.off('data', add).off('end', end).off('close', close).pause()
      take(tooLarge(limitBytes))
      return false
    }
    const end = (): void => {
      const [first] = chunks
      // `TextDecoder` would cost twice as much.
      const text = (first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks)).toString()
      // A byte order mark is no part of the text, as in `Request.text()`.
      take({ text: text.charCodeAt(0) === 0xfeff ? text.slice(1) : text })
    }
    const close = (): void => {
      if (incoming.readableEnded) return
      if (!incoming.complete) return take({ error: 'body_interrupted' })
      // The client went away once it had sent everything. The rest of the body waits in the stream.
      const rest: unknown = incoming.read()
      if (!(rest instanceof Buffer) || add(rest)) end()
    }
    if (incoming.destroyed) close()
    else incoming.on('data', add).on('end', end).on('close', close)
  }

  async #finish(given: Begun | Promise<Begun>): Promise<void> {
    try {
      const begun = await given
      if ('take' in begun) return this.#read(begun)
      await closeUnlessWhole(this.#incoming, this.#outgoing)
      this.#write(begun)
    } catch (error) {
      await this.#failed(error)
    }
  }

  async #failed(error: unknown): Promise<void> {
    // What to do about `answering failed`: A fault of fleethook: report it to us.
    consoleLog.error('answering failed', failureDetails(error, false))
    await closeUnlessWhole(this.#incoming, this.#outgoing)
    this.#outgoing.writeHead(500).end()
  }

  #write(answer: Answer): void {
    const incoming = this.#incoming
    const outgoing = this.#outgoing
    // While the server stops, a connection ends with its last answer.
    if (lastRequests.get(incoming.socket) === incoming) outgoing.shouldKeepAlive = false
    outgoing.writeHead(answer.status, answer === success ? successHeaders : headerList(answer))
    outgoing.end(answer.body)
    if (!incoming.readableEnded) drop(incoming)
  }
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

/** The last request that was read on a connection, once its server stops. */
export const lastRequests: WeakMap<Socket, IncomingMessage> = new WeakMap()

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
