import { FleethookError } from '../../../src/base/errors.ts'
import type { Delivery } from '../../../src/observe/observer.ts'
import { type HasMark, type OnceHandlers, onceHandlers } from '../../../src/once/handlers.ts'
import { type Database, stateOf } from './client.ts'
import type { Place } from './endings.ts'
import type { Tables } from './tables.ts'

/** Makes handlers whose writes happen exactly once: the result of `inbox.exactlyOnce`. */
export type ExactlyOnce<Transaction> = OnceHandlers<Transaction>

/** Calls `work` in a transaction, commits when it resolves, and rolls back and rejects when it rejects or the commit fails. */
export type RunTransaction<Transaction> = (work: (transaction: Transaction) => Promise<void>) => Promise<unknown>

/** Runs a statement in a transaction. Resolves to its rows. */
export type RunStatement<Transaction> = (transaction: Transaction, sql: string) => Promise<readonly unknown[]>

/** The inbox of the receiver, once it is attached. */
export interface Marks {
  readonly db: Database
  /** Names this process in the table `process`, by a random id: only the database of the inbox has that row. */
  readonly me: string
  /** What the receiver, or a branch, has in hand here. */
  handOf(branch: string | undefined): Hand | undefined
}

/** The messages of one reader that are handed out here. */
export interface Hand {
  readonly tables: Tables
  placeOf(id: string): Place | undefined
}

export function exactlyOnceIn<Transaction>(
  marks: () => Marks,
  names: Set<string>,
  transaction: RunTransaction<Transaction>,
  run: RunStatement<Transaction>,
): ExactlyOnce<Transaction> {
  /**
   * Handles the deliveries that have no mark yet. `handle` gets their numbers. It resolves only when the database of the inbox has no row without
   * the mark: what another database answers, or a commit, says nothing about that.
   */
  async function once(
    mark: string,
    deliveries: readonly Delivery[],
    handle: (transaction: Transaction, which: readonly number[]) => unknown,
  ): Promise<void> {
    const inbox = marks()
    const { db } = inbox
    const [name, branch] = partsOf(mark)
    const { tables, placeOf } = inbox.handOf(branch) ?? handedOver()
    const places = deliveries.map(({ id }) => placeOf(id) ?? handedOver())
    let isHandled = false
    let marked: ReadonlySet<string> = new Set()
    try {
      await transaction(async (tx) => {
        isHandled = false
        const rows = await run(tx, markSql(inbox, tables, name, places)).catch((error: unknown) => {
          throw isMissing(error) ? elsewhere(name, error) : error
        })
        marked = new Set(rows.map(seqIn))
        if (marked.size > 0)
          await handle(
            tx,
            places.flatMap(({ seq }, at) => (marked.has(seq) ? [at] : [])),
          )
        isHandled = true
      })
    } catch (error) {
      // The answer to the commit can be lost. Its marks tell whether it happened.
      if (!isHandled || marked.size === 0 || !(await areThere(db, tables, name, places).catch(() => false))) throw error
      return
    }
    if (await areThere(db, tables, name, places)) return
    if (marked.size === 0) throw elsewhere(name)
    // A commit of a transaction in which a statement failed is a rollback, and no error.
    // What to do: A statement failed, and the handler went on. Let the error pass.
    throw new FleethookError('inbox_unavailable', `The transaction of the handler ${name} was not committed.`, {
      hint: 'A statement in it failed, and the handler went on. Let the error pass, or use a savepoint.',
    })
  }

  const has: HasMark = async (mark, { id }) => {
    const inbox = marks()
    const [name, branch] = partsOf(mark)
    const hand = inbox.handOf(branch)
    const place = hand?.placeOf(id)
    return hand !== undefined && place !== undefined && areThere(inbox.db, hand.tables, name, [place])
  }

  return onceHandlers('exactlyOnce', names, once, has)
}

/** On a branch, the mark is in a row of that branch: its new name finds it, too. */
function partsOf(mark: string): readonly [name: string, branch: string | undefined] {
  const [name = mark, branch] = mark.split('@')
  return [name, branch]
}

/** A database without the tables cannot hold the inbox. */
const isMissing = (error: unknown): boolean => ['42P01', '3F000', '42703'].includes(stateOf(error))

const elsewhere = (name: string, cause?: unknown): FleethookError =>
  new FleethookError(
    'option_invalid',
    // What to do: Give `exactlyOnce` and `postgresInbox` the same address; do not run `schema --apply` there. Replay dead letters.
    `The transaction of the handler ${name} is not in the database of the inbox, so the message was not handled.`,
    {
      cause,
      hint: 'Give exactlyOnce a pool of the same database as postgresInbox. Do not create the tables of the inbox in the other one.',
    },
  )

/**
 * Without parameters, so that every library takes it: the values are numbers, and a name and an id without quotes. A row without this mark is locked
 * until the transaction ends. A copy of the database can have the same rows, and other databases the same numbers, but none of them knows this
 * process. It runs with the search_path of the handlers, where others may create, so each name has its schema.
 * Postgres itself gives `unnest` of two arrays its schema.
 */
function markSql({ db, me }: Marks, tables: Tables, name: string, places: readonly Place[]): string {
  const [parts, seqs] = columnsOf(places)
  const mark = `'${name}'::pg_catalog.text`
  return `UPDATE ${tables.waiting} w SET done = w.done OPERATOR(pg_catalog.||) ${mark}
FROM unnest(ARRAY[${parts.join(',')}]::smallint[], ARRAY[${seqs.join(',')}]::bigint[]) g(part, seq)
WHERE w.part OPERATOR(pg_catalog.=) g.part AND w.seq OPERATOR(pg_catalog.=) g.seq AND NOT (w.done OPERATOR(pg_catalog.@>) ARRAY[${mark}])
  AND EXISTS (SELECT FROM ${db.schema}.process p WHERE p.id OPERATOR(pg_catalog.=) '${me}'::pg_catalog.uuid)
RETURNING w.seq::pg_catalog.text AS seq`
}

/** A list behind IN is slow to plan. */
const rowsSql = 'unnest($1::smallint[], $2::bigint[]) g(part, seq)'

/** In one order, so that two transactions do not wait for each other. */
function columnsOf(places: readonly Place[]): readonly [parts: readonly number[], seqs: readonly string[]] {
  const sorted = places.toSorted((one, other) => Number(BigInt(one.seq) - BigInt(other.seq)))
  return [sorted.map(({ part }) => part), sorted.map(({ seq }) => seq)]
}

/** Whether no row is there without its mark. A row that is gone was settled, by a process that found the mark. */
async function areThere(db: Database, { waiting }: Tables, name: string, places: readonly Place[]): Promise<boolean> {
  const rows = await db.run(
    `SELECT w.seq FROM ${rowsSql} JOIN ${waiting} w ON w.part = g.part AND w.seq = g.seq
WHERE NOT w.done @> ARRAY[$3::text] LIMIT 1`,
    [...columnsOf(places), name],
  )
  return rows.length === 0
}

const seqIn = (row: unknown): string => String(Reflect.get(Object(row), 'seq'))

function handedOver(): never {
  throw new FleethookError('handed_over', 'Another process has the message, or it came by another inbox.', {
    hint: 'Give createReceiver the postgresInbox whose exactlyOnce made the handler.',
  })
}

/** Runs a statement in the transactions of Prisma, postgres.js, Kysely, Drizzle, PGlite and pg, which differ in the name of the method. */
export async function runIn(transaction: unknown, sql: string): Promise<readonly unknown[]> {
  const kysely = {
    sql,
    parameters: [],
    query: { kind: 'RawNode', sqlFragments: [sql], parameters: [] },
    queryId: { queryId: 'fleethook' },
  }
  const ways = { $queryRawUnsafe: sql, unsafe: sql, executeQuery: kysely, execute: sql, query: sql }
  for (const [name, statement] of Object.entries(ways)) {
    const method: unknown = Reflect.get(Object(transaction), name)
    if (typeof method !== 'function') continue
    const result: unknown = await Reflect.apply(method, transaction, [statement])
    const rows: unknown = Array.isArray(result) ? result : Reflect.get(Object(result), 'rows')
    if (Array.isArray(rows)) return rows
    break
  }
  throw new FleethookError('option_invalid', 'exactlyOnce does not know how to run a statement in this transaction.', {
    hint: 'Say how: inbox.exactlyOnce(transaction, { run: async (tx, sql) => (await tx.query(sql)).rows }).',
  })
}
