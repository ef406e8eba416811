import { DatabaseSync } from 'node:sqlite'
import { type SqliteValue, upsert } from 'fleethook/when'
import type { Drive } from './receiver'

const columns = 'id TEXT PRIMARY KEY, revision, revoked, vin, started, minutes, miles, percent, incomplete'

/** Opens the file when it is needed: a build has no disk. */
function run(sql: string, ...values: SqliteValue[]) {
  const db = new DatabaseSync(process.env.DIARY ?? 'data/diary.db')
  db.exec(`PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS drives (${columns})`)
  const rows = db.prepare(sql).all(...values)
  db.close()
  return rows
}

/** Not known is `null`, and never 0. */
const difference = (one: number | null, other: number | null) =>
  one === null || other === null ? null : Math.round((one - other) * 10) / 10

export function write(d: Drive, doubts: readonly string[]) {
  const { sql, values } = upsert('sqlite', 'drives', {
    id: d.id,
    revision: d.revision,
    revoked: d.revoked,
    vin: d.vin,
    started: d.startedAt,
    minutes: Math.round(d.durationMs / 60_000),
    miles: difference(d.odometer.to, d.odometer.from),
    percent: difference(d.percent.from, d.percent.to),
    incomplete: doubts.length > 0,
  })
  run(sql, ...values)
}

export const newest = () => run('SELECT * FROM drives WHERE NOT revoked ORDER BY started DESC LIMIT 100')
