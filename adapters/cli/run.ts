import { type ChildProcess, spawn } from 'node:child_process'
import { lookup } from 'node:dns/promises'
import { closeSync, lstatSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import { constants, tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { getSystemErrorName } from 'node:util'
import type { Command } from 'commander'
import { isObject } from '../../src/base/options.ts'
import { makeFolder } from '../inbox/sqlite/control.ts'
import { launcherVariable } from '../serve-options.ts'
import { dotenvOption, portFor, variablesIn, whole } from './arguments.ts'
import { printError } from './terminal.ts'

interface RunOptions {
  readonly port?: number
  readonly hostname?: string
  readonly dotenv: string
}

const port = whole(1, 65_535)

export function defineRun(command: Command): void {
  command
    .argument('<program>', 'the program that calls serve, for instance server.ts')
    .argument('[arguments...]', 'what the program gets as its arguments, after --')
    .option('--port <port>', 'the port to hold (default: PORT, or 3000)', port)
    .option('--hostname <address>', 'the address to listen on (default: every address)')
    .addOption(dotenvOption)
    .addHelpText(
      'after',
      `
Holds the port, starts the program, and passes the socket on to it. A program that crashes is started again.
SIGHUP, or fleethook reload, replaces the program with a new process without refusing a message.
SIGTERM, SIGINT and the end of its terminal stop the program and then this command. Node runs the program.
Each start of the program reads .env again.`,
    )
    .action(async (program: string, args: readonly string[], options: RunOptions) => {
      const ofPort = portFor(options)
      const held = await holdSocket(ofPort, options.hostname)
      if (typeof held === 'string') {
        printError({ message: held })
        process.exitCode = 1
        return
      }
      const pidFile = writePidFile(ofPort)
      process.exitCode = await new Launcher(held, [program, ...args], options.dotenv).run()
      if (pidFile !== undefined) rmSync(pidFile, { force: true })
      held.close()
    })
}

export function defineReload(command: Command): void {
  command
    .option('--port <port>', 'the port that fleethook run holds (default: PORT, or 3000)', port)
    .addOption(dotenvOption)
    .action((options: RunOptions) => {
      const ofPort = portFor(options)
      const pid = pidFolders()
        .map((folder) => runningPid(join(folder, pidFile(ofPort))))
        .find((each) => each !== undefined)
      if (pid === undefined) {
        printError({
          message: `No fleethook run of this user holds port ${ofPort}.`,
          hint: 'Pass its --port, or send SIGHUP to its process.',
        })
        process.exitCode = 1
        return
      }
      process.kill(pid, 'SIGHUP')
      console.log(`Process ${pid} replaces its receiver. Its output says when that is done.`)
    })
}

/** Where the pid file may be: the user's runtime folder, and a folder among the temporary files that only the user can open. */
function pidFolders(): readonly string[] {
  const ofUser = process.env['XDG_RUNTIME_DIR']
  return (ofUser ? [ofUser, tmpdir()] : [tmpdir()]).map((folder) => join(folder, `fleethook-run-${userInfo().uid}`))
}

const pidFile = (ofPort: number): string => `${ofPort}.pid`

/** Returns the path. Without the file, everything works but `fleethook reload`. */
function writePidFile(ofPort: number): string | undefined {
  let why: unknown
  for (const folder of pidFolders()) {
    const path = join(folder, pidFile(ofPort))
    try {
      makeFolder(folder)
      rmSync(path, { force: true })
      writeFileSync(path, String(process.pid), { flag: 'wx', mode: 0o600 })
      return path
    } catch (error) {
      why = error
    }
  }
  const text = why instanceof Error ? why.message : String(why)
  // What to do about `fleethook reload will not find this process`: It cannot write its pid file. Reload with SIGHUP.
  say(`fleethook reload will not find this process, send SIGHUP to ${process.pid} instead: ${text}`)
  return undefined
}

/** The process in the file. Ignores a file of another user, which could name any process of this one. */
function runningPid(path: string): number | undefined {
  try {
    const { uid } = lstatSync(path)
    const pid = Number(readFileSync(path, 'utf8'))
    if (uid !== userInfo().uid || !Number.isSafeInteger(pid) || pid < 1) return undefined
    process.kill(pid, 0)
    return pid
  } catch {
    return undefined
  }
}

/** A socket that is bound and that this process never accepts from. The program that inherits it starts to listen. */
interface HeldSocket {
  readonly fd: number
  readonly close: () => void
}

/** Resolves to an error text when the port cannot be held. */
export async function holdSocket(wanted: number, hostname: string | undefined): Promise<HeldSocket | string> {
  let why = 'no address'
  for (const { address, family } of await addressesOf(hostname)) {
    const held = bind(address, wanted, family)
    if (typeof held !== 'string') return held
    why = held
  }
  return `Cannot hold port ${wanted}: ${why}.`
}

/** Binds without accepting. Returns the code of the error when that fails. */
function bind(host: string, wanted: number, family: number): HeldSocket | string {
  if (typeof net.BoundSocket === 'function') {
    try {
      const socket = new net.BoundSocket({ host, port: wanted })
      return { fd: socket.fd(), close: () => socket.close() }
    } catch (error) {
      return isObject(error) && typeof error['code'] === 'string' ? error['code'] : String(error)
    }
  }
  // Before Node 24.19, only this function of the cluster module binds without accepting: without it, a restart refuses connections there.
  const create: unknown = Reflect.get(net, '_createServerHandle')
  const handle: unknown = typeof create === 'function' ? create(host, wanted, family, undefined, 0) : undefined
  if (typeof handle === 'number') return getSystemErrorName(handle)
  if (!isObject(handle) || typeof handle['fd'] !== 'number')
    return `Node ${process.versions.node} cannot bind without accepting`
  const { fd, close } = handle
  return { fd, close: () => void (typeof close === 'function' && close.call(handle)) }
}

async function addressesOf(hostname: string | undefined): Promise<readonly { address: string; family: number }[]> {
  if (hostname !== undefined) return [await lookup(hostname)]
  return [
    { address: '::', family: 6 },
    { address: '0.0.0.0', family: 4 },
  ]
}

const leastBackoffMs = 100
const mostBackoffMs = 10_000
/** A receiver that crashes after it has listened for this long restarts with the shortest back-off. In milliseconds. */
const stableMs = 10_000
/** How long a new receiver may take before it opens its inbox, in milliseconds. */
const startMs = 30_000

interface ReceiverProcess {
  readonly child: ChildProcess
  listeningSinceMs: number | undefined
  isStopping: boolean
}

/** Keeps one receiver running on a socket. */
export class Launcher {
  readonly #socket: HeldSocket
  readonly #command: readonly string[]
  readonly #dotenv: string
  #current: ReceiverProcess | undefined
  /** A new process that takes over from the current one. */
  #next: ReceiverProcess | undefined
  #stopSignal: NodeJS.Signals | undefined
  #reloadAgain = false
  #hasListened = false
  #backoffMs = leastBackoffMs
  #restart: NodeJS.Timeout | undefined
  #end: (status: number) => void = () => {}

  constructor(socket: HeldSocket, command: readonly string[], dotenv: string) {
    this.#socket = socket
    this.#command = command
    this.#dotenv = dotenv
  }

  /** Resolves to the exit status, when the receiver was stopped. */
  run(): Promise<number> {
    const stop = (signal: NodeJS.Signals): void => this.#stop(signal)
    const hadTerminal = hasTerminal()
    const reload = (): void => {
      // The kernel takes the terminal away before it sends the signal, and a shell may send the signal again.
      if (!hadTerminal || hasTerminal()) this.reload('SIGHUP')
      else if (this.#stopSignal === undefined) this.#stop('SIGTERM')
    }
    process.on('SIGTERM', stop).on('SIGINT', stop).on('SIGHUP', reload)
    this.#current = this.#start()
    const ended = new Promise<number>((resolve) => {
      this.#end = resolve
    })
    return ended.finally(() => {
      process.off('SIGTERM', stop).off('SIGINT', stop).off('SIGHUP', reload)
    })
  }

  #start(): ReceiverProcess {
    // In its own session, it does not get Ctrl+C from the terminal in addition to the signal from here.
    const child = spawn(process.execPath, [...process.execArgv, ...this.#command], {
      stdio: ['inherit', 'inherit', 'inherit', this.#socket.fd, 'ipc'],
      detached: true,
      env: {
        ...variablesIn(this.#dotenv),
        ...process.env,
        LISTEN_PID: undefined,
        LISTEN_FDS: '1',
        [launcherVariable]: String(process.pid),
      },
    })
    const receiver: ReceiverProcess = { child, listeningSinceMs: undefined, isStopping: false }
    child.on('message', (message: unknown) => {
      if (!isObject(message)) return
      if (message['fleethook'] === 'opening') this.#takeOver(receiver)
      if (message['fleethook'] === 'listening') {
        receiver.listeningSinceMs = performance.now()
        this.#hasListened = true
        this.#promote()
      }
    })
    child.on('error', (error) => say(`the receiver could not be started: ${error.message}`))
    child.on('close', (status, signal) => this.#exited(receiver, status, signal))
    return receiver
  }

  /** Replaces the receiver with a new process. The printed line begins with `why`. */
  reload(why: string): void {
    if (this.#stopSignal !== undefined) return
    if (this.#next !== undefined || this.#restart !== undefined || this.#current?.isStopping === true) {
      this.#reloadAgain = this.#restart === undefined
      return
    }
    say(`${why}: starting a new receiver`)
    const next = this.#start()
    this.#next = next
    setTimeout(() => {
      if (this.#next !== next || this.#current?.isStopping === true) return
      // What to do about `the new receiver did not call serve within … ms`: It must call `serve` of `fleethook/node`.
      say(`the new receiver did not call serve within ${startMs} ms: the old one keeps running`)
      next.child.kill('SIGKILL')
    }, startMs).unref()
  }

  /** The new receiver waits for the inbox of the old one. From here on, the replacement cannot be undone. */
  #takeOver(receiver: ReceiverProcess): void {
    if (receiver !== this.#next || this.#current === undefined) return
    this.#current.isStopping = true
    this.#current.child.kill('SIGTERM')
  }

  /** The new receiver is the current one as soon as it listens and the old one has ended. */
  #promote(): void {
    if (this.#current !== undefined || this.#next?.listeningSinceMs === undefined) return
    this.#current = this.#next
    this.#next = undefined
    say(`process ${this.#current.child.pid} has replaced the receiver`)
    if (this.#reloadAgain) {
      this.#reloadAgain = false
      this.reload('again')
    }
  }

  #exited(receiver: ReceiverProcess, status: number | null, signal: NodeJS.Signals | null): void {
    const how = signal ?? `status ${status}`
    const wasNext = receiver === this.#next
    if (wasNext) this.#next = undefined
    else this.#current = undefined
    const other = this.#current ?? this.#next
    if (this.#stopSignal !== undefined) {
      if (other === undefined) this.#end(statusOf(status, signal))
      return
    }
    if (other !== undefined) {
      // What to do about `the new receiver ended with …: the old one keeps running`: Nothing was refused. The new program's output says why.
      if (wasNext && !other.isStopping) say(`the new receiver ended with ${how}: the old one keeps running`)
      if (!wasNext && !receiver.isStopping) say(`the receiver ended with ${how}`)
      this.#promote()
      return
    }
    const { listeningSinceMs } = receiver
    if (listeningSinceMs === undefined && !this.#hasListened) {
      say(`the receiver ended with ${how} before it listened`)
      this.#end(statusOf(status, signal) || 1)
      return
    }
    if (listeningSinceMs !== undefined && performance.now() - listeningSinceMs >= stableMs)
      this.#backoffMs = leastBackoffMs
    // What to do about `the receiver ended with …: starting it again in … ms`, `the receiver ended with … before it listened`: Its own output says
    // why. Before it has listened once, `fleethook run` ends too.
    say(`the receiver ended with ${how}: starting it again in ${this.#backoffMs} ms`)
    this.#restart = setTimeout(() => {
      this.#restart = undefined
      this.#current = this.#start()
    }, this.#backoffMs)
    this.#backoffMs = Math.min(2 * this.#backoffMs, mostBackoffMs)
  }

  #stop(signal: NodeJS.Signals): void {
    this.#stopSignal = signal
    clearTimeout(this.#restart)
    const receivers = [this.#current, this.#next].filter((receiver) => receiver !== undefined)
    if (receivers.length === 0) this.#end(128 + constants.signals[signal])
    for (const receiver of receivers) {
      // The old one of a reload already stops. A second signal would end it at once.
      if (receiver.isStopping && receiver === this.#current && this.#next !== undefined) continue
      receiver.isStopping = true
      receiver.child.kill(signal)
    }
  }
}

/** Whether a terminal controls this process. Services and containers have none. */
function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'))
    return true
  } catch {
    return false
  }
}

const statusOf = (status: number | null, signal: NodeJS.Signals | null): number =>
  status ?? (signal === null ? 1 : 128 + constants.signals[signal])

function say(line: string): void {
  console.error(`fleethook run: ${line}`)
}
