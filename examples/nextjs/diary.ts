import { DatabaseSync } from 'node:sqlite'
import type { Episode, Measure, Span } from 'fleethook/when'

type Drive = Episode<{ odometer: Measure<Span<number>>; percent: Measure<Span<number>> }>
const columns = 'id TEXT PRIMARY KEY, vin, started, minutes, miles, percent, incomplete'
const save = 'INSERT OR REPLACE INTO drives VALUES (?, ?, ?, round(? / 6e4), round(? - ?, 1), round(? - ?, 1), ?)'

/** Opens the file when it is needed: a build has no disk. */
function run(sql: string, ...values: (string | number | null)[]) {
  const db = new DatabaseSync(process.env.DIARY ?? 'data/diary.db')
  db.exec(`PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS drives (${columns})`)
  const rows = db.prepare(sql).all(...values)
  db.close()
  return rows
}

/** A correction has the id of what it corrects, so it is the same row. What is not known is NULL, and so is the difference to it: never 0. */
export function write({ id, vin, revoked, startedAt, durationMs, odometer: o, percent: p, ...drive }: Drive): void {
  const isIncomplete = drive.acrossGap || drive.cut || drive.missing.length > 0
  const values = [id, vin, startedAt.toISOString(), durationMs, o.to, o.from, p.from, p.to, Number(isIncomplete)]
  if (revoked) run('DELETE FROM drives WHERE id = ?', id)
  else run(save, ...values)
}

export const newest = () => run('SELECT * FROM drives ORDER BY started DESC LIMIT 100')
