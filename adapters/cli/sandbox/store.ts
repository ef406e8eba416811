import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { FleethookError } from '../../../src/base/errors.ts'
import type { SandboxState, SandboxStore } from '../../../src/service/sandbox/options.ts'
import { isJsonObject } from '../../../src/wire/record.ts'
import { loadSqlite, type SqliteModule } from '../../inbox/sqlite/file/database.ts'

/** Keeps the state of a sandbox in a file of SQLite, readable by its owner only: the webhook's `auth` is in it. */
export function sqliteStore(path: string): SandboxStore & { readonly close: () => void } {
  const database = openFile(path)
  const select = database.prepare('SELECT state FROM sandbox')
  const write = database.prepare(
    'INSERT INTO sandbox (id, state) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state',
  )
  return {
    load() {
      const text = select.get()?.['state']
      return typeof text === 'string' ? stateIn(text, path) : undefined
    },
    save: (state) => void write.run(JSON.stringify(state)),
    close: () => database.close(),
  }
}

function openFile(path: string): DatabaseSync {
  // First: nothing is left behind where it cannot be opened.
  const { DatabaseSync } = sqlite()
  try {
    mkdirSync(dirname(path), { recursive: true })
    closeSync(openSync(path, 'a', 0o600))
    const database = new DatabaseSync(path)
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
    database.exec(
      'CREATE TABLE IF NOT EXISTS sandbox (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL) STRICT',
    )
    return database
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new Error(`The sandbox cannot keep its state in ${path}: ${why}. Give --data another file.`, { cause })
  }
}

function sqlite(): SqliteModule {
  try {
    return loadSqlite()
  } catch (cause) {
    // What the inbox says would speak of an inbox.
    throw new FleethookError(
      'option_invalid',
      `--data needs \`node:sqlite\`, which this runtime (${process.version}) does not have.`,
      {
        hint: 'Run Node 22.13 or later, Bun 1.4 or later or Deno 2.9 or later, or leave out --data: the state is then in memory.',
        cause,
      },
    )
  }
}

function stateIn(text: string, path: string): SandboxState {
  const value: unknown = JSON.parse(text)
  if (isJsonObject(value) && isJsonObject(value['vehicles']) && 'defaultFields' in value) {
    return value as unknown as SandboxState // oxlint-disable-line no-unsafe-type-assertion -- written by this very store
  }
  throw new FleethookError('option_invalid', `${path} holds something else than the state of a sandbox.`)
}
