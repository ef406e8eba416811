import type { ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { afterEach, describe, expect, test } from 'vitest'
import { createPost } from '../../adapters/cli/exchange.ts'
import { certificate, privateKey } from '../runtimes/certificate.ts'
import { rawConnection } from '../http/raw.ts'
import { command, type Running, start } from './command.ts'
import { type Endpoint, endpoint } from './endpoint.ts'

const key = 'the-key-of-the-business'
const secret = 'a-long-random-value'
const vin = '0FL3EETV6T0000000'

const running: Running[] = []
const opened: Endpoint[] = []
afterEach(async () => {
  for (const { child, ended } of running.splice(0)) {
    child.kill('SIGINT')
    await ended
  }
  for (const one of opened.splice(0)) await one[Symbol.asyncDispose]()
})

/** Starts a sandbox. Returns the environment of a client that asks it. */
async function sandbox(...args: string[]): Promise<{ readonly env: Record<string, string>; readonly it: Running }> {
  const it = start(['sandbox', '--port', '0', '--dotenv', '/nowhere', ...args], { SERVICE_API_KEY: key })
  running.push(it)
  const { stdout } = it.child
  if (stdout === null) throw new Error('It has no output.')
  for await (const line of createInterface(stdout)) {
    const [, url] = /SERVICE_URL=(\S+)/.exec(line) ?? []
    if (url !== undefined) return { it, env: { SERVICE_URL: url, SERVICE_API_KEY: key, WEBHOOK_SECRET: secret } }
  }
  throw new Error('It ended before it listened.')
}

const ask = (env: Record<string, string>, path: string, body?: object): Promise<Response> =>
  fetch(`${env['SERVICE_URL']}${path}`, {
    headers: { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
  })

describe('fleethook sandbox', () => {
  test('takes what the other commands set, and posts it to a webhook on this machine', async () => {
    const receiver = await endpoint((_posted, response) => void response.writeHead(200).end())
    opened.push(receiver)
    const { env } = await sandbox('--allow-local', '--speed', '0')
    const set = await command(['webhook', 'set', '--url', receiver.url, '--allow-local'], env)
    expect(set).toMatchObject({ status: 0, stderr: '' })
    expect(await command(['config', 'patch', vin, 'Location=5'], env)).toMatchObject({ status: 0 })
    expect((await command(['products'], env)).stdout).toContain(vin)
    await ask(env, '/sandbox/clock', { advance_seconds: 60 })
    expect(receiver.posted.length).toBeGreaterThan(0)
    expect(receiver.posted[0]?.headers['authorization']).toBe(secret)
  })

  test('says that its port is in use, and ends with status 1', async () => {
    const taken = await endpoint((_posted, response) => void response.end())
    opened.push(taken)
    const { port } = new URL(taken.url)
    const ended = await command(['sandbox', '--port', port, '--dotenv', '/nowhere'], { SERVICE_API_KEY: key })
    expect(ended).toMatchObject({ status: 1, stdout: '' })
    expect(ended.stderr).toContain(`could not listen on 127.0.0.1:${port}: EADDRINUSE. Another process has this port`)
  })

  test('makes a key when there is none, and ends well with Ctrl+C', async () => {
    const it = start(['sandbox', '--port', '0', '--dotenv', '/nowhere'], { SERVICE_API_KEY: '' })
    running.push(it)
    await once(it.child.stdout ?? it.child, 'data')
    it.child.kill('SIGINT')
    const { status, stdout } = await it.ended
    expect(status).toBe(0)
    expect(stdout).toMatch(/SERVICE_API_KEY=sk_sandbox_\S{24}/)
  })

  test('prints a line for each delivery, call and stream', async () => {
    const receiver = await endpoint((_posted, response) => void response.writeHead(403).end())
    opened.push(receiver)
    const { env, it } = await sandbox('--allow-local', '--speed', '0')
    await command(['webhook', 'set', '--url', receiver.url, '--allow-local'], env)
    await ask(env, '/sandbox/messages', { vin, data: { Soc: 5 } })
    const stream = await ask(env, `/sse/${vin}`)
    await stream.body?.cancel()
    it.child.kill('SIGINT')
    const { stdout } = await it.ended
    expect(stdout).toMatch(new RegExp(`403 → POST ${receiver.url}  data ${vin}  \\d+ ms  wrong secret`))
    expect(stdout).toMatch(/200 ← PUT \/api\/business\/webhook  \d+ ms/)
    expect(stdout).toContain(`opened ⇉ /sse/${vin}`)
    expect(stdout).not.toMatch(new RegExp(`${key}|${secret}`))
  })

  test('goes on with a stream after a chunked GET whose last chunk comes twice', async () => {
    const { env } = await sandbox('--speed', '0')
    const { SERVICE_URL: url = '' } = env
    const { host } = new URL(url)
    const head = (path: string): string =>
      `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\nTransfer-Encoding: chunked\r\n\r\n`
    for (const parts of [
      [`${head(`/sse/${vin}`)}0\r\n\r\n0\r\n\r\n`],
      [head(`/sse/${vin}`), '0\r\n\r\n', '0\r\n\r\n'],
    ]) {
      using connection = await rawConnection(url)
      const { send, until, received } = connection
      for (const part of parts) await send(part)
      await until('retry: 1000')
      await ask(env, '/sandbox/messages', { vin, state: 'driving' })
      await until('"state":"driving"')
      expect(received().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200'])
    }
    // Bytes that are no request at all are still refused.
    const broken = await rawConnection(url, 'NONSENSE\r\n\r\n')
    expect(await broken.whole).toMatch(/^HTTP\/1\.1 400/)
  })

  const wrong = [
    [['--speed', '-1']],
    [['--rate-limit', '0']],
    [['--port', 'x']],
    [['--stream', 'BatteryLevel']],
  ] as const
  test.each(wrong)('bad usage %j ends with 2', async (args) => {
    expect((await command(['sandbox', ...args], { SERVICE_API_KEY: key })).status).toBe(2)
  })
})

test('a certificate that nobody trusts is refused when `verify` is true, and taken when it is false', async () => {
  const server = createServer(
    { cert: certificate, key: privateKey },
    (_request, response) => void response.writeHead(200).end(),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `https://127.0.0.1:${Object(server.address()).port}/`
  const { post, close } = createPost()
  const signal = new AbortController().signal
  const message = { url, headers: {}, body: '{}', signal }
  await expect(post({ ...message, verify: true })).rejects.toThrow()
  expect(await post({ ...message, verify: false })).toBe(200)
  close()
  server.close()
})

test('a webhook that does not answer ends with the reason of the signal, before and after its headers', async () => {
  const late = new DOMException('No answer in time.', 'TimeoutError')
  const { post, close } = createPost()
  for (const begin of [() => {}, (response: ServerResponse) => void response.writeHead(200).write('a')]) {
    const controller = new AbortController()
    const webhook = await endpoint((_posted, response) => {
      begin(response)
      setTimeout(() => controller.abort(late), 50)
    })
    opened.push(webhook)
    const posted = post({ url: webhook.url, headers: {}, body: '{}', verify: true, signal: controller.signal })
    await expect(posted).rejects.toBe(late)
  }
  close()
})
