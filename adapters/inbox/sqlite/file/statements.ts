import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { suffixOf } from './schema.ts'

/**
 * The statements of the running inbox. The tables call the `seq` of a message its `place`, and a gap a hole. No parameter has a number: Node 22.13
 * takes it for a name.
 */
const fileSql = {
  begin: 'BEGIN IMMEDIATE',
  commit: 'COMMIT',
  removeMessage: 'DELETE FROM messages WHERE place = ?',
  state: 'SELECT * FROM state',
  setState: 'UPDATE state SET closed = ?, alive_at = ?, uptime_ms = ?, known_ms = ?, doubted_ms = ?',
  setOpen: 'UPDATE state SET closed = 0',
  newest: 'SELECT id, received_at FROM messages ORDER BY place DESC LIMIT 1',
  newestSeq: 'SELECT max(place) AS place FROM messages',
  listedTo: `
    SELECT min(place) AS place, count(*) AS messages
    FROM (SELECT place FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?)`,
  removeGapsOf: 'DELETE FROM holes WHERE vin = ?',
  erasing: 'SELECT vin FROM erasing',
  addErasing: 'INSERT OR IGNORE INTO erasing (vin) VALUES (?)',
  noteErasing: 'UPDATE erasing SET steps = steps + 1 WHERE vin = ?',
  removeErasing: 'DELETE FROM erasing WHERE vin = ?',
  pageCount: 'PRAGMA page_count',
  freePages: 'PRAGMA freelist_count',
  sweepTo: `
    SELECT max(place) AS place, count(*) AS messages FROM
      (SELECT place FROM messages WHERE place > ? AND place < ? ORDER BY place LIMIT ?)`,
  addMessage:
    'INSERT INTO messages (place, id, lane, received_at, door, kind, bytes, crc, text, reader) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  idAt: 'SELECT id FROM messages WHERE place = ?',
  readers: 'SELECT * FROM readers ORDER BY number',
  addReader:
    'INSERT INTO readers (number, name, used_at) VALUES ((SELECT max(number) + 1 FROM readers), ?, ?) RETURNING *',
  useReader: 'UPDATE readers SET used_at = ? WHERE number = ?',
} as const

type ReaderSql = ReturnType<typeof placesSql> &
  ReturnType<typeof listsSql> &
  ReturnType<typeof gapsSql> &
  ReturnType<typeof vehiclesSql>

/** The statements that concern one reader. */
function readerSql(number: number): ReaderSql {
  const suffix = suffixOf(number)
  return {
    ...placesSql(number, `pending${suffix}`, `dead${suffix}`, `failing${suffix}`),
    ...listsSql(number, `pending${suffix}`, `dead${suffix}`, `failing${suffix}`),
    ...gapsSql(number),
    ...vehiclesSql(number, `vehicles${suffix}`, `vehicles_seen${suffix}`),
  }
}

/** A message that is for this reader. */
const forReader = (number: number): string => `(m.reader IS NULL OR m.reader = ${number})`

/** What waits, and what was given up. */
function placesSql(number: number, pending: string, dead: string, failing: string) {
  const isForIt = forReader(number)
  return {
    addPending: `INSERT INTO ${pending} (place, id, lane, kind, bytes) VALUES (?, ?, ?, ?, ?)`,
    addPendingRange: `
    INSERT INTO ${pending} (place, id, lane, kind, bytes)
    SELECT place, id, lane, kind, bytes FROM messages WHERE place BETWEEN ? AND ?`,
    addDeliveries: `UPDATE ${pending} SET deliveries = deliveries + ? WHERE place = ?`,
    updatePending: `UPDATE ${pending} SET deliveries = ifnull(?, deliveries) + ?, attempts = ?, not_before = ? WHERE place = ?`,
    setFailure: `INSERT OR REPLACE INTO ${failing} (place, failure) VALUES (?, ?)`,
    removeFailure: `DELETE FROM ${failing} WHERE place = ?`,
    removeOldFailures: `DELETE FROM ${failing} WHERE NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = ${failing}.place)`,
    settle: `DELETE FROM ${pending} WHERE place = ?`,
    removePending: `DELETE FROM ${pending} WHERE place = ? RETURNING bytes, replayed, id, kind`,
    addDead: `INSERT OR REPLACE INTO ${dead} (place, bytes, error, attempts, died_at, changed, run) VALUES (?, ?, ?, ?, ?, ?, ?)`,
    removeDead: `DELETE FROM ${dead} WHERE place = ? RETURNING bytes`,
    revive: `
    INSERT INTO ${pending} (place, id, lane, kind, bytes, replayed, changed)
    SELECT m.place, id, lane, kind, m.bytes,
      CASE WHEN d.place IS NULL THEN (random() & 0x1fffffffffffff) | 2 ELSE max(1, d.run) END, d.changed
    FROM messages m LEFT JOIN ${dead} d USING (place)
    WHERE m.place = ? AND ${isForIt} AND NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) RETURNING bytes`,
    oldest: `SELECT min(place) AS place FROM ${pending}`,
    countDead: `SELECT count(*) AS messages FROM ${dead}`,
    countPending: `
    SELECT count(*) AS messages, sum(bytes) AS bytes, max(place) AS last
    FROM (SELECT place, bytes FROM ${pending} WHERE place > ? ORDER BY place LIMIT ?)`,
    deadBytes: `SELECT ifnull(sum(bytes), 0) AS bytes FROM ${dead}`,
    oldDead: `SELECT place, bytes, died_at FROM ${dead} WHERE died_at < ? OR ? > 0 ORDER BY place LIMIT ?`,
  }
}

/** Lists have no texts. Texts are read one by one, until the page has its bytes. */
function listsSql(number: number, pending: string, dead: string, failing: string) {
  const isForIt = forReader(number)
  return {
    waiting: `SELECT p.place, id, lane, kind, deliveries, attempts, not_before, failure FROM ${pending} p LEFT JOIN ${failing} USING (place) WHERE p.place > ? ORDER BY p.place LIMIT ?`,
    pending: `
    SELECT m.*, p.deliveries, p.replayed, p.changed FROM ${pending} p JOIN messages m USING (place) WHERE p.place = ?`,
    message: `SELECT m.* FROM messages m WHERE m.place = ? AND ${isForIt}`,
    deadLetter: `
    SELECT m.*, d.error, d.attempts, d.died_at, d.changed, d.run FROM ${dead} d JOIN messages m USING (place) WHERE d.place = ?`,
    deadLetters: `
    SELECT m.place, m.lane, m.received_at FROM ${dead} d JOIN messages m USING (place) WHERE d.place > ? ORDER BY d.place LIMIT ?`,
    settled: `
    SELECT m.place, m.lane, m.received_at,
      EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) OR
      EXISTS (SELECT 1 FROM ${dead} d WHERE d.place = m.place) AS elsewhere
    FROM messages m WHERE m.place > ? AND ${isForIt} ORDER BY m.place LIMIT ?`,
    // There is no index by lane: keeping one would cost as much as the rest of a message (docs/decisions/0011-observing.md).
    listed: `
    SELECT m.place FROM (SELECT place, lane, received_at, reader FROM messages WHERE place < ? ORDER BY place DESC LIMIT ?) m
    WHERE ${isForIt} AND lane = ifnull(?, lane) AND received_at >= ? AND received_at < ? ORDER BY m.place DESC LIMIT ?`,
    listedOne: `
    SELECT m.*, d.error, d.attempts, d.died_at, EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place) AS waits
    FROM messages m LEFT JOIN ${dead} d USING (place) WHERE m.place = ?`,
    // A revived message was settled before.
    unapplied: `
    SELECT m.place FROM messages m WHERE m.place > ? AND m.place <= (SELECT vehicles_up_to FROM readers WHERE number = ${number})
      AND ${isForIt} AND NOT EXISTS (SELECT 1 FROM ${pending} p WHERE p.place = m.place AND p.replayed = 0) ORDER BY m.place LIMIT ?`,
  }
}

/** Gaps that no event reports yet. */
function gapsSql(number: number) {
  return {
    gaps: `SELECT * FROM holes WHERE reader = ${number} ORDER BY from_ms`,
    addGap: `INSERT INTO holes (reason, from_ms, to_ms, vin, missed, reader) VALUES (?, ?, ?, ?, ?, ${number})`,
    removeGap: `DELETE FROM holes WHERE reader = ${number} AND reason = ? AND vin IS ? AND from_ms >= ? AND ifnull(to_ms, 0) <= ?`,
    removeGaps: `DELETE FROM holes WHERE reader = ${number} AND reason <> 'inbox_expired'`,
    removeGapOfStop: `DELETE FROM holes WHERE number = (SELECT max(number) FROM holes WHERE reader = ${number}) AND reason = 'stopped' AND from_ms = ?`,
  }
}

/** The newest states of vehicles, and how far they are written. */
function vehiclesSql(number: number, vehicles: string, seen: string) {
  return {
    held: `SELECT vehicles_seq, vehicles_up_to, vehicles_held FROM readers WHERE number = ${number}`,
    holdVehicles: `UPDATE readers SET vehicles_seq = ?, vehicles_up_to = ?, vehicles_held = 1 WHERE number = ${number}`,
    releaseVehicles: `UPDATE readers SET vehicles_held = 0 WHERE number = ${number} AND vehicles_held = 1`,
    setVehiclesSeq: `UPDATE readers SET vehicles_seq = ? WHERE number = ${number}`,
    setVehiclesUpTo: `UPDATE readers SET vehicles_up_to = ? WHERE number = ${number}`,
    setVehicle: `INSERT OR REPLACE INTO ${vehicles} (vin, place, seen_at, due, rules, crc, text) VALUES (?, ?, ?, ?, ?, ?, ?)`,
    removeVehicle: `DELETE FROM ${vehicles} WHERE vin = ?`,
    removeUnseen: `
    DELETE FROM ${vehicles} WHERE vin IN (SELECT vin FROM ${vehicles} WHERE seen_at < ? AND vin <> '' LIMIT ?)`,
    vehicle: `SELECT * FROM ${vehicles} WHERE vin = ?`,
    nextVehicles: `SELECT * FROM ${vehicles} WHERE vin > ? ORDER BY vin LIMIT 50`,
    dueVehicles: `
    SELECT vin, due FROM ${vehicles} WHERE vin > ? AND due IS NOT NULL ORDER BY vin LIMIT 10000`,
    outdatedVehicles: `
    SELECT * FROM ${vehicles} WHERE vin > ? AND vin <> '' AND rules IS NOT ? ORDER BY vin LIMIT 500`,
    countVehicles: `SELECT count(*) AS vehicles FROM ${vehicles} INDEXED BY ${seen} WHERE vin <> ''`,
  }
}

/** The statements that concern all readers of the file. */
function sharedSql(numbers: readonly number[]) {
  const tables = numbers.flatMap((number) => ['pending', 'dead'].map((table) => table + suffixOf(number)))
  const isIn = (table: string, place: string): string => `EXISTS (SELECT 1 FROM ${table} t WHERE t.place = ${place})`
  const waits = tables.filter((table) => table.startsWith('pending')).map((table) => isIn(table, 'm.place'))
  const died = tables.filter((table) => table.startsWith('dead')).map((table) => isIn(table, 'm.place'))
  return {
    aboutVin: `
      SELECT m.place, m.kind, m.bytes, ${waits.join(' OR ')} AS waits, ${died.join(' OR ')} AS died
      FROM messages m WHERE m.place > ? AND m.place <= ?
        AND (m.lane = ? OR (m.lane GLOB '[*][^*]*' AND instr(lower(m.text), lower(?)) > 0))`,
    // A message that no reader needs.
    removeUnkept: `DELETE FROM messages WHERE place = ? ${tables.map((table) => `AND NOT ${isIn(table, 'messages.place')}`).join(' ')}`,
    sweep: `
      DELETE FROM messages WHERE place > ? AND place <= ?
        ${tables.map((table) => `AND place NOT IN (SELECT place FROM ${table} WHERE place > ? AND place <= ?)`).join(' ')}`,
  }
}

/** The oldest messages that wait for this reader, with which the receiver is done, and that are nobody's dead letters. */
export function expendableSql(number: number, numbers: readonly number[]): string {
  const others = ['pending', ...numbers.map((each) => `dead${suffixOf(each)}`)]
  return `SELECT place, bytes FROM pending${suffixOf(number)} p
    WHERE ${others.map((table) => `NOT EXISTS (SELECT 1 FROM ${table} t WHERE t.place = p.place)`).join(' AND ')}
    ORDER BY place LIMIT ?`
}

type Prepared<Sql> = Readonly<Record<keyof Sql, StatementSync>>
export type FileStatements = Prepared<typeof fileSql>
export type ReaderStatements = Prepared<ReaderSql>
export type SharedStatements = Prepared<ReturnType<typeof sharedSql>>

function prepared<Sql extends object>(db: DatabaseSync, sql: Sql): Prepared<Sql> {
  const all = Object.entries(sql).map(([name, text]) => [name, db.prepare(String(text))] as const)
  return Object.fromEntries(all) as Prepared<Sql>
}

export const prepareFile = (db: DatabaseSync): FileStatements => prepared(db, fileSql)
export const prepareReader = (db: DatabaseSync, number: number): ReaderStatements => prepared(db, readerSql(number))
export const prepareShared = (db: DatabaseSync, numbers: readonly number[]): SharedStatements =>
  prepared(db, sharedSql(numbers))
