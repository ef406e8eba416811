import { createHash } from 'node:crypto'
import { uptime } from 'node:os'
import { resolve } from 'node:path'
import { FleethookError } from '../../src/base/errors.ts'
import { seqOf } from '../../src/inbox/delivery-id.ts'
import { movedState } from '../../src/vehicles/state.ts'
import type { DeadLetter, InboxMessage } from '../../src/inbox/inbox.ts'
import { type Database, databaseError } from '../inbox/postgres/client.ts'
import { checkServer, partitionOf, storable } from '../inbox/postgres/schema.ts'
import { type EndState, stateValues } from '../inbox/postgres/vehicles.ts'
import { messageValues } from '../inbox/postgres/writer.ts'
import { isMissing, loadSqlite } from '../inbox/sqlite/file/database.ts'
import { SqliteFile } from '../inbox/sqlite/file/file.ts'
import type { InboxFile, OpenedFile, SignOfLife, Transaction } from '../inbox/sqlite/file/interface.ts'
import { readSqliteOptions } from '../inbox/sqlite/options.ts'

/** What is in Postgres now, and what is still in the file. */
export interface Moved {
  readonly messages: number
  readonly deadLetters: number
  readonly gaps: number
  /** The vehicles whose states moved, with what their edges remember and wait for. */
  readonly vehicles: number
  /** What waits in the file for branches, and stays there. */
  readonly left: readonly { readonly branch: string; readonly messages: number; readonly deadLetters: number }[]
}

interface Waiting {
  readonly message: InboxMessage
  readonly attempts: number
  readonly notBefore: number
  readonly deliveries: number
  readonly replayed: boolean
  readonly replay: string | undefined
  readonly changed: string | undefined
}

/** The most that one transaction moves, unless a single message has more. */
const mostMessages = 500
const mostBytes = 1_048_576

/**
 * Moves what the inbox file of a stopped receiver holds. Each part is in Postgres before it leaves the file, with its ids, so running it again
 * after a crash moves the rest and doubles nothing.
 */
export async function moveFile(path: string, db: Database): Promise<Moved> {
  if (isMissing(path)) throw new FleethookError('inbox_unavailable', `There is no inbox at ${path}.`)
  loadSqlite()
  await checkServer(db, true)
  const file = new SqliteFile(readSqliteOptions({ path, waitMs: 0 }))
  const sign = (gaps?: SignOfLife['gaps']): SignOfLife => ({
    nowMs: Date.now(),
    uptimeMs: Math.floor(uptime() * 1_000),
    gaps,
  })
  const opened = await file.open({ ...sign(), keepsVehicles: true })
  const { gaps } = opened
  const name = idOf(`${resolve(path)} ${opened.lastId ?? ''}`)
  try {
    // Before the messages that follow.
    const vehicles = await moveStates(file, db, opened)
    const messages = await moveWaiting(file, db, name, opened.unclean)
    const deadLetters = await moveDead(file, db)
    // As the last sign of a receiver that stopped now: the next one reports the gaps, and the time until then.
    await db.run(
      `WITH over AS (DELETE FROM ${db.schema}.moved WHERE file = $3)
INSERT INTO ${db.schema}.receiver VALUES ($1, floor(extract(epoch FROM clock_timestamp()) * 1000), true, $2)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, closed = true, gaps = excluded.gaps`,
      [idOf(resolve(path)), JSON.stringify(gaps), name],
    )
    await file.close(sign([]))
    const left = opened.left.flatMap((each) =>
      each.messages + each.deadLetters > 0
        ? [{ branch: each.reader, messages: each.messages, deadLetters: each.deadLetters }]
        : [],
    )
    return { messages, deadLetters, gaps: gaps.length, vehicles, left }
  } catch (error) {
    await file.close(sign())
    throw databaseError(error)
  }
}

/** The same each time, so running it again replaces the gaps of the file. */
const idOf = (name: string): string => createHash('sha256').update(name).digest('hex').slice(0, 32)

/** In Postgres, messages have other numbers, so a value keeps only whether it is certain. */
async function moveStates(file: InboxFile, db: Database, { vehicles }: OpenedFile): Promise<number> {
  const all = await file.vehicle('')
  const { gaps = [] }: { gaps?: readonly { to: number }[] } = JSON.parse(all?.text ?? '{}')
  // After a crash, or a time without the part `vehicles`, messages are not in the states.
  const isBehind =
    vehicles?.staleFromMs !== undefined || (await file.unapplied(vehicles?.seq ?? Infinity)).items.length > 0
  const gapTo = isBehind ? Infinity : Math.max(-1, ...gaps.map(({ to }) => to))
  let count = 0
  for (;;) {
    const rows = await file.vehicles('', mostMessages)
    if (rows.length === 0) return count
    const states = rows.map((row): EndState => ['0', { ...movedState(row, gapTo), bytes: 0 }])
    await db.run(
      `INSERT INTO ${db.schema}.vehicle (vin, part, seq, seen_at, due, text, rules)
  SELECT vin, part, seq, seen_at, due, text, rules FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[],
  $6::text[], $7::bigint[], $8::text[]) n(vin, part, seq, seen_at, due, text, ended_by, rules) ON CONFLICT DO NOTHING`,
      stateValues(states),
    )
    await file.commit({ ...nothing(), vehicles: { rows: [], forgotten: rows.map(({ vin }) => vin) } })
    count += rows.length
  }
}

/** How far messages of the file have moved: earlier messages may be handled and deleted already. */
async function movedTo(db: Database, name: string): Promise<number> {
  const [row] = await db.run(`SELECT seq FROM ${db.schema}.moved WHERE file = $1`, [name])
  return Number(row?.['seq'] ?? -1)
}

/** Resolves to the number of messages. Timers are in the states. */
async function moveWaiting(file: InboxFile, db: Database, name: string, unclean: boolean): Promise<number> {
  const before = await movedTo(db, name)
  let messages = 0
  let over: number[] = []
  let part: Waiting[] = []
  let bytes = 0
  async function flush(): Promise<void> {
    const ids = part.map(({ message }) => message.id)
    const last = ids.at(-1)
    if (last !== undefined)
      await db.run(
        `${addedSql(db.schema)},
mark AS (INSERT INTO ${db.schema}.moved VALUES ($14, $15) ON CONFLICT (file) DO UPDATE SET seq = excluded.seq)
INSERT INTO ${db.schema}.waiting (part, id, attempts, not_before, deliveries, replayed, changed, replay)
  SELECT n.part, n.id, n.attempts, n.not_before, n.deliveries, n.replayed, n.changed, n.replay
  FROM unnest($8::smallint[], $1::uuid[], $9::int[], $10::bigint[], $11::int[], $12::boolean[], $13::text[], $16::text[])
    WITH ORDINALITY n(part, id, attempts, not_before, deliveries, replayed, changed, replay, place)
  JOIN added ON added.id = n.id ORDER BY n.place`,
        [
          ...messageValues(part.map(({ message }) => message)),
          ...[part.map(({ message }) => partitionOf(storable(message.lane))), part.map(({ attempts }) => attempts)],
          ...[part.map(({ notBefore }) => notBefore), part.map(({ deliveries }) => deliveries)],
          ...[part.map(({ replayed }) => replayed), part.map(({ changed }) => changed ?? null), name, seqOf(last)],
          part.map(({ replay }) => replay ?? null),
        ],
      )
    await file.commit({ ...nothing(), settled: [...over, ...ids.map(seqOf)] })
    messages += part.length
    over = []
    part = []
    bytes = 0
  }
  for (let after: number | undefined = 0; after !== undefined;) {
    const page: Awaited<ReturnType<InboxFile['waiting']>> = await file.waiting(after)
    for (const { id, kind, attempts = 0, notBefore = 0 } of page.items) {
      if (kind === 'timer' || seqOf(id) <= before) {
        over.push(seqOf(id))
        continue
      }
      const claim = await file.find(seqOf(id))
      if (claim === undefined) continue
      const { message, replayed, replay, changed } = claim
      // A process that crashed may have handed it out.
      const deliveries = Math.max(claim.deliveries, unclean ? 1 : 0)
      part.push({ message, attempts, notBefore, deliveries, replayed, replay, changed })
      bytes += message.bytes
      if (part.length + over.length >= mostMessages || bytes >= mostBytes) await flush()
    }
    after = page.next
  }
  await flush()
  return messages
}

async function moveDead(file: InboxFile, db: Database): Promise<number> {
  let count = 0
  for (let after: number | undefined = 0; after !== undefined;) {
    const page: Awaited<ReturnType<InboxFile['deadLetters']>> = await file.deadLetters({ limit: mostMessages }, after)
    for (const letter of page.items) {
      await moveLetter(db, letter)
      await file.commit({ ...nothing(), moves: [{ to: 'deleted', seq: seqOf(letter.id) }] })
      count += 1
    }
    after = page.next
  }
  return count
}

async function moveLetter(db: Database, letter: DeadLetter): Promise<void> {
  const { message, error, attempts, diedAt, changed, replay } = letter
  await db.run(
    `${addedSql(db.schema)} INSERT INTO ${db.schema}.dead (id, error, attempts, died_at, changed, replay)
  SELECT id, $8, $9, $10, $11, $12 FROM added`,
    [...messageValues([message]), storable(error), attempts, diedAt, changed ?? null, replay ?? null],
  )
}

/** Inserts those messages that are not there yet. */
const addedSql = (schema: string): string =>
  `WITH added AS (INSERT INTO ${schema}.message (id, lane, received_at, door, kind, bytes, text)
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[], $7::text[])
  ON CONFLICT (id) DO NOTHING RETURNING id)`

const nothing = (): Transaction => ({
  retracted: [],
  puts: [],
  updates: [],
  settled: [],
  moves: [],
  nowMs: Date.now(),
  pendingBytes: 0,
})
