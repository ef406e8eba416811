import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'

/** How to start a server in a process of its own. */
export interface TargetCommand {
  /** How the tests call it. */
  readonly runtime: string
  readonly command: string
  readonly args: readonly string[]
  /** Beside the environment of the tests. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** The first process of a group of its own, as a shell starts it in a terminal: signals can be sent to `-pid`. */
  readonly detached?: boolean
  /** Descriptors of this process that it gets as its 3, 4 and so on. */
  readonly inherited?: readonly number[]
}

/** How a process ended. */
export interface Exit {
  readonly status: number | null
  readonly signal: NodeJS.Signals | null
}

/** A server that runs in a process of its own and listens. */
export interface Target extends AsyncDisposable {
  readonly runtime: string
  /** Without a slash at its end. */
  readonly url: string
  readonly pid: number
  /** Every line that it has printed so far, on both of its outputs. */
  readonly output: readonly string[]
  /** Resolves to the first line that matches, printed already or yet to come; rejects when the process ends without it. */
  readonly line: (pattern: RegExp) => Promise<string>
  readonly kill: (signal: NodeJS.Signals) => void
  /** Resolves when the process has ended. */
  readonly exited: Promise<Exit>
  /** Sends a signal (default `SIGTERM`) and resolves when the process has ended. */
  readonly stop: (signal?: NodeJS.Signals) => Promise<Exit>
}

const started = new Set<ChildProcess>()

/** Ends the process with the file of its test, at the latest. */
export function endWithFile(child: ChildProcess): void {
  started.add(child)
  child.once('close', () => started.delete(child))
}

/** Ends what a test left running, for instance because it timed out while it started a process. */
export function endLeftovers(): void {
  for (const child of started) child.kill('SIGKILL')
}

/** `fleethook: listening on http://localhost:1234 (…)`, what other servers print, or the line that workerd writes with `--control-fd=1`. */
const listening =
  /(?:[Ll]istening on|server:|Local:|Ready on) +(?<url>https?:\/\/[^\s,]+)|"event":"listen".*"port":(?<port>\d+)/

/**
 * Starts a server and resolves when it says where it listens. It has to listen on a free port of 127.0.0.1 and to print
 * `listening on <url>`, which `serve` does, or workerd's line (`--control-fd=1`).
 */
export async function spawnTarget({
  runtime,
  command,
  args,
  env = {},
  cwd,
  detached = false,
  inherited = [],
}: TargetCommand): Promise<Target> {
  const child = spawn(command, args, {
    detached,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe', ...inherited],
    ...(cwd === undefined ? {} : { cwd }),
  })
  endWithFile(child)
  const output: string[] = []
  const awaited = new Set<(line: string) => void>()
  for (const stream of [child.stdout, child.stderr]) {
    if (stream === null) continue
    createInterface({ input: stream }).on('line', (line) => {
      output.push(line)
      for (const look of awaited) look(line)
    })
  }
  const exited = new Promise<Exit>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (status, signal) => resolve({ status, signal }))
  })
  // A caller that waits for it gets the error.
  exited.catch(() => {})

  function line(pattern: RegExp): Promise<string> {
    const printed = output.find((text) => pattern.test(text))
    if (printed !== undefined) return Promise.resolve(printed)
    return new Promise((resolve, reject) => {
      const look = (text: string): void => {
        if (!pattern.test(text)) return
        awaited.delete(look)
        resolve(text)
      }
      awaited.add(look)
      const ended = (): void =>
        reject(new Error(`${runtime} ended without printing ${String(pattern)}.\n${output.join('\n')}`))
      exited.then(ended, reject)
    })
  }

  const kill = (signal: NodeJS.Signals): void => {
    child.kill(signal)
  }
  async function stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<Exit> {
    kill(signal)
    return exited
  }

  await Promise.race([once(child, 'spawn'), exited])
  const found = listening.exec(await line(listening))?.groups
  const url = found?.['url'] ?? `http://127.0.0.1:${found?.['port']}`
  return {
    runtime,
    url: url.replace(/\/$/, ''),
    pid: child.pid ?? 0,
    output,
    line,
    kill,
    exited,
    stop,
    async [Symbol.asyncDispose]() {
      await stop('SIGKILL')
    },
  }
}

/** The ports that this process was given. One on which nobody listens for a moment is still somebody's. */
const given = new Set<number>()

/** Each worker of Vitest has ports of its own, because it does not know those that others were given. */
const portsEach = 600
const firstPort = 20_000 + portsEach * ((Number(process.env['VITEST_POOL_ID']) || 0) % 20)

/**
 * A free port of 127.0.0.1 for a process that a test starts, and for its successors. It is below those that the system gives
 * away, so no other test gets it meanwhile. And a sender that keeps connecting to a closed port of those can connect to itself.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(firstPort, firstPort + portsEach)
    if (given.has(port)) continue
    given.add(port)
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer()
      server.once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (isFree) return port
  }
}
