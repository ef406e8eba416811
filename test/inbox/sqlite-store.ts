// The file beneath the SQLite inbox, so that a test can let its disk fail at any call. Only this file knows the inside of the inbox.
import type { Inbox, InboxMessage, InboxHost } from 'fleethook/extend'
import type { SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { SqliteFile } from '../../adapters/inbox/sqlite/file/file.ts'
import type { InboxFile, StoredMessage, Transaction } from '../../adapters/inbox/sqlite/file/interface.ts'
import { SqliteInbox } from '../../adapters/inbox/sqlite/inbox.ts'
import { readSqliteOptions } from '../../adapters/inbox/sqlite/options.ts'
import { seqOf } from '../../src/testing/kept-message.ts'

export { moveToFile } from '../../adapters/inbox/sqlite/file/moving.ts'
export type { InboxFile, OpenedFile } from '../../adapters/inbox/sqlite/file/interface.ts'

export function storeAt(path: string, more: Partial<SqliteInboxOptions> = {}): InboxFile {
  return new SqliteFile(readSqliteOptions({ path, waitMs: 0, ...more }))
}

/** The file, some of whose calls are others. Every call can be taken out of it, as out of a record. */
export function withCalls(file: InboxFile, calls: Partial<InboxFile>): InboxFile {
  return new Proxy(file, {
    get(target, name: keyof InboxFile) {
      const call = calls[name] ?? target[name]
      return calls[name] === undefined ? call.bind(target) : call
    },
  })
}

/** An inbox on a file, some of whose calls are others. */
export function inboxOn(
  path: string,
  change: (store: InboxFile) => Partial<InboxFile>,
  settings: InboxHost,
): { readonly inbox: Inbox; readonly store: InboxFile } {
  const store = storeAt(path)
  return {
    inbox: new SqliteInbox(withCalls(store, change(store)), settings, readSqliteOptions({ path, waitMs: 0 })),
    store,
  }
}

export function transaction(nowMs: number, more: Partial<Transaction> = {}): Transaction {
  return { retracted: [], puts: [], updates: [], settled: [], moves: [], nowMs, pendingBytes: 0, ...more }
}

export function rowOf({ event: _event, ...message }: InboxMessage): StoredMessage {
  return { ...message, seq: seqOf(message.id) }
}
