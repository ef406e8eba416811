/* A process ends while it replaces a damaged file. */
import { copyFileSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { message as kept } from '../../src/testing/kept-message.ts'
import { createFiles } from './sqlite-files.ts'
import { rowOf, storeAt, transaction } from './sqlite-store.ts'

const files = createFiles()

/** A file whose header is destroyed, with a journal, and its bytes. */
async function damaged(): Promise<{ readonly path: string; readonly file: Buffer; readonly journal: Buffer }> {
  const path = files.path()
  const store = storeAt(path)
  await store.open({ nowMs: 1 })
  await store.commit(transaction(1, { puts: Array.from({ length: 200 }, (_, n) => rowOf(kept(n))) }))
  await store.close({ nowMs: 1 })
  writeFileSync(path, readFileSync(path).fill(0, 0, 100))
  const journal = Buffer.from('a damaged journal')
  writeFileSync(`${path}-wal`, journal)
  return { path, file: readFileSync(path), journal }
}

/** The new file, complete, under its temporary name, as it is before the first rename. */
async function replacement(path: string): Promise<void> {
  const other = await damaged()
  const store = storeAt(other.path)
  await store.open({ nowMs: 2 })
  await store.close()
  copyFileSync(other.path, `${path}-replacement`)
}

const aside = (path: string): readonly string[] =>
  readdirSync(dirname(path))
    .filter((name) => name.startsWith(`${basename(path)}.damaged-`))
    .toSorted()
    .map((name) => join(dirname(path), name))

const quarantine = (path: string): string => `${path}.damaged-20261121T100000000Z`

test.each([
  ['before it is complete', false, async (path: string) => writeFileSync(`${path}-replacement`, 'half')],
  ['before the first rename', false, replacement],
  [
    'between the file and its journal',
    true,
    async (path: string) => {
      await replacement(path)
      renameSync(path, quarantine(path))
    },
  ],
  [
    'before the last rename',
    true,
    async (path: string) => {
      await replacement(path)
      renameSync(path, quarantine(path))
      renameSync(`${path}-wal`, `${quarantine(path)}-wal`)
    },
  ],
])(
  '%s: the next one continues, keeps the old file with its journal, and tells the gap',
  async (_when, isMoved, leave) => {
    const { path, file, journal } = await damaged()
    await leave(path)
    const next = storeAt(path)
    const { messages, gaps } = await next.open({ nowMs: 4 })
    expect(messages).toBe(0)
    expect(gaps.filter(({ reason }) => reason === 'inbox_damaged')).toHaveLength(1)
    const [old = '', oldJournal = '', ...more] = aside(path)
    expect(more).toEqual([])
    expect(readFileSync(old)).toEqual(file)
    // Before the first rename, SQLite has looked into the journal and deleted it, because nothing in it is a commit.
    if (!isMoved) expect(oldJournal).toBe('')
    else expect({ name: oldJournal, bytes: readFileSync(oldJournal) }).toEqual({ name: `${old}-wal`, bytes: journal })
    expect(existsSync(`${path}-replacement`)).toBe(false)
    await next.commit(transaction(5, { puts: [rowOf(kept(1))] }))
    await next.close({ nowMs: 6 })
  },
)
