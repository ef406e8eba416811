import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runtimePath } from '../../scripts/runtimes.ts'
import { bundleWorker } from '../../scripts/size.ts'
import type { Target, TargetCommand } from '../conformance/spawn.ts'
import { secret } from '../runtimes/targets.ts'

/** Where Workers run on this machine. */
export const platforms = ['workerd', 'miniflare'] as const
export type Platform = (typeof platforms)[number]

/** A Worker with Durable Objects whose storage outlives the process. */
export interface StoredWorker extends Disposable {
  /** Starts it again, each time on the same storage. */
  readonly commands: Readonly<Record<Platform, TargetCommand>>
  /** Where everything is. */
  readonly folder: string
}

/**
 * Bundles a Worker as wrangler does, for workerd and for miniflare, with the binding `FLEETHOOK_INBOX` of its class
 * `FleethookInbox`. With a port it also has the binding `LOG`, which reaches this port of this machine.
 */
export async function storedWorker(source: string, logPort?: number): Promise<StoredWorker> {
  const { code } = await bundleWorker(source, fileURLToPath(new URL('programs/', import.meta.url)))
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-stored-'))
  const storage = join(folder, 'storage')
  mkdirSync(storage)
  writeFileSync(join(folder, 'worker.js'), code)
  const log = logPort === undefined ? '' : `(name = "log", external = (address = "127.0.0.1:${logPort}", http = ()))`
  const bindings = [
    `(name = "WEBHOOK_SECRET", text = "${secret}")`,
    '(name = "FLEETHOOK_INBOX", durableObjectNamespace = "FleethookInbox")',
    ...(logPort === undefined ? [] : ['(name = "LOG", service = "log")']),
  ]
  writeFileSync(
    join(folder, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = "2026-08-04",
      bindings = [${bindings.join(', ')}],
      durableObjectNamespaces = [(className = "FleethookInbox", uniqueKey = "fleethook", enableSql = true)],
      durableObjectStorage = (localDisk = "storage"),
    )),
    (name = "storage", disk = (path = "${storage}", writable = true)),
    ${log}
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`,
  )
  return {
    folder,
    commands: {
      workerd: {
        runtime: 'workerd',
        command: runtimePath('workerd'),
        args: ['serve', join(folder, 'config.capnp'), '--control-fd=1', '--experimental'],
      },
      miniflare: {
        runtime: 'miniflare',
        command: process.execPath,
        args: [
          fileURLToPath(new URL('programs/miniflare.ts', import.meta.url)),
          ...[join(folder, 'worker.js'), storage, String(logPort ?? 0), secret],
        ],
      },
    },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/** Kills a server as a power cut would, and also the workerd that miniflare started for it. */
export async function kill(target: Target): Promise<void> {
  const children = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' })
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .flatMap(([pid = 0, parent]) => (parent === target.pid ? [pid] : []))
  for (const pid of [target.pid, ...children]) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended by itself, as the one whose parent was just killed does.
    }
  }
  await target.exited
}
