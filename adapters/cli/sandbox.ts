import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Server, ServerResponse } from 'node:http'
import { serve } from '@hono/node-server'
import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { FieldSetting } from '../../src/service/client/config.ts'
import type { ActivityLine } from '../../src/service/sandbox/options.ts'
import { createSandbox } from '../../src/service/sandbox/sandbox.ts'
import { dotenvOption, environment, number, whole } from './arguments.ts'
import { createPost } from './exchange.ts'
import { fieldSetting } from './service.ts'
import { colorsFor, printError } from './terminal.ts'

interface Given {
  readonly port: number
  readonly hostname: string
  readonly allowLocal?: true
  readonly vehicles: number
  readonly sites: number
  readonly seed: number
  readonly speed: number
  readonly stream?: Readonly<Record<string, FieldSetting>>
  readonly rateLimit?: number
  readonly dotenv: string
}

export function defineSandbox(command: Command): void {
  command
    .description(
      'Runs a local stand-in for the service: all its endpoints, and simulated vehicles that post to your webhook. ' +
        'For development and tests.',
    )
    .option('-p, --port <n>', 'the port; 0 takes any free port', whole(0, 65_535), 4_000)
    .option('--hostname <name>', 'the address to listen on', '127.0.0.1')
    .option('--allow-local', 'accept a webhook on this machine (loopback), which the real service refuses')
    .option('--vehicles <n>', 'number of shared vehicles', whole(0, 1_000), 3)
    .option('--sites <n>', 'number of shared energy sites', whole(0, 100), 1)
    .option(
      '--stream <settings...>',
      'what the vehicles stream from the start, for instance BatteryLevel=60,delta=1 Location=10 (default: nothing)',
      fieldSetting,
    )
    .option('--seed <n>', 'the same seed gives the same vehicles', whole(0, 0x7fff_ffff), 1)
    .option('--speed <n>', 'vehicle seconds per second; 0: time passes only by /sandbox/clock', number(0, 1_000), 1)
    .option(
      '--rate-limit <n>',
      'requests per minute; more are answered with 429 (default: no limit)',
      whole(1, 1_000_000),
    )
    .addOption(dotenvOption)
    .addHelpText(
      'after',
      `
Environment: SERVICE_API_KEY, the bearer key that clients send, also read from .env.
Without it, the command makes a new key and prints it.

Examples:
  fleethook sandbox --allow-local --stream BatteryLevel=60 Location=10
  fleethook sandbox --allow-local --speed 0 --seed 7

Exit status: 0 after Ctrl+C, 1 it could not listen, 2 bad usage.`,
    )
    .action(async () => {
      try {
        await run(command.opts<Given>())
      } catch (error) {
        if (!(error instanceof FleethookError)) throw error
        printError(error)
        process.exitCode = error.code === 'option_invalid' ? 2 : 1
      }
    })
}

/** Serves a sandbox until Ctrl+C. Rejects when it cannot listen. */
async function run(given: Given): Promise<void> {
  const { port, hostname, vehicles, sites, seed, speed, stream } = given
  const apiKey = environment(given.dotenv)('SERVICE_API_KEY')
  const allowLocal = given.allowLocal ?? false
  const { bold, dim, yellow } = colorsFor(process.stdout)
  const made = apiKey === undefined ? `sk_sandbox_${randomBytes(18).toString('base64url')}` : undefined
  const { post, close } = createPost()
  // Before anything is printed, because a program that reads the address may stop the command at once.
  let stopping = false
  const stopped = new Promise<void>((resolve) => {
    const stop = (): void => {
      if (stopping) process.exit(130)
      stopping = true
      resolve()
    }
    process.on('SIGINT', stop)
    process.on('SIGTERM', stop)
  })
  const sandbox = createSandbox({
    apiKey: apiKey ?? made,
    vehicles,
    energySites: sites,
    seed,
    speed,
    allowLocal,
    post,
    show: showLine,
    ...defined({ rateLimit: given.rateLimit, config: stream && { fields: stream } }),
  })
  const server = serve({ fetch: sandbox.fetch, port, hostname }) as Server // oxlint-disable-line no-unsafe-type-assertion -- no createServer is given: it is one of node:http
  tolerateStrayChunks(server)
  try {
    if (!server.listening) await once(server, 'listening')
  } catch (cause) {
    // The vehicles already drive, and would keep the process alive.
    await sandbox.close()
    close()
    throw cannotListen(cause, hostname, port)
  }
  const address = server.address()
  const url = `http://${hostname.includes(':') ? `[${hostname}]` : hostname}:${typeof address === 'object' ? address?.port : port}`

  console.log(`${bold('sandbox listening on')} ${url}\n`)
  console.log(`  SERVICE_URL=${url}`)
  console.log(`  SERVICE_API_KEY=${made ?? dim('(as you set it)')}\n`)
  if (allowLocal)
    console.log(`${yellow('--allow-local:')} the webhook may be on this machine. The real service refuses that.\n`)

  await stopped
  await sandbox.close()
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
  close()
}

function showLine({ kind, failed, text }: ActivityLine): void {
  const { dim, red, yellow } = colorsFor(process.stdout)
  const line = escapeControls(text)
  if (kind === 'delivery') console.log(failed ? red(line) : line)
  else console.log(failed ? yellow(line) : dim(line))
}

/** A chunk of zero bytes: the end of a chunked body. */
const lastChunk = /(^|\r\n)0\r\n\r\n$/

/** A widely used client sends the last chunk of a GET twice. Node would answer 400 in the middle of the stream. */
function tolerateStrayChunks(server: Server): void {
  const answers = new WeakMap<object, ServerResponse>()
  server.on('request', ({ socket }, answer) => void answers.set(socket, answer))
  server.on('clientError', (error, socket) => {
    const packet: unknown = 'rawPacket' in error ? error.rawPacket : undefined
    const isStray = packet instanceof Uint8Array && lastChunk.test(Buffer.from(packet).toString('latin1'))
    const answer = answers.get(socket)
    if (isStray && answer !== undefined && !answer.destroyed) {
      // Node reads nothing more from this connection, so it ends with the answer.
      if (answer.writableFinished) socket.end()
      else answer.once('finish', () => socket.end())
    } else if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')
    else socket.destroy()
  })
}

function cannotListen(cause: unknown, hostname: string, port: number): FleethookError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
  const hint =
    code === 'EADDRINUSE'
      ? 'Another process has this port. Stop it, or choose another port with --port; 0 takes any free port.'
      : undefined
  return new FleethookError('listen_failed', `The sandbox could not listen on ${hostname}:${port}: ${code}.`, {
    cause,
    hint,
  })
}
