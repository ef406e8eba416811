import { randomBytes } from 'node:crypto'
import { readdirSync, watch } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { Command } from 'commander'
import { createClient } from '../../src/service/client/client.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { vinsOf } from '../../src/service/client/products.ts'
import type { ActivityLine } from '../../src/service/sandbox/options.ts'
import { createSandbox } from '../../src/service/sandbox/sandbox.ts'
import { dotenvOption, environment, inboxPath, portFor, whole } from './arguments.ts'
import { dataOf, servePage } from './inspect.ts'
import { holdSocket, Launcher } from './run.ts'
import { createPost } from './exchange.ts'
import { printError } from './terminal.ts'

interface Given {
  readonly port?: number
  readonly path: string
  readonly vehicles: number
  readonly inbox?: string
  readonly dotenv: string
}

/** Files whose change restarts the receiver. */
const sources = /(\.[cm]?[jt]sx?|\.json|^\.env.*)$/

/** The pause before a restart, in milliseconds. Editors write a file in several steps, and some write several files at once. */
const restMs = 200

/** What the vehicles stream: enough for every topic and a map. */
const fields = {
  BatteryLevel: { interval_seconds: 30 },
  Gear: { interval_seconds: 1 },
  VehicleSpeed: { interval_seconds: 5, minimum_delta: 5 },
  DetailedChargeState: { interval_seconds: 1 },
  Locked: { interval_seconds: 1 },
  Location: { interval_seconds: 15, minimum_delta: 50 },
}

export function defineDev(command: Command): void {
  command
    .description(
      'Runs a receiver for development: simulated vehicles post to it, the inspector shows it, and a change of a file in its folder ' +
        'replaces it with a new process, as fleethook run does.',
    )
    .argument('<program>', 'the program that calls serve, for instance server.ts')
    .argument('[arguments...]', 'what the program gets as its arguments, after --')
    .option('--port <port>', 'the port of the receiver (default: PORT, or 3000)', whole(1, 65_535))
    .option('--path <path>', 'where the receiver is mounted', '/')
    .option('--vehicles <n>', 'number of simulated vehicles; 0: none', whole(0, 1_000), 10)
    .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
    .addOption(dotenvOption)
    .addHelpText(
      'after',
      `
The vehicles post with WEBHOOK_SECRET, from the environment or .env. Without one, the command makes one for the program.
The inspector needs a receiver with sqliteInbox. The command listens and posts on this machine only.`,
    )
    .action(async (program: string, args: readonly string[], given: Given) => {
      const variable = environment(given.dotenv)
      const secret = variable('WEBHOOK_SECRET') ?? randomBytes(24).toString('hex')
      const port = portFor(given)
      // The program inherits both.
      process.env['WEBHOOK_SECRET'] ??= secret
      process.env['PORT'] = String(port)
      const held = await holdSocket(port, '127.0.0.1')
      if (typeof held === 'string') {
        printError({ message: held, hint: 'Give --port another one, or stop the process that has it.' })
        process.exitCode = 1
        return
      }
      const page = await servePage(dataOf({ inbox: inboxPath(given.inbox, variable) }))
      console.log(page.url)

      const launcher = new Launcher(held, [program, ...args], given.dotenv)
      const over = new AbortController()
      const ended = launcher.run().finally(() => over.abort())
      const stopWatching = restartOnChange(dirname(resolve(program)), () => launcher.reload('a file changed'))
      let stopVehicles: (() => Promise<void>) | undefined
      if (await listens(port, over.signal)) {
        const url = `http://127.0.0.1:${port}${given.path}`
        if (given.vehicles > 0) stopVehicles = await startVehicles(given.vehicles, url, secret)
      }
      process.exitCode = await ended
      stopWatching()
      await stopVehicles?.()
      await page.close()
      held.close()
    })
}

/** Resolves to whether the receiver listens before the signal aborts. */
async function listens(port: number, signal: AbortSignal): Promise<boolean> {
  while (!signal.aborted) {
    const isThere = await fetch(`http://127.0.0.1:${port}/healthz`, { signal }).then(
      () => true,
      () => false,
    )
    if (isThere) return true
    await setTimeout(restMs, undefined, { signal }).catch(() => {})
  }
  return false
}

/** Starts vehicles that drive, charge and post to `url`. Resolves to the function that stops them. */
async function startVehicles(count: number, url: string, secret: string): Promise<() => Promise<void>> {
  const { post, close } = createPost()
  const apiKey = randomBytes(18).toString('base64url')
  let isFailing = false
  const show = ({ kind, failed, text }: ActivityLine): void => {
    if (kind !== 'delivery' || failed === isFailing) return
    isFailing = failed
    console.error(escapeControls(failed ? `A message was not taken: ${text}` : 'Messages are taken again.'))
  }
  const sandbox = createSandbox({ apiKey, vehicles: count, allowLocal: true, post, show })
  const client = createClient({
    baseUrl: 'https://sandbox.example.com',
    apiKey,
    fetch: async (asked: string, init?: RequestInit) => sandbox.fetch(new Request(asked, init)),
  })
  await client.webhook.set({ url, format: 'service', auth: secret }, { allowLocal: true })
  const vins = vinsOf(await client.products())
  await Promise.all(vins.map((vin) => client.config(vin).replace({ fields })))
  return async () => {
    await sandbox.close()
    close()
  }
}

/** Calls `changed` when a source file in the folder or below it has changed. Returns a function that stops watching. */
function restartOnChange(folder: string, changed: () => void): () => void {
  let timer: NodeJS.Timeout | undefined
  const watchers = foldersIn(folder).map((path) =>
    watch(path, (_kind, name) => {
      if (name === null || !sources.test(name)) return
      clearTimeout(timer)
      timer = globalThis.setTimeout(changed, restMs)
    }),
  )
  return () => {
    clearTimeout(timer)
    for (const watcher of watchers) watcher.close()
  }
}

/** A folder and all below it, without installed, built and hidden folders. */
function foldersIn(folder: string): readonly string[] {
  const below = readdirSync(folder, { withFileTypes: true }).filter(
    (entry) => entry.isDirectory() && !/^(\..*|node_modules|dist|data)$/.test(entry.name),
  )
  return [folder, ...below.flatMap(({ name }) => foldersIn(join(folder, name)))]
}
