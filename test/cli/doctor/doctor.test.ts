import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { metricsText } from 'fleethook/metrics'
import { serve } from 'fleethook/node'
import { operatorRoutes } from 'fleethook/operator'
import { Hono } from 'hono'
import { describe, expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { exchange } from '../../../adapters/cli/exchange.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createAuthority } from '../../kafka/certificates.ts'
import { certificate, privateKey } from '../../runtimes/certificate.ts'
import { command, start } from '../command.ts'
import { endpoint } from '../endpoint.ts'
import { type Fault, proxy } from './proxies.ts'
import { newFolder } from '../../folder.ts'

const secret = '0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0'
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const folder = (): string => newFolder('doctor')

const findings = z.object({
  findings: z.array(z.object({ id: z.string(), status: z.string(), found: z.string(), todo: z.string().optional() })),
})

/** Findings by id, as `status: found`. */
async function found(
  args: readonly string[],
  env: Readonly<Record<string, string>> = { WEBHOOK_SECRET: secret },
): Promise<Record<string, string>> {
  const { stdout } = await command(['doctor', '--json', ...args], env, folder())
  expect(stdout).not.toContain(secret)
  const all: Record<string, string> = {}
  for (const { id, status, found: text, todo } of findings.parse(JSON.parse(stdout)).findings) {
    expect(todo === undefined, `${id} says what to do exactly when something is wrong`).toBe(
      status === 'ok' || status === 'skip',
    )
    all[id] = `${status}: ${text}`
  }
  return all
}

describe('a proxy before the receiver', () => {
  async function check(
    fault: Fault,
    receiverSecret: string = secret,
    tls?: Parameters<typeof proxy>[2],
  ): Promise<string | undefined> {
    const receiver = createReceiver({ secret: receiverSecret, log: silent })
    const app = new Hono().route('/telemetry', receiver.routes())
    const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [] })
    onTestFinished(() => server.close().then(() => {}))
    await using front = await proxy(server.url, fault, tls)
    const { 'proxy.answer': answer } = await found(['--only', 'proxy', '--url', front.url.href])
    expect(receiver.stats().openGaps, 'What it refuses of doctor is no gap.').toBe(0)
    return answer
  }
  const answering =
    (status: number, headers: Record<string, string>): NonNullable<Fault['answer']> =>
    (_, response) => {
      response.writeHead(status, headers).end('<h1>No</h1>')
      return true
    }

  test('one that changes nothing passes', async () => {
    expect(await check({})).toMatch(/^ok: the receiver took a test message/)
  })

  test.each<[string, Fault, RegExp]>([
    [
      'removes the Authorization header',
      { headers: ({ authorization: _, ...rest }) => rest },
      /^fail: The receiver got no Authorization header: something on the way removes it\./,
    ],
    [
      'adds an Authorization header of its own',
      { headers: (headers) => ({ ...headers, authorization: `${headers.authorization}, Basic YTpi` }) },
      /^fail: The request has two Authorization headers\./,
    ],
    [
      'redirects',
      { answer: answering(301, { location: 'https://example.com/telemetry' }) },
      /^fail: .* redirects to https:\/\/example\.com\/telemetry/,
    ],
    [
      'answers with its own page',
      { answer: answering(403, { 'content-type': 'text/html', server: 'a-proxy' }) },
      /^fail: Something before the receiver answered: status 403, text\/html, server a-proxy\./,
    ],
    [
      'cuts the connection',
      { answer: (_, response) => response.destroy().destroyed },
      /^fail: .* did not answer: ECONNRESET\./,
    ],
  ])('one that %s is named', async (_, fault, expected) => {
    expect(await check(fault)).toMatch(expected)
  })

  test('a receiver with another secret is told from a missing header', async () => {
    expect(await check({}, 'another-secret-of-the-receiver')).toMatch(/^fail: The receiver has another secret/)
  })

  test('a certificate that no public authority issued is named', async () => {
    expect(await check({}, secret, { key: privateKey, cert: certificate })).toMatch(
      /^fail: .* did not answer: \w*SIGNED\w*\./,
    )
  })

  test('the secret is not sent over an unencrypted connection to another machine', async () => {
    expect(await found(['--only', 'proxy', '--url', 'http://receiver.example/telemetry'])).toEqual({
      'proxy.answer':
        'fail: http://receiver.example is not encrypted, so the secret was not sent: anyone on the way could read it.',
    })
  })
})

test.each<[string, string | undefined, RegExp]>([
  ['is missing', undefined, /^fail: WEBHOOK_SECRET is set neither/],
  ['has a line break', `${secret}\n`, /^fail: The secret begins or ends with white space/],
  ['has quotes', `"${secret}"`, /^fail: The secret is in quotes/],
  ['is that of an example', 'a-long-random-value', /^fail: .*example/],
  ['is short', 'summer2026', /^warn: The secret is short/],
  ['has 32 random bytes', secret, /^ok: WEBHOOK_SECRET is set: 64 characters/],
])('a secret that %s is reported, without a character of it', async (_, value, expected) => {
  const all = await found(['--only', 'secret'], value === undefined ? {} : { WEBHOOK_SECRET: value })
  expect(all['secret.set']).toMatch(expected)
  expect(JSON.stringify(all)).not.toContain(value?.trim() ?? '\0')
})

describe('the webhook at the service', () => {
  async function check(
    stored: object | undefined,
    configs: Readonly<Record<string, object>> = {},
  ): Promise<Record<string, string>> {
    const products = Object.keys(configs).map((id) => ({ product_type: 'vehicle', product_id: id }))
    await using service = await endpoint(({ path = '' }, response) => {
      const config = configs[path.split('/').at(-1) ?? '']
      const body = path.endsWith('/webhook') ? stored && { response: stored } : (config ?? { response: products })
      response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body ?? { error: { code: 'webhook_not_found' } }))
    })
    const env = { SERVICE_URL: new URL(service.url).origin, SERVICE_API_KEY: 'the-key' }
    return await found(['--only', 'webhook', '--url', 'https://receiver.example/telemetry/'], env)
  }

  const stored = { format: 'service', verify: true, updated_at: '2026-11-21T10:00:00.000Z' }

  test('that is paused, without auth, at another address is three findings', async () => {
    const all = await check({ ...stored, url: 'https://old.example/', enabled: false, auth: false })
    expect(all).toEqual({
      'webhook.set': 'ok: https://old.example/',
      'webhook.enabled': 'fail: The webhook is paused: no message is delivered.',
      'webhook.url':
        'fail: The service posts to https://old.example/, and --url is https://receiver.example/telemetry/.',
      'webhook.auth':
        'fail: The service sends no Authorization header. A receiver with a secret refuses every message.',
      'webhook.vehicles': 'fail: No customer shares a vehicle with the business.',
    })
  })

  test('that does not exist is one finding', async () => {
    expect(await check(undefined)).toEqual({
      'webhook.set': 'fail: The business has no webhook, so the service posts nothing.',
    })
  })

  test('of vehicles without a streaming config names them', async () => {
    const configs = { V1: { fields: { Gear: { interval_seconds: 1 } } }, V2: { fields: {} } }
    const all = await check(
      { ...stored, url: 'https://receiver.example/telemetry', enabled: true, auth: true },
      configs,
    )
    expect(all['webhook.vehicles']).toMatch(/^fail: 1 of 2 vehicles have no streaming config, .*: V2/)
  })
})

describe('the command', () => {
  test('ends with 0 when no check failed, with 1 when one did, and with 2 for a group that does not exist', async () => {
    const only = ['doctor', '--only', 'secret']
    expect(await command(only, { WEBHOOK_SECRET: secret }, folder())).toMatchObject({ status: 0, stderr: '' })
    expect(await command(only, {}, folder())).toMatchObject({ status: 1, stderr: '' })
    const { status, stderr } = await command(['doctor', '--only', 'tsl'], {}, folder())
    expect(status).toBe(2)
    expect(stderr).toContain('There is no group "tsl". The groups are secret, webhook,')
  })

  test('what could not be checked is no pass: a receiver that is dead fails, and anything else ends with 3', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    const receiver = createReceiver({ secret, log: silent, inbox: sqliteInbox({ path: inbox }) })
    await receiver.open()
    await receiver.drain()
    const env = { WEBHOOK_SECRET: secret }
    const dead = await command(['doctor', '--inbox', inbox], env, here)
    expect(dead.stdout).toMatch(
      /✖ receiver\.running +No receiver answers for .*, so nothing of it was checked: .*\n +→ Is its process running/,
    )
    expect(dead.stdout).toMatch(/ 1 failed, 2 could not be checked\.\n$/)
    expect(dead.status).toBe(1)
    for (const [only, line] of [
      ['secret,webhook', /\? webhook\.set +The service was not asked: /],
      ['secret,proxy', /\? proxy\.answer +No message was posted: the public address is not known\.\n +→ Give --url/],
      ['receiver', /\? receiver\.running +No receiver answers for /],
      ['postgres', /– postgres\.server/],
    ] as const) {
      const { status, stdout } = await command(['doctor', '--only', only], env, here)
      expect(stdout, only).toMatch(line)
      expect(stdout, only).not.toContain('All checks passed')
      expect(status, only).toBe(3)
    }
    // There is no Postgres here, so nothing is missing.
    expect((await command(['doctor', '--only', 'secret,postgres'], env, here)).status).toBe(0)
  })

  test('finds the handler that fails: dead letters in the inbox, with the command that shows them', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    const receiver = createReceiver({
      ...{ secret, log: silent, retry: { attempts: 1 } },
      inbox: sqliteInbox({ path: inbox }),
    }).on('data', ({ data }) => {
      if (data.BatteryLevel === null) throw new TypeError('No level.')
    })
    await receiver.accept({
      authorization: secret,
      body: { vin: '0FLEETV14T0000004', createdAt: '2026-11-21T10:00:00Z', data: { BatteryLevel: null } },
    })
    await expect.poll(() => receiver.stats().deadLettered).toBe(1)
    const { status, stdout } = await command(['doctor', '--only', 'inbox,receiver', '--inbox', inbox], {}, here)
    await receiver.drain()
    expect(stdout).toContain('Messages that a handler failed for good: 1.')
    expect(stdout).toMatch(/! receiver\.handlers +\S+ \(data\) threw TypeError once, last in attempt 1\./)
    expect(stdout).not.toContain('No level.')
    expect(stdout).toContain('fleethook dead list')
    expect(stdout).toContain('✔ inbox.space')
    expect(status).toBe(0)
    expect(stdout).not.toContain(secret)
  })

  test('says since when new messages have gone to the disk of that machine, because Postgres does not take them', async () => {
    const file = join(folder(), 'meanwhile.db')
    const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    const db = { query: () => Promise.reject(refused) }
    const inbox = postgresInbox({ db, meanwhile: sqliteInbox({ path: file }) })
    const receiver = createReceiver({ secret, log: silent, inbox })
    const body = { vin: '0FLEETV14T0000004', createdAt: '2026-11-21T10:00:00Z', data: { Odometer: 1 } }
    expect((await receiver.accept({ authorization: secret, body })).status).toBe(200)
    const app = operatorRoutes(receiver, { secret: 'operators' })
    const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [], announce: false })
    const all = await found(['--only', 'receiver', '--operator', server.url], {
      FLEETHOOK_OPERATOR_SECRET: 'operators',
    })
    expect(all['receiver.meanwhile']).toMatch(
      /^fail: For \d+ s, new messages have gone to the disk of that machine first; 1 wait there\.$/,
    )
    await server.close()
    await receiver.drain()
  })

  test('shows a vehicle whose clock was set back, as `fleethook vehicles` does', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    let aheadMs = 0
    const clock = { ...systemClock, now: () => Date.now() + aheadMs }
    const parts = [vehicles({ fields: ['Gear'] })]
    const receiver = createReceiver({ secret: false, log: silent, clock, parts, inbox: sqliteInbox({ path: inbox }) })
    await receiver.open()
    // It sends live, once in each 20 seconds, and then with a clock that is a day behind.
    for (const behindMs of [0, 86_400_000])
      for (let n = 0; n < 9; n += 1) {
        aheadMs += 20_000
        const createdAt = new Date(clock.now() - behindMs).toISOString()
        const data = { Gear: n % 4 < 2 ? 'D' : 'P' }
        await receiver.accept({ authorization: undefined, body: { vin: 'SET-BACK', createdAt, data } })
      }
    await receiver.accept({
      authorization: undefined,
      body: { vin: 'RIGHT', createdAt: new Date(clock.now()).toISOString(), data: { Gear: 'P' } },
    })
    await expect.poll(() => receiver.stats().pending.messages).toBe(0)
    const { stdout } = await command(['doctor', '--only', 'receiver', '--inbox', inbox], {}, here)
    expect(stdout).toMatch(/! receiver\.clocks +Vehicles whose clock was set back: 1\./)
    expect(stdout).toContain('fleethook vehicles shows them.')
    const all = await command(['vehicles', '--inbox', inbox], {}, here)
    expect(all.stdout).toMatch(/^SET-BACK .* clock behind by \S+$/m)
    expect(all.stdout).toMatch(/^RIGHT .*\d$/m)
    const one = await command(['vehicles', 'SET-BACK', '--inbox', inbox], {}, here)
    expect(one.stdout).toMatch(/^clock +clock behind by \S+$/m)
    const json = await command(['vehicles', '--json', '--inbox', inbox], {}, here)
    expect(JSON.parse(json.stdout)).toMatchObject({
      vehicles: [{ vin: 'RIGHT' }, { vin: 'SET-BACK', clockBehindMs: expect.any(Number) }],
    })
    await receiver.drain()
  })

  test.each([
    [60, /✔ receiver\.certificate +the certificate is valid for (59|60) days/],
    [10, /! receiver\.certificate +The certificate expires at .* UTC, in (9|10) days\.\n +→ Renew it/],
    [-1, /✖ receiver\.certificate +The certificate expired at/],
  ])('says when the certificate that the receiver serves has %d days left', async (days, line) => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    const receiver = createReceiver({ secret, log: silent, inbox: sqliteInbox({ path: inbox }) })
    const { chain: cert, key } = await (await createAuthority()).issue('one.example.com', days)
    const tls = { cert, key }
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: [], announce: false, tls })
    const { stdout } = await command(['doctor', '--only', 'receiver', '--inbox', inbox], {}, here)
    expect(stdout).toMatch(line)
    expect(metricsText(receiver)).toMatch(/^fleethook_certificate_end_timestamp_seconds \d{10}$/m)
    // The group proxy reads the one that the public address has.
    const answer = await exchange(server.url, { body: '{}', rejectUnauthorized: false })
    expect(answer.certificateUntilMs).toBe(receiver.stats().certificateUntilMs)
    await server.close()
  })

  test('names the cause of the newest refused request, however many were refused before for another reason', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    const receiver = createReceiver({ secret, log: silent, inbox: sqliteInbox({ path: inbox }) })
    await receiver.open()
    for (let each = 0; each < 50; each += 1) await receiver.accept({ authorization: 'wrong', body: {} })
    await receiver.accept({ authorization: secret, body: {}, path: '/telemetry' })
    const { stdout } = await command(['doctor', '--only', 'receiver', '--inbox', inbox], {}, here)
    await receiver.drain()
    expect(stdout).toContain('Refused since the start: secret_wrong 50, path_unknown 1. The last was path_unknown, at ')
    expect(stdout).toContain('→ path_unknown: ')
    expect(stdout).not.toContain('→ secret_wrong: ')
  })

  test.skipIf(process.platform !== 'linux' || process.getuid?.() !== 0)(
    'names a disk that is nearly full',
    async () => {
      const data = folder()
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', data])
      onTestFinished(() => void execFileSync('umount', ['--lazy', data]))
      const all = await found(['--only', 'inbox', '--inbox', join(data, 'inbox.db')])
      expect(all['inbox.space']).toMatch(/^fail: Only [012] MiB are free\./)
    },
  )

  test('says what to do about an inbox or a .env that this user may not read, and one that others can read', async () => {
    const here = folder()
    const data = join(here, 'data')
    const inbox = join(data, 'inbox.db')
    mkdirSync(data)
    writeFileSync(inbox, '', { mode: 0o644 })
    const open = await command(['doctor', '--only', 'inbox', '--inbox', inbox], {}, here)
    expect(open.stdout).toMatch(/! inbox\.file +Others can read .*inbox\.db\. /)
    chmodSync(inbox, 0o000)
    chmodSync(here, 0o755)
    const doctor = (...args: readonly string[]): ReturnType<typeof command> =>
      start(['doctor', ...args], {}, here, process.getuid?.() === 0 ? 65_534 : undefined).ended
    const { status, stdout } = await doctor('--only', 'inbox', '--inbox', inbox)
    expect(stdout).toMatch(/✖ inbox\.file +The inbox .* cannot be used: this process runs as user .*\n +→ /)
    expect(status).toBe(1)
    writeFileSync(join(here, '.env'), 'WEBHOOK_SECRET=x', { mode: 0o000 })
    expect((await doctor('--only', 'secret')).stderr).toMatch(/^error: \.env cannot be read: EACCES\. /)
  })
})
