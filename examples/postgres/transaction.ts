import pg from 'pg'

const pool = new pg.Pool({
  connectionString: process.env.DATABASE_URL,
  // As many as handlers run at once (`concurrency`).
  max: 16,
  allowExitOnIdle: true,
  idle_in_transaction_session_timeout: 20_000,
})
pool.on('error', (error) => console.warn(error.message))
// Without a listener, an error on a connection in use ends the process.
pool.on('connect', (client) => client.on('error', () => {}))

/** Runs work in a transaction. Drizzle, Kysely and Prisma have a function for it. */
export async function transaction(work: (tx: pg.PoolClient) => Promise<void>): Promise<void> {
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
    // A connection whose transaction failed is not used again.
    client.release(failure)
  }
}
