import { spawnSync } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { ServerResponse } from 'node:http'
import { afterEach, describe, expect, test } from 'vitest'
import { few } from '../form.ts'
import { command, type Ended, start } from './command.ts'
import { type Endpoint, endpoint, type Posted } from './endpoint.ts'
import { newFolder } from '../folder.ts'

const key = 'the-key-of-the-business'
const secret = 'a-long-random-value'
const vin = '0FLEETV14T0000004'
const url = 'https://receiver.example/telemetry'
const webhook = {
  url,
  format: 'service',
  auth: true,
  verify: true,
  enabled: true,
  updated_at: '2026-11-21T10:00:00.000Z',
}
const fields = { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 } }
const event = { data: { BatteryLevel: '81.5' }, createdAt: '2026-11-21T10:00:00Z', vin }

const opened: Endpoint[] = []
afterEach(async () => {
  for (const one of opened.splice(0)) await one[Symbol.asyncDispose]()
})

type Answering = (posted: Posted) => { readonly status?: number; readonly body: unknown; readonly type?: string }

/** A service that answers as told, and a command line that knows its address and its key. */
async function service(answering: Answering): Promise<{
  readonly asked: readonly Posted[]
  readonly run: (...args: string[]) => Promise<Ended>
  readonly env: Record<string, string>
}> {
  const served = await endpoint((posted: Posted, response: ServerResponse) => {
    const { status = 200, body, type = 'application/json' } = answering(posted)
    response.writeHead(status, { 'content-type': type }).end(typeof body === 'string' ? body : JSON.stringify(body))
  })
  opened.push(served)
  const env = { SERVICE_URL: new URL(served.url).origin, SERVICE_API_KEY: key, WEBHOOK_SECRET: secret }
  return { asked: served.posted, run: (...args) => command(args, env), env }
}

const lines = (asked: readonly Posted[]): string[] => asked.map(({ method, path }) => `${method} ${path}`)

describe('fleethook webhook', () => {
  test('set sends the secret of the environment, and shows the webhook without it', async () => {
    const { asked, run } = await service(() => ({ body: { response: webhook } }))
    const { status, stdout, stderr } = await run('webhook', 'set', '--url', url, '--no-verify')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(/^url +https:\/\/receiver\.example\/telemetry\nformat +service\nauth +set\n/)
    expect(stdout).not.toContain(secret)
    expect(lines(asked)).toEqual(['PUT /api/business/webhook'])
    expect(asked[0]?.headers.authorization).toBe(`Bearer ${key}`)
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      url,
      format: 'service',
      verify: false,
      enabled: true,
      auth: secret,
    })
  })

  test('set without a secret is bad usage, unless it is written out', async () => {
    const { asked, env } = await service(() => ({ body: { response: { ...webhook, auth: false } } }))
    const { WEBHOOK_SECRET: _, ...without } = env
    const forgotten = await command(['webhook', 'set', '--url', url], without)
    expect(forgotten.status).toBe(2)
    expect(forgotten.stderr).toContain('WEBHOOK_SECRET')
    expect(asked).toEqual([])
    expect((await command(['webhook', 'set', '--url', url, '--no-auth'], without)).status).toBe(0)
    expect(JSON.parse(asked[0]?.body ?? '')).not.toHaveProperty('auth')
  })

  test('set of a URL that the service could not reach is bad usage, and a sandbox can be let judge', async () => {
    const { asked, run } = await service(() => ({ body: { response: webhook } }))
    const { status, stderr } = await run('webhook', 'set', '--url', 'http://localhost:3000/')
    expect(status).toBe(2)
    expect(stderr).toContain('localhost')
    expect(asked).toEqual([])
    expect((await run('webhook', 'set', '--url', 'http://localhost:3000/', '--allow-local')).status).toBe(0)
  })

  test('get without a webhook ends with status 1 and says what to do, for people and for machines', async () => {
    const { run } = await service(() => ({ status: 404, body: { error: 'webhook_not_found' } }))
    const people = await run('webhook', 'get')
    expect(people.status).toBe(1)
    expect(people.stderr).toMatch(/^error: .*webhook_not_found.* Set one with `fleethook webhook set --url <url>`\.\n$/)
    const machines = await run('webhook', 'get', '--json')
    expect(machines.status).toBe(1)
    expect(JSON.parse(machines.stdout).error).toMatchObject({ code: 'webhook_not_found', status: 404 })
  })
})

describe('fleethook config', () => {
  test('get shows what a vehicle streams', async () => {
    const { asked, run } = await service(() => ({ body: { fields } }))
    expect(await run('config', 'get', vin)).toMatchObject({
      status: 0,
      stdout: 'BatteryLevel  every 60 s  changed by 1\n',
    })
    expect(lines(asked)).toEqual([`GET /api/config/${vin}`])
  })

  test.each([
    ['patch', 'PATCH'],
    ['replace', 'POST'],
  ])('%s sends settings of the command line', async (name, method) => {
    const { asked, run } = await service(() => ({ body: { fields, ignoredFields: [] } }))
    const { status } = await run('config', name, vin, 'BatteryLevel=60,delta=0.5,resend=300', 'Gear=1')
    expect(status).toBe(0)
    expect(lines(asked)).toEqual([`${method} /api/config/${vin}`])
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      fields: {
        BatteryLevel: { interval_seconds: 60, minimum_delta: 0.5, resend_interval_seconds: 300 },
        Gear: { interval_seconds: 1 },
      },
    })
  })

  test('fields that the service ignored are told, and end with status 3', async () => {
    const { run } = await service(() => ({ body: { ignoredFields: ['Gaer'] } }))
    const { status, stderr } = await run('config', 'patch', vin, 'Gaer=1')
    expect(status).toBe(3)
    expect(stderr).toMatch(/^warning: .*: Gaer\n$/)
  })

  test('a config can come from a file', async () => {
    const { asked, run } = await service(() => ({ body: {} }))
    const file = join(newFolder('cli'), 'config.json')
    for (const content of [{ fields }, fields]) {
      writeFileSync(file, JSON.stringify(content))
      expect((await run('config', 'replace', vin, '--file', file)).status).toBe(0)
      expect(JSON.parse(asked.at(-1)?.body ?? '')).toEqual({ fields })
    }
  })

  test('get of a vehicle that does not stream, and of what is no service, is told in words of the command line', async () => {
    const none = await service(() => ({ status: 404, body: { error: 'config_not_found' } }))
    expect((await none.run('config', 'get', vin)).stderr).toContain('`fleethook config patch <vin> <settings>`')
    const page = await service(() => ({ body: '<html>' }))
    const { status, stderr } = await page.run('config', 'get', vin)
    expect(status).toBe(1)
    expect(stderr).toContain('SERVICE_URL')
    expect(stderr).not.toContain('baseUrl')
  })

  test('default shows the default, and with settings sets it', async () => {
    const { asked, run } = await service(({ method }) => ({ body: method === 'GET' ? null : { fields } }))
    expect(await run('config', 'default')).toMatchObject({ status: 0, stdout: 'No default config is set.\n' })
    expect((await run('config', 'default', 'BatteryLevel=60')).status).toBe(0)
    expect(lines(asked)).toEqual(['GET /api/business/config/default', 'PUT /api/business/config/default'])
  })

  const wrong: readonly (readonly [args: readonly string[], said: string])[] = [
    [['patch', vin], 'No fields are given'],
    [['patch', vin, 'BatteryLevel'], 'BatteryLevel=60'],
    [['patch', vin, 'BatteryLevel=0'], 'interval_seconds'],
    [['patch', vin, 'BatteryLevel=60,often=1'], 'BatteryLevel=60'],
    [['patch', vin, '--file', 'does-not-exist.json'], 'cannot be read'],
    [['patch', '../x', 'Gear=1'], 'VIN'],
    [['get'], 'vin'],
  ]
  test.each(few(wrong))('%j is bad usage', async (args, said) => {
    const { asked, run } = await service(() => ({ body: {} }))
    const { status, stderr } = await run('config', ...args)
    expect(status).toBe(2)
    expect(stderr).toContain(said)
    expect(asked).toEqual([])
  })
})

test('fleethook products lists what is shared, with the customer', async () => {
  const products = [
    { product_type: 'vehicle', product_id: vin, customer: { id: 'c1', ref: 'our-7' } },
    { product_type: 'energy', product_id: '12345', customer: { id: 'c2' } },
  ]
  const { asked, run } = await service(() => ({ body: { response: products } }))
  expect((await run('products')).stdout).toBe(`vehicle  ${vin}  our-7\nenergy   12345              c2\n`)
  expect(JSON.parse((await run('products', '--json')).stdout)).toEqual(products)
  expect(lines(asked)).toEqual(Array(2).fill('GET /api/business/products'))
})

describe('fleethook stream', () => {
  const items = (posted: Posted): ReturnType<Answering> => ({
    type: 'text/event-stream',
    body: posted.path?.startsWith('/sse/')
      ? `data: ${JSON.stringify(event)}\n\ndata: {"vin":"${vin}",  "state":"asleep"}\n\n`
      : '',
  })

  test('prints a line for each event', async () => {
    const { asked, run } = await service(items)
    const { status, stdout } = await run('stream', vin, '--topics', 'data,state', '--count', '2')
    expect(status).toBe(0)
    expect(stdout).toMatch(/^\d\d:\d\d:\d\d .*0FLEETV14T0000004 .*data +BatteryLevel 81\.5\n.* state +asleep\n$/)
    expect(lines(asked)).toEqual([`GET /sse/${vin}?topics=data%2Cstate`])
  })

  test('prints the messages as they came with --json', async () => {
    const { asked, run } = await service(items)
    const { stdout } = await run('stream', vin, '--field', 'BatteryLevel', '--json', '-c', '2')
    expect(stdout).toBe(`${JSON.stringify(event)}\n{"vin":"${vin}",  "state":"asleep"}\n`)
    expect(lines(asked)).toEqual([`GET /sse/${vin}/BatteryLevel`])
  })

  test('ends well on Ctrl+C', async () => {
    const served = await endpoint((_posted, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(`data: ${JSON.stringify(event)}\n\n`)
    })
    opened.push(served)
    const env = { SERVICE_URL: new URL(served.url).origin, SERVICE_API_KEY: key }
    const { child, ended } = start(['stream', vin], env)
    child.stdout?.once('data', () => child.kill('SIGINT'))
    expect((await ended).status).toBe(0)
  })
})

describe('the address and the key', () => {
  const bare = { SERVICE_URL: '', SERVICE_API_KEY: '' }

  test.each([
    [{}, 'SERVICE_URL is not set'],
    [{ SERVICE_URL: 'https://service.example' }, 'SERVICE_API_KEY is not set'],
    [{ SERVICE_URL: 'service.example', SERVICE_API_KEY: key }, 'error: SERVICE_URL must be the address of the service'],
  ])('%j is bad usage', async (env, said) => {
    const { status, stderr } = await command(['products', '--dotenv', 'does-not-exist'], { ...bare, ...env })
    expect(status).toBe(2)
    expect(stderr).toContain(said)
    expect(stderr).not.toContain(key)
  })

  test('a service that is not there ends with status 1', async () => {
    const env = { SERVICE_URL: 'http://127.0.0.1:9', SERVICE_API_KEY: key }
    const { status, stderr } = await command(['command-that-is-none'], env)
    expect(status).toBe(2)
    expect(stderr).toContain('unknown command')
    const gone = await command(['webhook', 'get', '--json'], env)
    expect(gone.status).toBe(1)
    const { code, message, hint } = JSON.parse(gone.stdout).error
    expect({ code, hint }).toEqual({
      code: 'unreachable',
      hint: 'Is SERVICE_URL right, and can this machine reach it?',
    })
    expect(message).toMatch(/^GET \/api\/business\/webhook: no answer from http:\/\/127\.0\.0\.1:9, /)
  })
})

describe('fleethook completion', () => {
  test.each(few(['bash', 'zsh', 'fish', 'powershell'], 1))('prints what %s reads', async (shell) => {
    const { status, stdout } = await command(['completion', shell])
    expect(status).toBe(0)
    expect(stdout).toMatch(/fleethook complete|complete --/)
  })

  test.skipIf(process.platform === 'win32')(
    'in bash, TAB runs nothing of the line, and the script can be read again',
    async () => {
      const folder = newFolder('completion')
      const { stdout } = await command(['completion', 'bash'])
      const main = resolve('adapters/cli/main.ts')
      const lines = [
        ...['fleethook() { "$NODE" --no-warnings "$MAIN" "$@"; }', 'eval "$SCRIPT"', 'eval "$SCRIPT"'],
        'compopt() { :; }',
        'tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); __fleethook_complete; echo "<${COMPREPLY[*]}>"; }',
        "tab fleethook confi; tab fleethook '$(touch ran)' ''; tab fleethook dead '`touch ran`'; tab fleethook 'x[$(touch ran)]' ''",
      ]
      const env = { ...process.env, NODE: process.execPath, MAIN: main, SCRIPT: stdout }
      const ran = spawnSync('bash', ['--norc', '-c', lines.join('\n')], { cwd: folder, env, encoding: 'utf8' })
      expect(ran).toMatchObject({ status: 0, stderr: '' })
      expect(ran.stdout.split('\n', 1)).toEqual(['<config>'])
      expect(readdirSync(folder)).toEqual([])
    },
    180_000,
  )

  const completed: readonly (readonly [words: readonly string[], expected: readonly string[]])[] = [
    [[''], ['webhook', 'config', 'stream', 'products', 'send']],
    [['conf'], ['config']],
    [
      ['config', ''],
      ['get', 'patch', 'replace', 'stop', 'default'],
    ],
    [
      ['webhook', 'set', '--'],
      ['--url', '--format', '--allow-local', '--json'],
    ],
    [
      ['webhook', 'set', '--format', ''],
      ['service', 'vehicle_maker', 'event_collector'],
    ],
    [['config', 'patch', vin, 'Batt'], ['BatteryLevel=']],
    [['config', 'default', 'Gea'], ['Gear=']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
  ]
  test.each(few(completed))('%j is completed', async (words, expected) => {
    const { status, stdout } = await command(['complete', '--', ...words])
    expect(status).toBe(0)
    const offered = stdout.split('\n').map((line) => line.split('\t')[0])
    expect(offered).toEqual(expect.arrayContaining([...expected]))
  })
})
