/*
 * A TCP proxy in front of each listener of the brokers. It cuts and freezes connections. It knows enough of the protocol to count
 * requests, to drop an answer, and to answer a produce request with an error, whether or not the broker appended it.
 */
import { connect, createServer, type Server, type Socket } from 'node:net'

/** Keys of requests. */
export const apiKeys = { produce: 0, fetch: 1, metadata: 3, offsetCommit: 8, joinGroup: 11, heartbeat: 12 } as const

/** Protocol errors that fail a produce request and that a retry can fix. */
export const errorCodes = {
  notLeader: 6,
  requestTimedOut: 7,
  notEnoughReplicas: 19,
  notEnoughReplicasAfterAppend: 20,
} as const

/** What happens to one produce request. */
export type ProduceFault =
  /** The broker never sees it. */
  | { readonly kind: 'refused' | 'appended'; readonly error: number }
  /** The connection ends before the broker gets the request, or after it has appended the records. */
  | { readonly kind: 'lost' | 'answer lost' }

/** A proxy of all listeners of one kind. */
export interface Proxy extends AsyncDisposable {
  /** Puts a proxy before the port and resolves to its own port. */
  before(port: number): Promise<number>
  /** Ends all connections and refuses new ones until {@link heal}. */
  cut(): void
  /** Nothing passes in either direction, and no connection ends, until {@link heal}. */
  freeze(): void
  heal(): void
  /** Ends every connection once. */
  reset(): void
  /** Each of the next produce requests suffers one of these faults. */
  failProduce(...faults: readonly ProduceFault[]): void
  /** The `acks` of each produce request that passed, and its count. */
  readonly acks: ReadonlyMap<number, number>
  /** The number of requests by their key. */
  readonly requests: ReadonlyMap<number, number>
}

export function createProxy(): Proxy {
  const servers: Server[] = []
  const sockets = new Set<Socket>()
  const seen: Seen = { acks: new Map(), requests: new Map(), faults: [] }
  let state: 'works' | 'cut' | 'frozen' = 'works'

  function serve(client: Socket, port: number): void {
    const broker = connect(port, '127.0.0.1')
    for (const socket of [client, broker]) {
      sockets.add(socket)
      socket.setNoDelay()
      socket.on('error', () => {})
      if (state === 'frozen') socket.pause()
    }
    // Like a failed network, a paused socket does not notice that the other side has ended.
    const end = (): void => {
      for (const socket of [client, broker]) {
        sockets.delete(socket)
        socket.destroy()
      }
    }
    client.once('close', end)
    broker.once('close', end)
    relay(client, broker, seen, end)
  }

  function change(next: typeof state): void {
    state = next
    for (const socket of sockets) {
      if (next === 'cut') socket.destroy()
      else if (next === 'frozen') socket.pause()
      else socket.resume()
    }
  }

  return {
    acks: seen.acks,
    requests: seen.requests,
    async before(port) {
      const server = createServer((client) => {
        if (state === 'cut') client.resetAndDestroy()
        else serve(client, port)
      })
      servers.push(server)
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
      const address = server.address()
      if (address === null || typeof address === 'string') throw new Error('The proxy has no port.')
      return address.port
    },
    cut: () => change('cut'),
    freeze: () => change('frozen'),
    heal: () => change('works'),
    reset() {
      for (const socket of sockets) socket.resetAndDestroy()
    },
    failProduce: (...more) => void seen.faults.push(...more),
    async [Symbol.asyncDispose]() {
      change('cut')
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))))
    },
  }
}

/** What passed, and what is to happen to the next produce requests. */
interface Seen {
  readonly acks: Map<number, number>
  readonly requests: Map<number, number>
  readonly faults: ProduceFault[]
}

/** Passes whole frames on in both directions, and lets produce requests suffer their faults. */
function relay(client: Socket, broker: Socket, { acks, requests, faults }: Seen, end: () => void): void {
  /** What happens to answers, by their correlation id. */
  const fates = new Map<number, ProduceFault & { readonly answer: Buffer }>()
  client.on(
    'data',
    inFrames((frame) => {
      const { key, correlation, produce } = readRequest(frame)
      requests.set(key, (requests.get(key) ?? 0) + 1)
      if (produce === undefined) {
        broker.write(frame)
        return
      }
      acks.set(produce.acks, (acks.get(produce.acks) ?? 0) + 1)
      const fault = faults.shift()
      if (fault === undefined) broker.write(frame)
      else if (fault.kind === 'lost') end()
      else if (fault.kind === 'refused') client.write(produceError(correlation, produce, fault.error))
      else {
        fates.set(correlation, {
          ...fault,
          answer: fault.kind === 'appended' ? produceError(correlation, produce, fault.error) : Buffer.alloc(0),
        })
        broker.write(frame)
      }
    }),
  )
  broker.on(
    'data',
    inFrames((frame) => {
      const correlation = frame.readInt32BE(4)
      const fate = fates.get(correlation)
      fates.delete(correlation)
      if (fate === undefined) client.write(frame)
      else if (fate.kind === 'answer lost') end()
      else client.write(fate.answer)
    }),
  )
}

/** Collects whole frames, each with its length in front. */
function inFrames(take: (frame: Buffer) => void): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
      const length = 4 + rest.readInt32BE(0)
      const frame = rest.subarray(0, length)
      rest = rest.subarray(length)
      take(frame)
    }
  }
}

interface Produce {
  readonly version: number
  readonly acks: number
  readonly topics: readonly { readonly name: Buffer; readonly partitions: readonly number[] }[]
}

interface Request {
  readonly key: number
  readonly correlation: number
  /** A produce request of the versions 9 to 11, which have one layout. */
  readonly produce?: Produce
}

function readRequest(frame: Buffer): Request {
  const key = frame.readInt16BE(4)
  const version = frame.readInt16BE(6)
  const correlation = frame.readInt32BE(8)
  if (key !== apiKeys.produce) return { key, correlation }
  if (version < 9 || version > 11) throw new Error(`The proxy does not know version ${version} of produce requests.`)
  let at = 12
  const take = (bytes: number): number => (at += bytes) - bytes
  const varint = (): number => {
    for (let value = 0, shift = 0; ; shift += 7) {
      const byte = frame.readUInt8(take(1))
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }
  /** A compact text or bytes: the length plus one, then the bytes. 0 is null. */
  const compact = (): Buffer => {
    const length = Math.max(0, varint() - 1)
    return frame.subarray(take(length), at)
  }
  const tags = (): void => {
    for (let count = varint(); count > 0; count--) {
      varint()
      take(varint())
    }
  }
  take(Math.max(0, frame.readInt16BE(take(2))))
  tags()
  compact()
  const acks = frame.readInt16BE(take(2))
  take(4)
  const topics = Array.from({ length: varint() - 1 }, () => {
    const name = compact()
    const partitions = Array.from({ length: varint() - 1 }, () => {
      const index = frame.readInt32BE(take(4))
      compact()
      tags()
      return index
    })
    tags()
    return { name, partitions }
  })
  return { key, correlation, produce: { version, acks, topics } }
}

/** An answer with this error for every partition of the request. */
function produceError(correlation: number, { topics }: Produce, error: number): Buffer {
  const varint = (value: number): Buffer => {
    const bytes: number[] = []
    let rest = value
    for (; rest >= 0x80; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80)
    return Buffer.from([...bytes, rest])
  }
  const numbers = (...list: readonly (readonly [bytes: 2 | 4 | 8, value: number])[]): Buffer =>
    Buffer.concat(
      list.map(([bytes, value]) => {
        const part = Buffer.alloc(bytes)
        if (bytes === 8) part.writeBigInt64BE(BigInt(value))
        else part.writeIntBE(value, 0, bytes)
        return part
      }),
    )
  const noTags = Buffer.from([0])
  const body = Buffer.concat([
    numbers([4, correlation]),
    noTags,
    varint(topics.length + 1),
    ...topics.flatMap(({ name, partitions }) => [
      varint(name.length + 1),
      name,
      varint(partitions.length + 1),
      // Index, error, base offset, append time, start offset, no errors of records, no error message.
      ...partitions.flatMap((index) => [
        numbers([4, index], [2, error], [8, -1], [8, -1], [8, -1]),
        Buffer.from([1, 0]),
        noTags,
      ]),
      noTags,
    ]),
    numbers([4, 0]),
    noTags,
  ])
  return Buffer.concat([numbers([4, body.length]), body])
}
