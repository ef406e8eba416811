import { type Command, Option } from 'commander'
import prettyMs from 'pretty-ms'
import { FleethookError, withHint } from '../../src/base/errors.ts'
import { dotenvOption, environment, names, problemWithSecret, webAddress, whole } from './arguments.ts'
import { allGroups, type Group, groups } from './conform/cases.ts'
import type { Check, Result } from './conform/checks.ts'
import { type HandledList, listenForHandled, listFrom } from './conform/handled.ts'
import { Session } from './conform/session.ts'
import { conform } from './conform/suite.ts'
import { type Colors, colorsFor, columns, jsonText, report } from './terminal.ts'

interface Given {
  readonly url: URL
  readonly secret?: string
  readonly handled?: string
  readonly sink?: number
  readonly restart?: string
  readonly kills: number
  readonly only?: readonly Group[]
  readonly atLeastOnce?: true
  readonly strict?: true
  readonly patience: number
  readonly dotenv: string
  readonly json?: true
}

/** The output of `--json`. */
export interface ConformResult {
  readonly url: string
  /** How many checks had each result. */
  readonly pass: number
  readonly fail: number
  readonly unchecked: number
  readonly checks: readonly Check[]
  /** Response times. `null` when nothing was answered. */
  readonly answerMs: { readonly p50: number; readonly p99: number; readonly max: number } | null
}

/** `--strict` asks for the last one. */
const groupNames = allGroups.filter((name) => name !== 'answers')

export function defineConform(command: Command): void {
  command
    .description(
      'Checks any receiver of the webhook, whatever it is written in: what it answers, and what it has handled. Posts as the ' +
        'service and relays do, from vehicles that do not exist. What could not be checked is never called right.',
    )
    .requiredOption(
      '-u, --url <url>',
      'the address of the receiver',
      webAddress('http:// or https://, as in http://localhost:3000/telemetry'),
    )
    .option('--secret <value>', 'the secret of the receiver under test, if WEBHOOK_SECRET is not it')
    .addOption(dotenvOption)
    .option('--handled <list>', 'what lists each handled message: an address, a file, or a command after cmd:')
    .addOption(
      new Option('--sink <port>', 'listen there instead: the receiver posts each handled message to it')
        .argParser(whole(1, 65_535))
        .conflicts('handled'),
    )
    .option('--restart <command>', 'kills the receiver with SIGKILL and starts it: run under load')
    .option('--kills <n>', 'how often --restart is run', whole(1, 1_000), 5)
    .option('--only <groups>', `only these groups, separated by commas: ${groupNames.join(', ')}`, (text) =>
      names(text, 'group', groupNames),
    )
    .option('--at-least-once', 'handlers know a repeated message by its id: twice is not a fault')
    .option('--strict', 'also each status, code and event of fleethook itself')
    .option(
      '--patience <seconds>',
      'the longest wait for an answer, and for the next handled message',
      whole(1, 3_600),
      15,
    )
    .option('--json', 'print the report as JSON')
    .addHelpText('after', help)
    .action(async () => {
      const given = command.opts<Given>()
      const secret = given.secret ?? environment(given.dotenv)('WEBHOOK_SECRET')
      if (secret === undefined) command.error('error: no secret is given. Set WEBHOOK_SECRET, or pass --secret.')
      const problem = problemWithSecret(secret)
      if (problem !== undefined) command.error(`error: ${problem}`)
      try {
        process.exitCode = await run(command, given, secret)
      } catch (error) {
        process.exitCode = report(error, given.json === true)
      }
    })
}

const help = `
A list of handled messages has an entry for each, in the order in which they were handled: a line of text or a JSON value
with the VIN and the value of Odometer, or createdAt. A log that prints each message will do. With --restart, the list has
to outlive the receiver. Without a list, only answers are checked, and the report says so.

Examples:
  fleethook conform --url http://localhost:3000 --secret x
  fleethook conform --url http://localhost:3000 --handled receiver.log
  fleethook conform --url http://localhost:3000 --handled "cmd:sqlite3 my.db 'SELECT vin, odometer FROM readings'"
  fleethook conform --url http://localhost:3000 --sink 4000 --restart "docker restart -s KILL receiver"

Environment: WEBHOOK_SECRET, also read from .env.

Exit status: 0 nothing falls short, 1 something does, or no receiver answers, 2 bad usage.`

async function run(command: Command, given: Given, secret: string): Promise<number> {
  const list = await listOf(given, secret)
  try {
    const session = new Session(given.url.href, secret, list, given.patience * 1_000)
    await session.read().catch((error: unknown) => command.error(`error: ${withHint(Object(error))}`))
    const { status, text } = await session.post({ body: '{}' })
    if (status === 0)
      throw new FleethookError('option_invalid', `No receiver answers at ${given.url.href}: ${text}`, {
        hint: 'Start it, or give its address with --url.',
      })
    const colors = colorsFor(process.stdout)
    const asked = {
      url: given.url.href,
      only: given.only ?? [],
      isStrict: given.strict === true,
      mayRepeat: given.atLeastOnce === true,
      restarting: given.restart === undefined ? undefined : { command: given.restart, kills: given.kills },
    }
    const checks = await conform(session, asked, (group) => {
      if (process.stderr.isTTY) process.stderr.write(`checking ${groups[group]} …\n`)
    })
    const result = resultOf(given.url.href, checks, session.answerMs)
    console.log(given.json ? jsonText(result) : textOf(result, colors))
    return result.fail > 0 ? 1 : 0
  } finally {
    list?.close()
  }
}

async function listOf({ url, handled, sink }: Given, secret: string): Promise<HandledList | undefined> {
  if (handled !== undefined) return listFrom(handled, url, secret)
  return sink === undefined ? undefined : listenForHandled(sink)
}

function resultOf(url: string, checks: readonly Check[], answerMs: readonly number[]): ConformResult {
  const count = (result: Result): number => checks.filter((check) => check.result === result).length
  const sorted = answerMs.toSorted((one, other) => one - other)
  const part = (share: number): number => Math.round((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) * 10) / 10
  const times = sorted.length === 0 ? null : { p50: part(0.5), p99: part(0.99), max: part(1) }
  return { url, pass: count('pass'), fail: count('fail'), unchecked: count('unchecked'), checks, answerMs: times }
}

/** A row for each case: what it was, its answer, and what was handled. Below it, what falls short. */
function textOf({ url, pass, fail, unchecked, checks, answerMs }: ConformResult, colors: Colors): string {
  const words: Readonly<Record<Result, string>> = { pass: 'ok', fail: 'FALLS SHORT', unchecked: 'not checked' }
  const rows = [...Map.groupBy(checks, ({ group, name }) => `${group} ${name}`).values()].map((ofCase) => {
    const cell = (aspect: Check['aspect']): string => {
      const found = ofCase.find((check) => check.aspect === aspect)
      return found === undefined ? '' : words[found.result]
    }
    const [{ group, name } = { group: 'formats', name: '' }] = ofCase
    return [group, name, cell('answer'), cell('handled')]
  })
  const lines = columns([['group', 'what is posted', 'answer', 'handled'], ...rows]).split('\n')
  const details = (result: Result): readonly string[] =>
    checks.flatMap(({ group, name, aspect, detail, ...check }) =>
      check.result === result && detail !== undefined ? [`  ${group}, ${name} (${aspect}): ${detail}`] : [],
    )
  const painted = lines.map((line) => line.replaceAll('FALLS SHORT', colors.red('FALLS SHORT')))
  const parts = [...painted, '']
  if (fail > 0) parts.push(colors.bold('Falls short:'), ...details('fail'), '')
  const open = Map.groupBy(
    checks.filter((check) => check.result === 'unchecked'),
    ({ detail = '' }) => detail,
  )
  if (unchecked > 0) parts.push(colors.bold('Not checked:'))
  for (const [why, each] of open)
    parts.push(`  ${why}: ${each.length === 1 ? `${each[0]?.group}, ${each[0]?.name}` : `${each.length} checks`}`)
  if (unchecked > 0) parts.push('')
  const times =
    answerMs === null
      ? ''
      : ` Answers took ${ms(answerMs.p50)} (p50), ${ms(answerMs.p99)} (p99), at most ${ms(answerMs.max)}.`
  parts.push(`${url}: ${pass} right, ${fail} short, ${unchecked} not checked.${times}`)
  return parts.join('\n')
}

const ms = (time: number): string => prettyMs(time, { millisecondsDecimalDigits: time < 9.95 ? 1 : 0 })
