import type pg from 'pg'
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
