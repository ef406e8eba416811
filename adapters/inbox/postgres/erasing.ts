import { pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Erased } from '../../../src/inbox/inbox.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import { type KnownReader, readersIn } from './branches.ts'
import type { Database, Row } from './client.ts'
import { storable } from './schema.ts'

/** The messages of one part of an erasure, and how long a statement of it may take, in milliseconds. */
const erasedRows = 20_000
const eraseMs = 60_000
const mostErasures = 40

/**
 * Erases a vehicle for all readers. There is no index by vehicle, so it reads all messages, in parts. What the transaction of a handler has locked waits
 * for that transaction to end, a message at a time, without a lock in hand.
 */
export async function eraseVehicle(db: Database, vin: string, dryRun: boolean): Promise<Erased> {
  const readers = await readersIn(db)
  const lane = storable(laneOf(vin))
  const erased = { messages: 0, waiting: 0, deadLetters: 0 }
  const waited = readers.map(() => 0)
  for (let after: string | undefined = '00000000-0000-0000-0000-000000000000'; after !== undefined;) {
    const [page]: readonly Row[] = await db.run(
      `SELECT max(m.id::text) AS last, count(*)::int AS rows,
  array_agg(m.id::text) FILTER (WHERE m.lane = $2 OR (m.lane LIKE '*%' AND m.lane NOT LIKE '**%' AND strpos(lower(m.text), lower($3)) > 0)) AS ids
FROM (SELECT id, lane, text FROM ${db.schema}.message WHERE id > $1::uuid ORDER BY id LIMIT ${erasedRows}) m`,
      [after, lane, storable(vin)],
      eraseMs,
    )
    const ids: unknown = page?.['ids']
    const found = Array.isArray(ids) ? ids.map(String) : []
    const counts = await countsOf(db, readers, found)
    erased.messages += found.length
    erased.waiting += Number(counts?.['waiting'])
    erased.deadLetters += Number(counts?.['dead'])
    for (const at of readers.keys()) waited[at] = (waited[at] ?? 0) + Number(counts?.[`waiting_${at}`])
    if (!dryRun && found.length > 0) await eraseMessages(db, readers, found)
    after = Number(page?.['rows']) < erasedRows ? undefined : String(page?.['last'])
  }
  if (!dryRun) await eraseRest(db, readers, vin)
  if (readers.length === 1) return erased
  const waitingOf = readers.flatMap(({ branch }, at) =>
    branch === undefined ? [] : [[branch, waited[at] ?? 0] as const],
  )
  return { ...erased, waitingHere: waited[0] ?? 0, waitingOf: Object.fromEntries(waitingOf) }
}

/** A message counts once, however many readers it is for. */
async function countsOf(
  db: Database,
  readers: readonly KnownReader[],
  ids: readonly string[],
): Promise<Row | undefined> {
  const found = (table: 'waiting' | 'dead'): string =>
    readers
      .map(({ tables }, at) => `SELECT ${at} AS reader, id FROM ${tables[table]} WHERE id = ANY ($1::uuid[])`)
      .join(' UNION ALL ')
  const [row] = await db.run(
    `SELECT count(DISTINCT w.id)::int AS waiting, ${readers.map((_, at) => `count(*) FILTER (WHERE w.reader = ${at})::int AS waiting_${at}`).join(', ')},
  (SELECT count(DISTINCT d.id) FROM (${found('dead')}) d)::int AS dead
FROM (${found('waiting')}) w JOIN ${db.schema}.message m ON m.id = w.id WHERE m.kind = 'wire'`,
    [ids],
    eraseMs,
  )
  return row
}

async function eraseMessages(db: Database, readers: readonly KnownReader[], ids: readonly string[]): Promise<void> {
  const { schema, clock } = db
  const isUnneeded = readers
    .map(({ tables }) => `NOT EXISTS (SELECT FROM ${tables.waiting} w WHERE w.id = m.id)`)
    .join(' AND ')
  for (let tries = 0; tries < mostErasures; tries += 1) {
    for (const { tables } of readers) {
      await db.run(
        `DELETE FROM ${tables.waiting} WHERE (part, seq) IN
  (SELECT part, seq FROM ${tables.waiting} WHERE id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED)`,
        [ids],
        eraseMs,
      )
      await db.run(`DELETE FROM ${tables.dead} WHERE id = ANY ($1::uuid[])`, [ids], eraseMs)
    }
    const gone = await db.run(
      `DELETE FROM ${schema}.message m WHERE id = ANY ($1::uuid[]) AND ${isUnneeded} RETURNING id`,
      [ids],
      eraseMs,
    )
    if (gone.length === ids.length) return
    const left = await db.run(`SELECT id FROM ${schema}.message WHERE id = ANY ($1::uuid[]) LIMIT 1`, [ids], eraseMs)
    if (left.length === 0) return
    await pause(clock, 250)
  }
  throw new FleethookError(
    'inbox_unavailable',
    'A handler is working on messages of this vehicle, so they are not erased yet.',
    { hint: 'Try again when it has ended.' },
  )
}

/** Its states, notices, and the gaps that receivers have not reported. */
async function eraseRest(db: Database, readers: readonly KnownReader[], vin: string): Promise<void> {
  const { schema } = db
  for (const { tables } of readers) await db.run(`DELETE FROM ${tables.vehicle} WHERE vin = $1`, [storable(vin)])
  for (const { id, gaps } of await db.run(`SELECT id, gaps FROM ${schema}.receiver WHERE strpos(gaps, $1) > 0`, [
    storable(vin),
  ])) {
    const found: unknown = JSON.parse(String(gaps))
    const others = Array.isArray(found) ? found.filter((gap) => Reflect.get(Object(gap), 'vin') !== vin) : []
    await db.run(`UPDATE ${schema}.receiver SET gaps = $2 WHERE id = $1::uuid AND gaps = $3`, [
      ...[id, JSON.stringify(others), gaps],
    ])
  }
}
