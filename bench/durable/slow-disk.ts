import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** A file system in memory if there is one, so that a sync takes only the added delay. */
export const memoryFolder: string = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

/** Compiles the library that makes syncs slow into `folder`. Returns whether that worked: it needs Linux and a C compiler. */
export function canSlowSyncs(folder: string): boolean {
  const source = fileURLToPath(new URL('slow-sync.c', import.meta.url))
  const args = ['-shared', '-fPIC', '-O2', '-o', libraryIn(folder), source, '-ldl']
  return spawnSync('cc', args, { stdio: 'inherit' }).status === 0
}

/** The environment of a process in which each sync takes this long. */
export function slowSyncs(folder: string, microseconds: number): Readonly<Record<string, string>> {
  return { LD_PRELOAD: libraryIn(folder), SLOW_SYNC_MICROSECONDS: String(microseconds) }
}

const libraryIn = (folder: string): string => join(folder, 'slow-sync.so')
