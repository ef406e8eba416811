/**
 * A durable inbox in a file of SQLite: Node 22.13 and later, Bun, Deno.
 *
 * @module
 */
import type { InboxFactory } from '../../src/inbox/inbox.ts'
import { refuseConflation } from '../../src/inbox/inbox.ts'
import { createFileStore } from './sqlite/file-store.ts'
import { createSqliteInbox } from './sqlite/inbox.ts'
import { readSqliteOptions, type SqliteInboxOptions } from './sqlite/options.ts'
import { loadSqlite } from './sqlite/sqlite-module.ts'
import { createThreadStore } from './sqlite/thread-store.ts'

export type { KeptFor, SqliteInboxOptions } from './sqlite/options.ts'

/**
 * Keeps messages in a file of SQLite: a 2xx is sent when the message is on the disk, and from then on neither a crash nor a
 * power cut loses it, nor changes the order within a vehicle.
 *
 * The file belongs to one receiver at a time; another one is refused with `inbox_locked`, or takes over when the first has
 * ended or died. When the disk is full or fails, messages are refused (503) until it is well again, by itself.
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
  const createStore = settings.thread ? createThreadStore : createFileStore
  return (inboxSettings) => {
    refuseConflation(inboxSettings)
    return createSqliteInbox(createStore(settings), inboxSettings, settings)
  }
}
