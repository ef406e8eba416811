/**
 * A durable inbox in Postgres, for several receivers and handling processes, and handlers whose writes happen exactly once.
 *
 * @module
 */
import { pause, resolvedOr } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { aFunction, checkOption, milliseconds, type Rule, withMethods } from '../../src/base/options.ts'
import type { DrainResult, Drainable } from '../../src/hosting/drainable.ts'
import type { Clock } from '../../src/base/clock.ts'
import type { InboxFactory } from '../../src/inbox/inbox.ts'
import { hostedBy } from '../../src/receiver/hosted.ts'
import { givenOnce } from './forwarding.ts'
import { type ConnectionOf, type TransactionPool, transactionsOn, watchPool } from '../../src/once/pool.ts'
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
import { SharedInbox } from './shared-inbox.ts'

export type { PostgresClient, PostgresResult } from './postgres/client.ts'
export type { OnceHandler } from '../../src/once/handlers.ts'
export type { ExactlyOnce, RunStatement, RunTransaction } from './postgres/exactly-once.ts'
export type { PostgresInboxOptions } from './postgres/options.ts'
export type { ConnectionOf, PoolConnection, TransactionPool } from '../../src/once/pool.ts'
export type { Role } from './shared-inbox.ts'

/** What {@link postgresInbox} returns: the value of the option `inbox`. */
export interface PostgresInbox extends InboxFactory {
  /**
   * Makes handlers whose writes in this database happen exactly once, through any crash. Give it a `pg.Pool` of the same database, of its own: each
   * handler gets a connection in a transaction. The transaction ends when it does nothing or waits for a lock for 20 seconds, or when one statement
   * takes 60, unless the pool or the role sets these limits. Errors of connections that are cut end no process.
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
   * const inbox = postgresInbox({ db: new pg.Pool({ allowExitOnIdle: true, max: 3 }) })
   * const exactly = inbox.exactlyOnce(new pg.Pool({ allowExitOnIdle: true, max: 16, connectionTimeoutMillis: 10_000 }))
   *
   * createReceiver({ secret: 'a-long-random-value', inbox }).on(
   *   'data',
   *   { fields: ['BatteryLevel'] },
   *   exactly('readings', async ({ vin, data }, _context, tx) => {
   *     if (data.BatteryLevel === null) return // no value now
   *     await tx.query('INSERT INTO readings VALUES ($1, $2)', [vin, data.BatteryLevel])
   *   }),
   * )
   * ```
   */
  exactlyOnce<Pool extends TransactionPool>(pool: Pool): ExactlyOnce<ConnectionOf<Pool>>
  /**
   * The same with transactions of a client of your own on the same database: PGlite, Drizzle, Kysely or Prisma. For other clients, `run` says how to
   * run a statement in it.
   */
  exactlyOnce<Transaction>(
    transaction: RunTransaction<Transaction>,
    options?: { readonly run?: RunStatement<Transaction> },
  ): ExactlyOnce<Transaction>
}

const isPool = withMethods('connect', 'query', 'on')

const transactionRule: Rule = {
  must: 'must be a function that runs work in a transaction, for instance (work) => db.transaction(work), or a pg.Pool',
  accepts: (value) => aFunction.accepts(value) || isPool.accepts(value),
  isRequired: true,
  isSecret: true,
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
 * const inbox = postgresInbox({ db: new pg.Pool({ connectionString: process.env.DATABASE_URL, allowExitOnIdle: true, max: 3 }) })
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
  const give = givenOnce('postgresInbox', 'schema')
  let clock: ServerClock | undefined
  let system: PostgresSystem | undefined
  // A connection can be cut before there is a receiver.
  watchPool(settings.db)

  function exactlyOnce<Pool extends TransactionPool>(pool: Pool): ExactlyOnce<ConnectionOf<Pool>>
  function exactlyOnce<Transaction>(
    transaction: RunTransaction<Transaction>,
    options?: { readonly run?: RunStatement<Transaction> },
  ): ExactlyOnce<Transaction>
  function exactlyOnce(
    given: TransactionPool | RunTransaction<unknown>,
    { run = runIn }: { readonly run?: RunStatement<unknown> } = {},
  ): ExactlyOnce<unknown> {
    checkOption('exactlyOnce', 'transaction', given, transactionRule)
    const transaction = typeof given === 'function' ? given : transactionsOn(given)
    return exactlyOnceIn(() => system ?? notAttached(), names, transaction, run)
  }

  const create: InboxFactory = (own) => {
    give()
    system = new PostgresSystem(settings, own, clock ?? new ServerClock(own.clock))
    return new SharedInbox(settings.role, own, system, settings.meanwhile)
  }
  const inbox = Object.assign(create, {
    clock: (local: Clock): Clock => (clock = new ServerClock(local)),
    exactlyOnce,
  })
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
 * const db = new pg.Pool({ connectionString: process.env.DATABASE_URL, allowExitOnIdle: true, max: 3 })
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
  const system = systemOf() ?? notAttached()
  const { clock } = system
  const branches = [...(hostedBy(receiver)?.intake.parts.behind.byName.values() ?? [])]
  // A branch that cannot be opened says so itself.
  await resolvedOr(Promise.allSettled(branches.map((branch) => branch.open())), clock, forMs)
  while (!system.isIdle && performance.now() < untilMs) await pause(clock, 10)
  return receiver.drain({ deadlineMs: 5_000 })
}

function notAttached(): never {
  throw new FleethookError('option_invalid', 'This postgresInbox is not the inbox of a receiver.', {
    hint: 'Give it to createReceiver as `inbox`.',
  })
}
