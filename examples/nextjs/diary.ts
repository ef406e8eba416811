import { DatabaseSync } from 'node:sqlite'
import type { EpisodeOccurrence } from 'fleethook/when'

const columns = 'id TEXT PRIMARY KEY, revision, revoked, vin, started, minutes, miles, percent, incomplete'
// A correction has the id of what it corrects, and an older one changes nothing. What is not known is NULL, and so is the difference to it.
const save = `INSERT OR REPLACE INTO drives
  SELECT d->>'id', d->>'revision', d->>'revoked', d->>'vin', datetime(d->>'startedAt'), round(d->>'durationMs' / 6e4),
    round(d->>'$.odometer.to' - d->>'$.odometer.from', 1), round(d->>'$.percent.from' - d->>'$.percent.to', 1),
    d->>'acrossGap' OR d->>'cut' OR d->>'missing' <> '[]'
  FROM (SELECT ? AS d) WHERE NOT EXISTS (SELECT 1 FROM drives WHERE id = d->>'id' AND revision > d->>'revision')`

/** Opens the file when it is needed: a build has no disk. */
function run(sql: string, ...values: string[]) {
  const db = new DatabaseSync(process.env.DIARY ?? 'data/diary.db')
  db.exec(`PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS drives (${columns})`)
  const rows = db.prepare(sql).all(...values)
  db.close()
  return rows
}

export const write = (drive: EpisodeOccurrence) => run(save, JSON.stringify(drive))
export const newest = () => run('SELECT * FROM drives WHERE NOT revoked ORDER BY started DESC LIMIT 100')
