import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { dirname, join } from 'node:path'
import { getRequestListener } from '@hono/node-server'
import { operatorRoutes } from 'fleethook/operator'
import { describe, expect, onTestFinished, test } from 'vitest'
import { controlPath } from '../../adapters/inbox/sqlite/control.ts'
import { createReceiver } from '../../src/index.ts'
import { command, type Ended, start } from '../cli/command.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { settingsOf } from '../inbox/sqlite-settings.ts'
import { listening } from '../mounts/listening.ts'
import { post } from '../runtimes/client.ts'
import { programCommand, type ServerRuntime } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

interface Site {
  readonly inbox: string
  readonly broken: string
  start(): Promise<Target>
  cli(...args: readonly string[]): Promise<Ended>
}

function site(runtime: ServerRuntime): Site {
  const folder = newFolder('operator')
  const inbox = join(folder, 'inbox.db')
  const broken = join(folder, 'broken')
  writeFileSync(broken, '')
  return {
    inbox,
    broken,
    start: () =>
      spawnTarget(programCommand(runtime, join(import.meta.dirname, 'program.ts'), { INBOX: inbox, BROKEN: broken })),
    cli: (...args) => command(args, { FLEETHOOK_INBOX: inbox }),
  }
}

interface Listed {
  readonly letters: readonly {
    readonly id: string
    readonly vin: string
    readonly error: string
    readonly topic: string
  }[]
  readonly next: string | null
}

async function listed({ cli }: Site, ...args: readonly string[]): Promise<Listed> {
  const { stdout, stderr, status } = await cli('dead', 'list', '--json', ...args)
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  const list: Listed = JSON.parse(stdout)
  return list
}

async function died(at: Site, target: Target, vins: readonly string[]): Promise<Listed> {
  for (const [index, vin] of vins.entries()) expect(await post(target.url, vin, index)).toBe(200)
  await Promise.all(vins.map((vin) => target.line(new RegExp(`^dead ${vin}$`))))
  const list = await listed(at)
  expect(list.letters).toHaveLength(vins.length)
  return list
}

const runtimes: readonly ServerRuntime[] = ['node24', 'bun', 'deno']

describe.each(runtimes)('a receiver that runs on %s', (runtime) => {
  test('is found through its inbox: dead letters are listed, shown, replayed into the same handlers and discarded', async () => {
    const at = site(runtime)
    await using target = await at.start()
    const { letters } = await died(at, target, ['A', 'B', 'C'])
    expect(letters.map(({ vin, topic, error }) => [vin, topic, error])).toEqual(
      ['A', 'B', 'C'].map((vin) => [vin, 'data', 'Error: the database is gone']),
    )
    // The socket is for nobody else.
    expect(statSync(`${at.inbox}.sock`).mode & 0o077).toBe(0)

    const [first, second, third] = letters.map(({ id }) => id)
    const shown = await at.cli('dead', 'show', first ?? '')
    expect(shown.stdout).toContain('"BatteryLevel": 0')
    expect((await at.cli('dead', 'discard', third ?? '')).stdout).toBe('1 message discarded.\n')

    expect((await at.cli('dead', 'replay', '--vin', 'B', '--dry-run')).stdout).toBe('1 message matches.\n')

    rmSync(at.broken)
    const one = await at.cli('dead', 'replay', first ?? '')
    expect(one).toMatchObject({ status: 0, stdout: '1 message replayed: the handlers run now.\n' })
    await target.line(/^handled A .* replayed$/)
    expect((await at.cli('dead', 'replay', '--vin', 'B', '--yes')).status).toBe(0)
    await target.line(/^handled B .* replayed$/)
    expect((await listed(at)).letters).toEqual([])
    expect(await at.cli('dead', 'replay', second ?? '')).toMatchObject({ status: 1 })
  })
})

test('a command that opens the inbox of a receiver that died leaves the gap to the next receiver', async () => {
  const at = site('node24')
  await using target = await at.start()
  await target.stop('SIGKILL')
  await listed(at)
  await listed(at)
  const inbox = sqliteInbox({ path: at.inbox })(settingsOf().settings)
  const { gaps = [] } = await inbox.open()
  await inbox.close()
  expect(new Set(gaps.map(({ reason }) => reason))).toEqual(new Set(['restarted']))
})

test('what was handled and is still held is replayed by time and vehicle, after it was counted', async () => {
  const at = site('node24')
  rmSync(at.broken)
  await using target = await at.start()
  for (const [index, vin] of ['A', 'B', 'A'].entries()) expect(await post(target.url, vin, index)).toBe(200)
  await target.line(/^handled B .* live$/)
  const range = ['--from', '1h', '--vin', 'A']
  await expect.poll(async () => (await at.cli('replay', ...range, '--dry-run')).stdout).toBe('2 messages match.\n')
  // Nobody is at a terminal to say yes.
  const asked = await at.cli('replay', ...range)
  expect(asked).toMatchObject({ status: 1, stdout: '' })
  expect(asked.stderr).toContain('Not a terminal: pass --yes.')
  expect(await at.cli('replay', ...range, '--yes')).toMatchObject({ status: 0 })
  await expect.poll(() => target.output.filter((line) => /^handled A .* replayed$/.test(line)).length).toBe(2)
  expect(target.output.filter((line) => line.startsWith('handled B'))).toHaveLength(1)
})

test('a replay whose receiver ends says what is done and how to go on, and goes on there', async () => {
  const id = '01a200b8-31af-7000-8000-2c5a9c3e1f00'
  const bodies: { readonly after?: string; readonly limit?: number; readonly dryRun?: boolean }[] = []
  const server = createServer((request, response) => {
    void json(request).then((body) => {
      const asked = body as (typeof bodies)[number]
      bodies.push(asked)
      if (asked.dryRun !== true && asked.after === id && bodies.length === 3) return request.socket.destroy()
      const answer =
        asked.dryRun === true
          ? { messages: 150 }
          : { messages: asked.after === id ? 50 : 100, next: asked.after === id ? null : id }
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
    })
  })
  await using served = await listening(server)
  const { url } = served
  const env = { FLEETHOOK_OPERATOR_SECRET: 'operators' }
  const range = ['--from', '2026-01-01', '--to', '2026-01-02', '--vin', "A'B"]
  const broken = await command(['replay', ...range, '--url', url, '--branch', 'crm', '--yes'], env)
  expect(broken).toMatchObject({ status: 1, stdout: '' })
  expect(broken.stderr).toContain('Before that, 100 messages were replayed.')
  expect(broken.stderr).not.toMatch(/^ +at /m)
  const [, again = ''] = /fleethook (replay --[^]*)\. Up to/.exec(broken.stderr.replaceAll('\n', ' ')) ?? []
  // It asks the same receiver, and the same branch.
  expect(again).toBe(
    `replay --vin='A'\\''B' --from=2026-01-01T00:00:00.000Z --to=2026-01-02T00:00:00.000Z --after=${id} --url=${url} --branch=crm`,
  )
  const more = await command(['replay', ...range, '--after', id, '--url', url, '--yes'], env)
  expect(more).toMatchObject({ status: 0, stdout: expect.stringContaining('50 messages replayed') })
  expect(bodies.filter(({ dryRun }) => dryRun !== true).map(({ after, limit }) => [after, limit])).toEqual([
    [undefined, 100],
    [id, 100],
    [id, 100],
  ])
})

test('a replay that somebody stops ends with the part that runs, and says how to go on', async () => {
  const id = '01a200b8-31af-7000-8000-2c5a9c3e1f00'
  const parts: (() => void)[] = []
  const server = createServer((request, response) => {
    void json(request).then((body) => {
      const { dryRun } = body as { readonly dryRun?: boolean }
      const answer = dryRun === true ? { messages: 1_000 } : { messages: 100, next: id }
      const send = (): void => void response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
      if (dryRun === true) send()
      else parts.push(send)
    })
  })
  await using served = await listening(server)
  const { url } = served
  const asked = ['replay', '--from', '2026-01-01', '--to', '2026-01-02', '--url', url, '--yes']
  const { child, ended } = start(asked, { FLEETHOOK_OPERATOR_SECRET: 'operators' })
  await expect.poll(() => parts.length, { timeout: 60_000 }).toBe(1)
  const stopping = once(child.stderr ?? child, 'data')
  child.kill('SIGINT')
  await stopping
  parts[0]?.()
  const { status, stderr } = await ended
  expect(status).toBe(1)
  const said = stderr.replaceAll(/\s+/g, ' ')
  expect(said).toContain('The replay was stopped. Before that, 100 messages were replayed.')
  expect(said).toContain(`--after=${id} --url=${url}`)
  expect(parts).toHaveLength(1)
})

test('the inbox of a receiver that does not run is read from its file, and what is replayed is handled at the next start', async () => {
  const at = site('node24')
  let letters: Listed['letters'] = []
  {
    await using target = await at.start()
    letters = (await died(at, target, ['A', 'B'])).letters
    await target.stop('SIGKILL')
  }
  // The socket of a process that was killed is still there, and nobody answers.
  expect(existsSync(`${at.inbox}.sock`)).toBe(true)
  expect((await listed(at, '--limit', '1')).letters).toMatchObject([{ vin: 'A' }])
  const { next } = await listed(at, '--limit', '1')
  expect((await listed(at, '--after', next ?? '')).letters).toMatchObject([{ vin: 'B' }])
  const replayed = await at.cli('dead', 'replay', letters[0]?.id ?? '')
  expect(replayed.stdout).toContain('does not run. It handles them when it starts')
  rmSync(at.broken)
  await using target = await at.start()
  await target.line(/^handled A .* replayed$/)
  expect((await listed(at)).letters).toMatchObject([{ vin: 'B' }])
})

/** `script` runs a command in a terminal of its own. Not every system has the one of util-linux. */
const hasTerminals = ((): boolean => {
  try {
    return execFileSync('script', ['--version'], { encoding: 'utf8', stdio: 'pipe' }).includes('util-linux')
  } catch {
    return false
  }
})()

test.skipIf(!hasTerminals)(
  'while dead replay waits for an answer at a terminal, a receiver can open the inbox, and its handlers run after a yes',
  async () => {
    const at = site('node24')
    {
      await using target = await at.start()
      await died(at, target, ['A', 'B'])
      await target.stop()
    }
    const main = join(import.meta.dirname, '../../adapters/cli/main.ts')
    const replay = `stty columns 200; '${process.execPath}' '${main}' dead replay --inbox '${at.inbox}'`
    const terminal = spawn('script', ['--quiet', '--flush', '--return', '--command', replay, '/dev/null'])
    onTestFinished(() => void terminal.kill())
    let shown = ''
    terminal.stdout.on('data', (chunk) => (shown += String(chunk)))
    await expect.poll(() => shown).toContain('Replay 2 messages?')

    rmSync(at.broken)
    const startedMs = performance.now()
    await using target = await at.start()
    expect(target.output.join('\n')).not.toContain('another process has the inbox')
    expect(performance.now() - startedMs).toBeLessThan(10_000)
    terminal.stdin.write('y\n')
    await target.line(/^handled B .* replayed$/)
    await expect.poll(() => shown).toContain('2 messages replayed: the handlers run now.')
  },
  180_000,
)

describe.skipIf(process.platform === 'win32')('the socket of an inbox with a long path', () => {
  function longPath(): string {
    const folder = join(newFolder('operator'), 'a-long-name-'.repeat(10))
    mkdirSync(folder)
    return join(folder, 'inbox.db')
  }

  /** A receiver on that file, and what it logged. */
  async function receiverAt(path: string): Promise<readonly unknown[]> {
    const lines: unknown[] = []
    const log = { debug() {}, info() {}, warn: (...line: unknown[]) => void lines.push(line), error() {} }
    const receiver = createReceiver({ secret: false, log, inbox: sqliteInbox({ path }) })
    await receiver.open()
    onTestFinished(async () => void (await receiver.drain()))
    return lines
  }

  test('is in a folder of its own, which only its user can open', async () => {
    const path = longPath()
    const socket = controlPath(path)
    await receiverAt(path)
    await expect.poll(() => existsSync(socket)).toBe(true)
    expect(statSync(dirname(socket)).mode & 0o777).toBe(0o700)
    expect(statSync(socket).mode & 0o777).toBe(0o600)
    expect(await command(['dead', 'list', '--inbox', path])).toMatchObject({ status: 0 })
  })

  const isRoot = process.getuid?.() === 0
  const foreignFolders: readonly (readonly [string, (folder: string) => void])[] = [
    ['that others can open', (folder) => chmodSync(folder, 0o755)],
    ['of another user', (folder) => chownSync(folder, 65_534, 65_534)],
  ]

  // Only root can give a folder away.
  test.each(isRoot ? foreignFolders : foreignFolders.slice(0, 1))(
    'is not put into a folder %s',
    async (_what, change) => {
      const path = longPath()
      const socket = controlPath(path)
      mkdirSync(dirname(socket), { mode: 0o700 })
      onTestFinished(() => rmSync(dirname(socket), { recursive: true }))
      change(dirname(socket))
      const lines = await receiverAt(path)
      expect(lines).toEqual([
        ['operators cannot reach this receiver through its inbox', { socket, error: 'inbox_unavailable' }],
      ])
      expect(existsSync(socket)).toBe(false)
    },
  )
})

test('the socket can be opened by its user only, also in a worker of a cluster', async () => {
  const inbox = join(newFolder('cluster'), 'inbox.db')
  const modes = `
    import cluster from 'node:cluster'
    import { statSync } from 'node:fs'
    import { createReceiver } from ${JSON.stringify(new URL('../../src/index.ts', import.meta.url).href)}
    import { sqliteInbox } from ${JSON.stringify(new URL('../../adapters/inbox/sqlite.ts', import.meta.url).href)}
    process.umask(0)
    if (cluster.isPrimary) {
      cluster.fork().on('message', (mode) => {
        console.log(mode)
        process.exit()
      })
    } else {
      const receiver = createReceiver({ secret: 'a-long-random-value', inbox: sqliteInbox({ path: '${inbox}' }) })
      await receiver.open()
      const socket = '${inbox}.sock'
      setInterval(() => {
        const found = statSync(socket, { throwIfNoEntry: false })
        if (found) process.send((found.mode & 0o777).toString(8))
      }, 20)
    }`
  const program = join(dirname(inbox), 'cluster.mts')
  writeFileSync(program, modes)
  expect(execFileSync(process.execPath, [program], { encoding: 'utf8' }).trim()).toBe('600')
})

test.skipIf(process.getuid?.() !== 0)(
  'a socket of another user gets no request: the command reads the file',
  async () => {
    const at = site('node24')
    await (await at.start()).stop()
    let requests = 0
    const impostor = createServer((_, response) => {
      requests += 1
      response.end('{"letters":[],"next":null}')
    })
    onTestFinished(() => void impostor.close())
    const socket = controlPath(at.inbox)
    await new Promise<void>((resolve) => impostor.listen(socket, resolve))
    expect((await listed(at)).letters).toEqual([])
    expect(requests).toBeGreaterThan(0)
    const asked = requests
    chownSync(socket, 65_534, 65_534)
    expect((await listed(at)).letters).toEqual([])
    expect(requests).toBe(asked)
  },
)

test('what cannot be asked is said, with what to do', async () => {
  const at = site('node24')
  const none = await at.cli('dead', 'list')
  expect(none).toMatchObject({ status: 1, stdout: '' })
  expect(none.stderr).toContain(`There is no inbox at ${at.inbox}.`)
  expect(await at.cli('dead', 'list', '--from', 'yesterday')).toMatchObject({ status: 2 })
  expect(await at.cli('replay')).toMatchObject({ status: 2 })
  const remote = await at.cli('dead', 'list', '--url', 'http://127.0.0.1:9')
  expect(remote.stderr).toContain('FLEETHOOK_OPERATOR_SECRET is not set')
  const app = operatorRoutes(createReceiver({ secret: false }), { secret: 'operators' })
  await using server = await listening(createServer(getRequestListener(app.fetch)))
  for (const asked of [['dead', 'list'], ['tail']]) {
    const refused = await command([...asked, '--url', server.url], { FLEETHOOK_OPERATOR_SECRET: 'that of the webhook' })
    expect(refused).toMatchObject({ status: 1, stdout: '' })
    expect(refused.stderr).toContain('Set FLEETHOOK_OPERATOR_SECRET to the secret of its operatorRoutes')
  }
})
