import pg from 'pg'
import { schemaStatements } from '../../adapters/inbox/postgres/schema.ts'
import { startPostgres } from '../../test/once/servers.ts'

/** A Postgres of the machine with its default settings. */
export interface BenchDatabase {
  readonly port: number
  readonly version: string
  /** For what the benchmark itself asks. */
  readonly pool: pg.Pool
  newPool(max: number): pg.Pool
  /** Creates the tables of the inbox in a schema of this name. */
  prepare(schema: string): Promise<void>
  end(): Promise<void>
}

export async function startDatabase(): Promise<BenchDatabase> {
  const server = await startPostgres()
  const newPool = (max: number): pg.Pool => {
    const made = new pg.Pool({ host: '127.0.0.1', port: server.port, user: 'test', database: 'postgres', max })
    // At the end the server goes first.
    made.on('error', () => {})
    made.on('connect', (client) => client.on('error', () => {}))
    return made
  }
  const pool = newPool(3)
  for (let tries = 0; (await pool.query('SELECT 1').catch(() => undefined)) === undefined; tries += 1) {
    if (tries === 100) throw new Error('The server does not start.')
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  const { rows } = await pool.query<{ server_version: string }>('SHOW server_version')
  return {
    port: server.port,
    version: rows[0]?.server_version ?? '',
    pool,
    newPool,
    async prepare(schema) {
      await pool.query(['BEGIN', ...schemaStatements(schema), 'COMMIT'].join(';\n'))
    },
    async end() {
      await server[Symbol.asyncDispose]()
    },
  }
}
