import { FleethookError } from '../../../src/base/errors.ts'
import type { UnopenedInbox } from '../../../src/observe/stats.ts'
import type { Database } from './client.ts'
import { mostBranches, receiver, Tables } from './tables.ts'
import { oldestVersion, schemaVersion } from './schema.ts'
import { serverMs } from './server-clock.ts'

/* The branches that read an inbox are rows of the table `branch`: every process that puts messages gives each of them its places. */

/** A reader of the inbox that the tables know. */
export interface KnownReader {
  /** `undefined`: the receiver. */
  readonly branch: string | undefined
  readonly tables: Tables
  /** New messages are for it, because it was not removed. */
  readonly isUsed: boolean
}

/** The readers that the tables know, the receiver first. */
export async function readersIn(db: Database): Promise<readonly KnownReader[]> {
  const rows = await db.run(`SELECT number, name, ${isUsed}::text AS used FROM ${db.schema}.branch b ORDER BY number`)
  return [
    { branch: undefined, tables: new Tables(db.schema, receiver), isUsed: true },
    ...rows.map(({ number, name, used }) => ({
      branch: String(name),
      tables: new Tables(db.schema, Number(number)),
      isUsed: used === 'true',
    })),
  ]
}

/** A condition: new messages are for the branch `b`, because it was not removed. */
export const isUsed = '(b.gone_at IS NULL OR b.gone_at <= b.used_at)'

/** How long a receiver without a sign of life counts as alive, in milliseconds. */
const silentMs = 15_000

/** What {@link addBranch} found. */
export interface AddedBranch {
  readonly number: number
  /** Since when no process had it, in milliseconds since the epoch, and new messages were not for it. `undefined`: it lacks none. */
  readonly lacksFromMs: number | undefined
}

/**
 * Gives a branch its places, once. `undefined`: not yet, because processes of the version before run beside this one. They would take messages without a
 * place for it, and delete messages that only it needs. Once there is a branch, none of them starts.
 */
export async function addBranch(db: Database, name: string): Promise<AddedBranch | undefined> {
  const { schema } = db
  const [row] = await db.run(
    `WITH free AS (SELECT min(n) AS number FROM generate_series(1, ${mostBranches}) n WHERE n NOT IN (SELECT number FROM ${schema}.branch)),
held AS (SELECT EXISTS (SELECT FROM ${schema}.process WHERE version IS NULL AND until > clock_timestamp())
  OR EXISTS (SELECT FROM ${schema}.receiver WHERE version IS NULL AND NOT closed AND seen_at > ${serverMs} - ${silentMs}) AS held),
older AS (UPDATE ${schema}.meta SET oldest = ${schemaVersion} WHERE oldest < ${schemaVersion} AND NOT (SELECT held FROM held)),
added AS (INSERT INTO ${schema}.branch AS b (number, name, used_at)
  SELECT coalesce((SELECT number FROM ${schema}.branch WHERE name = $1), free.number), $1, ${serverMs} FROM free, held
  WHERE NOT held AND (free.number IS NOT NULL OR EXISTS (SELECT FROM ${schema}.branch WHERE name = $1))
  ON CONFLICT (name) DO UPDATE SET used_at = excluded.used_at RETURNING number, gone_at)
SELECT (SELECT held FROM held)::text AS held, added.number, added.gone_at FROM (SELECT) one LEFT JOIN added ON true`,
    [name],
  )
  if (row?.['held'] === 'true') return undefined
  if (row?.['number'] == null) throw await tooMany(db, name)
  const goneAt = row['gone_at']
  return { number: Number(row['number']), lacksFromMs: goneAt === null ? undefined : Number(goneAt) }
}

async function tooMany(db: Database, name: string): Promise<FleethookError> {
  const readers = await readersIn(db)
  return new FleethookError(
    'inbox_unsupported',
    `The schema ${db.schema} has no room for the branch ${name}: ${readers.flatMap(({ branch }) => branch ?? []).join(', ')} read it.`,
    { hint: 'Delete a branch that you removed: fleethook branch drop <name> --database <url>.' },
  )
}

/** Gives the tables those branches that they lack, all or none. Rejects with a FleethookError when they cannot have them. */
export async function addMissing(db: Database, names: readonly string[]): Promise<void> {
  const readers = await readersIn(db)
  const missing = names.filter((name) => readers.every(({ branch }) => branch !== name))
  const [name] = missing.slice(mostBranches + 1 - readers.length)
  if (name !== undefined) throw await tooMany(db, name)
  for (const each of missing)
    if ((await addBranch(db, each)) === undefined)
      throw new FleethookError(
        'inbox_locked',
        `A process of the version before uses the tables in the schema ${db.schema}: it would give the branch ${each} no messages.`,
        { hint: 'Replace or stop the processes of that version first. A killed process counts for 15 seconds.' },
      )
}

/** An event says that it lacked messages. */
export async function noteReported(db: Database, name: string): Promise<void> {
  await db.run(`UPDATE ${db.schema}.branch SET gone_at = NULL WHERE name = $1 AND gone_at <= used_at`, [name])
}

/** This process has these branches. */
export async function noteUsed(db: Database, names: readonly string[]): Promise<void> {
  const { schema } = db
  if (names.length > 0)
    await db.run(
      `UPDATE ${schema}.branch SET used_at = ${serverMs} WHERE number IN
  (SELECT number FROM ${schema}.branch WHERE name = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)`,
      [names],
    )
}

/** Resolves to the branches that no process has any more: new messages are not for them from now on. */
export async function noteGone(db: Database, names: readonly string[], unusedMs: number): Promise<readonly string[]> {
  const rows = await db.run(
    `UPDATE ${db.schema}.branch b SET gone_at = ${serverMs}
WHERE ${isUsed} AND name <> ALL ($1::text[]) AND used_at < ${serverMs} - $2::bigint RETURNING name`,
    [names, unusedMs],
  )
  return rows.map(({ name }) => String(name))
}

/** What waits for branches that this process does not have. */
export async function leftBranches(db: Database, names: readonly string[]): Promise<readonly UnopenedInbox[]> {
  const left: UnopenedInbox[] = []
  for (const { branch, tables } of await readersIn(db)) {
    if (branch === undefined || names.includes(branch)) continue
    const counts = await countsOf(db, tables)
    if (counts.messages + counts.deadLetters > 0) left.push({ path: `the schema ${db.schema}`, branch, ...counts })
  }
  return left
}

/** What a branch has. */
export interface BranchCounts {
  readonly messages: number
  readonly deadLetters: number
}

async function countsOf(db: Database, { waiting, dead }: Tables): Promise<BranchCounts> {
  const [row] = await db.run(
    `SELECT (SELECT count(*) FROM ${waiting} w JOIN ${db.schema}.message m ON m.id = w.id WHERE m.kind = 'wire')::int AS messages,
  (SELECT count(*) FROM ${dead})::int AS dead`,
  )
  return { messages: Number(row?.['messages']), deadLetters: Number(row?.['dead']) }
}

/** Rejects with a FleethookError while a process uses the tables: it would go on with the branch that it knows. */
export async function checkStopped(db: Database): Promise<void> {
  const [row] = await db.run(
    `SELECT (EXISTS (SELECT FROM ${db.schema}.process WHERE until > clock_timestamp())
  OR EXISTS (SELECT FROM ${db.schema}.receiver WHERE NOT closed AND seen_at > ${serverMs} - ${silentMs}))::text AS used`,
  )
  if (row?.['used'] !== 'true') return
  throw new FleethookError('inbox_locked', `A process uses the tables in the schema ${db.schema}.`, {
    hint: 'Stop all receivers and handling processes of this schema first. A killed process counts for 15 seconds.',
  })
}

/** Deletes what a branch still has to do. Messages that no other reader needs are settled then. */
export async function dropBranch(db: Database, name: string): Promise<BranchCounts> {
  const { schema } = db
  const tables = await tablesOf(db, name)
  const counts = await countsOf(db, tables)
  // Nothing new is for it first.
  await db.run(`DELETE FROM ${schema}.branch WHERE name = $1`, [name])
  for (const table of [tables.waiting, tables.dead, tables.vehicle, tables.notice]) await db.run(`DELETE FROM ${table}`)
  await db.run(`DELETE FROM ${schema}.message WHERE branch = $1`, [tables.number])
  await db.run(
    `UPDATE ${schema}.receiver SET gaps = (SELECT coalesce(jsonb_agg(gap), '[]')::text FROM jsonb_array_elements(gaps::jsonb) gap
  WHERE gap ->> 'branch' IS DISTINCT FROM $1) WHERE closed AND strpos(gaps, '"branch"') > 0`,
    [name],
  )
  // Code of the version before may run again.
  await db.run(`UPDATE ${schema}.meta SET oldest = ${oldestVersion} WHERE NOT EXISTS (SELECT FROM ${schema}.branch)`)
  return counts
}

/** Gives what a branch has to its new name. */
export async function renameBranch(db: Database, from: string, to: string): Promise<BranchCounts> {
  const tables = await tablesOf(db, from)
  const isThere = (await readersIn(db)).some(({ branch }) => branch === to)
  if (isThere)
    throw new FleethookError('option_invalid', `The inbox has a branch \`${to}\` already.`, {
      hint: `Delete what waits for it first: fleethook branch drop ${to}.`,
    })
  await db.run(`UPDATE ${db.schema}.branch SET name = $2 WHERE name = $1`, [from, to])
  return countsOf(db, tables)
}

/** The branches that nobody has had since then. */
export async function branchesGoneBefore(db: Database, ms: number): Promise<readonly string[]> {
  const rows = await db.run(`SELECT name FROM ${db.schema}.branch b WHERE NOT ${isUsed} AND gone_at < $1`, [
    Math.floor(ms),
  ])
  return rows.map(({ name }) => String(name))
}

async function tablesOf(db: Database, name: string): Promise<Tables> {
  const readers = await readersIn(db)
  const found = readers.find(({ branch }) => branch === name)
  if (found !== undefined) return found.tables
  const names = readers.flatMap(({ branch }) => branch ?? [])
  throw new FleethookError(
    'option_invalid',
    `The inbox has no branch \`${name}\`: its branches are ${names.length === 0 ? 'none' : names.join(', ')}.`,
  )
}
