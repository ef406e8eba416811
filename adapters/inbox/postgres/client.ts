import { type Clock, elapsedMs, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { watchPool } from '../../../src/once/pool.ts'

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
  readonly clock: Clock
  readonly #learn: (row: Row, sentMs: number) => void
  readonly #watch: (connection: object) => void
  /** Nobody uses it any more. The pool of the user lives on. */
  readonly close: () => void
  /** The number of times the server said that it no longer waits for the synchronous standby. The commit then looks like a success. */
  unreplicated = 0

  /** `learn` gets the first row of every answer about the server (`aboutServer`), and when its statement was sent. */
  constructor(
    client: PostgresClient,
    schema: string,
    clock: Clock,
    learn: (row: Row, sentMs: number) => void = () => {},
  ) {
    this.#client = client
    this.clock = clock
    this.#learn = learn
    this.schema = schema
    const { watch, stop } = watchPool(client, (notice) => {
      if (isUnreplicated(notice)) this.unreplicated += 1
    })
    this.#watch = watch
    this.close = stop
  }

  /** Rejects with a FleethookError, also when there is no answer within `withinMs`. The server may still run the statement then. */
  async run(text: string, values: readonly unknown[] = [], withinMs = 10_000): Promise<readonly Row[]> {
    let timer: Timer | undefined
    const sentMs = elapsedMs(this.clock)
    const late = new Promise<never>((_, reject) => {
      timer = this.clock.after(withinMs, () =>
        // What to do: Is the server overloaded?
        reject(new FleethookError('inbox_unavailable', `Postgres did not answer within ${Math.round(withinMs)} ms.`)),
      )
    })
    try {
      const { rows } = await this.#query(text, [...values], late)
      const found = rows.filter(isRow)
      if (found[0]?.['server_ms'] !== undefined) this.#learn(found[0], sentMs)
      return found
    } catch (error) {
      throw databaseError(error, addressOf(this.#client))
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

/** The connection, a conflict, resources, an operator, the system, a lock: the same statement may succeed in a moment. */
const passing = /^(?:08|40|53|55P03|57|58)/

/** No such statement works, whatever it writes. But a trigger can raise these, too. */
const ofStatements = /^(?:0A|25|28|3D|3F|42|55|XX)/

/**
 * Whether an error is about the rows that a statement writes: another try with the same rows fails too, and others are written. A trigger may raise any
 * SQLSTATE, even a custom one, so a state that could mean that no such statement works is put to the test: `withoutRows` runs it with none.
 */
export async function isAboutRows(error: unknown, withoutRows: () => Promise<unknown>): Promise<boolean> {
  const state = stateOf(error)
  if (state === '' || passing.test(state)) return false
  if (!ofStatements.test(state)) return true
  return withoutRows().then(
    () => true,
    () => false,
  )
}

/** For an error that {@link isAboutRows}: what its SQLSTATE says about statements would mislead. */
export function rowError(error: unknown): FleethookError {
  const state = stateOf(error)
  const isSize = state.startsWith('54')
  return new FleethookError(
    isSize ? 'body_too_large' : 'message_refused',
    isSize
      ? 'Postgres does not take a message of this size.'
      : `Postgres refuses the row of a message (SQLSTATE ${state}).`,
    {
      cause: error,
      hint: isSize ? 'Send smaller messages.' : 'The log of Postgres says which trigger or check refuses it.',
    },
  )
}

/** Somebody has locked a row for longer than the statement waits. */
export const isLocked = (error: unknown): boolean => stateOf(error) === '55P03'

/**
 * In the FROM of a statement that changes rows, it limits how long that waits for locks. Postgres waits on when nobody wants the answer any more, so
 * each try of what is tried again and again would take one more of its connections, for as long as a forgotten session holds the lock.
 */
export const briefly = `(SELECT set_config('lock_timeout', '500', true)) briefly`

/** Errors that a retry within seconds does not fix: something is missing, forbidden, or the password is wrong. */
export const isFinal = (error: unknown): boolean => /^(?:28|3F|42)/.test(stateOf(error))

/** What `pg` and Node say of a connection that was cut while nobody used it. */
const cutTexts = /^(?:Connection terminated|Client has encountered a connection error|read ECONNRESET|write EPIPE)/

/** Whether the connection of a statement was gone. Another one may work at once. */
function isCut(error: unknown): boolean {
  for (let inner = error; inner instanceof Error; inner = inner.cause) if (cutTexts.test(inner.message)) return true
  return stateOf(error) === '57P01'
}

/** More than a pool has. */
const mostCuts = 50

/**
 * Runs again what may run twice, as long as its connection was gone: connections of a pool can be cut while nobody uses them, and only the next
 * statement finds out. While the inbox starts, nothing else would try again.
 */
export async function despiteCuts<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let cuts = 0; ; cuts += 1)
    try {
      return await work()
    } catch (error) {
      if (cuts >= mostCuts || !isCut(error)) throw error
    }
}

// What to do: Check `DATABASE_URL` and `schema`. Then `fleethook postgres schema --apply`.
const missing = ['The tables of the inbox are missing.', 'Create them: fleethook postgres schema --apply'] as const
const readOnly = [
  'Postgres is read-only: it is a replica, or it is being switched over.',
  'Connect to the primary.',
] as const
const noAccess = 'Check the user, the password and the database in the address (DATABASE_URL), and pg_hba.conf.'
const goesOn = 'A receiver that runs continues by itself; if it could not start, start it again.'
const starting = ['Postgres is starting, stopping or recovering.', goesOn] as const
const advice: Readonly<Record<string, readonly [message: string, hint: string]>> = {
  '42P01': missing,
  '3F000': missing,
  '42703': ['The tables of the inbox are of another version.', 'Update them: fleethook postgres schema --apply'],
  '42501': [
    // What to do: hint
    'The user may not use the tables of the inbox.',
    'Grant it USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables.',
  ],
  // A replica cannot read the table `boot`.
  '0A000': readOnly,
  '25006': readOnly,
  '55P03': [
    // What to do: [End the transaction](operating.md#postgres).
    'Another session has locked a row of the inbox.',
    'End its transaction: see pg_stat_activity and pg_locks.',
  ],
  '53100': ['The disk of Postgres is full.', `Make room. ${goesOn}`],
  '53300': [
    // What to do: Make pools smaller, or put a pooler in front.
    'Postgres has no connection left: all of `max_connections` are in use.',
    `Close idle ones, make pools smaller, or put a pooler in front. ${goesOn}`,
  ],
  '57014': [
    'Postgres canceled a statement of the inbox, probably by `statement_timeout`.',
    'Raise it for the user of the inbox.',
  ],
  '57P03': starting,
  '57P01': starting,
  '57P02': starting,
  '28P01': ['Postgres refused the password.', 'Check the user and the password in the address (DATABASE_URL).'],
  '28000': ['Postgres does not let this user in.', noAccess],
  '3D000': ['The database does not exist.', 'Check the name of the database in the address (DATABASE_URL).'],
  '08P01': [
    'The connection broke the protocol of Postgres.',
    'Is this the address of a Postgres or a pooler, and does the pooler know the options of the pool?',
  ],
}
/** PgBouncer has one state for all that it refuses. */
const classes: typeof advice = { '28': ['Postgres does not let this user in.', noAccess] }

/** What `pg` and Node say about connections. Each has `address` and `port`, or `hostname`, where they know them. */
const failures: Readonly<Record<string, readonly [message: string, hint: string]>> = {
  // What to do about `ECONNREFUSED`, `ENOTFOUND`, `ETIMEDOUT`: With an empty `DATABASE_URL`, `pg` asks this machine.
  ECONNREFUSED: ['Nothing listens', `Is Postgres running there? ${goesOn}`],
  ENOTFOUND: ['No machine has this name:', `Check the host in the address (DATABASE_URL). ${goesOn}`],
  EAI_AGAIN: ['The name could not be looked up:', `Is the network or its name server down? ${goesOn}`],
  ETIMEDOUT: ['There was no answer', `Check the address, the firewall and the allowed networks. ${goesOn}`],
  EHOSTUNREACH: ['No way leads', `Check the address, the firewall and the allowed networks. ${goesOn}`],
  ENETUNREACH: ['No way leads', `Check the address, the firewall and the allowed networks. ${goesOn}`],
  ECONNRESET: ['The connection was cut', `A proxy, a firewall or the server ended it. ${goesOn}`],
  ENOENT: ['There is no socket', `Is Postgres running on this machine? ${goesOn}`],
  // What to do about `ERR_INVALID_URL`: A password with `#`, `/`, `@` or `%` in `DATABASE_URL` needs `%23`, `%2F`, `%40` or `%25`.
  ERR_INVALID_URL: [
    'The address is not a URL',
    'Write it as postgres://user:password@host:5432/name, and # / @ % of the password as %23 %2F %40 %25.',
  ],
}

/**
 * An error of the database as an operator should read it. No text of the server is part of it: it can quote a message. `address`: of the client,
 * for errors that do not say it.
 */
export function databaseError(error: unknown, address?: string): FleethookError {
  if (error instanceof FleethookError) return error
  const state = stateOf(error)
  const known = advice[state] ?? classes[state.slice(0, 2)]
  const [message, hint] = known ?? (state === '' ? connectionAdvice(error, address) : otherAdvice(state))
  return new FleethookError('inbox_unavailable', message, { cause: error, hint })
}

const otherAdvice = (state: string): readonly [message: string, hint: string] => [
  `Postgres cannot be used (SQLSTATE ${state}).`,
  `The log of Postgres says why. ${goesOn}`,
]

/** The error of the network behind an error of a library. A name with several addresses fails with one error for each. */
function innermost(error: unknown): Error | undefined {
  if (!(error instanceof Error)) return undefined
  const [first]: readonly unknown[] = error instanceof AggregateError ? error.errors : []
  if (first instanceof Error) return first
  const inner = typeof Reflect.get(error, 'code') === 'string' ? undefined : innermost(error.cause)
  return inner ?? error
}

function connectionAdvice(error: unknown, address: string | undefined): readonly [message: string, hint: string] {
  const cause = innermost(error)
  const read = (name: string): string => String((cause && Reflect.get(cause, name)) ?? '')
  const code = read('code')
  const host = read('address') || read('hostname')
  const port = read('port')
  const where = host === '' ? address : `${host.includes(':') ? `[${host}]` : host}${port === '' ? '' : `:${port}`}`
  const at = where === undefined ? '' : ` at ${where}`
  const unset =
    address === unsetAddress
      ? 'Is DATABASE_URL empty? The pool was given no address, so it uses PGHOST or this machine. '
      : ''
  const isTls =
    /^(?:ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/.test(code) ||
    /\bSSL\b|\bTLS\b/.test(cause?.message ?? '')
  if (isTls)
    return [
      `Postgres${at} and this process do not agree about TLS${code === '' ? '' : ` (${code})`}.`,
      'Set `sslmode` in the address, and give the pool the certificate of your provider (`ssl: { ca }`).',
    ]
  if (/password|SASL|SCRAM/i.test(cause?.message ?? '') && code === '')
    return ['The pool has no password, or a wrong one.', 'Set it in the address (DATABASE_URL).']
  const isLate = /timeout|timed out/i.test(cause?.message ?? '')
  const [text, hint] = failures[code] ?? failures[isLate ? 'ETIMEDOUT' : ''] ?? ['The connection failed', goesOn]
  const about = text.endsWith(':') && where !== undefined ? ` ${where}` : at
  return [`Postgres cannot be used: ${code === '' ? '' : `${code}. `}${text}${about}.`, `${unset}${hint}`]
}

/** The address of a pool that was given none. */
const unsetAddress = 'the default address'

/** The host and port of a pool: never the user or the password. `undefined`: it does not say. */
export function addressOf(client: object): string | undefined {
  const options: unknown = 'totalCount' in client ? Reflect.get(client, 'options') : undefined
  if (typeof options !== 'object' || options === null) return undefined
  const [text, host, port]: readonly unknown[] = ['connectionString', 'host', 'port'].map((name) =>
    Reflect.get(options, name),
  )
  if (typeof text === 'string' && text !== '') return (URL.canParse(text) && new URL(text).host) || undefined
  if (typeof host === 'string' && host !== '') return `${host}:${String(port ?? 5432)}`
  return unsetAddress
}
