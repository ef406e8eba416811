import type { DatabaseSync, StatementSync } from 'node:sqlite'

const columns = 'm.place, m.id, m.lane, m.received_at, m.door, m.kind, m.bytes, m.crc, m.text'

/** What the store asks of SQLite. */
type StatementName =
  | 'begin'
  | 'commit'
  | 'rollback'
  | 'forget'
  | 'settle'
  | 'keep'
  | 'wait'
  | 'waitAll'
  | 'deliver'
  | 'change'
  | 'take'
  | 'bury'
  | 'unearth'
  | 'revive'
  | 'alive'
  | 'state'
  | 'last'
  | 'lastPlace'
  | 'holes'
  | 'addHole'
  | 'forgetHoles'
  | 'count'
  | 'waiting'
  | 'find'
  | 'message'
  | 'letters'
  | 'listed'
  | 'pageCount'
  | 'freePages'
  | 'deadBytes'
  | 'oldDead'
  | 'forgetDead'
  | 'sweepTo'
  | 'sweep'

const texts: Readonly<Record<StatementName, string>> = {
  begin: 'BEGIN IMMEDIATE',
  commit: 'COMMIT',
  rollback: 'ROLLBACK',
  forget: 'DELETE FROM messages WHERE place = ?',
  settle: 'DELETE FROM pending WHERE place = ?',
  keep: 'INSERT INTO messages (place, id, lane, received_at, door, kind, bytes, crc, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
  wait: 'INSERT INTO pending (place, id, lane, kind, bytes) VALUES (?, ?, ?, ?, ?)',
  waitAll: `
    INSERT INTO pending (place, id, lane, kind, bytes)
    SELECT place, id, lane, kind, bytes FROM messages WHERE place BETWEEN ? AND ?`,
  deliver: 'UPDATE pending SET deliveries = deliveries + ? WHERE place = ?',
  change: 'UPDATE pending SET deliveries = ifnull(?, deliveries) + ?, attempts = ?, not_before = ? WHERE place = ?',
  take: 'DELETE FROM pending WHERE place = ? RETURNING bytes',
  bury: 'INSERT OR REPLACE INTO dead (place, bytes, error, attempts, died_at) VALUES (?, ?, ?, ?, ?)',
  unearth: 'DELETE FROM dead WHERE place = ? RETURNING bytes',
  revive: `
    INSERT INTO pending (place, id, lane, kind, bytes, replayed)
    SELECT place, id, lane, kind, bytes, 1 FROM messages m
    WHERE place = ? AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) RETURNING bytes`,
  alive: 'UPDATE state SET closed = ?, alive_at = ?',
  state: 'SELECT closed, alive_at, last_id FROM state',
  last: 'SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1',
  lastPlace: 'SELECT max(place) AS place FROM messages',
  holes: 'SELECT reason, from_ms FROM holes ORDER BY from_ms',
  addHole: 'INSERT INTO holes (reason, from_ms) VALUES (?, ?)',
  forgetHoles: 'DELETE FROM holes',
  count: `
    SELECT count(*) AS messages, sum(bytes) AS bytes, max(place) AS last
    FROM (SELECT place, bytes FROM pending WHERE place > ? ORDER BY place LIMIT ?)`,
  waiting: `
    SELECT place, id, lane, kind, attempts, not_before FROM pending WHERE place > ? ORDER BY place LIMIT ?`,
  find: `
    SELECT ${columns}, p.deliveries, p.replayed FROM pending p JOIN messages m USING (place) WHERE p.place = ?`,
  message: `SELECT ${columns} FROM messages m WHERE m.place = ?`,
  letters: `
    SELECT ${columns}, d.error, d.attempts, d.died_at FROM dead d JOIN messages m USING (place)
    WHERE d.place > ? ORDER BY d.place LIMIT ?`,
  // The row's number alone comes first: what is not asked for is not read.
  listed: `
    SELECT m.place, m.lane, m.received_at,
      EXISTS (SELECT 1 FROM pending p WHERE p.place = m.place) OR
      EXISTS (SELECT 1 FROM dead d WHERE d.place = m.place) AS elsewhere
    FROM messages m WHERE m.place > ? ORDER BY m.place LIMIT ?`,
  pageCount: 'PRAGMA page_count',
  freePages: 'PRAGMA freelist_count',
  deadBytes: 'SELECT ifnull(sum(bytes), 0) AS bytes FROM dead',
  oldDead: 'SELECT place, bytes, died_at FROM dead WHERE died_at < ? OR ? > 0 ORDER BY place LIMIT ?',
  forgetDead: 'DELETE FROM dead WHERE place = ?',
  sweepTo: `
    SELECT max(place) AS place, count(*) AS messages FROM
      (SELECT place FROM messages WHERE place > ? AND place < ? ORDER BY place LIMIT ?)`,
  sweep: `
    DELETE FROM messages WHERE place > ? AND place <= ?
      AND place NOT IN (SELECT place FROM pending WHERE place > ? AND place <= ?)
      AND place NOT IN (SELECT place FROM dead WHERE place > ? AND place <= ?)`,
}

/** Prepared when they are first needed. */
export type Statements = Readonly<Record<StatementName, StatementSync>>

export function prepareStatements(db: DatabaseSync): Statements {
  const prepared: Partial<Record<StatementName, StatementSync>> = {}
  const names = Object.keys(texts) as StatementName[]
  const lazily = (name: StatementName): PropertyDescriptor => ({
    get: () => (prepared[name] ??= db.prepare(texts[name])),
  })
  return Object.defineProperties({}, Object.fromEntries(names.map((name) => [name, lazily(name)]))) as Statements
}
