import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { runtimePath } from '../../../scripts/runtimes.ts'
import { endWithFile, type TargetCommand } from '../../conformance/spawn.ts'
import type { AttackKind } from './programs/attacks.ts'

/** A running attack in its own process. */
export interface Attacking extends AsyncDisposable {
  /** Ends it, and resolves to what it did. */
  stop(): Promise<Readonly<Record<string, number>>>
}

/** The same command with the highest limit of open files that this machine allows. */
export function withFiles({ command, args, ...rest }: TargetCommand): TargetCommand {
  const raised = 'ulimit -n "$(ulimit -H -n)" 2>/dev/null; exec "$0" "$@"'
  return { ...rest, command: '/bin/sh', args: ['-c', raised, command, ...args] }
}

/** The most connections that a process, and so an attack, can have. */
export const mostConnections: number = (() => {
  const limit = execFileSync('/bin/sh', ['-c', 'ulimit -H -n'], { encoding: 'utf8' }).trim()
  return limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit) - 1_000
})()

/** Attacks the receiver on this port. Resolves when the attack is at full strength. */
export async function attack(kind: AttackKind, url: string, amount: number): Promise<Attacking> {
  const { command, args } = withFiles({
    runtime: 'node24',
    command: runtimePath('node24'),
    args: [join(import.meta.dirname, 'programs/attacker.ts'), kind, new URL(url).port, String(amount)],
  })
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  endWithFile(child)
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const exited = once(child, 'exit')
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next()
    if (done) throw new Error(`The attack ${kind} ended by itself.`)
    return value
  }
  await next()
  return {
    async stop() {
      child.kill('SIGTERM')
      const done: Readonly<Record<string, number>> = JSON.parse(await next())
      await exited
      return done
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
