import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { isObject } from '../../src/base/options.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Database, databaseError, type PostgresClient } from '../inbox/postgres/client.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import { schemaStatements } from '../inbox/postgres/schema.ts'
import { acts, type Common, environment, type Print } from './arguments.ts'
import { moveFile } from './move.ts'

interface Given {
  readonly schema: string
  readonly database?: string
}

interface Schema extends Given {
  readonly apply?: true
}

export function definePostgres(command: Command): void {
  command.description('The tables of postgresInbox.')
  run<[], Schema>(
    command
      .command('schema')
      .description('Prints the SQL that creates the tables of postgresInbox. With --apply it runs it.')
      .option('--apply', 'create the tables that are missing'),
    `--apply needs the package pg in your project. Without it: fleethook postgres schema | psql "$DATABASE_URL"
Running it again changes nothing.`,
    runSchema,
  )
  run<[string], Given>(
    command
      .command('move')
      .argument('<file>', 'the inbox file of a stopped receiver')
      .description(
        'Moves what waits in an inbox file into the tables of postgresInbox, with dead letters, gaps and the states of vehicles.',
      ),
    `It needs the package pg in your project. Each message is in Postgres before it leaves the file, so when it was interrupted, run it again
before a receiver starts. Handled messages stay in the file.`,
    runMove,
  )
}

function run<Args extends unknown[], Options extends Given>(
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

async function runMove({ schema, ...where }: Given & Common, print: Print, file: string): Promise<void> {
  const moved = await withPool(where, async (pool) => moveFile(file, new Database(pool, schema, systemClock)))
  const { messages, deadLetters, gaps, vehicles } = moved
  print(
    { schema, ...moved },
    () =>
      `Moved to the schema ${schema}: ${messages} messages that wait, ${deadLetters} dead letters, ${gaps} gaps, the states of ${vehicles} vehicles.`,
  )
}

async function runSchema({ schema, apply, ...where }: Schema & Common, print: Print): Promise<void> {
  const sql = ['BEGIN', ...schemaStatements(schema), 'COMMIT'].join(';\n')
  if (apply !== true) return print({ schema, sql: `${sql};\n` }, () => `${sql};`)
  await withPool(where, (pool) => pool.query(sql))
  print({ schema, outcome: 'ready' }, () => `The tables in the schema ${schema} are ready.`)
}

async function withPool<Result>(
  { database, dotenv }: Omit<Given, 'schema'> & Common,
  use: (pool: Pool) => Promise<Result>,
): Promise<Result> {
  const connectionString = database ?? environment(dotenv)('DATABASE_URL')
  if (connectionString === undefined)
    throw new FleethookError('option_invalid', 'No database is given.', {
      hint: 'Pass --database, or set DATABASE_URL.',
    })
  const pool = await openPool(connectionString)
  try {
    return await use(pool)
  } catch (error) {
    throw databaseError(error)
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
