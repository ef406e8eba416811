import { readFileSync } from 'node:fs'
import { type Command, InvalidArgumentError } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { type Client, createClient } from '../../src/service/client/client.ts'
import { type FieldSetting, problemWithFields, type StreamingConfig } from '../../src/service/client/config.ts'
import type { ClientOptions } from '../../src/service/client/connection.ts'
import { ServiceError } from '../../src/service/client/service-error.ts'
import { acts, type Environment, environment, type Print } from './arguments.ts'
import { jsonText, logTo, printError } from './terminal.ts'

/** What the action of a command that calls the service gets. */
export interface Asking {
  readonly client: Client
  readonly variable: Environment
  /** Aborted by Ctrl+C. */
  readonly signal: AbortSignal
  readonly print: Print
}

export const statuses = `
Environment: SERVICE_URL, the address of the service or of a sandbox, with SERVICE_URL_NA and SERVICE_URL_EU where each region
has its own; SERVICE_API_KEY, the bearer token of your business. All are also read from .env. There is no option for the key, because arguments stay in the history of the shell.

Exit status: 0 done, 1 the service refused or could not be reached, 2 bad usage, 3 the service ignored some fields.`

/** Adds the options that all of these commands have, and an action that runs `work` and prints its errors. */
export function asks<Arguments extends unknown[], Options extends object>(
  command: Command,
  work: (asking: Asking, options: Options, ...args: Arguments) => Promise<number | void>,
): Command {
  return acts<Arguments, Options>(
    command,
    (options, print, ...args) => work(ask(command, environment(options.dotenv), print), options, ...args),
    reportRefusal,
  )
}

/** `SERVICE_URL`, and an address for each region: `SERVICE_URL_NA`, `SERVICE_URL_EU`. The first one is for what concerns no product. */
export function addressIn(variable: Environment): ClientOptions['baseUrl'] {
  const [any, na, eu] = [variable('SERVICE_URL'), variable('SERVICE_URL_NA'), variable('SERVICE_URL_EU')]
  return na === undefined && eu === undefined ? any : { ...defined({ any, na, eu }) }
}

/** `undefined`: the address or the key is not set. */
export function clientIn(
  variable: Environment,
  options: Partial<ClientOptions> = { log: logTo(process.stderr) },
): Client | undefined {
  const [baseUrl, apiKey] = [addressIn(variable), variable('SERVICE_API_KEY')]
  return baseUrl === undefined || apiKey === undefined ? undefined : createClient({ baseUrl, apiKey, ...options })
}

function ask(command: Command, variable: Environment, print: Print): Asking {
  const [baseUrl, apiKey] = [addressIn(variable), variable('SERVICE_API_KEY')]
  if (baseUrl === undefined || apiKey === undefined) {
    const missing = baseUrl === undefined ? 'SERVICE_URL' : 'SERVICE_API_KEY'
    command.error(`error: ${missing} is not set. Set it in the environment or in .env.`)
  }
  const log = logTo(process.stderr)
  const warn: typeof log.warn = (message, details) => log.warn(inCommandLineTerms(message), details)
  const controller = new AbortController()
  process.once('SIGINT', () => controller.abort())
  process.once('SIGTERM', () => controller.abort())
  const client = createClient({ baseUrl, apiKey, log: { ...log, warn } })
  return { client, variable, signal: controller.signal, print }
}

/** Prints an error. Returns the exit status: 2 when a wrong argument or variable kept the command from calling the service. */
export function reportRefusal(error: unknown, asJson: boolean): number {
  if (error instanceof Error && error.name === 'AbortError') return 130
  if (!(error instanceof ServiceError) && !(error instanceof FleethookError)) throw error
  const { code } = error
  const given = hints[code] ?? error.hint
  const hint = given && inCommandLineTerms(given)
  const message = inCommandLineTerms(error.message)
  const { status, requestId, retryAfterMs } = error instanceof ServiceError ? error : {}
  if (asJson) console.log(jsonText({ error: { code, message, hint, status, requestId, retryAfterMs } }))
  else printError({ message, hint })
  const isOwnFault = status === undefined && !['unreachable', 'timeout', 'answer_unreadable'].includes(code)
  return isOwnFault ? 2 : 1
}

/** Hints for answers of the service. The client's own hints are for programs, and these are for the command line. */
const hints: Readonly<Record<string, string>> = {
  invalid_webhook_url:
    'Give a URL that the internet can reach. For a sandbox that was started with --allow-local, add --allow-local here too.',
  webhook_not_found: 'Set one with `fleethook webhook set --url <url>`.',
  config_not_found: 'The vehicle does not stream. Start it with `fleethook config patch <vin> <settings>`.',
  vehicle_not_found: 'List what is shared with your business with `fleethook products`.',
  business_product_not_consented: 'List what is shared with your business with `fleethook products`.',
}

/** Replaces the client's option names in a text with the names of the flags. */
export function inCommandLineTerms(text: string): string {
  return text
    .replaceAll(/(Option )?`baseUrl`( of createClient)?/g, 'SERVICE_URL')
    .replaceAll(/(Option )?`apiKey`( of createClient)?/g, 'SERVICE_API_KEY')
    .replaceAll('`products()`', '`fleethook products`')
}

const form =
  'It must be a field and its interval in seconds, as in BatteryLevel=60 or BatteryLevel=60,delta=1,resend=300.'

/** Reads `BatteryLevel=60,delta=1,resend=300` as the setting of a field, and adds it to the settings before. */
export function fieldSetting(
  text: string,
  before: Readonly<Record<string, FieldSetting>> = {},
): Readonly<Record<string, FieldSetting>> {
  const [, name, interval, rest = ''] = /^(\w+)=(\d+)((?:,\w+=[\d.]+)*)$/.exec(text) ?? []
  if (name === undefined) throw new InvalidArgumentError(form)
  const setting: Record<string, number> = { interval_seconds: Number(interval) }
  for (const part of rest.split(',').filter((given) => given !== '')) {
    const [key, value] = part.split('=')
    if (key === 'delta') setting['minimum_delta'] = Number(value)
    else if (key === 'resend') setting['resend_interval_seconds'] = Number(value)
    else throw new InvalidArgumentError(form)
  }
  const fields = { ...before, [name]: setting }
  const problem = problemWithFields(fields)
  if (problem !== undefined) throw new InvalidArgumentError(problem)
  return fields as Readonly<Record<string, FieldSetting>> // oxlint-disable-line no-unsafe-type-assertion -- just checked
}

/** Reads a config from a file, or from the standard input for `-`: `{"fields": {…}}`, or the map of fields alone. */
export function configFile(path: string): StreamingConfig {
  let value: unknown
  try {
    value = JSON.parse(readFileSync(path === '-' ? 0 : path, 'utf8'))
  } catch (error) {
    throw new InvalidArgumentError(error instanceof SyntaxError ? 'It is not JSON.' : 'It cannot be read.')
  }
  const fields = typeof value === 'object' && value !== null && 'fields' in value ? value.fields : value
  const problem = problemWithFields(fields)
  if (problem !== undefined) throw new InvalidArgumentError(problem)
  return { fields } as StreamingConfig // oxlint-disable-line no-unsafe-type-assertion -- just checked
}
