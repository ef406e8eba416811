import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { runtimePath } from '../../../scripts/runtimes.ts'
import { newFolder } from '../../folder.ts'
import { command } from '../../cli/command.ts'
import { freePort, spawnTarget, type Target, type TargetCommand } from '../../conformance/spawn.ts'
import { secret } from '../../runtimes/targets.ts'
import { type Journal, readJournal } from '../process/journal.ts'
import type { Settings } from '../process/program.ts'

/** A receiver that is deployed in one of the documented ways. */
export interface Deployment extends AsyncDisposable {
  readonly port: number
  /** Replaces the receiver. Resolves when the new one takes messages. */
  restart(): Promise<void>
  /** Every line that its processes have printed. */
  output(): readonly string[]
  /** What the handlers of all its processes got so far. Waits until a process that runs now has nothing left to do. */
  journal(): Promise<Journal>
}

export interface Wanted {
  readonly runtime?: 'node22' | 'node24' | 'node26' | 'bun' | 'deno'
  readonly serve?: object
  readonly settings?: Partial<Settings>
}

const program = fileURLToPath(new URL('../process/program.ts', import.meta.url))
const cli = fileURLToPath(new URL('../../../adapters/cli/main.ts', import.meta.url))

/** The files of a deployment. */
interface Files {
  readonly inbox: string
  readonly journal: string
}

function commandOf(
  { runtime = 'node24', serve = {}, settings = {} }: Wanted,
  { inbox, journal }: Files,
): TargetCommand {
  const all: Settings = {
    ...{ path: inbox, journal, handlerMs: 100, serve, options: { concurrency: 64 } },
    inbox: { waitMs: 30_000 },
  }
  const flags = { deno: ['run', '--allow-all', '--unstable-net'], bun: ['run'], node22: [], node24: [], node26: [] }
  return {
    runtime,
    command: runtimePath(runtime),
    args: [...flags[runtime], program, runtime.replace(/\d+/, '')],
    env: { SETTINGS: JSON.stringify({ ...all, ...settings }), WEBHOOK_SECRET: secret },
  }
}

function newFiles(): Files {
  const folder = newFolder('deploy')
  return { inbox: join(folder, 'inbox.db'), journal: join(folder, 'journal') }
}

/** Resolves when these processes have handled everything and emitted every gap. */
async function whenIdle(targets: readonly Target[]): Promise<void> {
  for (const { output } of targets) {
    const from = output.length
    while (!output.slice(from).some((line) => /^pending 0 .* gaps 0$/.test(line)))
      await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** One process after the other, with one port and one file, as a supervisor without a socket restarts it. */
export async function plain(wanted: Wanted = {}): Promise<Deployment> {
  const port = await freePort()
  const files = newFiles()
  const start = (): Promise<Target> => spawnTarget(commandOf({ ...wanted, serve: { port, ...wanted.serve } }, files))
  return oneAfterTheOther(port, files, start)
}

/** A socket that is bound to a free port and that this process never accepts from. */
export async function bindPort(): Promise<{ readonly port: number; readonly fd: number }> {
  const port = await freePort()
  const bind: unknown = Reflect.get(net, '_createServerHandle')
  const handle: unknown = typeof bind === 'function' ? bind('127.0.0.1', port, 4, undefined, 0) : undefined
  if (typeof handle !== 'object' || handle === null || !('fd' in handle) || typeof handle.fd !== 'number')
    throw new Error('This Node cannot bind without accepting.')
  held.push(handle)
  return { port, fd: handle.fd }
}

/** A handle that is garbage-collected closes its socket. */
const held: object[] = []

/** One process after the other on a socket that this process holds: what systemd does with a socket unit. */
export async function systemdStyle(wanted: Wanted = {}): Promise<Deployment> {
  const { port, fd } = await bindPort()
  const files = newFiles()
  const { command, args, ...rest } = commandOf(wanted, files)
  const start = (): Promise<Target> =>
    spawnTarget({
      ...rest,
      // The shell knows its process id before it becomes the program.
      command: 'sh',
      args: ['-c', 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', command, ...args],
      inherited: [fd],
    })
  return oneAfterTheOther(port, files, start)
}

async function oneAfterTheOther(port: number, files: Files, start: () => Promise<Target>): Promise<Deployment> {
  let current = await start()
  const output: string[] = []
  return {
    port,
    async restart() {
      await current.stop()
      output.push(...current.output)
      current = await start()
    },
    output: () => [...output, ...current.output],
    async journal() {
      await whenIdle([current])
      return readJournal(files.journal)
    },
    [Symbol.asyncDispose]: async () => void (await current.stop('SIGKILL')),
  }
}

/** `fleethook run`. */
export async function fleethookRun(wanted: Wanted = {}): Promise<Deployment & { readonly target: Target }> {
  const port = await freePort()
  const files = newFiles()
  const { command, args, ...rest } = commandOf(wanted, files)
  const target = await spawnTarget({
    ...rest,
    command,
    args: [cli, 'run', '--port', String(port), '--hostname', '127.0.0.1', '--', ...args],
  })
  let restarts = 0
  return {
    port,
    target,
    async restart() {
      restarts += 1
      target.kill('SIGHUP')
      const until = restarts
      while (target.output.filter((line) => line.includes('has replaced the receiver')).length < until)
        await new Promise((resolve) => setTimeout(resolve, 20))
    },
    output: () => target.output,
    async journal() {
      await whenIdle([target])
      return readJournal(files.journal)
    },
    [Symbol.asyncDispose]: async () => void (await target.stop('SIGTERM')),
  }
}

/**
 * Two processes on one port, each with a file of its own. The new one starts before the old one stops. Its start script moves what the
 * ones before that left into its file.
 */
export async function reusedPort(wanted: Wanted = {}): Promise<Deployment> {
  const port = await freePort()
  const files = newFiles()
  const inboxes: string[] = []
  async function start(): Promise<Target> {
    const inbox = files.inbox.replace('.db', `-${inboxes.length}.db`)
    for (const left of inboxes.slice(0, -1)) expect(await command(['move', left, inbox])).toMatchObject({ status: 0 })
    inboxes.push(inbox)
    return spawnTarget(commandOf({ ...wanted, serve: { port, reusePort: true, ...wanted.serve } }, { ...files, inbox }))
  }
  let current = await start()
  const output: string[] = []
  return {
    port,
    async restart() {
      const next = await start()
      await current.stop()
      output.push(...current.output)
      current = next
    },
    output: () => [...output, ...current.output],
    async journal() {
      const last = await start()
      await whenIdle([current, last])
      await last.stop('SIGKILL')
      return readJournal(files.journal)
    },
    [Symbol.asyncDispose]: async () => void (await current.stop('SIGKILL')),
  }
}

/** A proxy of which `examples/deploy` has a configuration. */
export type Proxy = 'nginx' | 'haproxy' | 'caddy'

const examples = fileURLToPath(new URL('../../../examples/deploy/', import.meta.url))
const configs: Readonly<Record<Proxy, string>> = { nginx: 'nginx.conf', haproxy: 'haproxy.cfg', caddy: 'Caddyfile' }

/** The version of a proxy, or `undefined` when it is not installed. `PATH` may not have the folders of the system. */
export function proxyVersion(proxy: Proxy): string | undefined {
  try {
    const text = execFileSync('sh', [
      '-c',
      `PATH="$PATH:/usr/sbin"; ${proxy} ${proxy === 'caddy' ? 'version' : '-v'} 2>&1`,
    ])
    return /\d+\.\d+\.\d+/.exec(text.toString())?.[0] ?? 'unknown'
  } catch {
    return undefined
  }
}

/** Two receivers with a file each behind a proxy, which are restarted one after the other. */
export async function behind(
  proxy: Proxy,
  change: (config: string) => string = (config) => config,
): Promise<Deployment> {
  const [port, one, two] = [await freePort(), await freePort(), await freePort()]
  const folder = newFolder('proxy')
  const inboxes = [join(folder, 'one.db'), join(folder, 'two.db')]
  const journal = join(folder, 'journal')
  const starts = [one, two].map(
    (own, index) => (): Promise<Target> =>
      spawnTarget(commandOf({ serve: { port: own } }, { inbox: inboxes[index] ?? '', journal })),
  )
  const receivers = await Promise.all(starts.map((start) => start()))
  const output: string[] = []
  const path = join(folder, configs[proxy])
  let config = change(readFileSync(examples + configs[proxy], 'utf8'))
    .replaceAll('3001', String(one))
    .replaceAll('3002', String(two))
    .replaceAll('8080', String(port))
  if (proxy === 'nginx') {
    mkdirSync(join(folder, 'bodies'))
    const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    const temporary = kinds.map((kind) => `${kind}_temp_path ${folder}/bodies;`).join(' ')
    config = config.replace('http {', `http { access_log off; ${temporary}`)
  }
  writeFileSync(path, config)
  const args: Readonly<Record<Proxy, readonly string[]>> = {
    nginx: ['-p', folder, '-c', path, '-e', 'stderr', '-g', `daemon off; pid ${folder}/pid;`],
    haproxy: ['-f', path],
    caddy: ['run', '--config', path, '--adapter', 'caddyfile'],
  }
  const child = spawn(proxy, args[proxy], {
    stdio: 'ignore',
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin`, HOME: folder },
  })
  await once(child, 'spawn')
  const until = performance.now() + 10_000
  while (performance.now() < until) {
    const answer = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined)
    if (answer?.ok === true) break
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  return {
    port,
    async restart() {
      for (const [index, start] of starts.entries()) {
        await receivers[index]?.stop()
        output.push(...(receivers[index]?.output ?? []))
        receivers[index] = await start()
        // A proxy that asks for readiness does so twice a second.
        await new Promise((resolve) => setTimeout(resolve, 1_500))
      }
    },
    output: () => [...output, ...receivers.flatMap((receiver) => receiver.output)],
    async journal() {
      await whenIdle(receivers)
      return readJournal(journal)
    },
    async [Symbol.asyncDispose]() {
      const ended = once(child, 'exit')
      child.kill('SIGTERM')
      await ended
      await Promise.all(receivers.map((receiver) => receiver.stop('SIGKILL')))
    },
  }
}
