import type * as Sqlite from 'node:sqlite'
import process from 'node:process'
import { FleethookError } from '../../../src/base/errors.ts'

/** What `node:sqlite` gives, on Node, Bun and Deno. */
export type SqliteModule = typeof Sqlite

/** The SQLite of the runtime. Throws `inbox_unsupported` where there is none. */
export function loadSqlite(): SqliteModule {
  const loaded = withoutItsWarning(() => process.getBuiltinModule?.('node:sqlite'))
  if (loaded !== undefined) return loaded
  throw new FleethookError(
    'inbox_unsupported',
    `The inbox on SQLite needs \`node:sqlite\`, which this runtime (${process.version}) does not have.`,
    { hint: 'Run Node 22.13 or later, Bun 1.4 or later or Deno 2.9 or later, or use memoryInbox().' },
  )
}

/**
 * Node 22 tells each process that loads the module that SQLite is experimental. Here that is known, decided and tested on
 * those versions; a user can do nothing about it. Every other warning passes, and none is held back for longer than this.
 */
function withoutItsWarning<T>(load: () => T): T {
  const { emitWarning } = process
  process.emitWarning = (...given: readonly unknown[]) => {
    if (!String(given[0]).startsWith('SQLite is an experimental feature')) Reflect.apply(emitWarning, process, given)
  }
  try {
    return load()
  } finally {
    process.emitWarning = emitWarning
  }
}
