import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { createReceiver, memoryInbox } from 'fleethook'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { Hono } from 'hono'
import { expect, onTestFinished, test } from 'vitest'
import { start } from '../cli/command.ts'
import { endpoint } from '../cli/endpoint.ts'
import { freePort, spawnTarget, type Target } from '../conformance/spawn.ts'
import { programCommand, secret } from '../runtimes/targets.ts'

const program = join(import.meta.dirname, 'programs/listening.ts')

/** A receiver in a process of its own. */
async function receiver(port: number = 0, ownSecret: string = secret): Promise<Target> {
  const target = await spawnTarget(programCommand('node24', program, { PORT: String(port), WEBHOOK_SECRET: ownSecret }))
  onTestFinished(() => target[Symbol.asyncDispose]())
  return target
}

/** `fleethook tail --to`, once it reads the feed of the receiver at `from`. */
async function listens(
  from: string,
  to: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = { WEBHOOK_SECRET: 'local' },
): Promise<{ readonly lines: readonly string[]; readonly said: readonly string[]; end(): Promise<number | null> }> {
  const { child } = start(['tail', '--url', `${from}/operator`, '--to', to, ...args], {
    FLEETHOOK_OPERATOR_SECRET: 'the-operator',
    ...env,
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [lines, said]: [string[], string[]] = [[], []]
  if (child.stdout !== null) createInterface({ input: child.stdout }).on('line', (line) => lines.push(line))
  if (child.stderr !== null) createInterface({ input: child.stderr }).on('line', (line) => said.push(line))
  await expect.poll(() => said).toContainEqual(expect.stringMatching(/^Listening/))
  return {
    lines,
    said,
    async end() {
      child.kill('SIGINT')
      const [status] = await once(child, 'exit')
      return status
    },
  }
}

const of = (vin: string, n: number): string =>
  JSON.stringify({ data: { Odometer: n }, createdAt: '2026-06-01T08:00:00.123456789Z', vin })

async function post(url: string, body: string): Promise<void> {
  const answer = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
  expect(answer.status).toBe(200)
}

test('posts each message as it came, in its own format, and says what was answered', { timeout: 180_000 }, async () => {
  const [remote, local] = [await receiver(), await endpoint()]
  onTestFinished(() => local[Symbol.asyncDispose]())
  const shown = await listens(remote.url, local.url)
  // A number that JSON.parse would change, a message that lists leave out for its size, and the collector's envelope.
  const bodies = [
    '{"data":{"Odometer":12345678901234567890.10},"createdAt":"2026-06-01T08:00:00Z","vin":"V"}',
    JSON.stringify({ vehicle_data: { notes: 'long '.repeat(10_000) }, createdAt: '2026-06-01T08:00:01Z', vin: 'V' }),
    '{"vin":"V","createdAt":null,"data":[{"key":"Gear","value":{"stringValue":"D"}}]}',
    '{"time":1717228800.5,"host":"h","source":"V","sourcetype":"maker:telemetry:data","event":{"Gear":"P"}}',
  ]
  for (const body of bodies) await post(remote.url, body)
  await expect.poll(() => shown.lines.length).toBe(4)
  expect(local.posted.map(({ body }) => body)).toEqual(bodies)
  expect(local.posted.map(({ headers }) => headers.authorization)).toEqual(['local', 'local', 'local', 'Splunk local'])
  expect(local.posted[0]?.headers['fleethook-delivery']).toMatch(/^[\da-f-]{36}$/)
  expect(shown.lines[0]).toMatch(/^200 +\d+ms {2}\d\d:\d\d:\d\d .*V +service +data +Odometer /)
  expect(await shown.end()).toBe(0)
})

test(
  'takes only the vehicle and the topic that were asked for, and with --json says what was answered',
  { timeout: 180_000 },
  async () => {
    const [remote, local] = [await receiver(), await receiver(0, 'another')]
    const shown = await listens(remote.url, local.url, ['--vin', 'A', '--topic', 'data', '--json'], {})
    for (const vin of ['A', 'B']) await post(remote.url, of(vin, 1))
    await post(remote.url, JSON.stringify({ state: 'online', createdAt: '2026-06-01T08:00:01Z', vin: 'A' }))
    await post(remote.url, of('A', 2))
    await expect.poll(() => shown.lines.length).toBe(2)
    expect(shown.lines.map((line) => JSON.parse(line))).toEqual(
      Array.from({ length: 2 }, () => ({
        id: expect.stringMatching(/^[\da-f-]{36}$/),
        vin: 'A',
        topic: 'data',
        status: 401,
        ms: expect.any(Number),
        error: '401 authorization_missing (code 2)',
      })),
    )
  },
)

test('says with which option the path of the local receiver is given', { timeout: 180_000 }, async () => {
  const [remote, local] = [await receiver(), await endpoint((_posted, response) => response.writeHead(404).end())]
  onTestFinished(() => local[Symbol.asyncDispose]())
  const shown = await listens(remote.url, new URL(local.url).origin)
  await post(remote.url, of('V', 1))
  await expect.poll(() => shown.said).toContainEqual(expect.stringContaining(`instance --to ${local.url}`))
})

test('goes on in order after the local receiver restarts, and loses nothing', { timeout: 180_000 }, async () => {
  const [remote, port] = [await receiver(), await freePort()]
  const local = await receiver(port, 'local')
  const shown = await listens(remote.url, `http://127.0.0.1:${port}`)
  await post(remote.url, of('V', 0))
  // Without the answer, it would be posted again.
  await expect.poll(() => shown.lines.length).toBe(1)
  await local.stop('SIGKILL')
  for (let n = 1; n <= 20; n += 1) await post(remote.url, of('V', n))
  await expect.poll(() => shown.said).toContainEqual(expect.stringMatching(/does not answer \(ECONN\w+\)/))
  const next = await receiver(port, 'local')
  await next.line(/"Odometer":20/)
  const got = next.output.flatMap((line) => /"Odometer":(\d+)/.exec(line)?.[1] ?? [])
  expect(got).toEqual(Array.from({ length: 20 }, (_, n) => String(n + 1)))
  expect(shown.said).toContain(`http://127.0.0.1:${port} answers again.`)
})

test('goes on after the running receiver restarts, and says what it has not seen', { timeout: 180_000 }, async () => {
  const [port, local] = [await freePort(), await receiver(0, 'local')]
  const remote = await receiver(port)
  const shown = await listens(remote.url, local.url)
  await post(remote.url, of('V', 1))
  await local.line(/"Odometer":1,?/)
  await remote.stop('SIGKILL')
  await expect.poll(() => shown.said).toContainEqual(expect.stringMatching(/^The receiver stopped/))
  const next = await receiver(port)
  await expect
    .poll(() => shown.said)
    .toContainEqual(expect.stringMatching(/^The receiver runs again. What it took between .* is not posted here/))
  await post(next.url, of('V', 2))
  await local.line(/"Odometer":2/)
})

test('says how much the feed dropped while the local receiver was away', { timeout: 180_000 }, async () => {
  const [remote, port] = [await receiver(), await freePort()]
  const shown = await listens(remote.url, `http://127.0.0.1:${port}`)
  await post(remote.url, of('V', 0))
  await expect.poll(() => shown.said).toContainEqual(expect.stringMatching(/does not answer/))
  const sent = 2_000
  await post(remote.url, Array.from({ length: sent }, (_, n) => of('V', n + 1)).join('\n'))
  const local = await receiver(port, 'local')
  await expect.poll(() => shown.lines).toContainEqual(expect.stringMatching(/^The feed dropped \d+ items/))
  // The feed may have dropped the last of those too, if their handlers were faster than its reader.
  await post(remote.url, of('V', sent + 1))
  await local.line(new RegExp(`"Odometer":${sent + 1}\\b`))
})

test('ends when it posts to the receiver that it reads', { timeout: 180_000 }, async () => {
  const remote = await receiver()
  const shown = await listens(remote.url, remote.url, ['--auth', secret])
  // The same message twice, as a relay may send it.
  await post(remote.url, of('V', 1).repeat(2))
  await expect.poll(() => shown.said).toContainEqual(expect.stringMatching(/^error: .* is also the source/))
  expect(shown.lines.length).toBeLessThan(20)
})

test('with options that say what happened before, it is bad usage', async () => {
  const { child, ended } = start(['tail', '--to', 'http://localhost:3000', '-n', '5'])
  onTestFinished(() => void child.kill('SIGKILL'))
  const { status, stderr } = await ended
  expect(status).toBe(2)
  expect(stderr).toContain("option '--to <url>' cannot be used with option '-n, --last <n>'")
})

test(
  'says at the start that it hears only one of several processes with the same inbox',
  { timeout: 180_000 },
  async () => {
    const backlog = { messages: 0, processes: 2 }
    const shared = createReceiver({
      secret,
      inbox: (settings) => ({
        ...memoryInbox()(settings),
        shared: { handsOut: 'shared' },
        stats: () => ({ backlog }),
      }),
    })
    const alone = createReceiver({ secret })
    const local = await endpoint()
    onTestFinished(() => local[Symbol.asyncDispose]())
    for (const [receiver, unheard] of [
      [shared, 1],
      [alone, 0],
    ] as const) {
      const app = new Hono().route('/operator', operatorRoutes(receiver, { secret: 'the-operator' }))
      const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [], announce: false })
      onTestFinished(() => server.close().then(() => {}))
      const { said } = await listens(server.url, local.url)
      expect(
        said.filter((line) =>
          /shares its inbox with others: 2 processes .* Only what happens in it is heard/.test(line),
        ),
      ).toHaveLength(unheard)
    }
  },
)
