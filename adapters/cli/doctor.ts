import { randomUUID } from 'node:crypto'
import { closeSync, openSync, statfsSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { rootCertificates } from 'node:tls'
import type { Command } from 'commander'
import * as z from 'zod/mini'
import { FleethookError } from '../../src/base/errors.ts'
import { systemClock } from '../../src/base/clock.ts'
import { defined } from '../../src/base/options.ts'
import { type Failing, failingOf } from '../../src/observe/stats.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { testHeader } from '../../src/inbox/receipts.ts'
import type { ShownItem } from '../../src/operator/feed.ts'
import type { MissingVehicle } from '../../src/observe/missing.ts'
import { secretErrors } from '../../src/reports/refusals.ts'
import type { Client } from '../../src/service/client/client.ts'
import { vinsOf } from '../../src/service/client/products.ts'
import { ServiceError } from '../../src/service/client/service-error.ts'
import { isLoopback } from '../../src/service/client/webhook-url.ts'
import { Database, databaseError, stateOf } from '../inbox/postgres/client.ts'
import { backlogOf, failingMessages } from '../inbox/postgres/backlog.ts'
import { tableHealth } from '../inbox/postgres/health.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import { checkServer } from '../inbox/postgres/schema.ts'
import { isMissing, refusedAccess } from '../inbox/sqlite/file/database.ts'
import {
  acts,
  type Common,
  type Environment,
  environment,
  inboxPath,
  names,
  problemWithSecret,
  webAddress,
} from './arguments.ts'
import { adviceFor, codeOf, exchange, type Exchanged, parsed } from './exchange.ts'
import { failingForm, failingSentence, type ShownFailing } from './failing.ts'
import { type ConnectionOptions, connectionTo, isPostgres, Operator } from './operator.ts'
import { openPool } from './postgres.ts'
import { keptErrors } from './feed.ts'
import { hearing, inOrder, todoFor } from './missing.ts'
import { clientIn } from './service.ts'
import { colorsFor, inShell } from './terminal.ts'

/**
 * `'warn'`: it works, but something may go wrong later. `'skip'`: there is no such thing here. `'unchecked'`: it could not be checked, which is no
 * pass.
 */
type Status = 'ok' | 'warn' | 'fail' | 'skip' | 'unchecked'

interface Finding {
  /** The group and the name of the check. Stable, so that scripts can use it. */
  readonly id: string
  readonly status: Status
  /** What was found, with the value. Never a secret. */
  readonly found: string
  /** The one thing to do. */
  readonly todo?: string
}

const ok = (id: string, found: string): Finding => ({ id, status: 'ok', found })
const skip = (id: string, found: string): Finding => ({ id, status: 'skip', found })
const unchecked = (id: string, found: string, todo: string): Finding => ({ id, status: 'unchecked', found, todo })
const warn = (id: string, found: string, todo: string): Finding => ({ id, status: 'warn', found, todo })
const fail = (id: string, found: string, todo: string): Finding => ({ id, status: 'fail', found, todo })

interface Circumstances {
  readonly variable: Environment
  /** The file with variables. It may be missing. */
  readonly envFile: string
  readonly url: URL | undefined
  /** The file of the inbox. It may be missing. */
  readonly inbox: string
  readonly client: Client | undefined
  /** The schema of the tables in Postgres. */
  readonly schema: string
  /** Where a running receiver is asked. */
  readonly operator: ConnectionOptions
}

/** Checks in an order in which a group ends when the next one would be pointless. */
type Group = (about: Circumstances) => AsyncGenerator<Finding, void>

const groups: Readonly<Record<string, Group>> = { secret, webhook, proxy, inbox, postgres, receiver, vehicles }
const all = Object.keys(groups)

type Backlog = NonNullable<z.infer<typeof statsForm>['backlog']>

interface Given {
  readonly url?: URL
  readonly inbox?: string
  readonly schema: string
  readonly operator?: string
  readonly only?: readonly string[]
}

export function defineDoctor(command: Command): void {
  command
    .description('Finds out why messages do not arrive. Each line has an id, what was found, and one thing to do.')
    .option(
      '-u, --url <url>',
      'the public address of the webhook (default: what the service has as its webhook)',
      webAddress('https:// or http://, as in https://example.com/telemetry'),
    )
    .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
    .option('--operator <url>', 'where the receiver mounts operatorRoutes (default: FLEETHOOK_OPERATOR_URL)')
    .option('--schema <name>', 'the schema of the tables of postgresInbox', 'fleethook')
    .option('--only <groups>', `only these groups, separated by commas: ${all.join(', ')}`, (text) =>
      names(text, 'group', all),
    )
    .addHelpText(
      'after',
      `
The group proxy posts a test message to the public address with WEBHOOK_SECRET. The receiver answers it and gives it to no handler.
A check from this machine can pass where the service cannot get through. Only a real message proves the whole way.

Environment: WEBHOOK_SECRET, SERVICE_URL, SERVICE_API_KEY, FLEETHOOK_INBOX,
DATABASE_URL, FLEETHOOK_OPERATOR_URL, FLEETHOOK_OPERATOR_SECRET. All are also
read from .env.

Exit status: 0 all checks passed or only warn, 1 a check failed, 2 bad usage, 3 none failed, and something could not be checked. Leave out
what you cannot check here with --only.`,
    )
  acts<[], Given>(command, async (given, print) => {
    const about = await circumstances(given)
    const findings: Finding[] = []
    for (const [name, group] of Object.entries(groups)) {
      if (!(given.only ?? all).includes(name)) continue
      if (!given.json) console.log(colorsFor(process.stdout).bold(name))
      for await (const finding of safely(name, group(about))) {
        findings.push(finding)
        if (!given.json) console.log(shown(finding))
      }
    }
    print({ findings }, () => `\n${summary(findings)}`)
    if (findings.some(({ status }) => status === 'fail')) return 1
    const isUnchecked = findings.some(({ status }) => status === 'unchecked')
    return isUnchecked || findings.every(({ status }) => status === 'skip') ? 3 : 0
  })
}

async function circumstances(given: Given & Common): Promise<Circumstances> {
  const variable = environment(given.dotenv)
  const client = clientIn(variable, { timeoutMs: 10_000, retry: { attempts: 1 } })
  const known = given.url?.href ?? (await client?.webhook.get().catch(() => undefined))?.url
  const url = known !== undefined && URL.canParse(known) ? new URL(known) : undefined
  const operator = connectionTo(
    { ...defined({ inbox: given.inbox, url: given.operator }), schema: given.schema },
    variable,
  )
  const { dotenv: envFile, schema } = given
  return { variable, envFile, inbox: inboxPath(given.inbox, variable), client, url, schema, operator }
}

/** Turns an error into a finding, so that the next group still runs. */
async function* safely(group: string, findings: AsyncGenerator<Finding, void>): AsyncGenerator<Finding, void> {
  try {
    yield* findings
  } catch (error) {
    if (error instanceof FleethookError || error instanceof ServiceError)
      yield fail(`${group}.error`, error.message, error.hint ?? 'Look the code up in docs/troubleshooting.md.')
    else
      yield fail(
        `${group}.error`,
        `The check itself failed: ${codeOf(error)}.`,
        'Run the command as the user of the receiver, and look at the disk and the network.',
      )
  }
}

const marks: Readonly<Record<Status, string>> = { ok: '✔', warn: '!', fail: '✖', skip: '–', unchecked: '?' }

function shown({ id, status, found, todo }: Finding): string {
  const colors = colorsFor(process.stdout)
  const color = { ok: colors.green, warn: colors.yellow, fail: colors.red, skip: colors.dim, unchecked: colors.yellow }[
    status
  ]
  const line = `  ${color(marks[status])} ${id.padEnd(20)} ${escapeControls(found)}`
  return todo === undefined ? line : `${line}\n    ${colors.bold('→')} ${escapeControls(todo)}`
}

function summary(findings: readonly Finding[]): string {
  const count = (status: Status): number => findings.filter((finding) => finding.status === status).length
  const [failed, warned, missing] = [count('fail'), count('warn'), count('unchecked')]
  if (failed + warned + missing === 0 && count('ok') > 0) return 'All checks passed.'
  return `${count('ok')} passed, ${warned} to look at, ${failed} failed, ${missing} could not be checked.`
}

const exampleValues = ['a-long-random-value', 'the-new-secret', 'the-old-one', 'changeme', 'secret']

/** The secret, without a request. No text shows a character of it. */
async function* secret({ variable, envFile }: Circumstances): AsyncGenerator<Finding, void> {
  const value = variable('WEBHOOK_SECRET') ?? ''
  const makeOne = `Make one with openssl rand -hex 32, write it into ${envFile} and set it as \`auth\` of the webhook.`
  const problem =
    value === ''
      ? `WEBHOOK_SECRET is set neither in the environment nor in ${envFile}.`
      : exampleValues.includes(value.toLowerCase())
        ? 'The secret is the value of an example.'
        : problemWithSecret(value)
  if (problem !== undefined) yield fail('secret.set', problem, makeOne)
  else if (/^["'`].*["'`]$/.test(value)) yield fail('secret.set', 'The secret is in quotes.', 'Remove the quotes.')
  else if (value.length < 16) yield warn('secret.set', 'The secret is short enough to be guessed.', makeOne)
  else yield ok('secret.set', `WEBHOOK_SECRET is set: ${value.length} characters`)
}

const mostConfigs = 25

/** What the service knows about this business: its webhook, and which vehicles stream. */
async function* webhook({ client, url }: Circumstances): AsyncGenerator<Finding, void> {
  if (client === undefined)
    return yield unchecked(
      'webhook.set',
      'The service was not asked: SERVICE_URL and SERVICE_API_KEY are not set.',
      'Set them in the environment or in .env.',
    )
  const stored = await client.webhook.get().catch((error: unknown) => {
    if (error instanceof ServiceError && error.code === 'webhook_not_found') return undefined
    throw error
  })
  if (stored === undefined) {
    const text = 'The business has no webhook, so the service posts nothing.'
    return yield fail('webhook.set', text, 'fleethook webhook set --url <url>')
  }
  yield ok('webhook.set', stored.url)
  if (!stored.enabled)
    yield fail(
      'webhook.enabled',
      'The webhook is paused: no message is delivered.',
      'Run fleethook webhook set without --paused.',
    )
  if (url !== undefined && stored.url.replace(/\/$/, '') !== url.href.replace(/\/$/, ''))
    yield fail(
      'webhook.url',
      `The service posts to ${stored.url}, and --url is ${url.href}.`,
      `fleethook webhook set --url ${inShell(url.href)}`,
    )
  if (!stored.auth)
    yield fail(
      'webhook.auth',
      'The service sends no Authorization header. A receiver with a secret refuses every message.',
      'Run fleethook webhook set without --no-auth.',
    )
  const shared = vinsOf(await client.products())
  if (shared.length === 0)
    return yield fail(
      'webhook.vehicles',
      'No customer shares a vehicle with the business.',
      'Ask a customer to share one.',
    )
  const asked = shared.slice(0, mostConfigs)
  const without: string[] = []
  for (const each of asked) {
    const { fields } = await client.config(each).get().catch(noFields)
    if (Object.keys(fields).length === 0) without.push(each)
  }
  const some = asked.length < shared.length ? ` (the first ${asked.length} of ${shared.length})` : ''
  if (without.length === 0)
    return yield ok('webhook.vehicles', `${asked.length} vehicles have a streaming config${some}`)
  const few = `${without.slice(0, 3).join(', ')}${without.length > 3 ? ', …' : ''}`
  yield fail(
    'webhook.vehicles',
    `${without.length} of ${asked.length} vehicles${some} have no streaming config, so they send no data: ${few}`,
    `fleethook config patch ${inShell(without[0] ?? '')} BatteryLevel=60`,
  )
}

function noFields(error: unknown): { readonly fields: object } {
  if (error instanceof ServiceError && error.code === 'config_not_found') return { fields: {} }
  throw error
}

/** The public address, to which a marked test message is posted as the service posts messages. */
async function* proxy({ url, variable }: Circumstances): AsyncGenerator<Finding, void> {
  const authorization = variable('WEBHOOK_SECRET') ?? ''
  if (url === undefined)
    return yield unchecked('proxy.answer', 'No message was posted: the public address is not known.', 'Give --url.')
  if (problemWithSecret(authorization) !== undefined)
    return yield unchecked('proxy.answer', 'No message was posted: there is no usable secret.', 'Set WEBHOOK_SECRET.')
  const { protocol, hostname, origin } = url
  if (protocol === 'http:' && !isLoopback(hostname))
    return yield fail(
      'proxy.answer',
      `${origin} is not encrypted, so the secret was not sent: anyone on the way could read it.`,
      'Put a proxy with TLS in front of the receiver.',
    )
  const headers = { 'content-type': 'application/json', 'user-agent': 'fleethook-doctor', [testHeader]: '1' }
  const answer = await exchange(url, {
    agent: false,
    headers: { ...headers, authorization },
    body: JSON.stringify({ fleethook: { test: randomUUID() } }),
    // Only the built-in authorities, without NODE_EXTRA_CA_CERTS, as a sender does.
    ca: [...rootCertificates],
    signal: AbortSignal.timeout(10_000),
  }).catch(codeOf)
  if (typeof answer !== 'string') {
    yield verdict(url, answer)
    if (answer.certificateUntilMs !== undefined) yield certificate('proxy.certificate', answer.certificateUntilMs)
    return
  }
  yield fail('proxy.answer', `${origin} did not answer: ${answer}.`, adviceFor(answer))
}

const dayMs = 86_400_000

/** As the log of `serve` does, it warns 14 days before. */
function certificate(id: string, untilMs: number): Finding {
  const leftMs = untilMs - Date.now()
  const when = new Date(untilMs).toISOString().slice(0, 16).replace('T', ' ')
  if (leftMs <= 0)
    return fail(id, `The certificate expired at ${when} UTC.`, 'Renew it, and find out why it did not renew itself.')
  const left = leftMs < 2 * dayMs ? `${Math.ceil(leftMs / 3_600_000)} hours` : `${Math.floor(leftMs / dayMs)} days`
  return leftMs < 14 * dayMs
    ? warn(
        id,
        `The certificate expires at ${when} UTC, in ${left}.`,
        'Renew it, and find out why it did not renew itself.',
      )
    : ok(id, `the certificate is valid for ${left}`)
}

const ownAnswer = z.object({ code: z.number(), error: z.optional(z.string()), hint: z.optional(z.string()) })

function verdict({ href, pathname }: URL, { status, headers, text }: Exchanged): Finding {
  const wrong = (found: string, todo: string): Finding => fail('proxy.answer', found, todo)
  if (status >= 300 && status < 400)
    return wrong(
      `${href} redirects to ${headers.location ?? 'another address'}. The service does not follow redirects.`,
      'Set the final address as the webhook.',
    )
  const own = ownAnswer.safeParse(parsed(text)).data
  if (own === undefined) {
    const { server, 'content-type': type = 'no content type' } = headers
    return wrong(
      `Something before the receiver answered: status ${status}, ${type}${server === undefined ? '' : `, server ${String(server)}`}.`,
      'Let the proxy pass POST requests of this path to the receiver, and check its upstream.',
    )
  }
  if (status === 200 && own.code === 0)
    return ok('proxy.answer', 'the receiver took a test message with the secret, seen from here')
  switch (own.error) {
    case 'authorization_missing':
      return wrong(
        'The receiver got no Authorization header: something on the way removes it.',
        'Pass the header on: `proxy_set_header Authorization $http_authorization;` in nginx, `CGIPassAuth On` in Apache.',
      )
    case 'authorization_scheme':
    case 'secret_wrong':
      return wrong(
        own.hint?.includes('two Authorization headers') || own.hint?.includes('in quotes')
          ? own.hint
          : 'The receiver has another secret than WEBHOOK_SECRET here, or something on the way changes the header.',
        'Run fleethook doctor --only proxy --url http://localhost:3000 on the machine of the receiver. If that passes, let the proxy pass the header on unchanged.',
      )
    case 'path_unknown':
      return wrong(`The receiver has no webhook at ${pathname}.`, 'Use the path at which the receiver is mounted.')
  }
  return wrong(
    `The receiver answered ${status}: ${own.error ?? `code ${own.code}`}.`,
    'Look this code up in docs/troubleshooting.md.',
  )
}

/** The inbox file and its disk. Opens no database, so it may run beside a receiver. */
async function* inbox({ inbox: given, operator }: Circumstances): AsyncGenerator<Finding, void> {
  const path = resolve(given)
  const folder = dirname(path)
  if (operator.database !== undefined && isMissing(path))
    return yield skip('inbox.file', `no file ${path}; DATABASE_URL names a Postgres, see the group postgres`)
  if (isMissing(folder))
    return yield unchecked(
      'inbox.file',
      `There is no folder ${folder}: no receiver has used this inbox yet.`,
      'Start the receiver, or name the file of its inbox with --inbox.',
    )
  const refused = refusedAccess(path)
  if (refused !== undefined) return yield fail('inbox.file', refused.message, refused.hint ?? '')
  const file = statSync(path, { throwIfNoEntry: false })
  if (file !== undefined) closeSync(openSync(path, 'r+'))
  if (process.platform === 'win32' || ((file?.mode ?? 0) & 0o077) === 0)
    yield ok('inbox.file', `${path}${file === undefined ? ': no file yet' : ''}`)
  else
    yield warn('inbox.file', `Others can read ${path}. It holds positions of vehicles.`, `chmod 600 ${inShell(path)}`)
  const { bavail, bsize } = statfsSync(folder)
  const free = Math.floor((bavail * bsize) / 1_048_576)
  const todo = 'Free space, or lower the retention of the inbox.'
  if (free < 64)
    yield fail('inbox.space', `Only ${free} MiB are free. The receiver refuses messages when the disk is full.`, todo)
  // Handled messages of a day, and dead letters.
  else if (free < 1_280)
    yield warn('inbox.space', `${free} MiB are free. With the default retention, the inbox can take 1,280 MiB.`, todo)
  else yield ok('inbox.space', `${free} MiB free`)
}

/** The server and the tables of postgresInbox. */
async function* postgres({ variable, schema }: Circumstances): AsyncGenerator<Finding, void> {
  const url = variable('DATABASE_URL') ?? ''
  if (!isPostgres(url)) return yield skip('postgres.server', 'DATABASE_URL is not set to the address of a Postgres')
  if (!schemaName.accepts(schema)) throw new FleethookError('option_invalid', `--schema ${schemaName.must}.`)
  const pool = await openPool(url)
  try {
    const db = new Database(pool, schema, systemClock)
    const { weakness, isReplicated } = await checkServer(db, true)
    yield ok('postgres.tables', `the tables in the schema ${schema} are ready`)
    if (weakness !== undefined)
      yield fail(
        'postgres.commit',
        `In this Postgres ${weakness}: a crash can lose committed messages.`,
        'Turn it on for the user of the inbox.',
      )
    else yield ok('postgres.commit', isReplicated ? 'a commit waits for a standby' : 'a commit is on the disk')
    const { deadRows, oldestSnapshotMs, holder } = await tableHealth(db)
    const minutes = Math.floor(oldestSnapshotMs / 60_000)
    yield minutes < 10
      ? ok('postgres.snapshot', `no snapshot is old; ${deadRows} dead rows`)
      : warn(
          'postgres.snapshot',
          `For ${minutes} min, a snapshot of ${holder} has kept Postgres from removing dead rows: ${deadRows}.`,
          'End that transaction. Run long reports on a replica.',
        )
    yield* waiting('postgres', await backlogOf(db))
    yield failing('postgres.failing', toJson(failingOf(await failingMessages(db), false)))
    const [letters] = await db.run(`SELECT count(*) AS dead FROM (SELECT FROM ${schema}.dead LIMIT 10000) d`)
    yield deadLetters('postgres.dead', Number(letters?.['dead']))
  } catch (error) {
    const { message, hint = '' } = databaseError(error)
    // The database may serve something else.
    const hasNone = ['42P01', '3F000'].includes(stateOf(error))
    yield hasNone ? warn('postgres.tables', message, hint) : fail('postgres.server', message, hint)
  } finally {
    await pool.end()
  }
}

/** Messages that nobody handles raise no error anywhere, so this fails at once. */
function* waiting(group: string, { messages, oldestMs = 0, processes }: Backlog): Generator<Finding, void> {
  const seconds = Math.round(oldestMs / 1_000)
  const wait = messages === 1 ? '1 message waits' : `${messages} messages wait`
  const todo = 'Start a receiver that handles: with the role both or handle.'
  if (processes === 0 && messages > 0)
    yield fail(`${group}.processes`, `No process runs handlers: ${wait}, the oldest for ${seconds} s.`, todo)
  else if (processes === 0) yield warn(`${group}.processes`, 'No process runs handlers now, and nothing waits.', todo)
  else if (processes !== undefined)
    yield ok(`${group}.processes`, processes === 1 ? '1 process runs handlers' : `${processes} processes run handlers`)
  yield seconds <= 60
    ? ok(`${group}.backlog`, wait)
    : warn(
        `${group}.backlog`,
        `${wait}, the oldest for ${seconds} s.`,
        'fleethook failing shows handlers that fail. Slow ones need more `concurrency` or `batch`.',
      )
}

const toJson = ({ handlers, ...of }: Failing): ShownFailing => ({
  ...of,
  handlers: handlers.map(({ since, ...handler }) => ({ ...handler, since: since.toISOString() })),
})

/** A handler may fail for a moment. After a minute, somebody must look. */
const briefMs = 60_000

const unopenedForm = z.object({
  path: z.string(),
  branch: z.optional(z.string()),
  messages: z.number(),
  deadLetters: z.number(),
})
type ShownUnopened = z.infer<typeof unopenedForm>

function nobodyHas({ path, branch, messages, deadLetters: dead }: ShownUnopened): Finding {
  if (branch === undefined)
    return warn(
      'receiver.unopened',
      `At its start, ${messages} messages and ${dead} dead letters waited in ${path}, and no receiver had it open.`,
      'Start the receiver of that file.',
    )
  return fail(
    'receiver.removed',
    `${messages} messages and ${dead} dead letters wait for the branch ${branch}, which the receiver does not have.`,
    `Add the branch again, or stop the receiver and run: fleethook branch rename ${branch} <new>, or fleethook branch drop ${branch}`,
  )
}

function failing(id: string, found: ShownFailing, of: string = ''): Finding {
  if (found.messages === 0) return ok(id, 'nothing fails now')
  const isBrief = found.handlers.every(({ since }) => Date.now() - Date.parse(since) < briefMs)
  const elsewhere =
    of === '' ? " If it calls somebody else's server, it belongs on a branch, where it delays nobody." : ''
  const todo = `fleethook failing${of} shows the last errors. Fix the handler: the messages are tried again by themselves.${elsewhere}`
  return (isBrief ? warn : fail)(id, failingSentence(found, Date.now()), todo)
}

function deadLetters(id: string, count: number, of: string = ''): Finding {
  if (count === 0) return ok(id, 'no dead letters')
  return warn(
    id,
    `Messages that a handler failed for good: ${count}.`,
    `fleethook dead list${of} shows the errors. Fix the handler, then fleethook dead replay${of}.`,
  )
}

/** The receiver that has the inbox, over the socket beside the file, or at its address. */
async function* receiver({ inbox: path, operator }: Circumstances): AsyncGenerator<Finding, void> {
  const where = operator.url ?? path
  if (operator.url === undefined && operator.database !== undefined && isMissing(path))
    return yield unchecked(
      'receiver.running',
      'No receiver was asked: one with postgresInbox answers where it mounts operatorRoutes.',
      'Set FLEETHOOK_OPERATOR_URL and FLEETHOOK_OPERATOR_SECRET.',
    )
  const asked = await new Operator(operator, 'receiver')
    .ask('GET', '/stats')
    .catch((error: unknown) => (error instanceof FleethookError ? error.message : codeOf(error)))
  if (typeof asked === 'string') {
    const text = `No receiver answers for ${where}, so nothing of it was checked: ${asked}`
    const todo = 'Is its process running? Start it, or name its inbox with --inbox, or its address with --operator.'
    // Without a file, nobody has started it here, or it keeps its messages elsewhere.
    const isExpected = operator.url !== undefined || !isMissing(path)
    return yield (isExpected ? fail : unchecked)('receiver.running', text, todo)
  }
  const stats = statsForm.parse(asked)
  if (stats.draining) return yield warn('receiver.running', 'The receiver is stopping.', 'Start it again.')
  yield ok(
    'receiver.running',
    operator.url === undefined ? 'it answers on its control socket' : `it answers at ${where}`,
  )
  const { received, lastReceivedAtMs, inbox: kept } = stats
  const hasReceived = lastReceivedAtMs !== undefined && lastReceivedAtMs > 0
  if (hasReceived) {
    const ago = Math.round((Date.now() - lastReceivedAtMs) / 1_000)
    yield ok('receiver.received', `${received} messages, the last ${ago} s ago`)
  } else
    yield warn(
      'receiver.received',
      'The receiver has taken no message since it started.',
      'Look at the groups webhook and proxy.',
    )
  const items = await keptErrors(operator)
  yield refusals(stats.refused, items, hasReceived)
  yield failures(items)
  if (stats.backlog !== undefined) yield* waiting('receiver', stats.backlog)
  if (stats.failing !== undefined) yield failing('receiver.failing', stats.failing)
  yield deadLetters('receiver.dead', kept?.deadLetters ?? 0)
  yield* (kept?.unopened ?? []).map(nobodyHas)
  if (kept?.meanwhile != null) yield* meanwhile(kept.meanwhile)
  yield* ofVehicles(stats)
  if (stats.lost > 0)
    yield fail('receiver.lost', `Acknowledged messages that were lost: ${stats.lost}.`, 'See docs/reliability.md.')
  for (const [name, of] of Object.entries(stats.branches ?? {})) yield* branchOf(name, of)
}

/** What the receiver noticed of its certificate, and of the clocks and fields of vehicles. */
function* ofVehicles(stats: z.infer<typeof statsForm>): Generator<Finding, void> {
  const { clocksBehind = 0, certificateUntilMs } = stats
  if (certificateUntilMs !== undefined) yield certificate('receiver.certificate', certificateUntilMs)
  if (clocksBehind > 0)
    yield warn(
      'receiver.clocks',
      `Vehicles whose clock was set back: ${clocksBehind}. Their times are corrected by that.`,
      'fleethook vehicles shows them. Values from before the receiver noticed may be missing: fetch their documents with client.refill.',
    )
  for (const { field, edges, heard, never, lastAtMs } of stats.fieldsMissing ?? []) {
    const last = lastAtMs === undefined ? '' : ` The last one came ${new Date(lastAtMs).toISOString()}.`
    yield warn(
      'receiver.fields',
      `${field} does not come, and rules need it: ${edges.slice(0, 3).join(', ')}. ${never} of ${heard} vehicles never sent it.${last}`,
      `Add it to the config of the vehicles: fleethook config patch <vin> ${field}=60. Or take it out of the rules.`,
    )
  }
}

/** The file in front of a server that several processes share. */
function* meanwhile({ messages, deadLetters: dead, awayMs }: z.infer<typeof meanwhileForm>): Generator<Finding, void> {
  const id = 'receiver.meanwhile'
  if (awayMs != null)
    yield fail(
      id,
      `For ${Math.round(awayMs / 1_000)} s, new messages have gone to the disk of that machine first; ${messages} wait there.`,
      'Postgres or Kafka does not take them in time, and the log of the receiver says why. Nothing is refused until the disk is full.',
    )
  else yield ok(id, `${messages} messages wait on the disk for the server`)
  if (dead > 0)
    yield warn(
      id,
      `Acknowledged messages that the server refused: ${dead}. They are dead letters in the file of \`meanwhile\`.`,
      'See docs/several-machines.md, "While the server is away".',
    )
}

/** A look at thousands of vehicles takes minutes: `fleethook vehicles --missing` has them all. */
const lookMs = 20_000

/** Shared vehicles that the receiver does not hear, by their reason. */
async function* vehicles({ client, operator: to }: Circumstances): AsyncGenerator<Finding, void> {
  const id = 'vehicles.missing'
  if (client === undefined) return yield skip(id, 'SERVICE_URL and SERVICE_API_KEY are not set')
  const operator = new Operator(to, 'receiver')
  const heard = await operator.ask('GET', '/vehicles?limit=1').catch((error: unknown) => error)
  if (heard instanceof Error) return yield skip(id, `no receiver says which vehicles it hears: ${heard.message}`)
  const found: MissingVehicle[] = []
  const signal = AbortSignal.timeout(lookMs)
  try {
    for await (const vehicle of client.missing(hearing(operator), { signal })) found.push(vehicle)
  } catch (error) {
    if (!signal.aborted) throw error
  }
  const byReason = [...Map.groupBy(inOrder(found), ({ reason }) => reason)]
  const [atRest, wrong] = [byReason.filter(isAtRest), byReason.filter((each) => !isAtRest(each))]
  const counted = (each: typeof byReason): string =>
    each.map(([reason, { length }]) => `${reason} ${length}`).join(', ')
  const rest = signal.aborted ? ` Not all could be asked in ${lookMs / 1_000} s.` : ''
  if (wrong.length === 0)
    return yield ok(
      id,
      `every shared vehicle is heard${atRest.length === 0 ? '' : `, or at rest: ${counted(atRest)}`}.${rest}`,
    )
  const first = wrong[0]?.[1][0]
  yield warn(
    id,
    `Shared vehicles that are not heard: ${counted(wrong)}.${rest}`,
    `fleethook vehicles --missing lists them, with what to do.${first === undefined ? '' : ` ${first.reason}: ${todoFor(first)}`}`,
  )
}

const isAtRest = ([reason]: readonly [string, unknown]): boolean => reason === 'asleep' || reason === 'offline'

/** Messages that were handed over, and what becomes of them. */
function* branchOf(name: string, stats: z.infer<typeof behindForm>): Generator<Finding, void> {
  const id = `branch.${name}`
  const { received, refused, backlog, failing: fails, inbox: kept } = stats
  const missed = Object.values(refused).reduce((sum, count) => sum + count, 0)
  yield missed === 0
    ? ok(id, `${received} messages handed over`)
    : fail(
        id,
        `Messages that the branch could not keep since the start: ${missed}. Gap events on the branch say which.`,
        'Give its inbox more room, or look at its disk or database.',
      )
  if (backlog !== undefined) yield* waiting(id, backlog)
  if (fails !== undefined) yield failing(`${id}.failing`, fails, ` --branch ${name}`)
  yield deadLetters(`${id}.dead`, kept?.deadLetters ?? 0, ` --branch ${name}`)
}

const someNumber = z.optional(z.nullable(z.number()))
const meanwhileForm = z.object({ messages: z.number(), deadLetters: z.number(), awayMs: someNumber })
const behindForm = z.object({
  received: z.number(),
  refused: z.record(z.string(), z.number()),
  backlog: z.optional(
    z.object({ messages: z.number(), oldestMs: z.optional(z.number()), processes: z.optional(z.number()) }),
  ),
  failing: z.optional(failingForm),
  inbox: z.optional(
    z.object({
      deadLetters: someNumber,
      meanwhile: z.optional(z.nullable(meanwhileForm)),
      unopened: z.optional(z.array(unopenedForm)),
    }),
  ),
})
const statsForm = z.object({
  ...behindForm.shape,
  draining: z.boolean(),
  lost: z.number(),
  clocksBehind: z.optional(z.number()),
  fieldsMissing: z.optional(
    z.array(
      z.object({
        field: z.string(),
        edges: z.array(z.string()),
        lastAtMs: z.optional(z.number()),
        heard: z.number(),
        never: z.number(),
      }),
    ),
  ),
  certificateUntilMs: z.optional(z.number()),
  lastReceivedAtMs: z.optional(z.number()),
  branches: z.optional(z.record(z.string(), behindForm)),
})

/** Refused requests by their error, without the doctor's own. */
function refusals(
  refused: Readonly<Record<string, number>>,
  items: readonly ShownItem[],
  hasReceived: boolean,
): Finding {
  const id = 'receiver.refused'
  const counts = Object.entries(refused)
    .filter(([error]) => error !== 'test')
    .toSorted(([, one], [, other]) => other - one)
  const last = items.findLast(({ kind, isTest }) => kind === 'refused' && !isTest)
  const cause = last?.error ?? counts[0]?.[0]
  if (cause === undefined) return ok(id, 'nothing was refused')
  const newest = last === undefined ? '' : ` The last was ${cause}, at ${last.at}.`
  const found = `Refused since the start: ${counts.map(([error, count]) => `${error} ${count}`).join(', ')}.${newest}`
  const todo = `${cause}: ${last?.hint ?? 'see docs/troubleshooting.md.'}`
  if (!secretErrors.has(cause)) return warn(id, found, todo)
  // A stranger can send wrong secrets too, so they are no failure while other messages arrive.
  const choose = hasReceived ? warn : fail
  return choose(id, found, `${todo} \`fleethook webhook set\` sends WEBHOOK_SECRET to the service.`)
}

/** The handlers that failed, by their name and topic. Without the messages of errors, which can quote a payload. */
function failures(items: readonly ShownItem[]): Finding {
  const id = 'receiver.handlers'
  const failed = items.filter(({ kind }) => kind === 'failed')
  const byHandler = Map.groupBy(failed, ({ handler = 'the inbox', event }) =>
    event === undefined ? handler : `${handler} (${event.topic})`,
  )
  if (byHandler.size === 0) return ok(id, 'no handler failed')
  const described = [...byHandler].map(([name, each]) => {
    const { error = '', attempt } = each.at(-1) ?? {}
    const thrown = /^[\w.$]+/.exec(error)?.[0] ?? 'an error'
    return `${name} threw ${thrown} ${each.length === 1 ? 'once' : `${each.length} times`}, last in attempt ${attempt}`
  })
  const found = `${described.slice(0, 3).join('; ')}${described.length > 3 ? '; …' : ''}.`
  const nextAt = failed.findLast((each) => each.nextAt !== undefined)?.nextAt
  const todo =
    'fleethook tail --errors shows the errors, and fleethook inspect the messages. Fix the handler and restart the receiver.'
  return nextAt !== undefined && Date.parse(nextAt) > Date.now()
    ? fail(id, `${found} The next attempt is at ${nextAt}.`, todo)
    : warn(id, found, todo)
}
