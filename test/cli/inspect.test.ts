import { writeFileSync } from 'node:fs'
import { type IncomingHttpHeaders, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, onTestFinished, test } from 'vitest'
import { freePort, spawnTarget, type Target } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { programCommand } from '../runtimes/targets.ts'
import { command, start } from './command.ts'
import { newFolder } from '../folder.ts'

const root = new URL('../../', import.meta.url)

/** A command that prints the address of the page, and asks the page's server. */
interface Shown {
  readonly lines: string[]
  readonly ask: (path: string, headers?: Readonly<Record<string, string>>) => Promise<Asked>
  /** Asks. Resolves with the first bytes of the answer, to its end. */
  readonly follow: (path: string) => Promise<{ readonly ended: Promise<Asked> }>
  readonly line: (pattern: RegExp) => Promise<string>
  end(): ReturnType<typeof command>
}

interface Asked {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

async function shown(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  cwd?: string,
): Promise<Shown> {
  const { child, ended } = start(args, env, cwd)
  onTestFinished(async () => {
    child.kill('SIGTERM')
    await ended
  })
  const lines: string[] = []
  for (const output of [child.stdout, child.stderr])
    if (output !== null) createInterface({ input: output }).on('line', (line) => lines.push(line))
  const line = async (pattern: RegExp): Promise<string> => {
    await expect.poll(() => lines.some((each) => pattern.test(each))).toBe(true)
    return lines.find((each) => pattern.test(each)) ?? ''
  }
  const url = new URL(await line(/^http:\/\/127\.0\.0\.1:\d+\/#secret=[\w-]{24}$/))
  const secret = url.hash.slice('#secret='.length)
  return {
    lines,
    line,
    ask: (path, headers = { authorization: secret }) => ask(new URL(path, url), headers),
    async follow(path) {
      let begin = (): void => {}
      const begun = new Promise<void>((resolve) => (begin = resolve))
      const ended = ask(new URL(path, url), { authorization: secret }, 'nothing of this', () => begin())
      await begun
      return { ended }
    },
    end() {
      child.kill('SIGINT')
      return ended
    },
  }
}

/** As a browser asks, with a `Host` of the test's own. */
function ask(
  url: URL,
  headers: Readonly<Record<string, string>>,
  end = '\n\n',
  begin = (): void => {},
): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const asking = request(url, { headers }, (response) => {
      let body = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk
        begin()
        // The feed does not end by itself.
        if (body.includes(end)) response.destroy()
      })
      response.on('close', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }))
    })
    asking.once('error', reject).end()
  })
}

async function receiver(inbox: string): Promise<Target> {
  const program = join(import.meta.dirname, '../operator/program.ts')
  return spawnTarget(programCommand('node24', program, { INBOX: inbox, BROKEN: '/nowhere' }))
}

test(
  'inspect shows a receiver, says when it is gone, and goes on with the next one',
  { timeout: 180_000 },
  async () => {
    const inbox = join(newFolder('inspect'), 'inbox.db')
    await using first = await receiver(inbox)
    expect(await post(first.url, 'V1', 1)).toBe(200)
    const { ask: get, follow, line, lines, end } = await shown(['inspect', '--inbox', inbox])
    expect(await get('/', {})).toMatchObject({ status: 200, body: expect.stringContaining('<!doctype html>') })
    expect((await get('/stats', {})).status).toBe(401)
    expect(JSON.parse((await get('/stats')).body)).toMatchObject({ received: 1 })
    expect((await get('/messages?vin=V1')).body).toContain('"BatteryLevel":1')
    expect(await get('/feed')).toMatchObject({ status: 200, body: expect.stringMatching(/^data: \{"items".*\nid: /) })

    await first.stop()
    expect(await get('/stats')).toMatchObject({ status: 503, body: expect.stringContaining('"receiver_stopped"') })
    await line(/^The receiver stopped\. Waiting/)
    await using second = await receiver(inbox)
    expect(JSON.parse((await get('/stats')).body)).toMatchObject({ received: 0 })
    await line(/^The receiver runs again\.$/)
    expect(await post(second.url, 'V2', 2)).toBe(200)
    await expect.poll(async () => (await get('/feed')).status).toBe(200)
    const feed = await follow('/feed')
    lines.length = 0
    await second.stop('SIGKILL')
    expect((await feed.ended).body).toContain('"items"')
    await line(/^The receiver stopped\. Waiting/)
    expect(lines).toHaveLength(1)
    expect(await end()).toMatchObject({ status: 0 })
  },
)

test('inspect answers only its own address, and no other site', { timeout: 180_000 }, async () => {
  const inbox = join(newFolder('inspect'), 'inbox.db')
  await using _running = await receiver(inbox)
  const { ask: get } = await shown(['inspect', '--inbox', inbox])
  for (const path of ['/', '/stats', '/assets/x']) {
    expect((await get(path, { host: 'rebound.example.com' })).status, path).toBe(403)
    expect((await get(path, { 'sec-fetch-site': 'cross-site' })).status, path).toBe(403)
    expect((await get(path, { 'sec-fetch-site': 'none' })).status, path).not.toBe(403)
  }
})

test('inspect says what to do when no receiver runs, and when its port is taken', { timeout: 180_000 }, async () => {
  const nowhere = await command(['inspect', '--inbox', join(tmpdir(), 'nothing-here.db')])
  expect(nowhere.status).toBe(1)
  expect(nowhere.stderr).toMatch(/No receiver runs with the inbox .*nothing-here\.db\. Start it, or name the file/)
  const inbox = join(newFolder('inspect'), 'inbox.db')
  await using running = await receiver(inbox)
  const taken = await command(['inspect', '--inbox', inbox, '--port', new URL(running.url).port])
  expect(taken.status).toBe(1)
  expect(taken.stderr).toMatch(/Cannot listen on port \d+: EADDRINUSE\. Give --port another one/)
})

test('inspect --json prints the address as JSON, and nothing else to its output', { timeout: 180_000 }, async () => {
  const inbox = join(newFolder('inspect'), 'inbox.db')
  await using running = await receiver(inbox)
  const { child, ended } = start(['inspect', '--json', '--inbox', inbox])
  let printed = ''
  child.stdout?.on('data', (chunk) => (printed += String(chunk)))
  await expect.poll(() => printed).toMatch(/}\n$/)
  const url = new URL(JSON.parse(printed).url)
  const page = await ask(new URL('/', url), {}, '</html>')
  expect(page).toMatchObject({ status: 200, body: expect.stringContaining('<!doctype html>') })
  const headers = { authorization: url.hash.slice('#secret='.length) }
  expect(JSON.parse((await ask(new URL('/stats', url), headers)).body)).toMatchObject({ received: 0 })
  await running.stop()
  expect(await ask(new URL('/stats', url), headers)).toMatchObject({ status: 503 })
  child.kill('SIGINT')
  const { status, stdout, stderr } = await ended
  expect([status, JSON.parse(stdout)]).toEqual([0, { url: url.href }])
  expect(stderr).toContain('The receiver stopped.')
  const nowhere = await command(['inspect', '--json', '--inbox', join(tmpdir(), 'nothing-here.db')])
  expect(nowhere.status).toBe(1)
  expect(JSON.parse(nowhere.stdout || nowhere.stderr)).toMatchObject({ error: expect.anything() })
})

/** A receiver that says which version of it runs. */
const program = (version: number): string => `
import { createReceiver } from ${JSON.stringify(new URL('src/index.ts', root).href)}
import { sqliteInbox } from ${JSON.stringify(new URL('adapters/inbox/sqlite.ts', root).href)}
import { serve } from ${JSON.stringify(new URL('adapters/node.ts', root).href)}
const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: sqliteInbox({ path: 'data/inbox.db' }) })
receiver.on('*', (event) => console.log('version ${version} handled', event.topic))
await serve(receiver, { port: Number(process.env.PORT) })
`

test(
  'dev posts a fleet to a receiver, shows it, and restarts it when its file changes',
  { timeout: 180_000 },
  async () => {
    const folder = newFolder('dev')
    const file = join(folder, 'server.ts')
    writeFileSync(file, program(1))
    const port = await freePort()
    const { ask: get, line, lines, end } = await shown(['dev', file, '--port', String(port)], {}, folder)
    await line(/^version 1 handled data/)
    expect(JSON.parse((await get('/stats')).body)).toMatchObject({ refused: {} })
    writeFileSync(file, program(2))
    await line(/^fleethook run: a file changed: starting a new receiver/)
    await line(/^version 2 handled data/)
    await expect.poll(async () => (await get('/stats')).status).toBe(200)
    expect(JSON.parse((await get('/stats')).body)).toMatchObject({ refused: {} })
    writeFileSync(file, 'this is no program')
    await line(/the new receiver ended with status 1: the old one keeps running/)
    expect(lines.filter((each) => /refused/.test(each))).toEqual([])
    expect(await end()).toMatchObject({ status: 0 })
  },
)
