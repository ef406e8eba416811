/**
 * A durable inbox in a SQLite file, for Node 22.13 and later, Bun, and Deno.
 *
 * @module
 */
import { resolve } from 'node:path'
import type { InboxFactory, InboxHost } from '../../src/inbox/inbox.ts'
import { loadSqlite } from './sqlite/file/database.ts'
import { SqliteFile } from './sqlite/file/file.ts'
import { createInboxFileInThread } from './sqlite/file/in-thread.ts'
import { SqliteInbox } from './sqlite/inbox.ts'
import { readSqliteOptions, type SqliteInboxOptions } from './sqlite/options.ts'

export type { Retention } from '../../src/inbox/inbox.ts'
export type { SqliteInboxOptions } from './sqlite/options.ts'

/**
 * Keeps messages in a SQLite file. A 2xx is sent when the message is on the disk. From then on neither a crash nor a power cut
 * loses it or changes the order within a vehicle.
 *
 * The file belongs to one receiver at a time. Another receiver waits `waitMs` for it, then fails with `inbox_locked`. While the
 * disk is full or failing, the receiver refuses messages (503). It takes messages again by itself when the disk works.
 *
 * Throws a `FleethookError`: `option_invalid`, or `inbox_unsupported` where the runtime has no `node:sqlite`.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { sqliteInbox } from 'fleethook/inbox/sqlite'
 *
 * createReceiver({ secret: 'a-long-random-value', inbox: sqliteInbox({ path: 'data/inbox.db' }) })
 * ```
 */
export function sqliteInbox(options: SqliteInboxOptions): InboxFactory {
  const settings = readSqliteOptions(options)
  loadSqlite()
  return Object.assign(
    (inboxSettings: InboxHost) => {
      const file = settings.thread ? createInboxFileInThread(settings) : new SqliteFile(settings)
      return new SqliteInbox(file, inboxSettings, settings)
    },
    { file: resolve(settings.path) },
  )
}
