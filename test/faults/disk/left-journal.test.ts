import { copyFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { message } from '../../../src/testing/kept-message.ts'
import { createFiles } from '../../inbox/sqlite-files.ts'
import { settingsOf } from '../../inbox/sqlite-settings.ts'

const files = createFiles()

/*
 * A kernel that could not write a page may keep it in memory as clean. Then the page is readable until a power cut. So no new
 * message may depend on a journal of an earlier process.
 */
test("the content of an earlier process's journal is moved into the file before anything is appended", async () => {
  const { settings } = settingsOf()
  const killed = files.create(settings)
  await killed.open()
  await killed.put([message(1), message(2)])
  expect(pendingWithoutJournal(files.pathOf(killed))).toBe(0)
  const next = files.reopen(killed, settings)
  await next.open()
  expect(pendingWithoutJournal(files.pathOf(next))).toBe(2)
  await next.close()
})

function pendingWithoutJournal(path: string): number {
  const copy = files.path().replace('/inbox.db', '.db')
  copyFileSync(path, copy)
  const db = new DatabaseSync(copy)
  try {
    const tables = db.prepare("SELECT name FROM sqlite_schema WHERE name = 'pending'").all()
    return tables.length === 0 ? 0 : Number(db.prepare('SELECT count(*) AS count FROM pending').get()?.['count'])
  } finally {
    db.close()
  }
}
