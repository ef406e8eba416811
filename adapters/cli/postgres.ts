import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { isObject } from '../../src/base/options.ts'
import { systemClock } from '../../src/base/clock.ts'
import { addressOf, Database, databaseError, type PostgresClient, stateOf } from '../inbox/postgres/client.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import {
  checkEncoding,
  checkSearchPath,
  isKnown,
  otherVersion,
  schemaStatements,
  schemaVersion,
  versionOf,
} from '../inbox/postgres/schema.ts'
import { acts, type Common, environment, type Print } from './arguments.ts'

export interface Given {
  readonly schema: string
  readonly database?: string
}

interface Schema extends Given {
  readonly apply?: true
}

export function definePostgres(command: Command): void {
  command.description('The tables of postgresInbox.')
  onDatabase<[], Schema>(
    command
      .command('schema')
      .description('Prints the SQL that creates or updates the tables of postgresInbox. With --apply it runs it.')
      .option('--apply', 'create the tables that are missing, and update older ones'),
    `--apply needs the package pg in your project. Without it: fleethook postgres schema | psql "$DATABASE_URL"
Running it again changes nothing.`,
    runSchema,
  )
}

/** Adds the options that say which tables, and an action. */
export function onDatabase<Args extends unknown[], Options extends Given>(
  command: Command,
  help: string,
  action: (given: Options & Common, print: Print, ...args: Args) => Promise<void>,
): void {
  command
    .option('--schema <name>', 'the schema of the tables', 'fleethook')
    .option('-d, --database <url>', 'the address of the database (default: DATABASE_URL)')
    .addHelpText(
      'after',
      `
Environment: DATABASE_URL, also read from .env.

${help}

Exit status: 0 done, 1 an error, 2 bad usage.`,
    )
  acts<Args, Options>(command, async (given, print, ...args) => {
    if (!schemaName.accepts(given.schema)) throw new FleethookError('option_invalid', `--schema ${schemaName.must}.`)
    await action(given, print, ...args)
  })
}

async function runSchema({ schema, apply, ...where }: Schema & Common, print: Print): Promise<void> {
  const sql = ['BEGIN', ...schemaStatements(schema), 'COMMIT'].join(';\n')
  if (apply !== true) return print({ schema, sql: `${sql};\n` }, () => `${sql};`)
  const before = await withPool(where, async (pool) => {
    const db = new Database(pool, schema, systemClock)
    await checkSearchPath(db)
    const tables = await versionOf(db)
    const version = tables?.version
    if (tables !== undefined && tables.version > schemaVersion) {
      if (isKnown(tables)) return version
      throw otherVersion(schema, tables.version)
    }
    await checkEncoding(db)
    await pool.query(sql).catch(async (error: unknown) => {
      await pool.query('ROLLBACK').catch(() => {})
      throw stateOf(error) === lockedState ? await lockedError(db) : error
    })
    return version
  })
  const isUpdated = before !== undefined && before < schemaVersion
  const isNewer = before !== undefined && before > schemaVersion
  const outcome = isUpdated
    ? `now have version ${schemaVersion}; they had version ${before}`
    : `are ready${isNewer ? `: they have version ${before}, with which this fleethook works` : ''}`
  print({ schema, outcome: isUpdated ? 'updated' : 'ready' }, () => `The tables in the schema ${schema} ${outcome}.`)
}

/** Another session has had a lock for too long. */
const lockedState = '55P03'

/** Names the sessions that can be in the way. A user sees the work of other users only with the role `pg_read_all_stats`. */
async function lockedError(db: Database): Promise<FleethookError> {
  const rows = await db
    .run(
      `SELECT DISTINCT format('process %s (%s, %s)', a.pid, coalesce(CASE WHEN a.application_name <> '' THEN a.application_name END, a.backend_type, 'unknown'),
    coalesce(a.state, 'unknown')) AS session
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation AND l.locktype = 'relation' LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE l.granted AND l.pid <> pg_backend_pid() AND a.datname = current_database() AND (n.nspname = $1
  OR (l.locktype = 'advisory' AND l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtext('fleethook ' || $1)::bigint))
LIMIT 5`,
      [db.schema],
    )
    .catch(() => [])
  const sessions = rows.map(({ session }) => String(session))
  return new FleethookError(
    'inbox_unavailable',
    sessions.length === 0
      ? 'Another session holds a lock on the tables of the inbox.'
      : `Another session holds a lock on the tables of the inbox: ${sessions.join(', ')}.`,
    { hint: 'Run the command again when it has ended, or end it: SELECT pg_terminate_backend(<process>).' },
  )
}

export async function withPool<Result>(
  { database, dotenv }: Omit<Given, 'schema'> & Common,
  use: (pool: Pool) => Promise<Result>,
): Promise<Result> {
  const connectionString = database ?? environment(dotenv)('DATABASE_URL')
  if (connectionString === undefined || connectionString === '')
    throw new FleethookError('option_invalid', 'No database is given: DATABASE_URL is empty.', {
      hint: 'Pass --database, or set DATABASE_URL.',
    })
  const pool = await openPool(connectionString)
  try {
    return await use(pool)
  } catch (error) {
    throw databaseError(error, addressOf(pool))
  } finally {
    await pool.end()
  }
}

type Pool = PostgresClient & { end(): Promise<void> }
type PoolClass = new (options: object) => Pool

/** The driver is the user's own, so it is looked up in the project. */
export async function openPool(connectionString: string): Promise<Pool> {
  let driver: unknown
  try {
    const path = createRequire(join(process.cwd(), 'package.json')).resolve('pg')
    driver = await import(pathToFileURL(path).href)
  } catch (cause) {
    throw new FleethookError('inbox_unsupported', 'The package pg is not installed in this project.', {
      cause,
      hint: 'Install it: npm install pg. Or use psql: fleethook postgres schema | psql "$DATABASE_URL"',
    })
  }
  const module = isObject(driver) && isObject(driver['default']) ? driver['default'] : driver
  const found: unknown = isObject(module) ? module['Pool'] : undefined
  if (!isPoolClass(found)) throw new FleethookError('inbox_unsupported', 'The package pg has no class Pool.')
  const pool = new found({ connectionString, max: 1 })
  return pool
}

const isPoolClass = (found: unknown): found is PoolClass => typeof found === 'function'
