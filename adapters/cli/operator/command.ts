import { confirm, isCancel } from '@clack/prompts'
import { type Command, InvalidArgumentError } from 'commander'
import { FleethookError } from '../../../src/base/errors.ts'
import { colorsFor } from '../colors.ts'
import { environment } from '../service/environment.ts'
import { type Connection, connect } from './connection.ts'
import { time } from './time.ts'

/** What every command of an operator is given. */
export interface Operating {
  readonly connection: Connection
  /** Prints a result: as JSON, or as `text` writes it. */
  readonly print: (value: unknown, text: () => string) => void
  /** Asks before more than one message is changed. Resolves to whether to go on. */
  readonly agreed: (question: string) => Promise<boolean>
}

/** Which messages are meant. */
export interface Filter {
  readonly vin?: string
  readonly topic?: string
  readonly from?: Date
  readonly to?: Date
}

interface Common {
  readonly inbox?: string
  readonly url?: string
  readonly dotenv: string
  readonly json?: true
  readonly yes?: true
}

export const statuses = `
The receiver is found by its inbox: the process that has the file answers on a socket beside it, and when there is none the
file itself is read. For one on another machine, or on Workers, mount operatorRoutes and give --url.

Environment: FLEETHOOK_INBOX, the inbox's file; FLEETHOOK_OPERATOR_SECRET, for --url. Both are also read from .env.

Times are ISO 8601, in UTC when no zone is said, or so long ago: 90s, 15m, 2h, 3d.

Exit status: 0 done, and a list may be empty; 1 what was named is not there, or it failed; 2 bad usage.`

/** Adds the options that all of these commands have, and an action that runs `work` and tells what went wrong. */
export function operates<Arguments extends unknown[], Options extends object>(
  command: Command,
  work: (operating: Operating, options: Options, ...args: Arguments) => Promise<boolean>,
): Command {
  return (
    command
      .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
      .option('--url <url>', 'where operatorRoutes of a receiver are mounted')
      // Not --env-file: Node takes that for itself, wherever it stands.
      .option('--dotenv <path>', 'where to look for variables that are not set', '.env')
      .option('--json', 'print JSON; an error too, as {"error": …}')
      .addHelpText('after', statuses)
      .action(async (...given: unknown[]) => {
        const args = given.slice(0, -2) as Arguments // oxlint-disable-line no-unsafe-type-assertion -- commander's arguments, in the order of their definition
        const options = command.opts<Common & Options>()
        try {
          process.exitCode = (await run(options, args, work)) ? 0 : 1
        } catch (error) {
          if (!(error instanceof FleethookError)) throw error
          tell(error, options)
          process.exitCode = 1
        }
      })
  )
}

/** Adds the options that say which messages are meant. */
export function filters(command: Command): Command {
  return command
    .option('--vin <vin>', 'of this vehicle')
    .option('--topic <topic>', 'of this topic')
    .option('--from <time>', 'received at this time or later', (text) => time(text))
    .option('--to <time>', 'received before this time', (text) => time(text))
}

export function wholeNumber(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value >= 1 && value <= 1000) return value
  throw new InvalidArgumentError('It must be a whole number from 1 to 1000.')
}

async function run<Arguments extends unknown[], Options extends object>(
  options: Common & Options,
  args: Arguments,
  work: (operating: Operating, options: Options, ...args: Arguments) => Promise<boolean>,
): Promise<boolean> {
  const variable = environment(options.dotenv)
  const connection = await connect({
    inbox: options.inbox ?? variable('FLEETHOOK_INBOX') ?? 'data/inbox.db',
    url: options.url,
    secret: variable('FLEETHOOK_OPERATOR_SECRET'),
  })
  const print: Operating['print'] = (value, text) =>
    console.log(options.json ? JSON.stringify(value, undefined, 2) : text())
  try {
    return await work({ connection, print, agreed: (question) => agreed(question, options) }, options, ...args)
  } finally {
    await connection.close()
  }
}

async function agreed(question: string, { yes }: Common): Promise<boolean> {
  if (yes) return true
  if (!process.stdin.isTTY || !process.stdout.isTTY) {
    throw new FleethookError('option_invalid', `${question} Nobody is here to be asked.`, { hint: 'Say --yes.' })
  }
  const answer = await confirm({ message: question, initialValue: false })
  return !isCancel(answer) && answer
}

function tell({ code, message, hint }: FleethookError, { json }: Common): void {
  if (json) console.log(JSON.stringify({ error: { code, message, hint } }, undefined, 2))
  else console.error(`${colorsFor(process.stderr).red('error:')} ${message}`)
}
