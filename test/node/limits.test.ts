import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { createReceiver, FleethookError } from 'fleethook'
import { type NodeServeOptions, serve } from 'fleethook/node'
import { describe, expect, test } from 'vitest'
import { withHint } from '../../src/base/errors.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { head, post } from '../runtimes/client.ts'
import { type RawConnection, rawConnection } from '../http/raw.ts'
import { secret } from '../runtimes/targets.ts'

interface Serving extends AsyncDisposable {
  readonly url: string
  readonly received: () => number
  readonly refused: () => Readonly<Record<string, number>>
}

async function serving(options: NodeServeOptions): Promise<Serving> {
  const receiver = createReceiver({ secret })
  const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false, ...options })
  return {
    url: server.url,
    received: () => receiver.stats().received,
    refused: () => receiver.stats().refused,
    [Symbol.asyncDispose]: async () => void (await server.close()),
  }
}

/** Sends a piece again and again until the server has had enough. */
async function trickle(client: RawConnection, piece: string): Promise<string> {
  const sending = setInterval(() => void client.send(piece).catch(() => {}), 20)
  try {
    return await client.whole
  } finally {
    clearInterval(sending)
  }
}

describe.concurrent('the server closes the connection of a slow client', () => {
  test('that never ends its headers, after headersTimeoutMs', async () => {
    await using server = await serving({ headersTimeoutMs: 1_000 })
    using client = await rawConnection(server.url, 'POST / HTTP/1.1\r\nhost: localhost\r\n')
    // A client that writes to the closed connection before it reads loses the answer, as on a busy machine.
    expect(await trickle(client, 'x: y\r\n')).toMatch(/^(HTTP\/1\.1 408 |$)/)
    expect(server.refused()).toEqual({ request_timeout: 1 })
  })

  test('that never ends its body, after requestTimeoutMs, and nothing of the body becomes a message', async () => {
    await using server = await serving({ requestTimeoutMs: 300 })
    using client = await rawConnection(server.url, `${head(100_000)}{"vin":"`)
    expect(await trickle(client, 'x')).not.toMatch(/ 2\d\d /)
    expect(server.received()).toBe(0)
  })

  test('that is idle between two messages, after keepAliveTimeoutMs', async () => {
    await using server = await serving({ keepAliveTimeoutMs: 100 })
    const body = '{"vin":"V","state":"online"}'
    using client = await rawConnection(server.url, head(body.length) + body)
    expect(await client.whole).toMatch(/^HTTP\/1\.1 200 [^]*"text":"Success"/)
  })

  test('while other clients are served', async () => {
    await using server = await serving({ headersTimeoutMs: 600_000, requestTimeoutMs: 600_000 })
    const slow = await Promise.all(Array.from({ length: 50 }, () => rawConnection(server.url, 'POST / HTTP/1.1\r\n')))
    expect(await post(server.url, 'V1')).toBe(200)
    for (const client of slow) client[Symbol.dispose]()
  })
})

test.skipIf(process.platform !== 'linux')('connections for which there are no descriptors are counted', async () => {
  const program = fileURLToPath(new URL('programs/receiver.ts', import.meta.url))
  await using target = await spawnTarget({
    ...{ runtime: 'few files', command: 'sh', args: ['-c', `ulimit -n 64; exec "$0" "$1"`, process.execPath, program] },
    env: { SERVE: JSON.stringify({ port: 0, hostname: '127.0.0.1' }) },
  })
  const said = await target.line(/^fleethook: at most \d+ connections, not 20000: this process may open 64 files/)
  const most = Number(/\d+/.exec(said)?.[0])
  expect(most).toBeGreaterThanOrEqual(8)
  const sockets = Array.from({ length: 100 }, () => connect(Number(new URL(target.url).port), '127.0.0.1'))
  let closed = 0
  for (const socket of sockets) {
    socket.on('error', () => {})
    socket.on('close', () => (closed += 1))
  }
  await expect.poll(() => closed).toBe(100 - most)
  for (const socket of sockets) socket.destroy()
  // The server may not know yet that those are gone.
  let posts = 0
  const again = (): Promise<number> => {
    posts += 1
    return post(target.url, 'V1')
  }
  await expect.poll(again).toBe(200)
  await target.stop()
  const counted = target.output.flatMap((line) => /"connections_exceeded":(\d+)/.exec(line)?.[1] ?? [])
  expect(counted.reduce((sum, count) => sum + Number(count), 0)).toBe(100 - most + posts - 1)
})

test('connections above maxConnections are closed at once, and a closed connection makes room for a new one', async () => {
  await using server = await serving({ maxConnections: 2 })
  const body = '{"vin":"V","state":"online"}'
  const ask = (): Promise<RawConnection> => rawConnection(server.url, `${head(body.length)}${body}`)
  using first = await ask()
  using second = await ask()
  using third = await rawConnection(server.url)
  expect(await third.whole).toBe('')
  expect(server.refused()).toEqual({ connections_exceeded: 1 })
  first[Symbol.dispose]()
  await expect
    .poll(async () => {
      using next = await rawConnection(
        server.url,
        head(body.length).replace('\r\n\r\n', '\r\nconnection: close\r\n\r\n') + body,
      )
      return await next.whole
    })
    .toMatch(/^HTTP\/1\.1 200 /)
  expect(second).toBeDefined()
})

test('a requestTimeoutMs below the default of headersTimeoutMs limits both', async () => {
  await using server = await serving({ requestTimeoutMs: 5_000 })
  expect(await post(server.url, 'V1')).toBe(200)
})

test.each([
  [
    { port: Number.NaN },
    /`port` of serve must be a whole number from 0 to 65535 and was given NaN.*environment variable/,
  ],
  [{ port: 70_000 }, /`port`/],
  [{ hostname: '' }, /`hostname` of serve must be an address .* given ''.*Leave it out/],
  [{ graceMs: -1 }, /`graceMs` of serve must be whole milliseconds from 0 to 2147483647 and was given -1/],
  [{ delayBeforeCloseMs: 0.5 }, /`delayBeforeCloseMs`/],
  [{ headersTimeoutMs: 0 }, /`headersTimeoutMs`/],
  [{ requestTimeoutMs: 1e12 }, /`requestTimeoutMs`/],
  [{ keepAliveTimeoutMs: Number.POSITIVE_INFINITY }, /`keepAliveTimeoutMs`/],
  [{ maxConnections: 0 }, /`maxConnections`/],
  [{ tls: { cert: '', key: 'x' } }, /`tls.cert` of serve must be the text of a PEM file.*not the paths/],
])('serve with %o rejects, and names the option', async (options: NodeServeOptions, complaint) => {
  await expect(serve(createReceiver({ secret }), options)).rejects.toSatisfy(
    (error) => error instanceof FleethookError && error.code === 'option_invalid' && complaint.test(withHint(error)),
  )
})
