import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { createReceiver, memoryInbox } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { type NodeServeOptions, serve } from 'fleethook/node'
import { describe, expect, test, vi } from 'vitest'
import { rawConnection } from '../http/raw.ts'
import { secret } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

/** The first line of the answer to a text, when the connection is closed. */
const send = async (url: string, text: string): Promise<string> =>
  (await (await rawConnection(url, text)).whole).split('\r\n', 1)[0] ?? ''

describe('requests that Node refuses before the receiver sees them', () => {
  test.each<[string, string, string, NodeServeOptions?]>([
    ['request_malformed', 'HTTP/1.1 400 Bad Request', 'NONSENSE\r\n\r\n'],
    [
      'headers_too_large',
      'HTTP/1.1 431 Request Header Fields Too Large',
      `POST / HTTP/1.1\r\nhost: x\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
    ],
    [
      'expectation_unsupported',
      'HTTP/1.1 417 Expectation Failed',
      'POST / HTTP/1.1\r\nhost: x\r\nexpect: 200-ok\r\ncontent-length: 0\r\nconnection: close\r\n\r\n',
    ],
    ['request_timeout', 'HTTP/1.1 408 Request Timeout', 'POST / HTTP/1.1\r\nhost:', { headersTimeoutMs: 100 }],
  ])('%s is counted, and answered as Node does', async (error, answer, text, options) => {
    const seen: unknown[] = []
    const receiver = createReceiver({
      secret,
      observe: { refused: ({ error: why, status }) => void seen.push(`${status} ${why}`) },
    })
    const server = await serve(receiver, {
      port: 0,
      hostname: '127.0.0.1',
      signals: false,
      announce: false,
      ...options,
    })
    expect(await send(server.url, text)).toBe(answer)
    await server.close()
    expect(receiver.stats().refused).toEqual({ [error]: 1 })
    expect(seen).toEqual([`${answer.slice(9, 12)} ${error}`])
  })

  const head = `POST / HTTP/1.1\r\nhost: x\r\nauthorization: ${secret}\r\n`
  const whole = (n: number): string => {
    const body = JSON.stringify({ vin: 'A', createdAt: '2026-01-01T00:00:00Z', data: { Odometer: n } })
    return `${head}content-length: ${body.length}\r\n\r\n${body}`
  }

  test.each<[string, string, string, number]>([
    ['nonsense', 'NONSENSE\r\n\r\n', 'HTTP/1.1 400 Bad Request', 1],
    ['half of the headers of another request', `${head}content-len`, 'HTTP/1.1 400 Bad Request', 1],
    [
      'half of the body of another request',
      `${head}content-length: 90\r\n\r\n{"vin":"A"`,
      'HTTP/1.1 400 Bad Request',
      0,
    ],
    [
      'a wrong chunk',
      `${head}transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\nno chunk\r\n`,
      'HTTP/1.1 400 Bad Request',
      0,
    ],
    [
      'headers that are too large',
      `${head}x: ${'x'.repeat(20_000)}\r\n\r\n`,
      'HTTP/1.1 431 Request Header Fields Too Large',
      1,
    ],
  ])(
    'requests that were stored are answered first when %s follows on the connection, and it ends',
    async (_what, last, answer, refusedByNode) => {
      const stored: (() => void)[] = []
      let isSlow = true
      // The answers wait, as for a disk. What a stop stores does not.
      const slow: InboxFactory = (settings) => {
        const inbox = memoryInbox()(settings)
        const put: typeof inbox.put = async (messages, from) => {
          if (isSlow) await new Promise<void>((resolve) => stored.push(resolve))
          return inbox.put(messages, from)
        }
        return { ...inbox, put }
      }
      const receiver = createReceiver({ secret, inbox: slow })
      const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false })
      const { hostname, port } = new URL(server.url)
      const socket = connect(Number(port), hostname)
      // It sends no more: its connection was cut, or it has closed its side.
      socket.end(whole(1) + whole(2) + last)
      let read = ''
      socket.on('data', (part) => (read += String(part)))
      const closed = once(socket, 'close')
      for (let n = 0; n < 2; n += 1) {
        await vi.waitFor(() => expect(stored.length).toBeGreaterThan(n))
        await new Promise((resolve) => setImmediate(resolve))
        stored[n]?.()
      }
      isSlow = false
      for (const resolve of stored) resolve()
      await closed
      expect(read.match(/HTTP\/1\.1 [^\r]*/g)).toEqual(['HTTP/1.1 200 OK', 'HTTP/1.1 200 OK', answer])
      await server.close()
      const { refused } = receiver.stats()
      expect((refused['request_malformed'] ?? 0) + (refused['headers_too_large'] ?? 0)).toBe(refusedByNode)
      expect(receiver.stats().received).toBe(2)
    },
  )

  test('a body that ends too early is counted once, by the receiver', async () => {
    const receiver = createReceiver({ secret })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false })
    await send(server.url, `${head}transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\nno chunk\r\n`)
    await server.close()
    expect(receiver.stats().refused).toEqual({ body_interrupted: 1 })
  })
})

describe('the lines of serve', () => {
  test('have nothing of a secret, not even a part of its hash', async () => {
    const info = vi.spyOn(console, 'info').mockImplementation(() => {})
    const secrets = ['a-long-random-value', 'Splunk another-long-value']
    for (const given of [...secrets, secrets, false] as const) {
      const receiver = createReceiver({ secret: given })
      const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false })
      await server.close()
    }
    const lines = info.mock.calls.map(([line]) => String(line)).filter((line) => line.includes('listening on'))
    info.mockRestore()
    const [first, ...others] = lines.map((line) => line.replace(/:\d+$/m, ''))
    expect(others).toEqual([first, first, `${first}\n  Requests need no secret: anybody can post.`])
    expect(first).not.toMatch(/secret|random|another/i)
  })

  test('have the number of dead letters when the server stops', async () => {
    const info = vi.spyOn(console, 'info').mockImplementation(() => {})
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const receiver = createReceiver({ secret: false, retry: { attempts: 1 }, log }).on('state', () => {
      throw new Error('no')
    })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false })
    await fetch(server.url, { method: 'POST', body: '{"vin":"V","state":"online"}' })
    await server.close()
    const last = String(info.mock.calls.at(-1)?.[0])
    info.mockRestore()
    expect(last).toMatch(/stopped: .*\n {2}1 dead letter in memory: gone when the process ends\.$/)
    expect(receiver.stats().inbox.deadLetters).toBe(1)
  })

  test('have the number of dead letters in the file when the server stops and when the next one starts', async () => {
    const info = vi.spyOn(console, 'info').mockImplementation(() => {})
    const path = join(newFolder('lines'), 'inbox.db')
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    for (const posts of [2, 0]) {
      const inbox = sqliteInbox({ path })
      const receiver = createReceiver({ secret: false, retry: { attempts: 1 }, log, inbox }).on('state', () => {
        throw new Error('no')
      })
      const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false })
      for (let n = 0; n < posts; n += 1)
        await fetch(server.url, { method: 'POST', body: `{"vin":"V${n}","state":"online"}` })
      await expect.poll(() => receiver.stats().inbox.deadLetters).toBe(2)
      await server.close()
    }
    const [, stopped, started] = info.mock.calls.map(([line]) => String(line))
    info.mockRestore()
    expect(stopped).toMatch(/stopped: .*\n {2}2 dead letters wait: `fleethook dead list`\.$/)
    expect(started).toMatch(/listening on [^]*\n {2}2 dead letters wait: `fleethook dead list`\.$/)
  })

  test('have the files beside the inbox in which messages wait and that no receiver has opened', async () => {
    const info = vi.spyOn(console, 'info').mockImplementation(() => {})
    const folder = newFolder('lines')
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const other = createReceiver({ secret: false, log, inbox: sqliteInbox({ path: join(folder, 'inbox-1.db') }) })
    other.on('state', () => new Promise(() => {}))
    await other.accept({ authorization: undefined, body: { vin: 'V', state: 'online' } })
    await other.drain({ handlerGraceMs: 0 })
    const receiver = createReceiver({ secret: false, log, inbox: sqliteInbox({ path: join(folder, 'inbox-2.db') }) })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false })
    await server.close()
    const lines = info.mock.calls.map(([line]) => String(line))
    info.mockRestore()
    expect(lines[0]).toContain(`\n  No receiver has opened ${join(folder, 'inbox-1.db')} (1 message, 0 dead letters).`)
    expect(lines[1]).not.toContain('inbox-1.db')
  })
})
