import { type Command, InvalidArgumentError } from 'commander'
import { type Client, createClient } from '../../../src/service/client/client.ts'
import { ServiceError } from '../../../src/service/client/service-error.ts'
import { FleethookError, withHint } from '../../../src/base/errors.ts'
import { colorsFor } from '../colors.ts'
import { type Environment, environment } from './environment.ts'
import { hintFor, inItsWords } from './hint.ts'
import { logTo } from './log.ts'

/** What every command that asks the service is given. */
export interface Asking {
  readonly client: Client
  readonly variable: Environment
  /** Aborted by Ctrl+C. */
  readonly signal: AbortSignal
  /** Prints a result: as JSON, or as `text` writes it. */
  readonly print: (value: unknown, text: () => string) => void
}

/** What a command promises about its exit status. */
export const statuses = `
Environment: SERVICE_URL, the address of the service or of a sandbox; SERVICE_API_KEY, the business's bearer token. Both are
also read from .env. There is no flag for the key: arguments stay in the shell's history.

Exit status: 0 done, 1 the service refused or could not be reached, 2 bad usage, 3 done but for fields that the service ignored.`

interface Common {
  readonly service?: string
  readonly dotenv: string
  readonly timeout: number
  readonly json?: true
}

/** Adds the options that all of these commands have, and an action that runs `work` and tells what went wrong. */
export function asks<Arguments extends unknown[], Options extends object>(
  command: Command,
  work: (asking: Asking, options: Options, ...args: Arguments) => Promise<number | void>,
): Command {
  return (
    command
      .option('--service <url>', 'the address of the service (default: SERVICE_URL)')
      // Not --env-file: Node takes that for itself, wherever it stands.
      .option('--dotenv <path>', 'where to look for variables that are not set', '.env')
      .option('--timeout <ms>', 'how long one attempt may take', milliseconds, 30_000)
      .option('--json', 'print JSON; an error too, as {"error": …}')
      .action(async (...given: unknown[]) => {
        const args = given.slice(0, -2) as Arguments // oxlint-disable-line no-unsafe-type-assertion -- commander's arguments, in the order of their definition
        const options = command.opts<Common & Options>()
        try {
          process.exitCode = (await work(ask(command, options), options, ...args)) ?? 0
        } catch (error) {
          process.exitCode = tell(error, options)
        }
      })
  )
}

function ask(command: Command, common: Common): Asking {
  const { service, dotenv, timeout, json } = common
  const variable = environment(dotenv)
  const baseUrl = service ?? variable('SERVICE_URL')
  const apiKey = variable('SERVICE_API_KEY')
  if (baseUrl === undefined)
    command.error('error: SERVICE_URL is not set. Set it in the environment or in .env, or give --service.')
  if (apiKey === undefined) command.error('error: SERVICE_API_KEY is not set. Set it in the environment or in .env.')
  const log = logTo(process.stderr)
  const warn: typeof log.warn = (message, details) => log.warn(inItsWords(message, common), details)
  const controller = new AbortController()
  process.once('SIGINT', () => controller.abort())
  process.once('SIGTERM', () => controller.abort())
  return {
    client: createClient({ baseUrl, apiKey, timeoutMs: timeout, log: { ...log, warn } }),
    variable,
    signal: controller.signal,
    print: (value, text) => console.log(json ? JSON.stringify(value, undefined, 2) : text()),
  }
}

/** Says what went wrong. Resolves to the exit status: 2 when nothing was sent because of what was given. */
function tell(error: unknown, options: Common): number {
  if (error instanceof Error && error.name === 'AbortError') return 130
  if (!(error instanceof ServiceError) && !(error instanceof FleethookError)) throw error
  const { code } = error
  const better = hintFor(code, error.hint)
  const hint = better && inItsWords(better, options)
  const message = inItsWords(withHint({ message: error.message, hint: better }), options)
  const service = error instanceof ServiceError ? error : undefined
  const { status, requestId, retryAfterMs } = service ?? {}
  if (options.json)
    console.log(JSON.stringify({ error: { code, message, hint, status, requestId, retryAfterMs } }, undefined, 2))
  else console.error(`${colorsFor(process.stderr).red('error:')} ${message}`)
  const isOwnFault =
    status === undefined && code !== 'unreachable' && code !== 'timeout' && code !== 'answer_unreadable'
  return isOwnFault ? 2 : 1
}

function milliseconds(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 600_000) return value
  throw new InvalidArgumentError('It must be a whole number of milliseconds from 1 to 600000.')
}
