import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { createReceiver } from 'fleethook'
import { type NodeServeOptions, serve } from 'fleethook/node'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { rawConnection } from '../http/raw.ts'
import { bindPort } from '../faults/deploy/ways.ts'
import { message, post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'
import { start } from './server.ts'

const quiet = { port: 0, hostname: '127.0.0.1', signals: false, announce: false } as const
const program = fileURLToPath(new URL('programs/receiver.ts', import.meta.url))

/** Starts the program as systemd does: with a socket as its descriptor 3. `pid`: the value of LISTEN_PID. */
async function startOn(fd: number, serveOptions: NodeServeOptions = {}, pid = '$$'): Promise<string> {
  const target = await spawnTarget({
    runtime: 'Node',
    command: 'sh',
    args: ['-c', `LISTEN_FDS=1 LISTEN_PID=${pid} exec "$0" "$@"`, process.execPath, program],
    env: { SERVE: JSON.stringify({ port: 0, hostname: '127.0.0.1', ...serveOptions }) },
    inherited: [fd],
  })
  onTestFinished(async () => void (await target.stop('SIGKILL')))
  return target.url
}

describe('an inherited socket', () => {
  test('LISTEN_FDS and LISTEN_PID: `serve` listens on it instead of its own port', async () => {
    const { port, fd } = await bindPort()
    expect(await startOn(fd)).toBe(`http://127.0.0.1:${port}`)
    expect(await post(`http://127.0.0.1:${port}`, 'V1')).toBe(200)
  })

  test('a socket for another process is left alone', async () => {
    const { port, fd } = await bindPort()
    expect(await startOn(fd, {}, '1')).not.toBe(`http://127.0.0.1:${port}`)
  })

  test('listen: { fd } uses the socket that the option names', async () => {
    const { port, fd } = await bindPort()
    expect(await startOn(fd, { listen: { fd: 3 } }, '1')).toBe(`http://127.0.0.1:${port}`)
  })

  test.each([{}, { fd: 2 }, { fd: '3' }])('listen: %j is refused', async (listen) => {
    const options: object = { ...quiet, listen }
    await expect(serve(createReceiver({ secret }), options)).rejects.toMatchObject({ code: 'option_invalid' })
  })
})

test('reusePort: two servers share a port', async () => {
  const one = await serve(createReceiver({ secret }), { ...quiet, reusePort: true })
  const two = await serve(createReceiver({ secret }), { ...quiet, port: one.port, reusePort: true })
  await one.close()
  expect(await post(two.url, 'V1')).toBe(200)
  await two.close()
})

describe('a process that does not end after a drain by signal', () => {
  test('logs what keeps it running, and ends', async () => {
    await using target = await start('held')
    target.kill('SIGTERM')
    expect(await target.line(/the process did not end/)).toContain('because of Timeout')
    expect(await target.exited).toEqual({ status: 0, signal: null })
  })

  test('keeps running with exit: false', async () => {
    await using target = await start('held', { exit: false })
    target.kill('SIGTERM')
    await target.line(/^closed/)
    await expect(Promise.race([target.exited, new Promise((resolve) => setTimeout(resolve, 2_500))])).resolves.toBe(
      undefined,
    )
  })
})

describe('Expect: 100-continue', () => {
  const body = message('V1')
  const head = (given: string): string =>
    `POST / HTTP/1.1\r\nhost: a\r\nauthorization: ${given}\r\ncontent-length: ${body.length}\r\nexpect: 100-continue\r\n\r\n`

  test('a wrong secret is refused without 100 Continue, and the connection closes', async () => {
    const server = await serve(createReceiver({ secret }), quiet)
    const { whole } = await rawConnection(server.url, head('wrong'))
    expect(await whole).toMatch(/^HTTP\/1\.1 403 [^]*\r\nconnection: close\r\n/i)
    await server.close()
  })
})

describe('pipelined requests while the server stops', () => {
  test('only the last answer closes the connection, so that every request is answered', async () => {
    const server = await serve(createReceiver({ secret }), { ...quiet, signals: ['SIGHUP'], exit: false })
    const { send, whole } = await rawConnection(server.url)
    // The server listens to it before this test does.
    const signal = once(process, 'SIGHUP')
    process.kill(process.pid, 'SIGHUP')
    const body = message('V1')
    const one = `POST / HTTP/1.1\r\nhost: a\r\nauthorization: ${secret}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    await signal
    await send(one.repeat(3))
    const received = await whole
    expect(received.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(3)
    expect(received.match(/connection: close/gi)).toHaveLength(1)
    await server.closed
  })
})

test('a load balancer that asks for /readyz over connections of its own sees a 503 before the port closes', async () => {
  const said = vi.spyOn(console, 'info').mockImplementation(() => {})
  onTestFinished(() => said.mockRestore())
  const server = await serve(createReceiver({ secret }), {
    ...quiet,
    announce: true,
    signals: ['SIGHUP'],
    exit: false,
  })
  const ask = async (): Promise<string> => {
    const { whole } = await rawConnection(server.url, 'GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
    return whole
  }
  expect(await ask()).toContain('200 OK')
  process.kill(process.pid, 'SIGHUP')
  await expect.poll(() => said.mock.calls.flat().join('\n')).toContain('SIGHUP: taking no more messages after 1500 ms')
  expect(await ask()).toContain('503 Service Unavailable')
  expect(await post(server.url, 'V1', 0, { connection: 'close' })).toBe(200)
  await server.closed
})

test('GET /healthz and /readyz answer in plain words, without a secret', async () => {
  const receiver = createReceiver({ secret })
  const server = await serve(receiver, quiet)
  const ask = async (path: string): Promise<readonly [number, string]> => {
    const answer = await receiver.fetch(new Request(`http://a${path}`))
    return [answer.status, await answer.text()]
  }
  expect(await ask('/healthz')).toEqual([200, 'alive\n'])
  expect(await ask('/readyz')).toEqual([200, 'ready\n'])
  expect(receiver.readiness()).toEqual({ ready: true })
  await server.close()
  expect(await ask('/healthz')).toEqual([200, 'alive\n'])
  expect(await ask('/readyz')).toEqual([503, 'not ready: the receiver is stopping\n'])
  expect(receiver.readiness()).toEqual({ ready: false, reason: 'the receiver is stopping' })
})
