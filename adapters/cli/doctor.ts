import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { createClient } from '../../src/service/client/client.ts'
import { dotenvOption, environment, inboxPath, names, webAddress } from './arguments.ts'
import { type Check, type Circumstances, type Finding, type FindingGroup, groups, type Status } from './doctor/check.ts'
import { checkInbox, checkReceiver } from './doctor/inbox.ts'
import { checkClock, checkRuntime, checkSecret } from './doctor/local.ts'
import { checkNetwork, checkTls } from './doctor/network.ts'
import { checkProxy } from './doctor/proxy.ts'
import { checkEndToEnd, checkWebhook } from './doctor/webhook.ts'
import { codeOf } from './exchange.ts'
import { connect } from './operator.ts'
import { keptErrors } from './tail.ts'
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

/** Groups that need only this machine. */
const offline: readonly FindingGroup[] = ['runtime', 'secret', 'inbox', 'receiver']

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
    .addOption(dotenvOption)
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
  const inbox = inboxPath(given.inbox, variable)
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
      const connection = await connect({ inbox })
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

const address = webAddress('https:// or http://, as in https://example.com/telemetry')

const groupList = (text: string): readonly FindingGroup[] => names(text, 'group', groups)
