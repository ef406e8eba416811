/* A Postgres server of the machine, with the tables of the inbox. */
import { createReceiver, type Receiver } from 'fleethook'
import { type PostgresInboxOptions, postgresInbox } from 'fleethook/inbox/postgres'
import type pg from 'pg'
import { vi } from 'vitest'
import { schemaStatements } from '../../adapters/inbox/postgres/schema.ts'
import { ofFile } from '../of-file.ts'
import { type PostgresServer, startPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { poolOn } from './transactions.ts'

export interface Scene extends AsyncDisposable {
  readonly server: PostgresServer
  readonly pool: pg.Pool
  /** A pool that the scene ends. `port`: default that of the server. */
  newPool(max?: number, port?: number, database?: string, more?: pg.PoolConfig): pg.Pool
  /** Creates the tables in a schema of this name. */
  prepare(schema: string): Promise<void>
  /** How many rows a table has, for instance `once.waiting`. */
  count(table: string): Promise<number>
}

/** The statements that create the tables of the inbox in a schema. */
export const tablesOf = (schema: string): string => ['BEGIN', ...schemaStatements(schema), 'COMMIT'].join(';\n')

export async function startScene(settings: readonly string[] = []): Promise<Scene> {
  const server = await startPostgres(settings)
  const pools: pg.Pool[] = []
  const newPool: Scene['newPool'] = (max = 3, port = server.port, database = 'postgres', more = {}) => {
    const made = poolOn(port, max, { database, ...more })
    pools.push(made)
    return made
  }
  const pool = newPool()
  await vi.waitFor(() => pool.query('SELECT 1'), { timeout: 60_000, interval: 100 })
  await closePublic(server.port)
  return {
    server,
    pool,
    newPool,
    async prepare(schema) {
      await pool.query(tablesOf(schema))
    },
    count: async (table) =>
      (await pool.query<{ rows: number }>(`SELECT count(*)::int AS rows FROM ${table}`)).rows[0]?.rows ?? 0,
    async [Symbol.asyncDispose]() {
      await Promise.all(pools.map((each) => each.end()))
      await server[Symbol.asyncDispose]()
    },
  }
}

/** Before version 15, every user could create in `public`, which is in the `search_path`. New databases are copies of `template1`. */
async function closePublic(port: number): Promise<void> {
  for (const database of ['postgres', 'template1']) {
    const own = poolOn(port, 1, { database })
    await own.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    await own.end()
  }
}

/** A scene for the tests of a file or of a `describe`, which call this outside of a test. `begin` prepares it. */
export function sceneOfFile(begin?: (scene: Scene) => Promise<unknown>, settings: readonly string[] = []): Scene {
  return ofFile(async () => {
    const scene = await startScene(settings)
    await begin?.(scene)
    return scene
  })
}

export const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`

export const bodyOf = (vehicle: number, number: number): object => ({
  vin: vinOf(vehicle),
  createdAt: '2026-01-01T00:00:00Z',
  data: { Odometer: number },
})

/** Sets a setting of the server, and lets it read its settings. */
export async function setSetting(pool: pg.Pool, name: string, value: string): Promise<void> {
  await pool.query(`ALTER SYSTEM SET ${name} = '${value}'`)
  await pool.query('SELECT pg_reload_conf()')
}

/** Posts a message of a vehicle with a number. Resolves to the status. */
export async function post(receiver: Receiver, vehicle: number, number: number): Promise<number> {
  return (await receiver.accept({ authorization: undefined, body: bodyOf(vehicle, number) })).status
}

/** A receiver on a fast lease, for tests. */
export function receiverOn(options: PostgresInboxOptions): {
  readonly inbox: ReturnType<typeof postgresInbox>
  readonly receiver: Receiver
} {
  const inbox = postgresInbox({ leaseMs: 3_000, ...options })
  return {
    inbox,
    receiver: createReceiver({ secret: false, inbox, log: quiet, retry: { attempts: 5, minMs: 20, maxMs: 50 } }),
  }
}
