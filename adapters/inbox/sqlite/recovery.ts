import { FleethookError } from '../../../src/base/errors.ts'
import type { InboxHost } from '../../../src/inbox/inbox.ts'
import { elapsedMs, pause } from '../../../src/base/clock.ts'
import type { Log } from '../../../src/base/log.ts'
import type { UnopenedInbox } from '../../../src/observe/stats.ts'
import type { InboxFile, LeftReader, OpenedFile } from './file/interface.ts'
import { closedError, type Health, logDamage } from './health.ts'
import type { SqliteSettings } from './options.ts'

const lockedMs = 100

/** Opens the file. Waits up to `waitMs` for another process to release it. */
export async function openWhenFree(
  file: InboxFile,
  { clock, log }: InboxHost,
  { path, waitMs }: SqliteSettings,
  health: Health,
  openFile: () => Promise<OpenedFile>,
): Promise<OpenedFile> {
  const untilMs = elapsedMs(clock) + waitMs
  for (let isWaiting = false; ; isWaiting = true) {
    if (health.isClosed) throw closedError(path)
    try {
      const found = await openFile()
      if (health.isClosed) {
        await file.close()
        throw closedError(path)
      }
      if (found.damage !== undefined) logDamage(log, path, found.damage)
      for (const left of found.unopened) logUnopened(log, left)
      for (const left of found.left) logLeft(log, path, left, found)
      log.debug(`opened the inbox ${path}`, { sqlite: found.version, messages: found.messages, unclean: found.unclean })
      return found
    } catch (error) {
      const isLocked = error instanceof FleethookError && error.code === 'inbox_locked'
      if (!isLocked || health.isClosed || elapsedMs(clock) >= untilMs) throw error
      // What to do: Normal in a deploy. If it stays, stop the other process.
      if (!isWaiting) log.warn(`another process has the inbox ${path}: waiting up to ${waitMs} ms for it to end`)
      await pause(clock, lockedMs)
    }
  }
}

/** A branch that this receiver does not have any more. A branch in `new` may be the same branch under another name. */
function logLeft(log: Log, path: string, left: LeftReader, { readers }: OpenedFile): void {
  const { reader: branch, messages, deadLetters, isDropped } = left
  if (isDropped)
    // What to do: Nothing. No process had it for as long as dead letters are kept.
    log.warn('what waited for a removed branch was dropped', { path, branch, messages, deadLetters })
  else if (messages + deadLetters > 0)
    log.warn(
      // What to do: Add the branch again, give what waits to another name with `fleethook branch rename`, or delete it with `fleethook branch drop`.
      `${messages} messages and ${deadLetters} dead letters wait for the branch ${branch}, which the receiver of ${path} does not have`,
      { new: readers.filter(({ isNew }) => isNew).map(({ reader }) => reader) },
    )
}

function logUnopened(log: Log, { path, messages, deadLetters }: UnopenedInbox): void {
  log.warn(
    // What to do: Start the receiver of that file, or add its branch again. Or stop this one and run `fleethook move`.
    `${messages} messages and ${deadLetters} dead letters wait in the inbox ${path}, and no receiver has it open`,
  )
}
