/**
 * A durable inbox in Postgres, for several receivers and handling processes, and handlers whose writes happen exactly once.
 *
 * @module
 */
import { attachedOnce, type AttachableInbox } from '../../src/backend/backend.ts'
import { pause } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { aFunction, checkOption, milliseconds, type Rule } from '../../src/base/options.ts'
import type { DrainResult, Drainable } from '../../src/hosting/drainable.ts'
import type { RelayInbox } from '../../src/inbox/inbox.ts'
import {
  type ExactlyOnce,
  exactlyOnceIn,
  runIn,
  type RunStatement,
  type RunTransaction,
} from './postgres/exactly-once.ts'
import { type PostgresInboxOptions, readPostgresOptions } from './postgres/options.ts'
import { ServerClock } from './postgres/server-clock.ts'
import { PostgresSystem } from './postgres/system.ts'
import { TwoHalves } from './two-halves.ts'

export type { PostgresClient, PostgresResult } from './postgres/client.ts'
export type { ExactlyOnce, RunStatement, RunTransaction } from './postgres/exactly-once.ts'
export type { PostgresInboxOptions } from './postgres/options.ts'
export type { Role } from './two-halves.ts'

/** What {@link postgresInbox} returns: the value of the option `inbox`. */
export interface PostgresInbox extends RelayInbox {
  /**
   * Makes handlers whose writes in this database happen exactly once, through any crash. `transaction` runs work in a transaction of your own
   * client on the same database: pg, PGlite, Drizzle, Kysely or Prisma. For other clients, `run` says how to run a statement in it.
   *
   * The first statement of the transaction marks the message. When the message is handed out again, the mark is there, and your handler is not
   * called. What a handler does elsewhere, such as an email, can still happen twice.
   *
   * @example
   * ```ts
   * import { createReceiver } from 'fleethook'
   * import { postgresInbox } from 'fleethook/inbox/postgres'
   * import pg from 'pg'
   *
   * const inbox = postgresInbox({ db: new pg.Pool({ max: 3 }) })
   * const pool = new pg.Pool()
   * pool.on('connect', (client) => client.on('error', () => {}))
   * const exactly = inbox.exactlyOnce<pg.PoolClient>(async (work) => {
   *   const client = await pool.connect()
   *   let failure: Error | undefined
   *   try {
   *     await client.query('BEGIN')
   *     await work(client)
   *     await client.query('COMMIT')
   *   } catch (error) {
   *     failure = error instanceof Error ? error : new Error('unknown')
   *     throw error
   *   } finally {
   *     // A connection whose transaction failed is not used again.
   *     client.release(failure)
   *   }
   * })
   *
   * createReceiver({ secret: 'a-long-random-value', inbox }).on(
   *   'data',
   *   exactly('readings', (event, context, tx) =>
   *     tx.query('INSERT INTO readings VALUES ($1, $2)', [event.vin, event.data.BatteryLevel]),
   *   ),
   * )
   * ```
   */
  exactlyOnce<Transaction>(
    transaction: RunTransaction<Transaction>,
    options?: { readonly run?: RunStatement<Transaction> },
  ): ExactlyOnce<Transaction>
}

const transactionFunction: Rule = {
  ...aFunction,
  must: 'must be a function that runs work in a transaction, for instance (work) => db.transaction(work)',
}

/** What each inbox has for `handleWaiting`. */
const systems = new WeakMap<object, () => PostgresSystem | undefined>()

/**
 * Keeps messages in tables of a Postgres, version 14 or later. A 2xx is sent when the message is committed. Handlers run in every process, in
 * order per VIN over all of them. Any process, and the server itself, can end at any moment: no acknowledged message is lost.
 *
 * `fleethook postgres schema --apply` creates the tables. It needs no extension, no superuser and no session state, so it works behind PgBouncer
 * in transaction mode.
 *
 * Throws `option_invalid` for a wrong option. `receiver.open`, which `serve` calls, rejects with `option_invalid` for a server that can lose
 * what it committed, with `inbox_unsupported` for an old one, and with `inbox_unavailable` when it cannot be used.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { postgresInbox } from 'fleethook/inbox/postgres'
 * import { serve } from 'fleethook/node'
 * import pg from 'pg'
 *
 * const inbox = postgresInbox({ db: new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 3 }) })
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox }).on('data', (event) =>
 *   console.log(event.vin, event.data.BatteryLevel),
 * )
 *
 * await serve(receiver, { port: 3000 })
 * ```
 */
export function postgresInbox(options: PostgresInboxOptions): PostgresInbox {
  const settings = readPostgresOptions(options)
  const names = new Set<string>()
  const attach = attachedOnce('postgresInbox', 'schema')
  let clock: ServerClock | undefined
  let system: PostgresSystem | undefined
  const inbox: PostgresInbox & AttachableInbox = {
    kind: 'relay',
    clock: (local) => (clock = new ServerClock(local)),
    attach(parts) {
      attach()
      system = new PostgresSystem(settings, parts, clock ?? new ServerClock(parts.settings.clock))
      return new TwoHalves(settings.role, parts, system)
    },
    exactlyOnce(transaction, { run = runIn } = {}) {
      checkOption('exactlyOnce', 'transaction', transaction, transactionFunction)
      return exactlyOnceIn(() => system ?? notAttached(), names, transaction, run)
    },
  }
  systems.set(inbox, () => system)
  return inbox
}

/**
 * Handles what waits, for at most `forMs`, and ends the receiver: for a function that a timer calls. The receiver has a `postgresInbox` with
 * `role: 'handle'`, and cannot be used again. Resolves when nothing waits any more, or the time is over. What is left waits for the next call.
 *
 * Throws `option_invalid` for another inbox, and rejects as `receiver.open` does.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { handleWaiting, postgresInbox } from 'fleethook/inbox/postgres'
 * import pg from 'pg'
 *
 * const db = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 3 })
 *
 * export async function cron(): Promise<void> {
 *   const inbox = postgresInbox({ db, role: 'handle' })
 *   const receiver = createReceiver({ secret: false, inbox }).on('data', (event) => console.log(event.vin))
 *   await handleWaiting(receiver, { forMs: 50_000 })
 * }
 * ```
 */
export async function handleWaiting(receiver: Drainable, { forMs }: { readonly forMs: number }): Promise<DrainResult> {
  checkOption('handleWaiting', 'forMs', forMs, milliseconds(1))
  const systemOf = systems.get(receiver.inbox)
  if (systemOf === undefined)
    throw new FleethookError('option_invalid', 'handleWaiting takes a receiver with a postgresInbox.')
  const untilMs = performance.now() + forMs
  await receiver.open()
  const { reader, clock } = systemOf() ?? notAttached()
  while (reader?.isIdle === false && performance.now() < untilMs) await pause(clock, 10)
  return receiver.drain({ deadlineMs: 5_000 })
}

function notAttached(): never {
  throw new FleethookError('option_invalid', 'This postgresInbox is not the inbox of a receiver.', {
    hint: 'Give it to createReceiver as `inbox`.',
  })
}
