import { execFileSync } from 'node:child_process'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { type Ack, createReceiver, type Durability, memoryInbox } from 'fleethook'
import { type Served, serve } from 'fleethook/node'
import { Hono } from 'hono'
import { expect, onTestFinished, test, vi } from 'vitest'
import { newFolder } from '../folder.ts'
import { post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'

const quiet = { port: 0, hostname: '127.0.0.1', signals: false, announce: false } as const

/** What `serve` prints when it starts. */
async function announced(served: Served): Promise<string> {
  const said = vi.spyOn(console, 'info').mockImplementation(() => {})
  onTestFinished(() => said.mockRestore())
  const server = await serve(served, { ...quiet, announce: true })
  await server.close()
  expect(said.mock.calls[0]?.[0]).toContain(`listening on ${server.url}\n  Node ${process.versions.node}.`)
  return String(said.mock.calls[0]?.[0])
}

const receiverWith = (durability: Durability, ack: Ack): Served =>
  createReceiver({ secret, ack, inbox: (settings) => ({ ...memoryInbox()(settings), durability }) })

test.each([
  ['memory', 'received', 'in the memory of this process, and is lost if the process dies before its handlers are done'],
  ['memory', 'handled', 'every handler of the message is done. A message that was given up gets 500'],
  ['disk', 'handled', 'every handler of the message is done, or has given it up'],
  ['disk', 'stored', 'on the disk of this machine and reaches your handlers at least once, through crashes and power'],
  ['disk', 'received', 'has arrived and is about to be stored on the disk of this machine; until then it is lost if'],
  ['replicated', 'stored', 'on a majority of machines and reaches your handlers at least once'],
] as const)(
  "the line at the start says what a 2xx means with an inbox of durability '%s' and ack: '%s'",
  async (durability, ack, meaning) => {
    const line = await announced(receiverWith(durability, ack))
    expect(line).toContain('A 2xx means:')
    expect(line).toContain(meaning)
  },
)

test('the line at the start says when no receiver was found and a stop drains nothing', async () => {
  const receiver = createReceiver({ secret })
  const line = await announced(new Hono().post('/telemetry', (c) => receiver.fetch(c.req.raw)))
  expect(line).toContain('No receiver was found')
  expect(line).toContain('app.route(path, receiver.routes())')
})

test('receivers are found in nested apps, also in apps with error handlers of their own', async () => {
  const receivers = [createReceiver({ secret: 'one' }), createReceiver({ secret: 'two' })]
  const [one, two] = receivers.map((receiver) => new Hono().route('/telemetry', receiver.routes()))
  if (one === undefined || two === undefined) throw new Error('There are two.')
  const guarded = new Hono().onError((_, c) => c.text('an error', 500)).route('/inner', two)
  const app = new Hono()
    .route('/plain', one)
    .route('/guarded', new Hono().onError(() => new Response()).route('/', guarded))
  const server = await serve(app, quiet)
  await server.close()
  expect(receivers.map((receiver) => receiver.stats().draining)).toEqual([true, true])
})

test('url has the port that the server listens on, and an IPv6 address in brackets', async () => {
  const server = await serve(createReceiver({ secret }), quiet)
  expect(server.url).toBe(`http://127.0.0.1:${server.port}`)
  expect(await post(server.url, 'V1')).toBe(200)
  await server.close()
  if (!Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))) return
  const six = await serve(createReceiver({ secret }), { ...quiet, hostname: '::1' })
  expect(six.url).toBe(`http://[::1]:${six.port}`)
  expect(await post(six.url, 'V1')).toBe(200)
  await six.close()
})

test('close stops the server once, and closed resolves to the same result', async () => {
  const receiver = createReceiver({ secret }).on('*', () => {})
  const server = await serve(receiver, quiet)
  expect(await post(server.url, 'V1')).toBe(200)
  const results = await Promise.all([server.close(), server.close(), server.closed])
  expect(new Set(results).size).toBe(1)
  await expect(fetch(server.url)).rejects.toThrow()
})

test('a receiver with a file starts without the code behind `fetch`, and without TLS', () => {
  const from = (path: string): string => JSON.stringify(new URL(`../../${path}`, import.meta.url).href)
  const program = `
    import { createReceiver } from ${from('src/index.ts')}
    import { sqliteInbox } from ${from('adapters/inbox/sqlite.ts')}
    import { serve } from ${from('adapters/node.ts')}
    const inbox = sqliteInbox({ path: ${JSON.stringify(join(newFolder('start'), 'inbox.db'))} })
    const server = await serve(createReceiver({ secret: '${secret}', inbox }), ${JSON.stringify(quiet)})
    const loaded = () => ['undici/undici', 'NativeModule tls'].map((name) => process.moduleLoadList.some((each) => each.endsWith(name)))
    const atStart = loaded()
    await fetch(server.url)
    console.log(...atStart, ...loaded())
    await server.close()`
  const args = ['--input-type=module', '--eval', program]
  expect(execFileSync(process.execPath, args, { encoding: 'utf8' }).trim()).toBe('false false true true')
})

test('close removes the signal listeners', async () => {
  const before = process.listenerCount('SIGTERM') + process.listenerCount('SIGINT')
  const server = await serve(createReceiver({ secret }), { port: 0, hostname: '127.0.0.1', announce: false })
  expect(process.listenerCount('SIGTERM') + process.listenerCount('SIGINT')).toBe(before + 2)
  await server.close()
  expect(process.listenerCount('SIGTERM') + process.listenerCount('SIGINT')).toBe(before)
})

test('an invalid certificate is an error that shows neither the certificate nor the key', async () => {
  const tls = { cert: 'not a certificate', key: 'not a key' }
  const error = await serve(createReceiver({ secret }), { ...quiet, tls }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toMatchObject({ code: 'listen_failed' })
  expect(String(error)).not.toContain('not a')
})
