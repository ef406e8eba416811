import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

/** Read before this process holds itself to one core. */
const cores = availableParallelism()

/** Whether processes can be held to a core each: on Linux with `taskset` and two cores. */
export const canPin: boolean = cores > 1 && spawnSync('taskset', ['--version'], { stdio: 'ignore' }).status === 0

/** What is measured runs on this core. */
export const measuredCore = 0
/** What makes the load runs on this one. */
export const loadCore = 1

/** A command that runs `command` on one core, where that can be. */
export function pinned(core: number, command: readonly string[]): readonly string[] {
  return canPin ? ['taskset', '--cpu-list', String(core), ...command] : command
}

/** A command that runs `command` on any core, also when this process is held to one. */
export function onEveryCore(command: readonly string[]): readonly string[] {
  return canPin ? ['taskset', '--cpu-list', `0-${cores - 1}`, ...command] : command
}

/** Holds this process, all of its threads, to one core, where that can be. */
export function pinThis(core: number): void {
  if (canPin) {
    spawnSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(core), String(process.pid)], { stdio: 'ignore' })
  }
}
