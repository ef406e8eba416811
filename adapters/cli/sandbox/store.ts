import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import { FleethookError } from '../../../src/errors.ts'
import type { SandboxState, SandboxStore } from '../../../src/sandbox/store.ts'
import { isJsonObject } from '../../../src/wire/record.ts'
import { loadSqlite } from '../../inbox/sqlite/sqlite-module.ts'

/** Keeps the state of a sandbox in a file of SQLite, readable by its owner only: the webhook's `auth` is in it. */
export function sqliteStore(path: string): SandboxStore & { readonly close: () => void } {
  mkdirSync(dirname(path), { recursive: true })
  closeSync(openSync(path, 'a', 0o600))
  const database = new (loadSqlite().DatabaseSync)(path)
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
  database.exec(
    'CREATE TABLE IF NOT EXISTS sandbox (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL) STRICT',
  )
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

function stateIn(text: string, path: string): SandboxState {
  const value: unknown = JSON.parse(text)
  if (isJsonObject(value) && isJsonObject(value['vehicles']) && 'defaultFields' in value) {
    return value as unknown as SandboxState // oxlint-disable-line no-unsafe-type-assertion -- written by this very store
  }
  throw new FleethookError('option_invalid', `${path} holds something else than the state of a sandbox.`)
}
