import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

/** Read before this process pins itself to one core. */
const cores = availableParallelism()

/** Whether processes can be pinned to a core: on Linux with `taskset` and two cores. */
export const canPin: boolean = cores > 1 && spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0

/** The core of measured processes. */
export const measuredCore = 0
/** The core of the load generator. */
export const loadCore = 1

/** A command that runs `command` on one core, where processes can be pinned. */
export function pinned(core: number, command: readonly string[]): readonly string[] {
  return canPin ? ['taskset', '--cpu-list', String(core), ...command] : command
}

/** A command that runs `command` on any core, even if this process is pinned to one. */
export function onEveryCore(command: readonly string[]): readonly string[] {
  return canPin ? ['taskset', '--cpu-list', `0-${cores - 1}`, ...command] : command
}

/** Pins this process, with all of its threads, to one core, where processes can be pinned. */
export function pinThis(core: number): void {
  if (canPin) {
    spawnSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(core), String(process.pid)], { stdio: 'ignore' })
  }
}
