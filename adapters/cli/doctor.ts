import { type Command, InvalidArgumentError } from 'commander'
import * as z from 'zod/mini'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { createClient } from '../../src/service/client/client.ts'
import { environment } from './arguments.ts'
import {
  type ArrivedTest,
  type Check,
  type Circumstances,
  codeOf,
  type Finding,
  type FindingGroup,
  groups,
  type KeptError,
  type Status,
} from './doctor/check.ts'
import { checkInbox, checkReceiver } from './doctor/inbox.ts'
import { checkClock, checkRuntime, checkSecret } from './doctor/local.ts'
import { checkNetwork, checkTls } from './doctor/network.ts'
import { checkProxy } from './doctor/proxy.ts'
import { checkEndToEnd, checkWebhook } from './doctor/webhook.ts'
import { connect } from './operator.ts'
import { colorsFor, jsonText } from './terminal.ts'

interface Given {
  readonly url?: URL
  readonly inbox?: string
  readonly only?: readonly FindingGroup[]
  readonly offline?: true
  readonly endToEnd?: string
  readonly dotenv: string
  readonly json?: true
}

const checks: Readonly<Record<FindingGroup, Check>> = {
  runtime: checkRuntime,
  secret: checkSecret,
  webhook: checkWebhook,
  network: checkNetwork,
  tls: checkTls,
  proxy: checkProxy,
  inbox: checkInbox,
  receiver: checkReceiver,
  clock: checkClock,
  'end-to-end': checkEndToEnd,
}

/** The time to read the kept items of the feed, in milliseconds. The feed sends them at once. */
const feedMs = 5_000

/** Groups that need only this machine. */
const offline: readonly FindingGroup[] = ['runtime', 'secret', 'inbox', 'receiver']

/** `fleethook doctor` */
export function defineDoctor(command: Command): void {
  command
    .description('Finds out why messages do not arrive. Each line has an id, what was found, and one thing to do.')
    .option(
      '-u, --url <url>',
      'the public address of the webhook (default: that of the webhook at the service)',
      address,
    )
    .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
    .option('--only <groups>', `only these groups, separated by commas: ${groups.join(', ')}`, groupList)
    .option('--offline', `only what needs no network: ${offline.join(', ')}`)
    .option('--end-to-end <vin>', 'read this vehicle through the service, and wait for its message')
    // Not --env-file: Node takes that option itself, wherever it stands.
    .option('--dotenv <path>', 'the file with variables that are not set', '.env')
    .option('--json', 'print the findings as JSON')
    .addHelpText(
      'after',
      `
The group proxy posts test messages to the public address with WEBHOOK_SECRET. The receiver answers them and gives them to no handler.
A check from this machine can pass where the service cannot get through. Only a real message proves the whole way.

Environment: WEBHOOK_SECRET, SERVICE_URL, SERVICE_API_KEY, FLEETHOOK_INBOX. All are also read from .env.

Exit status: 0 no check failed, 1 a check failed, 2 bad usage.`,
    )
    .action(async () => {
      const given = command.opts<Given>()
      const chosen = given.only ?? (given.offline ? offline : groups)
      const findings = await diagnose(given, chosen)
      if (given.json) console.log(jsonText({ findings }))
      else console.log(`\n${summary(findings)}`)
      process.exitCode = findings.some(({ status }) => status === 'fail') ? 1 : 0
    })
}

async function diagnose(given: Given, chosen: readonly FindingGroup[]): Promise<readonly Finding[]> {
  const variable = environment(given.dotenv)
  const [serviceUrl, apiKey] = [variable('SERVICE_URL'), variable('SERVICE_API_KEY')]
  const inbox = given.inbox ?? variable('FLEETHOOK_INBOX') ?? 'data/inbox.db'
  const controller = new AbortController()
  process.once('SIGINT', () => controller.abort())
  const client =
    serviceUrl === undefined || apiKey === undefined
      ? undefined
      : createClient({ baseUrl: serviceUrl, apiKey, timeoutMs: 10_000, retry: { attempts: 1 } })
  const circumstances: Circumstances = {
    variable,
    envFile: given.dotenv,
    url: given.url ?? (await knownUrl(client)),
    inbox,
    client,
    serviceUrl,
    ca: undefined,
    vin: given.endToEnd,
    signal: controller.signal,
    ask: async (...asked) => {
      const connection = await connect({ inbox, url: undefined, secret: undefined })
      try {
        return await connection.ask(...asked)
      } finally {
        await connection.close()
      }
    },
    arrived: async (test) => (await keptErrors(inbox)).tests.find((each) => each.test === test),
    errors: async () => (await keptErrors(inbox)).errors,
  }
  const findings: Finding[] = []
  for (const group of chosen) {
    if (group === 'end-to-end' && given.endToEnd === undefined) continue
    if (!given.json) console.log(colorsFor(process.stdout).bold(group))
    for await (const finding of safely(group, checks[group](circumstances))) {
      findings.push(finding)
      if (!given.json) console.log(shown(finding))
    }
  }
  return findings
}

const kept = z.looseObject({
  items: z.array(
    z.looseObject({
      kind: z.string(),
      at: z.string(),
      test: z.optional(z.string()),
      bytes: z.optional(z.number()),
      headers: z.optional(z.array(z.object({ name: z.string(), length: z.number() }))),
      error: z.optional(z.string()),
      hint: z.optional(z.string()),
      isTest: z.optional(z.boolean()),
      handler: z.optional(z.string()),
      event: z.optional(z.looseObject({ topic: z.string() })),
      attempt: z.optional(z.number()),
      nextAt: z.optional(z.string()),
    }),
  ),
})

/** The test messages and errors that the receiver's feed has kept, oldest first. */
async function keptErrors(
  inbox: string,
): Promise<{ readonly tests: readonly (ArrivedTest & { readonly test: string })[]; readonly errors: KeptError[] }> {
  const { stream } = await connect({ inbox, url: undefined, secret: undefined }, 'receiver')
  const items: z.output<typeof kept>['items'] = []
  for await (const { id, data } of stream('/feed?errors=true', AbortSignal.timeout(feedMs))) {
    items.push(...kept.parse(JSON.parse(data)).items)
    // The last part of the kept items has the cursor.
    if (id !== undefined) break
  }
  return {
    tests: items.flatMap(({ test, bytes = 0, headers = [] }) => (test === undefined ? [] : [{ test, bytes, headers }])),
    errors: items.flatMap(({ kind, at, error, hint, isTest = false, handler, event, attempt = 0, nextAt }) =>
      error === undefined || (kind !== 'refused' && kind !== 'failed')
        ? []
        : [{ kind, at, error, hint, isTest, handler, topic: event?.topic, attempt, nextAt }],
    ),
  }
}

async function knownUrl(client: Circumstances['client']): Promise<URL | undefined> {
  const url = await client?.webhook.get().then(
    (webhook) => webhook.url,
    () => undefined,
  )
  return url !== undefined && URL.canParse(url) ? new URL(url) : undefined
}

/** Turns a check that throws into a finding, so that the next group still runs. */
async function* safely(group: FindingGroup, found: AsyncIterable<Finding>): AsyncIterable<Finding> {
  try {
    yield* found
  } catch (error) {
    const text = error instanceof FleethookError ? error.message : codeOf(error)
    yield {
      id: `${group}.check`,
      status: 'fail',
      found: `The check itself failed: ${text}`,
      todo: 'Report this as an issue of fleethook.',
    }
  }
}

const marks: Readonly<Record<Status, string>> = { ok: '✔', warn: '!', fail: '✖', skip: '–' }

function shown({ id, status, found, todo }: Finding): string {
  const colors = colorsFor(process.stdout)
  const color = { ok: colors.green, warn: colors.yellow, fail: colors.red, skip: colors.dim }[status]
  const line = `  ${color(marks[status])} ${id.padEnd(20)} ${escapeControls(found)}`
  return todo === undefined ? line : `${line}\n    ${colors.bold('→')} ${escapeControls(todo)}`
}

function summary(findings: readonly Finding[]): string {
  const count = (status: Status): number => findings.filter((finding) => finding.status === status).length
  const [failed, warned, skipped] = [count('fail'), count('warn'), count('skip')]
  if (failed === 0 && warned === 0 && skipped === 0) return 'Everything that was checked is well.'
  return `${count('ok')} well, ${warned} to look at, ${failed} failed, ${skipped} not checked.`
}

function address(text: string): URL {
  const parsed = URL.canParse(text) ? new URL(text) : undefined
  if (parsed?.protocol === 'http:' || parsed?.protocol === 'https:') return parsed
  throw new InvalidArgumentError('It must begin with https:// or http://, as in https://example.com/telemetry.')
}

function groupList(text: string): readonly FindingGroup[] {
  return text.split(',').map((part) => {
    const known = groups.find((group) => group === part.trim())
    if (known !== undefined) return known
    throw new InvalidArgumentError(`There is no group "${part.trim()}". The groups are ${groups.join(', ')}.`)
  })
}
