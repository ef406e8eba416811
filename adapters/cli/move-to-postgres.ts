import { createHash } from 'node:crypto'
import { uptime } from 'node:os'
import { resolve } from 'node:path'
import { FleethookError } from '../../src/base/errors.ts'
import { movedState } from '../../src/vehicles/state.ts'
import { addMissing, readersIn } from '../inbox/postgres/branches.ts'
import { type Database, databaseError } from '../inbox/postgres/client.ts'
import { checkServer } from '../inbox/postgres/schema.ts'
import type { Tables } from '../inbox/postgres/tables.ts'
import { type EndState, stateValues } from '../inbox/postgres/vehicles.ts'
import { branchesIn, forgetDropped } from '../inbox/sqlite/file/changing.ts'
import { isMissing, loadSqlite } from '../inbox/sqlite/file/database.ts'
import { SqliteFile } from '../inbox/sqlite/file/file.ts'
import type { InboxFile, OpenedFile, OpenedReader, SignOfLife } from '../inbox/sqlite/file/interface.ts'
import { receiver } from '../inbox/sqlite/file/readers.ts'
import { readSqliteOptions } from '../inbox/sqlite/options.ts'
import { type MovedPlaces, movePlaces, type MovedReader, mostMessages, nothing } from './move-places.ts'

/** What a reader of the file has in Postgres now. */
interface MovedOfReader extends Readonly<MovedPlaces> {
  /** The vehicles whose states moved, with what their edges remember and wait for. */
  readonly vehicles: number
}

/** What is in Postgres now: of the receiver, and of each branch for which the file had something. */
export interface Moved extends MovedOfReader {
  readonly gaps: number
  readonly branches: readonly (MovedOfReader & { readonly branch: string })[]
}

/** A reader that the file has open. */
interface Reader extends MovedReader {
  readonly opened: Omit<OpenedReader, 'reader'>
}

/**
 * Moves what the inbox file of a stopped receiver holds. Each part is in Postgres before it leaves the file, with its ids, so running it again
 * after a crash moves the rest and doubles nothing.
 */
export async function moveFile(path: string, db: Database): Promise<Moved> {
  if (isMissing(path)) throw new FleethookError('inbox_unavailable', `There is no inbox at ${path}.`)
  loadSqlite()
  await checkServer(db, true)
  const names = branchesIn(path)
  const file = new SqliteFile(readSqliteOptions({ path, waitMs: 0 }))
  const sign = (gaps?: SignOfLife['gaps']): SignOfLife => ({
    nowMs: Date.now(),
    uptimeMs: Math.floor(uptime() * 1_000),
    gaps,
    readers: names.map((reader) => ({ reader, gaps, keepsVehicles: true })),
  })
  const opened = await file.open({ ...sign(), keepsVehicles: true })
  const name = idOf(`${resolve(path)} ${opened.lastId ?? ''}`)
  try {
    const { readers, others } = await tablesFor(file, db, opened)
    const moved = new Map<string, MovedOfReader>()
    // Before the messages that follow.
    const vehicles = new Map<string, number>()
    for (const reader of readers) vehicles.set(reader.name, await moveStates(file, db, reader))
    const places = await movePlaces({ file, db, readers, others, name, isUnclean: opened.unclean })
    for (const [reader, { messages, deadLetters }] of places)
      moved.set(reader, { messages, deadLetters, vehicles: vehicles.get(reader) ?? 0 })
    const gaps = [
      ...opened.gaps,
      ...opened.readers.flatMap(({ reader: branch, gaps: own }) => own.map((gap) => Object.assign({ branch }, gap))),
    ]
    await leaveGaps(db, idOf(resolve(path)), gaps, name)
    await file.close(sign([]))
    forgetDropped(path)
    const { [receiver]: own = { messages: 0, deadLetters: 0, vehicles: 0 }, ...branches } = Object.fromEntries(moved)
    const ofBranches = Object.entries(branches).map(([branch, each]) => Object.assign({ branch }, each))
    return { ...own, gaps: gaps.length, branches: ofBranches }
  } catch (error) {
    await file.close(sign())
    throw databaseError(error)
  }
}

/** The same each time, so running it again replaces the gaps of the file. */
const idOf = (name: string): string => createHash('sha256').update(name).digest('hex').slice(0, 32)

/** As the last sign of a receiver that stopped now: the next one reports the gaps, and the time until then. */
async function leaveGaps(db: Database, id: string, gaps: readonly object[], name: string): Promise<void> {
  await db.run(
    `WITH over AS (DELETE FROM ${db.schema}.moved WHERE file = $3)
INSERT INTO ${db.schema}.receiver VALUES ($1, floor(extract(epoch FROM clock_timestamp()) * 1000), true, $2)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, closed = true, gaps = excluded.gaps`,
    [id, JSON.stringify(gaps), name],
  )
}

/** The tables of the readers that have something in the file. A branch that the tables lack begins with that. */
async function tablesFor(
  file: InboxFile,
  db: Database,
  opened: OpenedFile,
): Promise<{ readonly readers: readonly Reader[]; readonly others: readonly Tables[] }> {
  const branches: OpenedReader[] = []
  for (const branch of opened.readers) {
    const { reader, messages, deadLetters, gaps } = branch
    if (messages + deadLetters + gaps.length + (await file.countVehicles(reader)) > 0) branches.push(branch)
  }
  await addMissing(
    db,
    branches.map(({ reader }) => reader),
  )
  const known = await readersIn(db)
  const readers = [{ ...opened, reader: receiver }, ...branches].flatMap((each): Reader[] => {
    const found = known.find(({ branch = receiver }) => branch === each.reader)
    return found === undefined ? [] : [{ name: each.reader, tables: found.tables, opened: each }]
  })
  const others = known.filter(
    ({ branch, isUsed }) => branch !== undefined && isUsed && opened.readers.every(({ reader }) => reader !== branch),
  )
  return { readers, others: others.map(({ tables }) => tables) }
}

/** In Postgres, messages have other numbers, so a value keeps only whether it is certain. */
async function moveStates(file: InboxFile, db: Database, { name, tables, opened }: Reader): Promise<number> {
  const { vehicles } = opened
  const all = await file.vehicle('', name)
  const { gaps = [] }: { gaps?: readonly { to: number }[] } = JSON.parse(all?.text ?? '{}')
  // After a crash, or a time without the part `vehicles`, messages are not in the states.
  const isBehind =
    vehicles?.staleFromMs !== undefined || (await file.unapplied(vehicles?.seq ?? Infinity, name)).items.length > 0
  const gapTo = isBehind ? Infinity : Math.max(-1, ...gaps.map(({ to }) => to))
  let count = 0
  for (;;) {
    const rows = await file.vehicles('', mostMessages, name)
    if (rows.length === 0) return count
    const states = rows.map((row): EndState => ['0', { ...movedState(row, gapTo), bytes: 0 }])
    await db.run(
      `INSERT INTO ${tables.vehicle} (vin, part, seq, seen_at, due, text, rules)
  SELECT vin, part, seq, seen_at, due, text, rules FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[],
  $6::text[], $7::bigint[], $8::text[]) n(vin, part, seq, seen_at, due, text, ended_by, rules) ON CONFLICT DO NOTHING`,
      stateValues(states),
    )
    const gone = { rows: [], forgotten: rows.map(({ vin }) => vin) }
    await file.commit(
      name === receiver
        ? { ...nothing(), vehicles: gone }
        : { ...nothing(), readers: [{ reader: name, updates: [], settled: [], moves: [], vehicles: gone }] },
    )
    count += rows.length
  }
}
