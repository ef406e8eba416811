import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Inbox, InboxSettings } from 'fleethook'
import { sqliteInbox, type SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { afterAll } from 'vitest'

/** Inboxes of a test, each in a file of its own. */
export interface Files {
  create(settings: InboxSettings): Inbox
  /** What a new process finds when the old one was killed now: the files as they are, somewhere else. */
  reopen(inbox: Inbox, settings: InboxSettings): Inbox
  pathOf(inbox: Inbox): string
  path(): string
}

export function createFiles(options: Partial<SqliteInboxOptions> = {}): Files {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-sqlite-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const paths = new WeakMap<Inbox, string>()
  let count = 0

  const path = (): string => join(folder, `${(count += 1)}`, 'inbox.db')

  function at(file: string, settings: InboxSettings): Inbox {
    const inbox = sqliteInbox({ path: file, waitMs: 0, ...options })(settings)
    paths.set(inbox, file)
    return inbox
  }

  function pathOf(inbox: Inbox): string {
    const found = paths.get(inbox)
    if (found === undefined) throw new Error('This inbox was not made here.')
    return found
  }

  return {
    path,
    pathOf,
    create: (settings) => at(path(), settings),
    reopen(inbox, settings) {
      const from = pathOf(inbox)
      const to = join(folder, `${(count += 1)}.db`)
      for (const suffix of ['', '-wal']) {
        // Copying opens and closes the file, which lets go of the lock of this process: it is not used any more.
        if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix)
      }
      return at(to, settings)
    },
  }
}
