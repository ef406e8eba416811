import { copyFileSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Inbox, InboxHost } from 'fleethook/extend'
import { sqliteInbox, type SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { newFolder } from '../folder.ts'

/** Inboxes of a test, each in its own file. */
export interface Files {
  create(settings: InboxHost): Inbox
  /** What a new process would find if this one were killed now: a copy of the files as they are. */
  reopen(inbox: Inbox, settings: InboxHost): Inbox
  pathOf(inbox: Inbox): string
  path(): string
  /** Copies the files of an inbox as they are now. */
  copy(from: string, to: string): void
}

export function createFiles(options: Partial<SqliteInboxOptions> = {}): Files {
  const folder = newFolder('sqlite')
  const paths = new WeakMap<Inbox, string>()
  let count = 0

  const path = (): string => join(folder, `${(count += 1)}`, 'inbox.db')

  function at(file: string, settings: InboxHost): Inbox {
    const inbox = sqliteInbox({ path: file, waitMs: 0, ...options })(settings)
    paths.set(inbox, file)
    return inbox
  }

  function pathOf(inbox: Inbox): string {
    const found = paths.get(inbox)
    if (found === undefined) throw new Error('`create` did not create this inbox.')
    return found
  }

  function copy(from: string, to: string): void {
    for (const suffix of ['', '-wal']) {
      // Copying closes the file, which releases the lock of this process. The first inbox is not used any more.
      if (existsSync(from + suffix)) copyFileSync(from + suffix, to + suffix)
    }
  }

  return {
    path,
    copy,
    pathOf,
    create: (settings) => at(path(), settings),
    reopen(inbox, settings) {
      const from = pathOf(inbox)
      const to = join(folder, `${(count += 1)}.db`)
      copy(from, to)
      return at(to, settings)
    },
  }
}
