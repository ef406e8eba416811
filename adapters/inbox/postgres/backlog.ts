import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { throttled } from '../../../src/base/log.ts'
import type { Log } from '../../../src/base/log.ts'
import {
  type Backlog,
  type Failing,
  type FailingMessage,
  failingOf,
  type LastFailure,
} from '../../../src/observe/stats.ts'
import { vinOf } from '../../../src/inbox/receipts.ts'
import { type Database, databaseError, type Row } from './client.ts'
import { receiver, Tables } from './tables.ts'

/** The most rows that one look counts. A scrape must cost the same with a million messages that wait. */
const mostCounted = 100_000
/** The most failing messages that one look reads. */
const mostFailing = 10_000
/** The rows of a partition in which the oldest message is looked for: replayed ones are older than the time that they have waited. */
const mostReplayed = 100
const everyMs = 5_000
/** From this age on, messages that no process handles are reported to the log. */
const alarmMs = 30_000

/**
 * What every process and a person with `psql` must be able to ask: what waits, whether anybody handles it, and what fails. The views read what
 * the code reads.
 */
export function viewStatements(schema: string): readonly string[] {
  return [
    `CREATE INDEX IF NOT EXISTS waiting_failing ON ${schema}.waiting (part) WHERE failing_since IS NOT NULL`,
    `CREATE OR REPLACE VIEW ${schema}.backlog AS ${backlogSql(new Tables(schema, receiver))}`,
    `CREATE OR REPLACE VIEW ${schema}.failing AS SELECT m.id, m.lane AS vin, w.failed_by AS handler,
  to_timestamp(w.failing_since / 1000.0) AS since, w.attempts, to_timestamp(w.not_before / 1000.0) AS next_attempt, w.error
FROM ${schema}.waiting w JOIN ${schema}.message m ON m.id = w.id WHERE w.failing_since IS NOT NULL`,
  ]
}

/**
 * One row. A process that renews its leases is alive, and a partition belongs to nobody when its owner is not. Compares the clock
 * of the server with times of receipt.
 */
const backlogSql = ({ schema, waiting }: Tables): string => `SELECT
  CASE WHEN c.messages < ${mostCounted} THEN c.messages ELSE greatest(c.messages, (SELECT reltuples::bigint FROM pg_catalog.pg_class
    WHERE oid = '${waiting}'::regclass)) END AS messages,
  (SELECT greatest(0, floor(extract(epoch FROM clock_timestamp()) * 1000) - min(m.received_at))::bigint
    FROM ${schema}.part p CROSS JOIN LATERAL (SELECT f.id FROM (SELECT id, seq, replayed FROM ${waiting} w
      WHERE w.part = p.part ORDER BY seq LIMIT ${mostReplayed}) f WHERE NOT f.replayed ORDER BY f.seq LIMIT 1) o
    JOIN ${schema}.message m ON m.id = o.id) AS oldest_ms,
  (SELECT count(*) FROM ${schema}.process WHERE until > clock_timestamp()) AS processes,
  (SELECT count(*) FROM ${schema}.part p WHERE NOT EXISTS (SELECT FROM ${schema}.process x
    WHERE x.id = p.owner AND x.until > clock_timestamp())) AS unhandled_partitions,
  (SELECT count(*) FROM (SELECT FROM ${waiting} WHERE failing_since IS NOT NULL LIMIT ${mostFailing}) f) AS failing
FROM (SELECT count(*) AS messages FROM (SELECT FROM ${waiting} LIMIT ${mostCounted}) w) c`

/** What waits for a reader of the inbox. */
export async function backlogOf(db: Database, tables: Tables = new Tables(db.schema, receiver)): Promise<Backlog> {
  const [row = {}] = await db.run(backlogSql(tables))
  const oldest = row['oldest_ms']
  return {
    messages: Number(row['messages']),
    oldestMs: oldest === null ? undefined : Number(oldest),
    processes: Number(row['processes']),
    unhandledPartitions: Number(row['unhandled_partitions']),
  }
}

/** The messages of all processes that a handler of a reader failed for. */
export async function failingMessages(
  db: Database,
  { waiting }: Tables = new Tables(db.schema, receiver),
): Promise<readonly FailingMessage[]> {
  const rows = await db.run(
    `SELECT m.lane, w.failing_since, w.failed_by, w.error FROM ${waiting} w JOIN ${db.schema}.message m ON m.id = w.id
WHERE w.failing_since IS NOT NULL LIMIT ${mostFailing}`,
  )
  return rows.flatMap((row) => {
    const failure = failureOf(row)
    return failure === undefined ? [] : [{ vin: vinOf(String(row['lane'])), failure }]
  })
}

/** The columns of `waiting` about the last failure. */
export function failureOf({ failing_since: since, failed_by: handler, error }: Row): LastFailure | undefined {
  if (since === null || since === undefined) return undefined
  return { handler: String(handler), error: String(error), sinceMs: Number(since) }
}

/** Looks at the tables again and again, for figures that cost nothing when they are read. Also a process that only receives looks. */
export class Watch {
  backlog: Backlog | undefined
  failing: Failing = failingOf([], false)
  readonly #db: Database
  readonly #tables: Tables
  readonly #clock: Clock
  readonly #say: ReturnType<typeof throttled>
  #timer: Timer | undefined
  #isStopped = false

  constructor(db: Database, tables: Tables, clock: Clock, log: Log) {
    this.#db = db
    this.#tables = tables
    this.#clock = clock
    this.#say = throttled(log, clock)
  }

  /** Never rejects. */
  async start(): Promise<void> {
    this.#timer?.cancel()
    await this.#look()
    if (!this.#isStopped) this.#timer = backgroundTimer(this.#clock, everyMs, () => void this.start())
  }

  stop(): void {
    this.#isStopped = true
    this.#timer?.cancel()
    this.#say.stop()
  }

  async #look(): Promise<void> {
    try {
      const [backlog, failing] = [
        await backlogOf(this.#db, this.#tables),
        await failingMessages(this.#db, this.#tables),
      ]
      this.backlog = backlog
      this.failing = failingOf(failing, false)
      const { messages, oldestMs = 0, processes } = backlog
      if (processes === 0 && oldestMs > alarmMs && !this.#isStopped)
        // What to do: Start a process with the role `both` or `handle`.
        this.#say.error('messages wait, and no process runs handlers', { waiting: messages, oldestMs })
    } catch (error) {
      if (this.#isStopped) return
      const { code, message } = databaseError(error)
      // What to do: Receiving and handling go on.
      this.#say.warn('what waits could not be counted', { code, reason: message })
    }
  }
}
