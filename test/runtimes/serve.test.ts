import { randomBytes } from 'node:crypto'
import { request } from 'node:https'
import { networkInterfaces } from 'node:os'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { serve as serveOnBun } from '../../adapters/bun.ts'
import { serve as serveOnDeno } from '../../adapters/deno.ts'
import { createReceiver } from '../../src/index.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { rawConnection } from '../http/raw.ts'
import { certificate, privateKey } from './certificate.ts'
import { head, letIt, message, post, seen } from './client.ts'
import { appCommand, secret } from './targets.ts'

describe.concurrent.each(['node24', 'bun', 'deno'] as const)('serve on %s', (runtime) => {
  test.skipIf(runtime === 'node24')('says that it cannot use a socket of LISTEN_FDS', async ({ expect }) => {
    const command = await appCommand(runtime, {})
    await using target = await spawnTarget({ ...command, env: { ...command.env, LISTEN_FDS: '1' } })
    await target.line(/LISTEN_FDS is set, and .* So this process listens on a socket of its own\./)
    expect(await post(target.url, 'V1')).toBe(200)
  })

  test('environment variables reach the secret function and handlers as env', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    expect(await post(target.url, 'V1')).toBe(200)
    await expect.poll(() => seen(target.url)).toMatchObject({ places: ['from env'] })
    const stranger = await fetch(target.url, { method: 'POST', headers: { authorization: 'guess' }, body: '{}' })
    expect(stranger.status).toBe(403)
  })

  test("in a Hono app that is served, the runtime's connection info is there too", async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    expect(await (await fetch(`${target.url}/remote`)).json()).toBe('127.0.0.1')
  })

  test('listens on every address of the machine unless it is told one', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}, { hostname: undefined }))
    const { port } = new URL(target.url)
    expect((await fetch(`http://127.0.0.1:${port}/seen`)).status).toBe(200)
    if (hasIpv6()) expect((await fetch(`http://[::1]:${port}/seen`)).status).toBe(200)
  })

  test('speaks https with a certificate and a key', async ({ expect }) => {
    const tls = { cert: certificate, key: privateKey }
    await using target = await spawnTarget(await appCommand(runtime, {}, { tls }))
    expect(target.url).toMatch(/^https:/)
    expect(await postSecurely(target.url)).toBe(200)
    target.kill('SIGTERM')
    expect(await target.line(/^stats/)).toContain('"handled":1,"lost":0')
  })

  test.each([
    ['over the limit', '', ''],
    ['over the limit after inflating', '', 'content-encoding: gzip\r\n'],
    ['with a wrong secret', 'wrong', ''],
  ])('a message behind one %s is answered, unless the refusal announces the end', async (_case, wrong, encoding) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    const { send, until, received, closed, socket } = await rawConnection(target.url)
    const body = gzipSync(randomBytes(1_500_000), { level: 0 })
    const next = JSON.stringify({ vin: 'V2', state: 'online' })
    await send(head(body.length).replace(secret, `${wrong}${secret}`).replace('\r\n\r\n', `\r\n${encoding}\r\n`))
    await send(body.subarray(0, 1_300_000)).catch(() => {})
    const refusal = await until('"hint"')
    expect(refusal).toMatch(/^HTTP\/1\.1 4[01]3 /)
    for (const part of [body.subarray(1_300_000), head(next.length), next]) await send(part).catch(() => {})
    const isLast = /\r\nconnection: close\r\n/i.test(refusal)
    await (isLast ? closed : until('"Success"'))
    const { stats } = await seen(target.url)
    expect({ answers: received().split('HTTP/1.1 ').length - 1, taken: stats.received }).toEqual(
      isLast ? { answers: 1, taken: 0 } : { answers: 2, taken: 1 },
    )
    socket.destroy()
  })

  test('rejects when another receiver of the same runtime has the port', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    const port = Number(new URL(target.url).port)
    const second = appCommand(runtime, {}, { port }).then(spawnTarget)
    // If it listens after all, it ends with the test.
    await using _listening = await second.catch(() => undefined)
    await expect(second).rejects.toThrow(/EADDRINUSE|AddrInUse/)
  })
})

test('serve of another runtime rejects, and says what to import', async () => {
  const { fetch } = createReceiver({ secret })
  const elsewhere = (runtime: string): object => ({
    message: expect.stringMatching(`fleethook/${runtime.toLowerCase()} was called, and this is not ${runtime}`),
    hint: expect.stringMatching('fleethook/node'),
  })
  await expect(serveOnBun({ fetch })).rejects.toMatchObject(elsewhere('Bun'))
  await expect(serveOnDeno({ fetch })).rejects.toMatchObject(elsewhere('Deno'))
})

test('on Deno permissions for the network and the secret are enough; without the latter the log says so', async () => {
  const { args, ...command } = await appCommand('deno', {})
  const allowed = async (...flags: readonly string[]): Promise<readonly [number, readonly string[]]> => {
    await using target = await spawnTarget({
      ...command,
      args: ['run', '--no-prompt', '--allow-net', ...flags, ...args.slice(-2)],
    })
    return [await post(target.url, 'V1'), target.output]
  }
  expect(await allowed('--allow-env=WEBHOOK_SECRET,PLACE,SETTINGS,SERVE')).toEqual([
    200,
    [expect.stringContaining('listening on'), expect.stringContaining('A 2xx means')],
  ])
  const [status, output] = await allowed('--allow-env=PLACE,SETTINGS,SERVE')
  expect(status).toBe(503)
  expect(output.join('\n')).toContain('every message is refused: the function given as `secret` threw a NotCapable')
})

/** A message in a chunked body, with a trailer behind it. */
function chunked(vin: string): string {
  const body = message(vin)
  const fields = `host: a\r\nauthorization: ${secret}\r\ntransfer-encoding: chunked\r\n`
  return `POST / HTTP/1.1\r\n${fields}\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\nx-checksum: 1\r\n\r\n`
}

test('on Bun, the answer to a chunked body says that nothing behind it on the connection is read', async () => {
  await using target = await spawnTarget(await appCommand('bun', {}))
  const { whole } = await rawConnection(target.url, chunked('V1') + chunked('V2'))
  const [, first] = (await whole).split('HTTP/1.1 ')
  expect(first).toMatch(/^200 OK\r\n[^]*connection: close\r\n/i)
  expect(await post(target.url, 'V3')).toBe(200)
  expect((await seen(target.url)).stats.received).toBe(2)
})

test.for([
  ['memory', 'one segment'],
  ['disk', 'one segment'],
  ['disk', 'a segment for each'],
] as const)(
  'serve of fleethook/node answers pipelined messages and trailers on Bun, with an inbox in %s, in %s',
  async ([durability, segments]) => {
    const { args, ...command } = await appCommand('bun', { durability })
    await using target = await spawnTarget({ ...command, args: [...args.slice(0, -1), 'node'] })
    const given = [chunked('V1'), head(message('V2').length) + message('V2'), chunked('V3'), chunked('V4')]
    const { send, received, socket } = await rawConnection(target.url)
    for (const bytes of segments === 'one segment' ? [given.join('')] : given) await send(bytes)
    await expect.poll(() => received().match(/HTTP\/1\.1 200 OK/g)).toHaveLength(4)
    expect((await seen(target.url)).stats.received).toBe(4)
    socket.destroy()
  },
)

test('Bun closes connections that stay silent in the middle of a request, and no others', async () => {
  const command = await appCommand('bun', { ack: 'handled', holdsHandlers: true }, { idleTimeoutMs: 1_000 })
  await using target = await spawnTarget(command)
  const answered = post(target.url, 'V1')
  using silent = await rawConnection(target.url, `${head(500)}{"data"`)
  expect(await silent.whole).not.toContain('200 OK')
  await letIt(target.url, 'handle')
  expect(await answered).toBe(200)
})

describe.concurrent('on Deno Deploy, where nothing is sure to run after an answer', () => {
  const deploy = { DENO_DEPLOYMENT_ID: 'a-deployment' }

  test.for(['memory', 'disk'] as const)(
    "ack: 'received' with an inbox of durability '%s' is refused at start-up by name",
    async (durability, { expect }) => {
      const command = await appCommand('deno', { ack: 'received', durability })
      await expect(spawnTarget({ ...command, env: { ...command.env, ...deploy } })).rejects.toThrow(
        `ack: 'received' with an inbox in ${durability} cannot be kept on Deno Deploy`,
      )
    },
  )

  test.for([{ ack: 'handled' }, { ack: 'stored', durability: 'replicated' }] as const)(
    'a promise that can be kept is accepted: %o',
    async (settings, { expect }) => {
      const command = await appCommand('deno', settings)
      await using target = await spawnTarget({ ...command, env: { ...command.env, ...deploy } })
      await target.line(/Deno Deploy\. A 2xx means/)
      expect(await post(target.url, 'V1')).toBe(200)
    },
  )
})

function hasIpv6(): boolean {
  return Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))
}

function postSecurely(url: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const posting = request(
      url,
      { method: 'POST', ca: certificate, headers: { authorization: secret } },
      (response) => {
        response.resume().once('end', () => resolve(response.statusCode))
      },
    )
    posting.once('error', reject)
    posting.end(message('V1'))
  })
}
