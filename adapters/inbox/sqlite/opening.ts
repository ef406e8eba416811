import { setTimeout } from 'node:timers'
import { type Clock, systemClock, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { InboxSettings } from '../../../src/inbox/inbox.ts'
import { damageText } from './health.ts'
import type { SqliteSettings } from './options.ts'
import type { Found, Store } from './store.ts'

/** How often it is looked whether the other process has ended. */
const lookMs = 100

/** Opens the file, and waits `waitMs` for another process to let go of it. */
export async function openWhenFree(
  store: Store,
  { clock, log }: InboxSettings,
  { path, waitMs }: SqliteSettings,
  isClosed: () => boolean,
): Promise<Found> {
  const untilMs = clock.now() + waitMs
  for (let waits = false; ; waits = true) {
    if (isClosed()) throw closedError(path)
    try {
      const found = await store.open(clock.now())
      if (isClosed()) {
        await store.close()
        throw closedError(path)
      }
      if (found.damage !== undefined) log.error(...damageText(path, found.damage))
      log.debug(`opened the inbox ${path}`, { sqlite: found.version, messages: found.messages, unclean: found.unclean })
      return found
    } catch (error) {
      const isLocked = error instanceof FleethookError && error.code === 'inbox_locked'
      if (!isLocked || isClosed() || clock.now() >= untilMs) throw error
      if (!waits) log.warn(`another process has the inbox ${path}: waiting up to ${waitMs} ms for it to end`)
      await new Promise<void>((resolve) => void clock.after(lookMs, resolve))
    }
  }
}

export function closedError(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is closed.`)
}

/** Timers for what is done in the background: a process that has nothing else to do may end. */
export function backgroundTimer(clock: Clock): (ms: number, run: () => void) => Timer {
  if (clock !== systemClock) return (ms, run) => clock.after(ms, run)
  return (ms, run) => {
    const timer = setTimeout(run, ms).unref()
    return { cancel: () => clearTimeout(timer) }
  }
}
