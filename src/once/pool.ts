import { FleethookError } from '../base/errors.ts'

/** What a `pg.Pool` has, and pools like it: the transactions of handlers run on its connections. */
export interface TransactionPool {
  connect(): Promise<PoolConnection>
  on(event: 'error', listener: (error: Error) => void): unknown
  readonly totalCount: number
  readonly waitingCount: number
}

/** A connection of a {@link TransactionPool}. */
export interface PoolConnection {
  query(text: string, values?: unknown[]): Promise<{ readonly rowCount?: number | null; readonly rows: unknown[] }>
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
  release(failure?: Error): void
}

/** The connections of a pool, with all of their methods. `pg` has `connect` twice. */
export type ConnectionOf<Pool> = Pool extends {
  connect: { (): Promise<infer Connection>; (callback: never): void }
}
  ? Connection
  : Pool extends { connect(): Promise<infer Connection> }
    ? Connection
    : never

interface Emitter {
  on(event: string, listener: (about: unknown) => void): unknown
}

const canEmit = (value: unknown): value is Emitter =>
  typeof value === 'object' && value !== null && 'on' in value && typeof value.on === 'function'

interface Watched {
  readonly watch: (connection: unknown) => void
  readonly hearers: Set<(notice: unknown) => void>
}

/** Each handler that writes exactly once has the same pool, and each receiver of a function that a timer calls. */
const watched = /* @__PURE__ */ new WeakMap<object, Watched>()

function startToWatch(pool: object): Watched {
  const hearers: Watched['hearers'] = new Set()
  const known = new WeakSet<object>()
  const watch = (connection: unknown): void => {
    if (!canEmit(connection) || known.has(connection)) return
    known.add(connection)
    connection.on('error', () => {})
    connection.on('notice', (notice) => {
      for (const hear of hearers) hear(notice)
    })
  }
  // A client that is no pool is its own connection.
  watch(pool)
  if (canEmit(pool)) for (const event of ['connect', 'acquire']) pool.on(event, watch)
  const found: Watched = { watch, hearers }
  watched.set(pool, found)
  return found
}

/**
 * Listens to errors of a pool and of its connections, also of open connections: with `pg`, an error that nobody listens to ends the
 * process. Call `watch` with each connection that is taken. Before that, nothing of the connection can be heard. `stop` ends the notices.
 */
export function watchPool(
  pool: object,
  noticed?: (notice: unknown) => void,
): { readonly watch: (connection: object) => void; readonly stop: () => void } {
  const { watch, hearers } = watched.get(pool) ?? startToWatch(pool)
  if (noticed !== undefined) hearers.add(noticed)
  const stop = (): void => {
    if (noticed !== undefined) hearers.delete(noticed)
  }
  return { watch, stop }
}

/**
 * Begins a transaction. Limits that nobody has set are set for this transaction alone: PgBouncer refuses them at the start of a connection. A frozen
 * process, a lost network or a handler that waits for itself then ends its transaction, and its connection is free again.
 */
const begin = `BEGIN; SELECT pg_catalog.set_config(l.name, l.value, true)
FROM (VALUES ('idle_in_transaction_session_timeout', '20s'), ('lock_timeout', '20s'), ('statement_timeout', '60s')) l(name, value)
WHERE pg_catalog.current_setting(l.name) OPERATOR(pg_catalog.=) '0'`

/** Runs work in transactions on the connections of a pool. Rejects when the work or the commit fails, and then nothing is written. */
export function transactionsOn<Pool extends TransactionPool>(
  pool: Pool,
): (work: (connection: ConnectionOf<Pool>) => Promise<unknown>) => Promise<void> {
  const { watch } = watchPool(pool)
  // A pool is typed by what it returns, which the compiler cannot follow through the two forms of `connect`.
  const connect = (): Promise<PoolConnection & ConnectionOf<Pool>> =>
    pool.connect() as Promise<PoolConnection & ConnectionOf<Pool>> // oxlint-disable-line no-unsafe-type-assertion

  return async (work) => {
    const connection = await connect().catch((error: unknown) => {
      throw isConnectTimeout(error) ? noneFree(error) : error
    })
    watch(connection)
    let failure: Error | undefined
    let lose = (_error: Error): void => {}
    // While the handler waits for something else, only this tells that its transaction is gone.
    const lost = new Promise<never>((_, reject) => {
      lose = reject
      connection.on('error', lose)
    })
    try {
      await Promise.race([lost, commitAfter(connection, work)])
    } catch (error) {
      failure = error instanceof Error ? error : new Error('unknown')
      throw waitsForItself(error, pool) ? secondConnection(pool, error) : error
    } finally {
      connection.removeListener('error', lose)
      // A connection whose transaction failed is closed, which rolls back.
      connection.release(failure)
    }
  }
}

async function commitAfter<Connection extends PoolConnection>(
  connection: Connection,
  work: (connection: Connection) => Promise<unknown>,
): Promise<void> {
  await connection.query(begin)
  await work(connection)
  const answer = await connection.query('COMMIT')
  // The commit of a transaction in which a statement failed is a rollback, and no error.
  if (Reflect.get(answer, 'command') === 'ROLLBACK')
    throw new Error('The transaction was rolled back, because a statement in it failed and the handler went on.')
}

const isConnectTimeout = (error: unknown): boolean =>
  error instanceof Error && error.message === 'timeout exceeded when trying to connect'

/** A handler that asks the pool for one more connection gets none while all of them wait for the same. */
const waitsForItself = (error: unknown, { waitingCount }: TransactionPool): boolean =>
  isConnectTimeout(error) || (waitingCount > 0 && error instanceof Error && Reflect.get(error, 'code') === '25P03')

const secondConnection = ({ totalCount }: TransactionPool, cause: unknown): FleethookError =>
  new FleethookError(
    'handler_timeout',
    `A handler waited for a second connection of its pool, and all ${totalCount} were taken by transactions of handlers.`,
    {
      cause,
      hint: 'Run all statements of the handler in the transaction that it gets, or give the others a pool of their own.',
    },
  )

const noneFree = (cause: unknown): FleethookError =>
  new FleethookError('handler_timeout', 'No connection for the transaction of a handler was free in time.', {
    cause,
    hint: 'Give its pool as many connections as handlers run at once (`concurrency`, 16 by default), and use it for nothing else.',
  })
