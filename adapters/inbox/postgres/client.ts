import type { Clock, Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { watchPool } from '../../../src/inbox/pool.ts'

/**
 * A client of Postgres: `pg.Pool`, a pool of Neon, PGlite, or anything with a method `query` like theirs. Each statement may run on another
 * connection.
 */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<PostgresResult>
}

/** The rows that a statement returned. */
export interface PostgresResult {
  readonly rows: readonly unknown[]
}

/** A row of a result. */
export type Row = Readonly<Record<string, unknown>>

/** Runs statements of the inbox, with a limit on their time and with errors that say what to do. */
export class Database {
  /** The name of the schema, as SQL writes it. */
  readonly schema: string
  readonly #client: PostgresClient
  readonly #clock: Clock
  readonly #watch: (connection: object) => void
  /** The number of times the server said that it no longer waits for the synchronous standby. The commit then looks like a success. */
  unreplicated = 0

  constructor(client: PostgresClient, schema: string, clock: Clock) {
    this.#client = client
    this.#clock = clock
    this.schema = schema
    this.#watch = watchPool(client, (notice) => {
      if (isUnreplicated(notice)) this.unreplicated += 1
    })
  }

  /** Rejects with a FleethookError, also when there is no answer within `withinMs`. The server may still run the statement then. */
  async run(text: string, values: readonly unknown[] = [], withinMs = 10_000): Promise<readonly Row[]> {
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      timer = this.#clock.after(withinMs, () =>
        reject(new FleethookError('inbox_unavailable', `Postgres did not answer within ${Math.round(withinMs)} ms.`)),
      )
    })
    try {
      const { rows } = await this.#query(text, [...values], late)
      return rows.filter(isRow)
    } catch (error) {
      throw databaseError(error)
    } finally {
      timer?.cancel()
    }
  }

  /** A connection without an answer is closed: when the network drops packets, it would stay in the pool for a quarter of an hour. */
  async #query(text: string, values: unknown[], late: Promise<never>): Promise<PostgresResult> {
    const client = this.#client
    if (!isPool(client)) return Promise.race([client.query(text, values), late])
    const connecting = client.connect()
    const connection = await Promise.race([connecting, late]).catch((error: unknown) => {
      connecting.then((unused) => unused.release()).catch(() => {})
      throw error
    })
    this.#watch(connection)
    let failure: Error | undefined
    try {
      return await Promise.race([connection.query(text, values), late])
    } catch (error) {
      failure = error instanceof Error ? error : new Error('unknown')
      throw error
    } finally {
      connection.release(failure)
    }
  }
}

/** What `pg.Pool` and pools like it have. */
interface Pool extends PostgresClient {
  connect(): Promise<PostgresClient & { release(failure?: Error): void }>
}

const isPool = (client: PostgresClient): client is Pool => 'totalCount' in client && 'connect' in client

const isRow = (row: unknown): row is Row => typeof row === 'object' && row !== null

function isUnreplicated(notice: unknown): boolean {
  return typeof notice === 'object' && notice !== null && Reflect.get(notice, 'code') === '01000'
    ? String(Reflect.get(notice, 'message')).includes('synchronous replication')
    : false
}

/** The SQLSTATE of an error; empty when it has none. Libraries wrap the error of the driver. */
export function stateOf(error: unknown): string {
  for (let inner = error; inner instanceof Error; inner = inner.cause) {
    const code: unknown = Reflect.get(inner, 'code')
    if (typeof code === 'string' && /^[\dA-Z]{5}$/.test(code)) return code
  }
  return ''
}

/** Errors about the values of a statement: another try with the same values fails too. */
export const isAboutData = (error: unknown): boolean => /^(?:22|23)/.test(stateOf(error))

/** Errors that a retry within seconds does not fix: something is missing, forbidden, or the password is wrong. */
export const isFinal = (error: unknown): boolean => /^(?:28|3F|42)/.test(stateOf(error))

const missing = ['The tables of the inbox are missing.', 'Create them: fleethook postgres schema --apply'] as const
const readOnly = [
  'Postgres is read-only: it is a replica, or it is being switched over.',
  'Connect to the primary.',
] as const
const advice: Readonly<Record<string, readonly [message: string, hint: string]>> = {
  '42P01': missing,
  '3F000': missing,
  '42703': ['The tables of the inbox are of another version.', 'Update them: fleethook postgres schema --apply'],
  '42501': [
    'The user may not use the tables of the inbox.',
    'Grant it USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables.',
  ],
  // A replica cannot read the table `boot`.
  '0A000': readOnly,
  '25006': readOnly,
  '53100': ['The disk of Postgres is full.', 'Make room. The inbox continues by itself.'],
  '57014': [
    'Postgres canceled a statement of the inbox, probably by `statement_timeout`.',
    'Raise it for the user of the inbox.',
  ],
  '28P01': ['Postgres refused the password.', 'Check the user and the password of the pool.'],
  '3D000': ['The database does not exist.', 'Check the name of the database in the pool.'],
}

/** An error of the database as an operator should read it. No text of the server is part of it: it can quote a message. */
export function databaseError(error: unknown): FleethookError {
  if (error instanceof FleethookError) return error
  const state = stateOf(error)
  const [message, hint] = advice[state] ?? [
    `Postgres cannot be used${state === '' ? `: ${connectionCode(error)}` : ` (SQLSTATE ${state})`}.`,
    'Is it running, and can this machine reach it? Check the address of the pool. A receiver that runs continues by itself.',
  ]
  return new FleethookError('inbox_unavailable', message, { cause: error, hint })
}

function connectionCode(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : 'the connection failed'
}
