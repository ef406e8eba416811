import { existsSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { syncFolder } from './database.ts'

/** What `state.closed` says of a file that is still being made of a damaged one. `state.last_id` is that one's new name. */
const unfinished = 2

/** Where the new file is made: it has the name of the damaged one only when it is whole. */
export const mendedPath = (path: string): string => `${path}-mended`

/** Whether a process ended while it made a new file of a damaged one. */
export function isHalfMended(path: string): boolean {
  return !existsSync(path) && existsSync(mendedPath(path))
}

/**
 * Gives a damaged file another name. `fresh`, which is made of it, says from now on that it is not whole, so that who comes after a
 * process that ended meanwhile begins again. Returns the new name; nothing when `fresh` was whole already.
 */
export function putAside(path: string, fresh: DatabaseSync, nowMs: number): string | undefined {
  const state = fresh.prepare('SELECT closed, last_id FROM state').get()
  const isLeft = !existsSync(path)
  if (isLeft && state?.['closed'] !== unfinished) return undefined
  const folder = dirname(path)
  const name = isLeft ? String(state?.['last_id']) : freeName(path, nowMs)
  fresh.exec('DELETE FROM messages; DELETE FROM pending; DELETE FROM dead; DELETE FROM holes')
  fresh.prepare('UPDATE state SET closed = ?, last_id = ?').run(unfinished, name)
  const quarantine = join(folder, name)
  // The journal last: it belongs to no other file, for there is none of that name.
  for (const suffix of ['', '-wal']) if (existsSync(path + suffix)) renameSync(path + suffix, quarantine + suffix)
  rmSync(`${path}-shm`, { force: true })
  syncFolder(folder)
  return quarantine
}

/** The new file is whole, and closed: it takes the place of the damaged one. */
export function putInPlace(path: string): void {
  renameSync(mendedPath(path), path)
  syncFolder(dirname(path))
}

function freeName(path: string, nowMs: number): string {
  const time = new Date(nowMs).toISOString().replaceAll(/[-:.]/g, '')
  const base = `${path}.damaged-${time}`
  let free = base
  for (let n = 2; existsSync(free); n += 1) free = `${base}-${n}`
  return basename(free)
}
