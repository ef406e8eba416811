import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type Observer, type Receiver } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { Hono } from 'hono'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { ArrivedTest, Circumstances, Finding } from '../../../adapters/cli/doctor/check.ts'
import { checkSecret } from '../../../adapters/cli/doctor/local.ts'
import { checkNetwork, checkTls } from '../../../adapters/cli/doctor/network.ts'
import { checkProxy } from '../../../adapters/cli/doctor/proxy.ts'
import { createClient } from 'fleethook/client'
import { checkWebhook } from '../../../adapters/cli/doctor/webhook.ts'
import { command } from '../command.ts'
import { endpoint } from '../endpoint.ts'
import { createAuthority } from './certificates.ts'
import { type Fault, proxy } from './proxies.ts'

const secret = '0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0'

function circumstances(about: Partial<Circumstances> & { readonly variables?: Record<string, string> }): Circumstances {
  const { variables = { WEBHOOK_SECRET: secret }, ...given } = about
  return {
    variable: (name) => variables[name],
    envFile: '/nowhere/.env',
    url: undefined,
    inbox: '/nowhere/inbox.db',
    client: undefined,
    serviceUrl: undefined,
    ca: undefined,
    vin: undefined,
    signal: new AbortController().signal,
    ask: () => Promise.reject(new Error('No receiver runs.')),
    arrived: () => Promise.reject(new Error('No receiver runs.')),
    errors: () => Promise.reject(new Error('No receiver runs.')),
    ...given,
  }
}

/** Findings by id, as `status: found`. */
async function found(findings: AsyncIterable<Finding>): Promise<Record<string, string>> {
  const all: Record<string, string> = {}
  for await (const { id, status, found: text, todo } of findings) {
    expect(todo === undefined, `${id} says what to do exactly when something is wrong`).toBe(
      status === 'ok' || status === 'skip',
    )
    all[id] = `${status}: ${text}`
  }
  return all
}

/** A receiver behind a proxy, and what reached it. */
async function receiverBehind(
  fault: Fault,
  receiverSecret: string = secret,
): Promise<Pick<Circumstances, 'arrived'> & { readonly url: URL }> {
  const tests = new Map<string, ArrivedTest>()
  const observe: Observer = { tested: (message) => tests.set(message.test, message) }
  const url = await behind(fault, createReceiver({ secret: receiverSecret, log: silent, observe }))
  return { url, arrived: async (test) => tests.get(test) }
}

async function behind(fault: Fault, receiver: Receiver): Promise<URL> {
  const app = new Hono().route('/telemetry', receiver.routes())
  const server = await serve(app, { port: 0, hostname: '127.0.0.1', signals: [] })
  const front = await proxy(server.url, fault)
  onTestFinished(async () => {
    await front[Symbol.asyncDispose]()
    await server.close()
  })
  return front.url
}

const silent = { debug() {}, info() {}, warn() {}, error() {} }

describe('a proxy before the receiver', () => {
  const check = async (fault: Fault, receiverSecret?: string): Promise<Record<string, string>> =>
    found(checkProxy(circumstances(await receiverBehind(fault, receiverSecret))))

  test('one that changes nothing passes every check', async () => {
    const findings = await check({})
    expect(Object.entries(findings).filter(([, text]) => !text.startsWith('ok'))).toEqual([])
    expect(Object.keys(findings)).toEqual([
      'proxy.answer',
      'proxy.headers',
      'proxy.time',
      'proxy.gzip',
      'proxy.body',
      'proxy.keep-alive',
      'proxy.stranger',
      'proxy.health',
    ])
  })

  test('what arrived is shown by names and lengths, and a change on the way is named', async () => {
    const same = await check({ headers: (headers) => ({ ...headers, 'x-forwarded-for': '192.0.2.7' }) })
    expect(same['proxy.headers']).toMatch(
      /^ok: 61 bytes arrived unchanged, with the headers .*authorization \(64\).*x-forwarded-for \(9\)/,
    )
    expect(JSON.stringify(same)).not.toContain(secret)
    const changed = await check({
      headers: (headers) => ({ ...headers, authorization: `Splunk ${headers.authorization}` }),
    })
    expect(changed['proxy.headers']).toMatch(
      /^warn: The message was changed on the way: 61 bytes became 61\. .*authorization \(71\)/,
    )
  })

  test('another receiver behind the address is told from the one of this machine', async () => {
    const { url } = await receiverBehind({})
    const findings = await found(checkProxy(circumstances({ url, arrived: async () => undefined })))
    expect(findings['proxy.headers']).toMatch(/^warn: Another receiver answered: the one with the inbox/)
  })

  test('one that removes the Authorization header is named', async () => {
    const findings = await check({ headers: ({ authorization: _, ...rest }) => rest })
    expect(findings['proxy.answer']).toBe(
      'fail: The receiver got no Authorization header: something on the way removes it.',
    )
  })

  test('one that adds an Authorization header of its own is named', async () => {
    const findings = await check({
      headers: (headers) => ({ ...headers, authorization: `${headers.authorization}, Basic YTpi` }),
    })
    expect(findings['proxy.answer']).toMatch(/^fail: The request has two Authorization headers\./)
  })

  test('a receiver with another secret is told from a missing header', async () => {
    const findings = await check({}, 'another-secret-of-the-receiver')
    expect(findings['proxy.answer']).toMatch(/^fail: The receiver has another secret than WEBHOOK_SECRET here/)
  })

  test('one that redirects is named with the final address', async () => {
    const findings = await check({
      answer: (_, response) => {
        response.writeHead(301, { location: 'https://example.com/telemetry' }).end()
        return true
      },
    })
    expect(findings['proxy.answer']).toContain('redirects to https://example.com/telemetry')
  })

  test('one that answers with its own page is told from the receiver', async () => {
    const findings = await check({
      answer: (_, response) => {
        response.writeHead(403, { 'content-type': 'text/html', server: 'a-proxy' }).end('<h1>Forbidden</h1>')
        return true
      },
    })
    expect(findings['proxy.answer']).toBe(
      'fail: Something before the receiver answered: status 403, text/html, server a-proxy.',
    )
    expect(findings['proxy.stranger']).toMatch(/^warn: .*not from the receiver/)
  })

  test('one that limits bodies is named', async () => {
    const findings = await check({
      answer: ({ body }, response) => {
        if (body.length < 65_536) return false
        response.writeHead(413, { server: 'a-proxy' }).end('Too large')
        return true
      },
    })
    expect(findings['proxy.answer']).toMatch(/^ok/)
    expect(findings['proxy.body']).toBe(
      'fail: A body of 1047552 bytes was refused before the receiver: status 413, server a-proxy.',
    )
  })

  test('one that removes Content-Encoding is named', async () => {
    const findings = await check({ headers: ({ 'content-encoding': _, ...rest }) => rest })
    expect(findings['proxy.gzip']).toMatch(/^fail: A gzip body was refused by the receiver: status 400/)
  })

  test('what the receiver refuses of its messages is no gap', async () => {
    const receiver = createReceiver({ secret, log: silent, limits: { bodyBytes: 10_000 } })
    const url = await behind({ headers: ({ 'content-encoding': _, ...rest }) => rest }, receiver)
    const findings = await found(checkProxy(circumstances({ url })))
    expect(findings['proxy.gzip']).toMatch(/^fail: A gzip body was refused by the receiver/)
    expect(findings['proxy.body']).toMatch(/^fail: .* was refused by the receiver: status 413/)
    expect(receiver.stats()).toMatchObject({ refused: { body_not_json: 1, body_too_large: 1 }, openGaps: 0 })
  })

  test('one that cuts the connection is named with the error', async () => {
    const findings = await check({
      answer: (_, response) => {
        response.destroy()
        return true
      },
    })
    expect(findings['proxy.answer']).toMatch(/^fail: .* did not answer: ECONNRESET\.$/)
  })

  test('a receiver that takes a wrong secret is reported', async () => {
    const receiver = createReceiver({ secret: false, log: silent })
    const server = await serve(new Hono().route('/telemetry', receiver.routes()), {
      port: 0,
      hostname: '127.0.0.1',
      signals: [],
    })
    onTestFinished(() => server.close().then(() => {}))
    const findings = await found(checkProxy(circumstances({ url: new URL('/telemetry', server.url) })))
    expect(findings['proxy.stranger']).toMatch(/^fail: .* takes messages with a wrong secret\.$/)
  })

  test('the secret is not sent over an unencrypted connection to another machine', async () => {
    const findings = await found(checkProxy(circumstances({ url: new URL('http://receiver.example/telemetry') })))
    expect(findings).toEqual({ 'proxy.answer': 'skip: the secret is not sent to receiver.example without encryption' })
  })
})

describe('the certificate', () => {
  async function check(
    made: { readonly key: string; readonly cert: string },
    ca?: string,
  ): Promise<Record<string, string>> {
    await using server = await proxy('http://127.0.0.1:1', {}, made)
    return await found(checkTls(circumstances({ url: server.url, ca })))
  }

  test('a whole chain for this name from a known authority passes', async () => {
    const authority = await createAuthority()
    const { key, chain } = await authority.issue('127.0.0.1')
    expect(await check({ key, cert: chain }, authority.root)).toMatchObject({
      'tls.chain': expect.stringMatching(/^ok: whole/),
      'tls.days': expect.stringMatching(/^ok: valid for (89|90) days$/),
      'tls.version': 'ok: TLSv1.3',
    })
  })

  test('a chain without its intermediate certificate is named', async () => {
    const authority = await createAuthority()
    const { key, leaf } = await authority.issue('127.0.0.1')
    expect(await check({ key, cert: leaf }, authority.root)).toMatchObject({
      'tls.chain': expect.stringMatching(/^fail: The certificate is not trusted: UNABLE_TO_VERIFY_LEAF_SIGNATURE/),
    })
  })

  test('an authority that is not built in is not trusted, whatever this machine adds', async () => {
    const { key, chain } = await (await createAuthority()).issue('127.0.0.1')
    expect((await check({ key, cert: chain }))['tls.chain']).toMatch(/^fail: The certificate is not trusted: /)
  })

  test('another name, an expired certificate and one that ends soon are named', async () => {
    const authority = await createAuthority()
    const other = await authority.issue('other.example')
    expect(await check({ key: other.key, cert: other.chain }, authority.root)).toMatchObject({
      'tls.name': 'fail: The certificate is for other.example, not for 127.0.0.1.',
    })
    const expired = await authority.issue('127.0.0.1', -1)
    expect(await check({ key: expired.key, cert: expired.chain }, authority.root)).toMatchObject({
      'tls.chain': expect.stringMatching(/CERT_HAS_EXPIRED/),
    })
    const soon = await authority.issue('127.0.0.1', 5)
    expect((await check({ key: soon.key, cert: soon.chain }, authority.root))['tls.days']).toMatch(
      /^warn: The certificate expires in [45] days\.$/,
    )
  })

  test('a server without TLS is named', async () => {
    await using server = await proxy('http://127.0.0.1:1')
    const url = new URL(server.url.href.replace('http:', 'https:'))
    expect((await found(checkTls(circumstances({ url }))))['tls.chain']).toMatch(/^fail: The TLS handshake/)
  })
})

test('the network group names a private address, a closed port and a missing TLS', async () => {
  expect(await found(checkNetwork(circumstances({ url: new URL('http://127.0.0.1:1/') })))).toEqual({
    'network.address':
      'fail: The service cannot reach 127.0.0.1:1. The address 127.0.0.1 is not public: it is in the range "loopback".',
    'network.https': 'fail: http://127.0.0.1:1 is not encrypted: anyone on the way can read the secret.',
    'network.port': 'fail: No connection to 127.0.0.1:1, port 1: ECONNREFUSED.',
  })
})

describe('the secret', () => {
  const check = (value: string | undefined): Promise<Record<string, string>> =>
    found(checkSecret(circumstances({ variables: value === undefined ? {} : { WEBHOOK_SECRET: value } })))

  test.each<[string, string | undefined, string, RegExp]>([
    ['is missing', undefined, 'secret.set', /^fail: WEBHOOK_SECRET is set neither/],
    ['has a line break', `${secret}\n`, 'secret.set', /^fail: The secret begins or ends with white space/],
    ['has quotes', `"${secret}"`, 'secret.quotes', /^fail/],
    ['has a scheme word', `Bearer ${secret}`, 'secret.scheme', /^warn/],
    ['is that of an example', 'a-long-random-value', 'secret.strength', /^fail: .*example/],
    ['is short', 'summer2026', 'secret.strength', /^warn: The secret has about \d+ bits/],
  ])('that %s is reported, without a character of it', async (_, value, id, expected) => {
    const findings = await check(value)
    expect(findings[id]).toMatch(expected)
    expect(JSON.stringify(findings)).not.toContain(value?.trim() ?? '\0')
  })

  test('of 32 random bytes passes', async () => {
    expect(await check(secret)).toEqual({
      'secret.set': 'ok: WEBHOOK_SECRET is set: 64 characters',
      'secret.strength': expect.stringMatching(/^ok/),
    })
  })
})

describe('the webhook at the service', () => {
  const webhook = {
    url: 'https://receiver.example/telemetry',
    format: 'service',
    auth: true,
    verify: true,
    enabled: true,
    updated_at: '2026-11-21T10:00:00.000Z',
  }

  async function check(
    stored: object | undefined,
    configs: Readonly<Record<string, object>> = {},
  ): Promise<Record<string, string>> {
    await using service = await endpoint(({ path = '' }, response) => {
      const vin = /0FLEET\w+/.exec(path)?.[0] ?? ''
      const body = path.endsWith('/webhook')
        ? stored && { response: stored }
        : path.endsWith('/products')
          ? { response: Object.keys(configs).map((product_id) => ({ product_type: 'vehicle', product_id })) }
          : Object.keys(configs[vin] ?? {}).length > 0
            ? { response: configs[vin] }
            : undefined
      response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' })
      response.end(
        JSON.stringify(
          body ?? { error: { code: path.endsWith('/webhook') ? 'webhook_not_found' : 'config_not_found' } },
        ),
      )
    })
    const client = createClient({
      baseUrl: new URL(service.url).origin,
      apiKey: 'the-key',
      retry: { attempts: 1 },
      log: silent,
    })
    return await found(checkWebhook(circumstances({ client, url: new URL('https://receiver.example/telemetry/') })))
  }

  test('a paused webhook without auth at another address is three findings', async () => {
    const findings = await check({ ...webhook, url: 'https://old.example/', enabled: false, auth: false })
    expect(
      Object.values(findings)
        .filter((text) => text.startsWith('fail'))
        .toSorted(),
    ).toEqual([
      'fail: No customer shares a vehicle with the business.',
      'fail: The service posts to https://old.example/, and --url is https://receiver.example/telemetry/.',
      'fail: The service sends no Authorization header. A receiver with a secret refuses every message.',
      'fail: The webhook is paused: no message is delivered.',
    ])
  })

  test('a business without a webhook is one finding', async () => {
    expect(await check(undefined)).toEqual({
      'webhook.set': 'fail: The business has no webhook, so the service posts nothing.',
    })
  })

  test('a vehicle without a config is named', async () => {
    const findings = await check(webhook, {
      '0FLEETV14T0000004': { fields: { Gear: { interval_seconds: 10 } } },
      '0FLEETV14T0000012': {},
    })
    expect(findings['webhook.vehicles']).toBe(
      'fail: 1 of 2 vehicles have no streaming config, so they send no data: 0FLEETV14T0000012',
    )
  })
})

describe('the command', () => {
  const folder = (): string => mkdtempSync(join(tmpdir(), 'fleethook-doctor-'))

  test('prints JSON with stable ids, and ends with 1 when a check failed', async () => {
    const { status, stdout } = await command(
      ['doctor', '--only', 'secret', '--json'],
      { WEBHOOK_SECRET: 'a-long-random-value' },
      folder(),
    )
    expect(status).toBe(1)
    expect(JSON.parse(stdout)).toEqual({
      findings: [
        { id: 'secret.set', status: 'ok', found: 'WEBHOOK_SECRET is set: 19 characters' },
        {
          id: 'secret.strength',
          status: 'fail',
          found: 'The secret is the value of an example.',
          todo: 'Make one with openssl rand -hex 32.',
        },
      ],
    })
  })

  test('ends with 0 when all is well and with 2 for a group that does not exist', async () => {
    expect(await command(['doctor', '--only', 'secret'], { WEBHOOK_SECRET: secret }, folder())).toMatchObject({
      status: 0,
      stderr: '',
    })
    const { status, stderr } = await command(['doctor', '--only', 'tsl'], {}, folder())
    expect(status).toBe(2)
    expect(stderr).toContain('There is no group "tsl". The groups are runtime, secret,')
  })

  test('finds the handler that fails: dead letters in the inbox, with the command that shows them', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    const receiver = createReceiver({
      secret,
      log: silent,
      inbox: sqliteInbox({ path: inbox }),
      retry: { attempts: 1 },
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
    expect(stdout).toContain('1 dead letters wait')
    expect(stdout).toMatch(/! receiver\.handlers +\S+ \(data\) threw TypeError once, last in attempt 1\./)
    expect(stdout).not.toContain('No level.')
    expect(stdout).toContain('fleethook dead list')
    expect(stdout).toContain('✔ inbox.schema')
    expect(status).toBe(0)
    expect(stdout).not.toContain(secret)
  })

  test('reports a file that others can read, and one of another program', async () => {
    const here = folder()
    const inbox = join(here, 'inbox.db')
    writeFileSync(inbox, Buffer.concat([Buffer.from('SQLite format 3\0'), Buffer.alloc(200)]))
    chmodSync(inbox, 0o644)
    const { status, stdout } = await command(['doctor', '--only', 'inbox', '--inbox', inbox], {}, here)
    expect(status).toBe(1)
    expect(stdout).toMatch(/! inbox\.access +Others can read the file \(mode 644\)/)
    expect(stdout).toMatch(/✖ inbox\.schema .* is a database of another program/)
  })
})
