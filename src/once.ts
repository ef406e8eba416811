/**
 * Writes that happen exactly once, in a database of your own, with any inbox.
 *
 * @module
 */
import { systemClock } from './base/clock.ts'
import {
  checkOptions,
  aFunction,
  isObject,
  oneOf,
  required,
  type Rules,
  wholeNumber,
  withMethods,
} from './base/options.ts'
import { BelievedTime } from './base/believed-time.ts'
import type { Delivery } from './observe/observer.ts'
import { type HasMark, type OnceHandlers, onceHandlers } from './once/handlers.ts'
import { type ConnectionOf, type PoolConnection, type TransactionPool, transactionsOn } from './once/pool.ts'

export type { OnceHandler } from './once/handlers.ts'
export type { ConnectionOf, PoolConnection, TransactionPool } from './once/pool.ts'

/** What {@link createOnce} takes for a Postgres with `pg`. */
export interface OncePoolOptions<Pool extends TransactionPool> {
  /**
   * A `pg.Pool` of its own: each handler gets a connection in a transaction. The transaction ends when it does nothing or waits for a lock for 20
   * seconds, or when one statement takes 60, unless the pool or the role sets these limits. Errors of connections that are cut end no process.
   */
  readonly pool: Pool
  /** See {@link OnceOptions}. */
  readonly keepForMs?: number
}

/** What {@link createOnce} takes for other databases and clients. */
export interface OnceOptions<Transaction> {
  readonly database: 'postgres' | 'mysql' | 'sqlite'
  /** Calls `work` in a transaction, commits when it resolves, and rolls back and rejects when it rejects or the commit fails. */
  readonly transaction: (work: (transaction: Transaction) => Promise<void>) => Promise<void>
  /** Runs a statement in that transaction. Resolves to the number of rows that it inserted, matched or deleted. */
  readonly run: (transaction: Transaction, sql: string, values: (string | number)[]) => Promise<number>
  /**
   * How long a mark is kept, in milliseconds. Default 60 days. Longer than all processes may be down, and than dead letters are kept: their replay
   * finds the marks of the handlers that had succeeded.
   */
  readonly keepForMs?: number
}

/** Makes handlers whose writes happen once: the result of {@link createOnce}. */
export interface Once<Transaction> extends OnceHandlers<Transaction> {
  /** The statements that create the table `fleethook_once`, if it is not there. */
  readonly schema: readonly string[]
}

const rules: Rules<OnceOptions<never>> = {
  database: required(oneOf('postgres', 'mysql', 'sqlite'), "For instance database: 'postgres'."),
  transaction: required(aFunction, 'Give (work) => db.transaction(work), or what your client has.'),
  run: required(aFunction, 'Give a function that runs a statement and returns the number of rows that it changed.'),
  keepForMs: wholeNumber(3_600_000),
}

const poolRules: Rules<OncePoolOptions<never>> = {
  pool: required({ ...withMethods('connect', 'query', 'on'), isSecret: true }, 'Give a pg.Pool.'),
  keepForMs: rules.keepForMs,
}

const defaultKeepForMs = 60 * 86_400_000

/** After this number of new marks, old ones are deleted. */
const tidyEvery = 1_000

/**
 * Writes a mark, the id of the message and the name of the handler, in the transaction of your handler. An inbox hands a message out at least
 * once; with its mark there, the second time does nothing. So the handler's writes in that database happen exactly once, through any crash.
 * What a handler does elsewhere, such as a mail, can still happen twice.
 *
 * A replay of handled messages is a new run, and writes once more. A replay of a dead letter goes on with the run that failed: handlers that had
 * succeeded do not run again.
 *
 * A handler that swallows an error of the database, after which the transaction would be rolled back in silence, fails and is tried again.
 *
 * Throws `option_invalid` for a wrong option, and `handler_invalid` for a name that is used twice.
 *
 * @example
 * ```ts
 * import { DatabaseSync } from 'node:sqlite'
 * import { createReceiver } from 'fleethook'
 * import { createOnce } from 'fleethook/once'
 *
 * const db = new DatabaseSync(':memory:')
 * let last: Promise<unknown> = Promise.resolve()
 * const once = createOnce<DatabaseSync>({
 *   database: 'sqlite',
 *   run: async (tx, sql, values) => Number(tx.prepare(sql).run(...values).changes),
 *   // There is one connection, so one transaction follows another.
 *   transaction(work) {
 *     const done = last.then(async () => {
 *       db.exec('BEGIN IMMEDIATE')
 *       try {
 *         await work(db)
 *         db.exec('COMMIT')
 *       } finally {
 *         if (db.isTransaction) db.exec('ROLLBACK')
 *       }
 *     })
 *     last = done.catch(() => {})
 *     return done
 *   },
 * })
 * for (const sql of once.schema) db.exec(sql)
 * db.exec('CREATE TABLE readings (vin TEXT, percent REAL)')
 *
 * createReceiver({ secret: 'a-long-random-value' }).on(
 *   'data',
 *   { fields: ['BatteryLevel'] },
 *   once('readings', async ({ vin, data }, _context, tx) => {
 *     if (data.BatteryLevel === null) return // no value now
 *     tx.prepare('INSERT INTO readings VALUES (?, ?)').run(vin, data.BatteryLevel ?? null)
 *   }),
 * )
 * ```
 */
export function createOnce<Pool extends TransactionPool>(options: OncePoolOptions<Pool>): Once<ConnectionOf<Pool>>
export function createOnce<Transaction>(options: OnceOptions<Transaction>): Once<Transaction>
export function createOnce<Transaction>(
  options: OnceOptions<Transaction> | OncePoolOptions<TransactionPool>,
): Once<Transaction> | Once<PoolConnection> {
  return isForPool(options) ? onceIn(inPool(options)) : onceIn(checked(options))
}

const isForPool = (options: object): options is OncePoolOptions<TransactionPool> =>
  isObject(options) && 'pool' in options

function checked<Transaction>(options: OnceOptions<Transaction>): OnceOptions<Transaction> {
  checkOptions('createOnce', options, rules)
  return options
}

function inPool(options: OncePoolOptions<TransactionPool>): OnceOptions<PoolConnection> {
  checkOptions('createOnce', options, poolRules)
  const { pool, keepForMs = defaultKeepForMs } = options
  return {
    database: 'postgres',
    transaction: transactionsOn(pool),
    run: async (tx, sql, values) => (await tx.query(sql, values)).rowCount ?? 0,
    keepForMs,
  }
}

function onceIn<Transaction>({
  database,
  transaction,
  run,
  keepForMs = defaultKeepForMs,
}: OnceOptions<Transaction>): Once<Transaction> {
  let marks = 0
  const believed = new BelievedTime(systemClock)
  const place = (n: number): string => (database === 'postgres' ? `$${n}` : '?')
  // By its bare name, Postgres takes an operator of whatever schema is first in the `search_path`.
  const op = (sign: string): string => (database === 'postgres' ? `OPERATOR(pg_catalog.${sign})` : sign)
  const [insert, onConflict] = database === 'mysql' ? ['INSERT IGNORE', ''] : ['INSERT', ' ON CONFLICT DO NOTHING']

  // An update tells what it matched with every client, and a query does not.
  const confirm = `UPDATE fleethook_once SET at = at ${op('+')} 1 WHERE id ${op('=')} ${place(1)} AND handler ${op('=')} ${place(2)}`
  const has: HasMark = async (mark, delivery) => {
    let matched = 0
    await transaction(async (tx) => void (matched = await run(tx, confirm, [...markOf(mark, delivery)])))
    return matched === 1
  }

  function once(
    name: string,
    deliveries: readonly Delivery[],
    handle: (transaction: Transaction) => unknown,
  ): Promise<void> {
    return transaction(async (tx) => {
      const [first] = deliveries
      if (first === undefined) return
      const now = Date.now()
      const rows = deliveries.map((_, at) => `(${place(at * 3 + 1)}, ${place(at * 3 + 2)}, ${place(at * 3 + 3)})`)
      const sql = `${insert} INTO fleethook_once (id, handler, at) VALUES ${rows.join(', ')}${onConflict}`
      const added = await run(
        tx,
        sql,
        deliveries.flatMap((delivery) => [...markOf(name, delivery), now]),
      )
      if (added < deliveries.length && deliveries.length > 1)
        throw new Error('Some messages of this batch were handled before, so each is tried alone.')
      if (added < deliveries.length) return
      await handle(tx)
      // When the handler swallowed an error that ended the transaction, this fails too, or finds no mark.
      if ((await run(tx, confirm, [...markOf(name, first)])) !== 1)
        throw new Error('The transaction of the handler has ended before the handler.')
      marks += deliveries.length
      if (marks < tidyEvery) return
      marks = 0
      await run(tx, `DELETE FROM fleethook_once WHERE at ${op('<')} ${place(1)}`, [believed.now() - keepForMs])
    })
  }

  return Object.assign(onceHandlers('createOnce', new Set(), once, has), { schema: schemas[database] })
}

/** The id of the message, and the handler with the replay. No name of a handler has a `#`. */
const markOf = (name: string, { id, replay }: Delivery): readonly [string, string] => [
  id,
  replay === undefined ? name : `${name}#${replay}`,
]

const index = 'CREATE INDEX IF NOT EXISTS fleethook_once_at ON fleethook_once (at)'
const columns = 'handler VARCHAR(200) NOT NULL, at BIGINT NOT NULL'
const create = 'CREATE TABLE IF NOT EXISTS fleethook_once'
const schemas = {
  postgres: [`${create} (id pg_catalog.uuid NOT NULL, ${columns}, PRIMARY KEY (id, handler))`, index],
  mysql: [`${create} (id CHAR(36) NOT NULL, ${columns}, PRIMARY KEY (id, handler), KEY fleethook_once_at (at))`],
  sqlite: [`${create} (id TEXT NOT NULL, ${columns}, PRIMARY KEY (id, handler)) WITHOUT ROWID`, index],
} as const
