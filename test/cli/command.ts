import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { endWithFile } from '../conformance/spawn.ts'
import { form } from '../form.ts'

/** The real form has built the package, which starts in half of the time. */
const program = form === 'real' ? '../../dist/adapters/cli/main.js' : '../../adapters/cli/main.ts'
const main = fileURLToPath(new URL(program, import.meta.url))

/** What a command left behind. */
export interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A command that runs. */
export interface Running {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
}

/** Starts the real command line as a process of its own, its output piped. */
export function start(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  cwd?: string,
  uid?: number,
): Running {
  const { FORCE_COLOR: _, NO_COLOR: __, WEBHOOK_SECRET: ___, ...inherited } = process.env
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...inherited, ...env },
    cwd,
    uid,
    gid: uid,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  endWithFile(child)
  const ended = Promise.all([once(child, 'close'), text(child.stdout), text(child.stderr)]).then(
    ([, stdout, stderr]) => ({ status: child.exitCode, stdout, stderr }),
  )
  return { child, ended }
}

/** Runs the command line to its end. */
export function command(args: readonly string[], env?: Readonly<Record<string, string>>, cwd?: string): Promise<Ended> {
  return start(args, env, cwd).ended
}
