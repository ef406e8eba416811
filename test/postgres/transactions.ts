import pg from 'pg'
import type { RunTransaction } from '../../adapters/inbox/postgres.ts'

/** Transactions of `pg` as a function of the user's own. */
export const transactionsOf =
  (pool: pg.Pool): RunTransaction<pg.PoolClient> =>
  async (work) => {
    const client = await pool.connect()
    let failure: Error | undefined
    try {
      await client.query('BEGIN')
      await work(client)
      await client.query('COMMIT')
    } catch (error) {
      failure = error instanceof Error ? error : new Error('unknown')
      throw error
    } finally {
      client.release(failure)
    }
  }

/** A pool that survives when its connections are cut. */
export function poolOn(port: number, max: number, more: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ host: '127.0.0.1', port, user: 'test', database: 'postgres', max, ...more })
  pool.on('error', () => {})
  pool.on('connect', (client) => void client.on('error', () => {}))
  return pool
}
