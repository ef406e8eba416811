import { closeSync, fsyncSync, openSync, rmSync, statSync, writeSync } from 'node:fs'

/**
 * Room that is kept beside the file. When the disk is full it is given up, so that what is settled can still be written down;
 * and when it can be had again, there is room for messages again.
 */
const reserveBytes = 4 * 1_048_576

const reservePath = (path: string): string => `${path}-reserve`

/** Whether the reserve is there, or could be taken again. */
export function hasRoom(path: string): boolean {
  const reserve = reservePath(path)
  if ((statSync(reserve, { throwIfNoEntry: false })?.size ?? 0) >= reserveBytes) return true
  try {
    const handle = openSync(reserve, 'w', 0o600)
    try {
      const zeros = new Uint8Array(reserveBytes)
      for (let at = 0; at < reserveBytes;) at += writeSync(handle, zeros, at)
      fsyncSync(handle)
    } finally {
      closeSync(handle)
    }
    return true
  } catch {
    giveUpReserve(path)
    return false
  }
}

/** Gives the reserve to whoever needs it first. Returns whether there was one. */
export function giveUpReserve(path: string): boolean {
  try {
    rmSync(reservePath(path))
    return true
  } catch {
    // On a disk that cannot be written there is nothing to be had.
    return false
  }
}
