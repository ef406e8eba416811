import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { bundleWorker } from '../../scripts/size.ts'
import type { TargetCommand } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import type { Settings } from './programs/app.ts'

export const secret = 'a-secret-of-the-tests'

/** Whether the tests of this form run on the runtime. `npm test` takes one version of Node. */
export const inThisForm = (runtime: Runtime): boolean =>
  inForm({ short: !['node22.13', 'node22', 'node26'].includes(runtime), full: true })

/** The runtimes whose processes serve. */
export const servers: readonly ServerRuntime[] = (['node22', 'node24', 'node26', 'bun', 'deno'] as const).filter(
  inThisForm,
)
export type ServerRuntime = Exclude<Runtime, 'node22.13' | 'workerd'>

/** The runtimes that run the sources as they are, Workers included. */
export const everywhere: readonly Runtime[] = [...servers, 'workerd']

const programs = fileURLToPath(new URL('programs/', import.meta.url))
const variables = { WEBHOOK_SECRET: secret, PLACE: 'from env' }

/** How to run a program with a server of its own. */
export function programCommand(
  runtime: ServerRuntime,
  program: string,
  env: Readonly<Record<string, string>> = {},
): TargetCommand {
  const adapter = runtime.startsWith('node') ? 'node' : runtime
  const flags: Partial<Record<Runtime, readonly string[]>> = { deno: ['run', '--allow-all'], bun: ['run'] }
  return {
    runtime,
    command: runtimePath(runtime),
    args: [...(flags[runtime] ?? []), program, adapter],
    env: { ...variables, ...env },
  }
}

/** How to run `programs/app.ts` with these settings. `serve`: options of the server, where there is one. */
export async function appCommand(runtime: Runtime, settings: Settings, serve: object = {}): Promise<TargetCommand> {
  if (runtime === 'workerd') return workerCommand(appWorker(settings))
  if (runtime === 'node22.13')
    throw new Error('Node 22.13 does not run TypeScript: it is tested with the built package.')
  return programCommand(runtime, join(programs, 'serve.ts'), {
    SETTINGS: JSON.stringify(settings),
    SERVE: JSON.stringify({ hostname: '127.0.0.1', ...serve }),
  })
}

/** The app as the module of a Worker. */
export function appWorker(settings: Settings): string {
  return `
    import { createApp } from './app.ts'
    import { worker } from '../../../adapters/workers.ts'
    export default worker(createApp(${JSON.stringify(settings)}))`
}

/** What `wrangler.toml` would say. */
export interface WorkerOptions {
  readonly compatibilityDate?: string
  readonly compatibilityFlags?: readonly string[]
  /** The folder from which the Worker's imports are resolved. Default `programs/`. */
  readonly resolveFrom?: string
  /** Whether its `fetch` may reach servers on this machine. Otherwise it reaches only the internet. */
  readonly reachesThisMachine?: boolean
  /** Makes one file of the source. Default: as wrangler does. */
  readonly bundle?: (source: string, folder: string) => Promise<{ readonly code: string | Uint8Array }>
}

/** How to run a Worker: bundled, and served by workerd. */
export async function workerCommand(source: string, options: WorkerOptions = {}): Promise<TargetCommand> {
  const { compatibilityDate = '2026-08-04', compatibilityFlags = [], resolveFrom = programs } = options
  const { bundle = bundleWorker } = options
  const network = options.reachesThisMachine
    ? `(name = "internet", network = (allow = ["public", "private", "local"])), `
    : ''
  const { code } = await bundle(source, resolveFrom)
  const bindings = Object.entries(variables).map(([name, text]) => `(name = "${name}", text = "${text}")`)
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [${network}(name = "main", worker = (
    modules = [(name = "worker.js", esModule = embed "worker.js")],
    compatibilityDate = "${compatibilityDate}",
    compatibilityFlags = [${compatibilityFlags.map((flag) => `"${flag}"`).join(', ')}],
    bindings = [${bindings.join(', ')}, (name = "SELF", service = "main")],
    cacheApiOutbound = "main",
  ))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`
  // The same Worker has the same folder, so that test runs do not fill the disk.
  const folder = join(tmpdir(), `fleethook-worker-${createHash('sha256').update(code).update(config).digest('hex')}`)
  if (!existsSync(folder)) {
    const own = mkdtempSync(join(tmpdir(), 'fleethook-worker-'))
    writeFileSync(join(own, 'worker.js'), code)
    writeFileSync(join(own, 'config.capnp'), config)
    try {
      renameSync(own, folder)
    } catch {
      // Another process was first.
      rmSync(own, { recursive: true })
    }
  }
  return {
    runtime: 'workerd',
    command: runtimePath('workerd'),
    args: ['serve', join(folder, 'config.capnp'), '--control-fd=1'],
  }
}
