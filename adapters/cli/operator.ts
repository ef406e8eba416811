import { lstatSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { Readable } from 'node:stream'
import type { Command } from 'commander'
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream'
import { createReplays } from '../../src/backend/replay.ts'
import { systemClock } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { createReceipts } from '../../src/inbox/receipts.ts'
import { createOperatorApp } from '../../src/operator/app.ts'
import { readOptions } from '../../src/receiver/options.ts'
import { createNormalizer } from '../../src/wire/normalizer.ts'
import { controlPath } from '../inbox/sqlite/control.ts'
import { createInboxFile } from '../inbox/sqlite/file/file.ts'
import { createSqliteInbox } from '../inbox/sqlite/inbox.ts'
import { readSqliteOptions } from '../inbox/sqlite/options.ts'
import { isMissing, loadSqlite, refusedAccess } from '../inbox/sqlite/file/database.ts'
import { acts, environment, inboxPath, type Print, time } from './arguments.ts'
import { open, parsed } from './exchange.ts'
import { logTo } from './terminal.ts'

export interface Operating {
  readonly to: ConnectionOptions
  readonly operator: Operator
  readonly isJson: boolean
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
  readonly yes?: true
}

const statuses = `
The command finds a receiver by the file of its inbox. A running receiver answers on a socket beside the file. When none
runs, the command opens the file itself. For a receiver on another machine or on Workers, mount operatorRoutes and give --url.

Environment: FLEETHOOK_INBOX, the file of the inbox; FLEETHOOK_OPERATOR_SECRET, for --url. Both are also read from .env.

A time is ISO 8601, in UTC when it names no zone, or a duration before now: 90s, 15m, 2h, 3d.

Exit status: 0 done, 1 no such message or an error, 2 bad usage. An empty list is status 0.`

/** Adds the options that all of these commands have, and an action whose exit status is 0 when `work` resolves to `true`. */
export function operates<Arguments extends unknown[], Options extends object>(
  command: Command,
  work: (operating: Operating, options: Options, ...args: Arguments) => Promise<boolean>,
  needs: Needs = 'inbox',
): Command {
  command
    .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
    .option('--url <url>', 'the address at which a receiver mounts operatorRoutes')
    .addHelpText('after', statuses)
  return acts<Arguments, OperatorArguments & Options>(command, async (options, print, ...args) => {
    const variable = environment(options.dotenv)
    const secret = variable('FLEETHOOK_OPERATOR_SECRET')
    const to = { inbox: inboxPath(options.inbox, variable), url: options.url, secret }
    const confirm = (question: string): Promise<boolean> => agreed(question, options)
    const operator = new Operator(to, needs)
    const isDone = await work({ to, operator, isJson: options.json === true, print, agreed: confirm }, options, ...args)
    return isDone ? 0 : 1
  })
}

export function filters(command: Command): Command {
  return command
    .option('--vin <vin>', 'messages of this vehicle')
    .option('--topic <topic>', 'messages of this topic')
    .option('--from <time>', 'messages received at this time or later', time)
    .option('--to <time>', 'messages received before this time', time)
}

async function agreed(question: string, { yes }: OperatorArguments): Promise<boolean> {
  if (yes) return true
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    throw new FleethookError('option_invalid', `${question} Not a terminal: pass --yes.`)
  }
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  // Ctrl+C and Ctrl+D close it without an answer.
  const closed = new Promise<string>((resolve) => terminal.once('close', () => resolve('')))
  const answer = await Promise.race([terminal.question(`${question} [y/N] `), closed])
  terminal.close()
  return /^y(es)?$/i.test(answer.trim())
}

/** Whether a command needs a running receiver, or only its inbox file. */
type Needs = 'inbox' | 'receiver'

export interface ConnectionOptions {
  readonly inbox: string
  /** The address at which `operatorRoutes` are mounted, when the receiver is not on this machine. */
  readonly url?: string | undefined
  readonly secret?: string | undefined
}

interface Asked {
  readonly method: string
  readonly path: string
  readonly body?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** Sends requests to the receiver of an inbox: the process that has the file, or else the file. */
export class Operator {
  readonly #to: ConnectionOptions
  readonly #needs: Needs
  /** Whether a running receiver gave the last answer, and not the file of a stopped one. */
  isRunning = true

  constructor(to: ConnectionOptions, needs: Needs = 'inbox') {
    this.#to = to
    this.#needs = needs
  }

  /**
   * Sends a request and returns the answer unchanged. Looks for the receiver each time, because it may start or stop while a person thinks.
   * Rejects when there is no answer.
   */
  async pass(asked: Asked): Promise<Response> {
    const { inbox, url, secret } = this.#to
    if (url !== undefined) return overHttp(url, secret, asked)
    if (isMissing(inbox)) {
      if (this.#needs === 'receiver') throw notRunning(inbox)
      throw new FleethookError('inbox_unavailable', `There is no inbox at ${inbox}.`, {
        hint: 'Name its file with --inbox or FLEETHOOK_INBOX. A receiver without a file is reached with --url.',
      })
    }
    const refused = refusedAccess(inbox)
    if (refused !== undefined) throw refused
    const socket = controlPath(inbox)
    this.isRunning = isOwned(socket, inbox) && (await listens(socket))
    if (this.isRunning) return overSocket(socket, asked)
    if (this.#needs === 'receiver') throw notRunning(inbox)
    return askStopped(inbox, asked).catch((error: unknown) => {
      if (!(error instanceof FleethookError) || error.code !== 'inbox_locked') throw error
      throw new FleethookError(
        'inbox_locked',
        `Another process has ${inbox} and does not answer operators at ${socket}.`,
        { hint: 'Run this command as the user of the receiver, or stop the receiver first.' },
      )
    })
  }

  /** Resolves to the JSON of the answer. Rejects with a `FleethookError` when it is an error or no JSON. */
  async ask(method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> {
    return valueOf(await this.pass({ method, path, body: body && JSON.stringify(body) }))
  }

  /** Reads an answer as Server-Sent Events until it ends or the signal aborts. Rejects like `ask`, and when the connection breaks. */
  async *stream(path: string, signal: AbortSignal): AsyncGenerator<EventSourceMessage> {
    const answer = await this.pass({ method: 'GET', path, signal })
    if (answer.status !== 200) await valueOf(answer)
    yield* answer.body?.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()) ?? []
  }
}

function notRunning(inbox: string): FleethookError {
  return new FleethookError('inbox_unavailable', `No receiver runs with the inbox ${inbox}.`, {
    hint:
      'Start it, or name the file of its inbox with --inbox or FLEETHOOK_INBOX. For a receiver without sqliteInbox, or on ' +
      'another machine, mount operatorRoutes and give --url.',
  })
}

async function valueOf(answer: Response): Promise<unknown> {
  const { status } = answer
  const value = parsed(await answer.text())
  if (status === 200 && value !== undefined) return value
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
    await (await overSocket(socketPath, { method: 'GET', path: '/' })).text()
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
    throw new FleethookError('inbox_unavailable', `${url} could not be reached.`, { cause })
  }
}

/** Opens the file as the receiver would, without handlers, and asks it once. What it says about gaps and stops stays. */
async function askStopped(path: string, { method, path: asked, body }: Asked): Promise<Response> {
  const nothing = (): void => {}
  loadSqlite()
  const settings = readSqliteOptions({ path, waitMs: 0 })
  const file = createInboxFile({ ...settings, isVisit: true })
  const inboxSettings = {
    pendingMessages: undefined,
    pendingBytes: undefined,
    clock: systemClock,
    log: logTo(process.stderr),
    onFailure: nothing,
    onCapacity: nothing,
  }
  const inbox = createSqliteInbox(file, { ...inboxSettings, keepsVehicles: true }, settings)
  await inbox.open()
  try {
    // The receiver's `format` and `fields` are unknown here, so use the defaults. They only affect what is shown.
    const normalizer = createNormalizer({ ...readOptions({ secret: false }), onDrift: nothing })
    const { reread } = createReceipts(normalizer, systemClock)
    const replays = createReplays({
      inbox,
      open: async () => {},
      read: reread,
      isDraining: () => false,
      revived: async () => {},
    })
    return await createOperatorApp(replays).request(asked, { method, body: body ?? null })
  } finally {
    await inbox.close()
  }
}
