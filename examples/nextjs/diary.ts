import { DatabaseSync } from 'node:sqlite'
import type { Episode, Measure, Span } from 'fleethook/when'

type Drive = Episode<{ odometer: Measure<Span<number>>; percent: Measure<Span<number>> }>

/** Opened when it is needed: a build has no disk. */
function open(): DatabaseSync {
  const db = new DatabaseSync(process.env.DIARY ?? 'data/diary.db')
  db.exec(
    'PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS drives (id TEXT PRIMARY KEY, vin, started, minutes, miles, percent, incomplete)',
  )
  return db
}

const difference = (a: number | null, b: number | null) =>
  a === null || b === null ? null : Math.round((a - b) * 10) / 10

/** A correction has the id of what it corrects, so it is the same row. What is not known is null, and never 0. */
export function write({ id, vin, revoked, startedAt, durationMs, odometer, percent, ...drive }: Drive): void {
  const db = open()
  const values = [difference(odometer.to, odometer.from), difference(percent.from, percent.to)]
  const isIncomplete = drive.acrossGap || drive.cut || drive.missing.length > 0
  if (revoked) db.prepare('DELETE FROM drives WHERE id = ?').run(id)
  else
    db.prepare('INSERT OR REPLACE INTO drives VALUES (?, ?, ?, ?, ?, ?, ?)').run(
      ...[id, vin, startedAt.toISOString(), Math.round(durationMs / 60_000), ...values, Number(isIncomplete)],
    )
  db.close()
}

export function newest() {
  const db = open()
  const rows = db.prepare('SELECT * FROM drives ORDER BY started DESC LIMIT 100').all()
  db.close()
  return rows
}
