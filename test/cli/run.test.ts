import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { freePort, spawnTarget, type Target } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { command } from './command.ts'
import { newFolder } from '../folder.ts'

const root = new URL('../../', import.meta.url)
const cli = fileURLToPath(new URL('adapters/cli/main.ts', root))

/** A program that serves a receiver on a port that another server has, so that only the inherited socket works. */
const serving = `
import { createReceiver } from ${JSON.stringify(new URL('src/index.ts', root).href)}
import { serve } from ${JSON.stringify(new URL('adapters/node.ts', root).href)}
const server = await serve(createReceiver({ secret: 'a-secret-of-the-tests' }), { port: 1, hostname: '127.0.0.1' })
console.log('pid', process.pid, process.argv.slice(2).join(' '))
console.log('closed', JSON.stringify(await server.closed))
`

function writeProgram(text: string): string {
  const path = join(newFolder('run'), 'server.ts')
  writeFileSync(path, text)
  return path
}

interface Started {
  readonly target: Target
  readonly port: number
  /** The process id of the n-th receiver, once it runs. */
  pid(nth: number): Promise<number>
}

/** `options`: more options of `fleethook run`. */
async function run(
  path: string,
  options: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<Started> {
  const port = await freePort()
  const target = await spawnTarget({
    ...{ runtime: 'fleethook run', command: process.execPath, env },
    args: [
      ...[cli, 'run', path, '--port', String(port), '--hostname', '127.0.0.1', ...options],
      ...['--', '--own', 'argument'],
    ],
  })
  onTestFinished(async () => void (await target.stop('SIGTERM')))
  return {
    target,
    port,
    async pid(nth) {
      const pids = (): readonly string[] => target.output.filter((line) => line.startsWith('pid '))
      await expect.poll(() => pids().length).toBeGreaterThan(nth)
      return Number(pids()[nth]?.split(' ')[1])
    },
  }
}

test('the program gets the socket and its arguments, and SIGTERM stops both without an error', async () => {
  const { target, port } = await run(writeProgram(serving))
  expect(await target.line(/^pid /)).toContain('--own argument')
  expect(await post(`http://127.0.0.1:${port}`, 'V1')).toBe(200)
  target.kill('SIGTERM')
  expect(await target.line(/^closed/)).toContain('"lost":0')
  expect(await target.exited).toEqual({ status: 0, signal: null })
})

test('a receiver that crashes is started again, and a message that is sent meanwhile waits', async () => {
  const { target, port, pid } = await run(writeProgram(serving))
  process.kill(await pid(0), 'SIGKILL')
  await target.line(/ended with SIGKILL: starting it again in 100 ms/)
  expect(await post(`http://127.0.0.1:${port}`, 'V1')).toBe(200)
  expect(await pid(1)).not.toBe(await pid(0))
})

test('fleethook reload replaces the receiver with a new process', async () => {
  const { target, port, pid } = await run(writeProgram(serving))
  const { status, stdout } = await command(['reload', '--port', String(port)])
  expect([status, stdout]).toEqual([0, expect.stringContaining(`Process ${target.pid} replaces its receiver.`)])
  await target.line(/has replaced the receiver/)
  expect(await pid(1)).not.toBe(await pid(0))
  expect(await post(`http://127.0.0.1:${port}`, 'V1')).toBe(200)
})

test.skipIf(process.getuid?.() !== 0)(
  'reload works although another user has taken its folder among the temporary files',
  async () => {
    const taken = newFolder('taken')
    const [env, ofUser] = [{ TMPDIR: taken }, { TMPDIR: taken, XDG_RUNTIME_DIR: join(taken, 'runtime') }]
    mkdirSync(ofUser.XDG_RUNTIME_DIR)
    mkdirSync(join(taken, 'fleethook-run-0'))
    chownSync(join(taken, 'fleethook-run-0'), 65_534, 65_534)
    const unnamed = await run(writeProgram(serving), [], { ...env, XDG_RUNTIME_DIR: '' })
    await unnamed.pid(0)
    expect(await unnamed.target.line(/reload will not find/)).toContain(`send SIGHUP to ${unnamed.target.pid} instead`)
    const named = await run(writeProgram(serving), [], ofUser)
    await named.pid(0)
    expect(await command(['reload', '--port', String(named.port)], ofUser)).toMatchObject({ status: 0 })
    await named.target.line(/has replaced the receiver/)
  },
)

test.skipIf(!existsSync('/usr/bin/script'))(
  'the end of its terminal stops it, and SIGHUP in a terminal replaces the receiver',
  async () => {
    const path = writeProgram(serving.replace("console.log('closed', JSON.stringify(await server.closed))", ''))
    const port = await freePort()
    const said = `${path}.log`
    const line = [process.execPath, cli, 'run', path, '--port', port, '--hostname', '127.0.0.1', '2>', said].join(' ')
    const terminal = spawn('/usr/bin/script', ['-qc', `echo $$; exec ${line}`, '/dev/null'])
    onTestFinished(() => void terminal.kill('SIGKILL'))
    const launcher = Number(String((await once(terminal.stdout, 'data'))[0]))
    const health = (): Promise<number> =>
      fetch(`http://127.0.0.1:${port}/healthz`).then(
        ({ status }) => status,
        () => 0,
      )
    await expect.poll(health).toBe(200)
    process.kill(launcher, 'SIGHUP')
    await expect.poll(() => readFileSync(said, 'utf8')).toContain('has replaced the receiver')
    expect(await health()).toBe(200)
    terminal.kill('SIGKILL')
    await expect.poll(() => isAlive(launcher)).toBe(false)
    await expect.poll(health).toBe(0)
  },
)

test('the program gets the variables of .env, and a reload reads them again', async () => {
  const path = writeProgram(
    `${serving.replace("console.log('closed", '//')}\nconsole.log('variable', process.env.FROM_FILE)`,
  )
  const dotenv = `${path}.env`
  writeFileSync(dotenv, 'FROM_FILE=first\nPORT=1')
  const { target } = await run(path, ['--dotenv', dotenv])
  expect(await target.line(/^variable/)).toBe('variable first')
  writeFileSync(dotenv, 'FROM_FILE=second')
  target.kill('SIGHUP')
  await target.line(/^variable second/)
})

test('a new receiver that cannot start leaves the old one running', async () => {
  const path = writeProgram(serving)
  const { target, port, pid } = await run(path)
  const before = await pid(0)
  writeFileSync(path, 'throw new Error("a mistake")')
  target.kill('SIGHUP')
  await target.line(/the new receiver ended with status 1: the old one keeps running/)
  expect(await post(`http://127.0.0.1:${port}`, 'V1')).toBe(200)
  process.kill(before, 0)
})

test('a receiver whose launcher was killed drains and ends', async () => {
  const { target, pid } = await run(writeProgram(serving))
  const receiver = await pid(0)
  target.kill('SIGKILL')
  await target.line(/^closed/)
  await expect.poll(() => isAlive(receiver)).toBe(false)
})

test('a program that ends before it listens ends the command with its status', async () => {
  const port = await freePort()
  const { status, stderr } = await command(['run', writeProgram('process.exit(7)'), '--port', String(port)])
  expect([status, stderr]).toEqual([7, expect.stringContaining('ended with status 7 before it listened')])
})

test('a port that is taken is an error', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  onTestFinished(() => void server.close())
  const address = server.address()
  const port = String(typeof address === 'object' && address !== null ? address.port : 0)
  const { status, stderr } = await command(['run', writeProgram(serving), '--port', port, '--hostname', '127.0.0.1'])
  expect([status, stderr]).toEqual([1, expect.stringContaining(`Cannot hold port ${port}: EADDRINUSE`)])
})

test('fleethook reload without a fleethook run is an error', async () => {
  const port = String(await freePort())
  const { status, stderr } = await command(['reload', '--port', port])
  expect([status, stderr]).toEqual([1, expect.stringContaining(`No fleethook run of this user holds port ${port}`)])
})

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
