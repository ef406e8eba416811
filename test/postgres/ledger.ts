/*
 * Processes on a Postgres that end at any moment, and what came of the messages: each handled message is a row of a table that no part of the
 * product reads.
 */
import { join } from 'node:path'
import type pg from 'pg'
import { expect } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { programCommand, type ServerRuntime } from '../runtimes/targets.ts'
import type { ProgramSettings } from './program.ts'

export type Mode = ProgramSettings['mode']

/** What one process has of its own. */
interface Changed extends Partial<Pick<ProgramSettings, 'port' | 'receivesAt' | 'meanwhile' | 'thread'>> {
  readonly runtime?: ServerRuntime
}

export interface Ledger extends AsyncDisposable {
  /** Processes that run. */
  readonly processes: ReadonlySet<Target>
  begin(mode: Mode, changed?: Changed): Promise<Target>
  /** The number of rows. Rejects while the server is down. */
  handled(): Promise<number>
  /** The number of messages that wait. Rejects while the server is down. */
  waiting(): Promise<number>
  /** Waits for more rows. */
  grows(by: number): Promise<void>
  /** Waits until no message waits. */
  isDone(timeout?: number): Promise<void>
  /** What handlers wrote, in its order. */
  rows(): Promise<readonly { readonly vin: string; readonly n: number }[]>
  /** The dead letters, as `vin number`. */
  dead(): Promise<ReadonlySet<string>>
}

export interface LedgerOptions {
  readonly pool: pg.Pool
  readonly schema: string
  /** The port to which the processes connect. */
  readonly port: number
  readonly leaseMs: number
}

async function deadIn(pool: pg.Pool, schema: string): Promise<ReadonlySet<string>> {
  const found = await pool.query<{ text: string }>(
    `SELECT m.text FROM ${schema}.dead JOIN ${schema}.message m USING (id)`,
  )
  const messages = found.rows.map(({ text }): { vin: string; data: { Odometer: number } } => JSON.parse(text))
  return new Set(messages.map(({ vin, data }) => `${vin} ${data.Odometer}`))
}

/** Creates the table in a schema that has the tables of the inbox. */
export async function createLedger({ pool, schema, port, leaseMs }: LedgerOptions): Promise<Ledger> {
  await pool.query(
    `CREATE TABLE ${schema}.ledger (at bigint GENERATED ALWAYS AS IDENTITY, vin text NOT NULL, n int NOT NULL)`,
  )
  const processes = new Set<Target>()
  const handled = async (): Promise<number> =>
    Number((await pool.query<{ count: string }>(`SELECT count(*) FROM ${schema}.ledger`)).rows[0]?.count)
  const waiting = async (): Promise<number> =>
    Number((await pool.query<{ count: string }>(`SELECT count(*) FROM ${schema}.waiting`)).rows[0]?.count)
  const rows: Ledger['rows'] = async () =>
    (await pool.query<{ vin: string; n: number }>(`SELECT vin, n FROM ${schema}.ledger ORDER BY at`)).rows
  return {
    processes,
    handled,
    waiting,
    async begin(mode, { runtime = 'node24', ...changed } = {}) {
      const settings: ProgramSettings = { port, schema, leaseMs, mode, ...changed }
      const target = await spawnTarget(
        programCommand(runtime, join(import.meta.dirname, 'program.ts'), {
          SETTINGS: JSON.stringify(settings),
        }),
      )
      processes.add(target)
      void target.exited.then(() => processes.delete(target))
      return target
    },
    async grows(by) {
      const before = await handled().catch(() => 0)
      await expect.poll(() => handled().catch(() => 0), { timeout: 120_000 }).toBeGreaterThan(before + by)
    },
    async isDone(timeout = 120_000) {
      await expect.poll(() => waiting().catch(() => -1), { timeout }).toBe(0)
    },
    rows,
    dead: () => deadIn(pool, schema),
    async [Symbol.asyncDispose]() {
      await Promise.all([...processes].map((one) => one.stop('SIGKILL')))
    },
  }
}
