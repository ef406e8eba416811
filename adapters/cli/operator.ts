import { lstatSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { Readable } from 'node:stream'
import type { Command } from 'commander'
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream'
import { createMessages, createReplays, deadLettersOf } from '../../src/inbox/archive.ts'
import { systemClock } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { type ReadLimits, readWithin } from '../../src/base/read-within.ts'
import type { Forgotten } from '../../src/observe/dead-letters.ts'
import { Receipts } from '../../src/inbox/receipts.ts'
import { failingOf } from '../../src/observe/stats.ts'
import { archiveOf, type Inbox, type ReadMessage } from '../../src/inbox/inbox.ts'
import { memoryVehicles } from '../../src/vehicles/recent.ts'
import { createOperatorApp } from '../../src/operator/app.ts'
import { readOptions } from '../../src/receiver/options.ts'
import { createNormalizer } from '../../src/wire/normalizer.ts'
import { readsNothing } from '../inbox/forwarding.ts'
import { backlogOf, failingMessages } from '../inbox/postgres/backlog.ts'
import { readersIn } from '../inbox/postgres/branches.ts'
import { Database, databaseError, stateOf } from '../inbox/postgres/client.ts'
import { eraseVehicle } from '../inbox/postgres/erasing.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import { checkServer } from '../inbox/postgres/schema.ts'
import { Store } from '../inbox/postgres/store.ts'
import { receiver, Tables } from '../inbox/postgres/tables.ts'
import { VehicleRows } from '../inbox/postgres/vehicles.ts'
import { controlPath } from '../inbox/sqlite/control.ts'
import { branchesIn } from '../inbox/sqlite/file/changing.ts'
import { SqliteFile } from '../inbox/sqlite/file/file.ts'
import { SqliteInbox } from '../inbox/sqlite/inbox.ts'
import { readSqliteOptions } from '../inbox/sqlite/options.ts'
import { isReadable, isMissing, loadSqlite, refusedAccess } from '../inbox/sqlite/file/database.ts'
import {
  acts,
  type Common,
  dotenvOption,
  type Environment,
  environment,
  inboxPath,
  type Print,
  time,
} from './arguments.ts'
import { codeOf, open, parsed } from './exchange.ts'
import { openPool } from './postgres.ts'
import { inShell, logTo } from './terminal.ts'

export interface Operating {
  readonly to: ConnectionOptions
  readonly operator: Operator
  readonly isJson: boolean
  /** The options that say what is asked, as they were given: a command that this one advises asks the same. */
  readonly asking: string
  readonly print: Print
  /** Asks before more than one message is changed. Resolves to whether to go on. */
  readonly agreed: (question: string) => Promise<boolean>
}

export interface Filter {
  readonly vin?: string
  readonly topic?: string
  readonly from?: Date
  readonly to?: Date
}

interface OperatorArguments {
  readonly inbox?: string
  readonly url?: string
  readonly schema?: string
  readonly branch?: string
  readonly yes?: true
}

const statuses = `
The command asks the first of these that is there:
  1. the receiver at --url or FLEETHOOK_OPERATOR_URL, which mounts operatorRoutes with the secret FLEETHOOK_OPERATOR_SECRET
  2. the receiver with the file --inbox, FLEETHOOK_INBOX or data/inbox.db, on the socket beside it, or that file when no receiver runs
  3. the tables of postgresInbox in DATABASE_URL; with --schema, they come before a file data/inbox.db

These variables are also read from .env.

A time is ISO 8601, in UTC when it names no zone, or a duration
before now: 90s, 15m, 2h, 3d.

Exit status: 0 done, 1 no such message or an error, 2 bad usage.
An empty list is status 0.`

/** Adds the options that all of these commands have, and an action whose exit status is 0 when `work` resolves to `true`. */
export function operates<Arguments extends unknown[], Options extends object>(
  command: Command,
  work: (operating: Operating, options: Options, ...args: Arguments) => Promise<boolean>,
  needs: Needs = 'inbox',
): Command {
  command
    .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
    .option('--url <url>', 'the address at which a receiver mounts operatorRoutes')
    .option('--schema <name>', 'the schema of the tables of postgresInbox (default: fleethook)')
    .option('--branch <name>', 'ask this branch of the receiver only')
    .addHelpText('after', statuses)
  return acts<Arguments, OperatorArguments & Options>(command, async (options, print, ...args) => {
    const variable = environment(options.dotenv)
    const wantsTables = options.schema !== undefined
    const to: ConnectionOptions = { ...connectionTo(options, variable), wantsTables }
    const confirm = (question: string): Promise<boolean> => agreed(question, options)
    const operator = new Operator(to, needs)
    const operating = { to, operator, isJson: options.json === true, asking: askingOf(options), print, agreed: confirm }
    const isDone = await work(operating, options, ...args)
    return isDone ? 0 : 1
  })
}

/** With a space before each. */
function askingOf({ inbox, url, schema, branch, dotenv }: OperatorArguments & Common): string {
  const given = { inbox, url, schema, branch, dotenv: dotenv === dotenvOption.defaultValue ? undefined : dotenv }
  return Object.entries(given)
    .map(([name, value]) => (value === undefined ? '' : ` --${name}=${inShell(value)}`))
    .join('')
}

export function filters(command: Command): Command {
  return command
    .option('--vin <vin>', 'messages of this vehicle')
    .option('--topic <topic>', 'messages of this topic')
    .option('--from <time>', 'messages received at this time or later', time)
    .option('--to <time>', 'messages received before this time', time)
}

export async function agreed(question: string, { yes }: Pick<OperatorArguments, 'yes'>): Promise<boolean> {
  if (yes) return true
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    // What to do about `Not a terminal: pass --yes.`: Pass `--yes`.
    throw new FleethookError('option_invalid', `${question} Not a terminal: pass --yes.`)
  }
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  // Ctrl+C and Ctrl+D close it without an answer.
  const closed = new Promise<string>((resolve) => terminal.once('close', () => resolve('')))
  const answer = await Promise.race([terminal.question(`${question} [y/N] `), closed])
  terminal.close()
  return /^y(es)?$/i.test(answer.trim())
}

/** Where the operator's requests go. A file that the user names wins over the variable of an address. */
export function connectionTo(
  { inbox, url, schema, branch }: Pick<OperatorArguments, 'inbox' | 'url' | 'schema' | 'branch'>,
  variable: Environment,
): ConnectionOptions {
  const database = variable('DATABASE_URL')
  return {
    inbox: inboxPath(inbox, variable),
    url: url ?? (inbox === undefined ? variable('FLEETHOOK_OPERATOR_URL') : undefined),
    secret: variable('FLEETHOOK_OPERATOR_SECRET'),
    // A file that is named and missing is a mistake, and no reason to look elsewhere.
    database: (inbox ?? variable('FLEETHOOK_INBOX')) === undefined && isPostgres(database) ? database : undefined,
    schema: schema ?? 'fleethook',
    branch,
  }
}

export const isPostgres = (address: string | undefined): address is string => /^postgres(?:ql)?:/.test(address ?? '')

/** Whether a command needs a running receiver, or only its inbox file. */
type Needs = 'inbox' | 'receiver'

export interface ConnectionOptions {
  readonly inbox: string
  /** The address at which `operatorRoutes` are mounted, when the receiver is not on this machine. */
  readonly url?: string | undefined
  readonly secret?: string | undefined
  /** The address of a Postgres in which the tables of the inbox may be. */
  readonly database?: string | undefined
  readonly schema?: string
  /** A branch of that receiver. */
  readonly branch?: string | undefined
  /** The user names the schema, so the tables come before a file that the user does not name. */
  readonly wantsTables?: boolean
}

interface Asked {
  readonly method: string
  readonly path: string
  readonly body?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/**
 * A receiver sends a comment every 15 seconds. A stream that is silent for this long is dead, in milliseconds: a laptop that slept, or a network
 * that has changed, closes no connection.
 */
const silentMs = 40_000
const silent = new FleethookError('inbox_unavailable', 'The receiver sends nothing any more.')

const isItsAddress = { hint: 'Is --url the address at which operatorRoutes are mounted?' }

// What to do about `The answer has no end: no receiver sends that.`, `The answer is not the feed of a receiver.`: Something else answers there.
// `--url` is where you mounted `operatorRoutes`.
const endless = new FleethookError('inbox_unavailable', 'The answer has no end: no receiver sends that.', isItsAddress)
const noFeed = new FleethookError('inbox_unavailable', 'The answer is not the feed of a receiver.', isItsAddress)

/** The most that a stream sends until an item is complete, in characters: fifty of the largest messages. */
const mostChars = 64 * 1_048_576

/** Sends requests to the receiver of an inbox: the process that has the file, or else the file. */
export class Operator {
  readonly #to: ConnectionOptions
  readonly #needs: Needs
  /** Whether a running receiver gave the last answer, and not the file of a stopped one. */
  isRunning = true
  /** When the last stream ended, or was heard for the last time. */
  lostAt: Date = new Date()
  #isSaid = false

  constructor(to: ConnectionOptions, needs: Needs = 'inbox') {
    this.#to = to
    this.#needs = needs
  }

  /**
   * Sends a request and returns the answer unchanged. Looks for the receiver each time, because it may start or stop while a person thinks.
   * Rejects when there is no answer.
   */
  async pass({ path, ...how }: Asked): Promise<Response> {
    const { inbox, url, secret, database, schema = 'fleethook', branch, wantsTables = false } = this.#to
    const asked = { ...how, path: branch === undefined ? path : `/branches/${encodeURIComponent(branch)}${path}` }
    if (url !== undefined) return overHttp(url, secret, asked)
    if (isMissing(inbox) || (wantsTables && database !== undefined)) {
      if (database !== undefined && this.#needs === 'receiver') throw notReached(inbox)
      if (database !== undefined) {
        this.isRunning = false
        return askDatabase(database, schema, asked, inbox)
      }
      if (this.#needs === 'receiver') throw notRunning(inbox)
      // What to do about `There is no inbox at …`: Run it in the receiver's folder, or pass `--inbox`.
      throw new FleethookError('inbox_unavailable', `There is no inbox at ${inbox}.`, {
        hint:
          'Name its file with --inbox or FLEETHOOK_INBOX. With postgresInbox, set DATABASE_URL. Any other receiver is reached with ' +
          '--url or FLEETHOOK_OPERATOR_URL.',
      })
    }
    const refused = refusedAccess(inbox)
    if (refused !== undefined) throw refused
    const socket = controlPath(inbox)
    this.isRunning = isOwned(socket, inbox) && (await listens(socket))
    if (this.isRunning) return overSocket(socket, asked)
    if (this.#needs === 'receiver') throw notRunning(inbox)
    if (database !== undefined && !this.#isSaid)
      console.error(
        `This is about the file ${inbox}. With --schema fleethook, the command asks the tables in DATABASE_URL.`,
      )
    this.#isSaid = true
    return askStopped(inbox, asked).catch((error: unknown) => {
      // A program that is no receiver has it: the error says so.
      if (!(error instanceof FleethookError) || error.code !== 'inbox_locked' || isReadable(inbox)) throw error
      throw new FleethookError(
        'inbox_locked',
        // What to do about `Another process has … and does not answer operators at …`: Run it as the receiver's user, or stop the receiver.
        `Another process has ${inbox} and does not answer operators at ${socket}.`,
        { hint: 'Run this command as the user of the receiver, or stop the receiver first.' },
      )
    })
  }

  /** Resolves to the JSON of the answer. Rejects with a `FleethookError` when it is an error or no JSON. */
  async ask(method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> {
    try {
      return await valueOf(await this.pass({ method, path, body: body && JSON.stringify(body) }))
    } catch (error) {
      throw brokenOff(error)
    }
  }

  /** What to add when a file or tables have nothing: a stopped receiver knows nothing of its branches. */
  butBranches(): string {
    return this.isRunning || this.#to.branch !== undefined
      ? ''
      : ' No receiver was asked, so this says nothing about branches: name the inbox of each.'
  }

  /** Reads an answer as Server-Sent Events until it ends or the signal aborts. Rejects like `ask`, and when the connection breaks or is silent. */
  async *stream(path: string, signal: AbortSignal): AsyncGenerator<EventSourceMessage> {
    const silence = new AbortController()
    let heardAt = new Date()
    let timer: NodeJS.Timeout | undefined
    const listen = (): void => void (timer = setTimeout(() => silence.abort(silent), silentMs))
    listen()
    try {
      const answer = await this.pass({ method: 'GET', path, signal: AbortSignal.any([signal, silence.signal]) })
      const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream') === true
      if (answer.status !== 200 || !isStream) await valueOf(answer)
      if (!isStream) throw noFeed
      let chars = 0
      const heard = new TransformStream<string, string>({
        transform(part, to) {
          timer?.refresh()
          heardAt = new Date()
          chars += part.length
          if (chars > mostChars) to.error(endless)
          else to.enqueue(part)
        },
      })
      const text = answer.body?.pipeThrough(new TextDecoderStream()).pipeThrough(heard)
      for await (const event of text?.pipeThrough(new EventSourceParserStream()) ?? []) {
        // What comes while the reader is busy waits in the connection.
        clearTimeout(timer)
        timer = undefined
        chars = 0
        yield event
        listen()
      }
    } finally {
      clearTimeout(timer)
      this.lostAt = silence.signal.aborted ? heardAt : new Date()
    }
  }
}

function notRunning(inbox: string): FleethookError {
  return new FleethookError('inbox_unavailable', `No receiver runs with the inbox ${inbox}.`, {
    hint:
      'Start it, or name the file of its inbox with --inbox or FLEETHOOK_INBOX. For a receiver without sqliteInbox, or on ' +
      'another machine, mount operatorRoutes and give --url.',
  })
}

/** The tables say what waits and what died, and only a receiver says what happens. */
function notReached(inbox: string): FleethookError {
  return new FleethookError(
    'inbox_unavailable',
    `This command asks a running receiver, and there is no inbox at ${inbox} by which to find one.`,
    {
      hint:
        'A receiver with postgresInbox is reached over HTTP: mount operatorRoutes, and give its address with --url or ' +
        'FLEETHOOK_OPERATOR_URL. The commands dead, failing and replay also work on DATABASE_URL alone.',
    },
  )
}

/** A connection that broke, as a person should read it. */
function brokenOff(error: unknown): unknown {
  const code = codeOf(error)
  const isBroken = error instanceof TypeError || /^(E[A-Z]{3,}|ERR_STREAM\w*|UND_ERR\w*)$/.test(code)
  if (error instanceof FleethookError || !isBroken) return error
  return new FleethookError('inbox_unavailable', `The receiver ended before it answered: ${code}.`, {
    hint: 'Look at its log. When it runs again, run the command again.',
    cause: error,
  })
}

/** A page of a list has a megabyte, and one message a few times its size. Read from a file on a slow disk, they take seconds. */
const answerLimits: ReadLimits = { mostBytes: 64 * 1_048_576, mostMs: 60_000 }

async function valueOf(answer: Response): Promise<unknown> {
  const { status } = answer
  const bytes = await readWithin(answer, answerLimits)
  if (bytes === undefined) throw endless
  const value = parsed(new TextDecoder().decode(bytes))
  if (status === 200 && value !== undefined) return value
  if (status === 401 || status === 403)
    // What to do about `The receiver refuses the operator's secret: it answered …`: Set `FLEETHOOK_OPERATOR_SECRET` to the secret of its `operatorRoutes`.
    throw new FleethookError(
      'inbox_unavailable',
      `The receiver refuses the operator's secret: it answered ${status}.`,
      {
        hint: 'Set FLEETHOOK_OPERATOR_SECRET to the secret of its operatorRoutes, which is not the secret of the webhook.',
      },
    )
  const said = typeof value === 'object' && value !== null && 'text' in value ? String(value.text) : ''
  throw new FleethookError('inbox_unavailable', said === '' ? `The receiver answered with status ${status}.` : said)
}

/** Whether the socket belongs to this user or to the owner of the file. Another user could pretend to be the receiver. */
function isOwned(socket: string, inbox: string): boolean {
  if (process.platform === 'win32') return true
  const owner = lstatSync(socket, { throwIfNoEntry: false })?.uid
  return owner !== undefined && (owner === process.getuid?.() || owner === statSync(inbox).uid)
}

async function listens(socketPath: string): Promise<boolean> {
  try {
    await readWithin(await overSocket(socketPath, { method: 'GET', path: '/' }), answerLimits)
    return true
  } catch {
    return false
  }
}

async function overSocket(socketPath: string, { method, path, body, signal }: Asked): Promise<Response> {
  const answer = await open({ socketPath, path, method, signal }, body)
  const { statusCode: status = 0, headers } = answer
  const content = Readable.toWeb(answer) as ReadableStream // oxlint-disable-line no-unsafe-type-assertion -- the same class, with types of Node
  return new Response(content, { status, headers: { 'content-type': headers['content-type'] ?? '' } })
}

/** Without a user or a query, which can hold a secret. */
function shownAddress(url: string): string {
  const { origin, pathname } = new URL(url)
  return origin + pathname
}

async function overHttp(
  url: string,
  secret: string | undefined,
  { method, path, body, signal }: Asked,
): Promise<Response> {
  if (secret === undefined) {
    throw new FleethookError('secret_missing', 'FLEETHOOK_OPERATOR_SECRET is not set.', {
      hint: 'Set it in the environment or in .env to the secret of operatorRoutes.',
    })
  }
  try {
    const headers = { authorization: secret }
    return await fetch(url.replace(/\/$/, '') + path, {
      method,
      headers,
      redirect: 'error',
      body: body ?? null,
      signal: signal ?? null,
    })
  } catch (cause) {
    // What to do about `… could not be reached.`, `The receiver answered with status …`: `--url` is where you mounted `operatorRoutes`.
    throw new FleethookError('inbox_unavailable', `${shownAddress(url)} could not be reached.`, { cause })
  }
}

/** Asks the tables of postgresInbox, which any process may do. Handlers run where a process handles. */
async function askDatabase(address: string, schema: string, asked: Asked, inbox: string): Promise<Response> {
  if (!schemaName.accepts(schema)) throw new FleethookError('option_invalid', `--schema ${schemaName.must}.`)
  const pool = await openPool(address)
  const db = new Database(pool, schema, systemClock)
  try {
    await checkServer(db, true)
    const reread = rereading()
    const branches = await Promise.all(
      (await readersIn(db)).flatMap(({ branch, tables }) =>
        branch === undefined ? [] : [tablesApi(db, tables, reread).then((api) => [branch, api] as const)],
      ),
    )
    const own = await tablesApi(db, new Tables(schema, receiver), reread)
    const app = createOperatorApp({
      ...own,
      branches: new Map(branches),
      async forget(vin, { dryRun = false } = {}) {
        const erased = await eraseVehicle(db, vin, dryRun)
        // The process that has the vehicle may write its state again until its messages are gone.
        if (!dryRun) await new VehicleRows(db, new Tables(schema, receiver)).forget(vin)
        return erased
      },
    })
    return await app.request(asked.path, { method: asked.method, body: asked.body ?? null })
  } catch (error) {
    const failure = databaseError(error)
    if (!['42P01', '3F000'].includes(stateOf(error))) throw failure
    throw new FleethookError(
      'inbox_unavailable',
      `There is no inbox at ${inbox}, and the database of DATABASE_URL has no tables of postgresInbox in the schema ${schema}.`,
      { hint: 'Name the file with --inbox, the tables with --schema, or the address of a receiver with --url.' },
    )
  } finally {
    await pool.end()
  }
}

/** What the tables of one reader of postgresInbox can be asked. */
async function tablesApi(
  db: Database,
  tables: Tables,
  reread: ReadMessage,
): Promise<Omit<Parameters<typeof createOperatorApp>[0], 'branches' | 'forget'>> {
  const kept = { keepForMs: 86_400_000, deadForMs: 30 * 86_400_000, confirmMs: 10_000 }
  const store = new Store(db, systemClock, kept, undefined, tables)
  const [backlog, failing] = [await backlogOf(db, tables), await failingMessages(db, tables)]
  return {
    deadLetters: deadLettersOf(store, reread),
    messages: createMessages(store, reread),
    replay: (which) => store.replayHandled(which, reread),
    replaySome: (which) => store.replaySome(which, reread),
    failing: async () => failingOf(failing, true),
    backlog: async () => backlog,
  }
}

/** The receiver's `format` and `fields` are unknown here, so use the defaults. They only affect what is shown. */
function rereading(): ReadMessage {
  const normalizer = createNormalizer({ ...readOptions({ secret: false }), onDrift: () => {} })
  return new Receipts({ normalizer, clock: systemClock }).reread
}

/** Opens the file as the receiver would, without handlers, and asks it once. What it says about gaps and stops stays. */
async function askStopped(path: string, { method, path: asked, body }: Asked): Promise<Response> {
  const nothing = (): void => {}
  loadSqlite()
  const settings = readSqliteOptions({ path, waitMs: 0 })
  const file = new SqliteFile({ ...settings, isVisit: true })
  const inboxSettings = {
    limits: { pendingMessages: undefined, pendingBytes: undefined },
    read: readsNothing,
    clock: systemClock,
    log: logTo(process.stderr),
    on: nothing,
  }
  const own = { ...inboxSettings, states: memoryVehicles }
  const inbox = new SqliteInbox(file, own, settings)
  const readers = branchesIn(path).map((name) => [name, inbox.reader(name, own)] as const)
  await inbox.open()
  for (const [, reader] of readers) await reader.open()
  try {
    const replaysOf = (of: Inbox): ReturnType<typeof createReplays> =>
      createReplays({
        archive: archiveOf(of),
        open: async () => {},
        read: rereading(),
        isDraining: () => false,
        revived: async () => {},
      })
    const waiting = async (): Promise<never> => {
      throw notRunning(path)
    }
    const forget = async (vin: string, { dryRun = false } = {}): Promise<Forgotten> =>
      (await inbox.forget?.(vin, dryRun)) ?? { messages: 0, waiting: 0, deadLetters: 0 }
    const branches = new Map(
      readers.map(([name, reader]) => [name, { ...replaysOf(reader), failing: waiting, forget }]),
    )
    const api = { ...replaysOf(inbox), failing: waiting, forget, branches }
    return await createOperatorApp(api).request(asked, { method, body: body ?? null })
  } finally {
    for (const [, reader] of readers) await reader.close()
    await inbox.close()
  }
}
