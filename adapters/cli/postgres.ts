import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { isObject } from '../../src/base/options.ts'
import { databaseError, type PostgresClient } from '../inbox/postgres/client.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import { schemaStatements } from '../inbox/postgres/schema.ts'
import { dotenvOption, environment } from './arguments.ts'
import { jsonText, report } from './terminal.ts'

interface Given {
  readonly schema: string
  readonly database?: string
  readonly apply?: true
  readonly json?: true
  readonly dotenv: string
}

export function definePostgres(command: Command): void {
  command.description('The tables of postgresInbox.')
  command
    .command('schema')
    .description('Prints the SQL that creates the tables of postgresInbox. With --apply it runs it.')
    .option('--schema <name>', 'the schema of the tables', 'fleethook')
    .option('-d, --database <url>', 'the address of the database (default: DATABASE_URL)')
    .option('--apply', 'create the tables that are missing')
    .addOption(dotenvOption)
    .option('--json', 'print JSON, errors as {"error": …}')
    .addHelpText(
      'after',
      `
Environment: DATABASE_URL, also read from .env.

--apply needs the package pg in your project. Without it: fleethook postgres schema | psql "$DATABASE_URL"
Running it again changes nothing.

Exit status: 0 done, 1 an error, 2 bad usage.`,
    )
    .action(async (given: Given) => {
      try {
        await runSchema(given)
      } catch (error) {
        report(error, given.json === true)
        process.exitCode = 1
      }
    })
}

async function runSchema({ schema, database, apply, json, dotenv }: Given): Promise<void> {
  if (!schemaName.accepts(schema)) throw new FleethookError('option_invalid', `--schema ${schemaName.must}.`)
  const sql = ['BEGIN', ...schemaStatements(schema), 'COMMIT', ''].join(';\n')
  if (apply !== true) {
    if (json) console.log(jsonText({ schema, sql }))
    else process.stdout.write(sql)
    return
  }
  const connectionString = database ?? environment(dotenv)('DATABASE_URL')
  if (connectionString === undefined)
    throw new FleethookError('option_invalid', 'No database is given.', {
      hint: 'Pass --database, or set DATABASE_URL.',
    })
  const pool = await openPool(connectionString)
  try {
    await pool.query(sql)
  } catch (error) {
    throw databaseError(error)
  } finally {
    await pool.end()
  }
  if (json) console.log(jsonText({ schema, outcome: 'ready' }))
  else console.log(`The tables in the schema ${schema} are ready.`)
}

type Pool = PostgresClient & { end(): Promise<void> }
type PoolClass = new (options: object) => Pool

/** The driver is the user's own, so it is looked up in the project. */
async function openPool(connectionString: string): Promise<Pool> {
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
