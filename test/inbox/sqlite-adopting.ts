// A process whose inbox adopts others at the start or while it runs. It reports when it begins, and a test kills it before
// the end.
import { mkdirSync, readdirSync, renameSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import process from 'node:process'
import { DatabaseSync } from 'node:sqlite'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { systemClock } from '../../src/base/clock.ts'

const [path = '', adopt = '', moment] = process.argv.slice(2)
const isAtStart = moment === 'at the start'
const folder = dirname(path)
const aside = join(folder, 'aside')
const others = (at: string): readonly string[] =>
  readdirSync(at).filter((name) => name.startsWith('inbox-') && !name.startsWith(basename(path)))

/** Moves the other files. An inbox that finds them at its start takes them over then. */
function moveOthers(from: string, to: string): void {
  for (const name of others(from)) renameSync(join(from, name), join(to, name))
}
const silent = (): void => {}
const inbox = sqliteInbox({ path, adopt, waitMs: 0 })({
  pendingMessages: undefined,
  pendingBytes: undefined,
  // A minute takes a tenth of a second.
  clock: { ...systemClock, after: (ms, run) => systemClock.after(ms / 600, run) },
  log: { debug: silent, info: silent, warn: silent, error: silent },
  onFailure: silent,
  onCapacity: silent,
  // Called after each part.
  onWaiting: () => process.stdout.write('takes\n'),
})
mkdirSync(aside, { recursive: true })
// An earlier process may have been killed before it moved them back.
moveOthers(aside, folder)
// Journals of one transaction over two files name each other. A file that is moved before SQLite has read them loses its part.
for (const name of readdirSync(folder).filter((each) => each.endsWith('.db'))) {
  const db = new DatabaseSync(join(folder, name))
  db.exec('BEGIN IMMEDIATE; ROLLBACK')
  db.close()
}
if (!isAtStart) moveOthers(folder, aside)
if (isAtStart) process.stdout.write('starts\n')
await inbox.open()
if (!isAtStart) {
  moveOthers(aside, folder)
  // Some looks at the files.
  await new Promise((resolve) => setTimeout(resolve, 2_000))
}
process.kill(process.pid, 'SIGKILL')
