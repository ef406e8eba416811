import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { type Command, InvalidArgumentError, Option } from 'commander'
import parseDuration from 'parse-duration'
import { FleethookError } from '../../src/base/errors.ts'
import { numberBetween, type Rule, wholeNumber } from '../../src/base/options.ts'
import type { Format, WireTopic } from '../../src/events/event.ts'
import { wireTopics } from '../../src/wire/envelope.ts'
import { codeOf } from './exchange.ts'
import { jsonText, report } from './terminal.ts'

export const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Reads an argument by a rule of our options. */
function numberBy(rule: Rule): (text: string) => number {
  return (text) => {
    const value = text.trim() === '' ? Number.NaN : Number(text)
    if (rule.accepts(value)) return value
    throw new InvalidArgumentError(`It ${rule.must}.`)
  }
}

export const whole = (least: number, most?: number): ((text: string) => number) => numberBy(wholeNumber(least, most))

export const number = (least: number, most: number): ((text: string) => number) => numberBy(numberBetween(least, most))

/** Names of the list `known`, separated by commas. `what` is the word for one of them. */
export function names<Name extends string>(text: string, what: string, known: readonly Name[]): readonly Name[] {
  return text.split(',').map((part) => {
    const found = known.find((name) => name === part.trim())
    if (found !== undefined) return found
    throw new InvalidArgumentError(`There is no ${what} "${part.trim()}". The ${what}s are ${known.join(', ')}.`)
  })
}

/** Topics, separated by commas. The option can be given several times. */
export const topicList = (text: string, before: readonly WireTopic[] = []): readonly WireTopic[] => [
  ...before,
  ...names(text, 'topic', wireTopics),
]

/** An address of the web. `form` says how it must begin, with an example. */
export const webAddress =
  (form: string) =>
  (text: string): URL => {
    const parsed = URL.canParse(text) ? new URL(text) : undefined
    if (parsed?.protocol === 'http:' || parsed?.protocol === 'https:') return parsed
    throw new InvalidArgumentError(`It must begin with ${form}.`)
  }

const isoTime = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$/

/** A time: ISO 8601 (UTC if it has no zone), or a duration before now: `90s`, `15m`, `2h`, `3d`, `1h30m`. */
export function time(text: string): Date {
  const agoMs = /^[\d.]+[a-z][\da-z. ]*$/.test(text) ? parseDuration(text) : null
  if (agoMs !== null) return new Date(Date.now() - agoMs)
  const isLocal = text.includes('T') && !/(Z|[+-]\d{2}:\d{2})$/.test(text)
  const found = new Date(isLocal ? `${text}Z` : text)
  if (isoTime.test(text) && !Number.isNaN(found.getTime())) return found
  throw new InvalidArgumentError(
    'It must be a time such as 2026-06-01T08:00:00Z, or a duration before now such as 90s, 15m, 2h or 3d.',
  )
}

/** Not --env-file: Node takes that option itself, wherever it stands. */
export const dotenvOption: Option = new Option('--dotenv <path>', 'the file with variables that are not set').default(
  '.env',
)

/** The options that `acts` adds. */
export interface Common {
  readonly dotenv: string
  readonly json?: true
}

/** Prints a result: as JSON, or as `text` writes it. */
export type Print = (value: unknown, text: () => string) => void

/** Adds --dotenv, --json, and an action that prints its errors. The action resolves to the exit status; `undefined` is 0. */
export function acts<Arguments extends unknown[], Options extends object = object>(
  command: Command,
  run: (options: Common & Options, print: Print, ...args: Arguments) => Promise<number | void>,
  reported: typeof report = report,
): Command {
  return command
    .addOption(dotenvOption)
    .option('--json', 'print JSON, errors as {"error": …}')
    .action(async (...given: unknown[]) => {
      const args = given.slice(0, -2) as Arguments // oxlint-disable-line no-unsafe-type-assertion -- commander's arguments, in the order of their definition
      const options = command.opts<Common & Options>()
      const isJson = options.json === true
      const print: Print = (value, text) => console.log(isJson ? jsonText(value) : text())
      try {
        process.exitCode = (await run(options, print, ...args)) ?? 0
      } catch (error) {
        process.exitCode = reported(error, isJson)
      }
    })
}

/** Variables by name. The process wins over the file. */
export type Environment = (name: string) => string | undefined

/** Reads the environment, and the file `path` for variables that it does not set. The file may be missing. */
export function environment(path: string): Environment {
  const file = variablesIn(path)
  return (name) => process.env[name] || file[name] || undefined
}

/** The variables in the file `path`. The file may be missing. */
export function variablesIn(path: string): NodeJS.Dict<string> {
  try {
    return existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {}
  } catch (error) {
    throw new FleethookError('option_invalid', `${path} cannot be read: ${codeOf(error)}.`, {
      hint: 'Run the command as the user who owns the file, or name another one with --dotenv.',
    })
  }
}

/** The port of a receiver on this machine: the option, the variable, or what the templates use. */
export function portFor({ port, dotenv }: { readonly port?: number; readonly dotenv: string }): number {
  if (port !== undefined) return port
  const given = Number(environment(dotenv)('PORT'))
  return Number.isInteger(given) && given >= 1 && given <= 65_535 ? given : 3000
}

/** The file of the inbox: the option, the variable, or where the templates have it. */
export const inboxPath = (given: string | undefined, variable: Environment): string =>
  given ?? variable('FLEETHOOK_INBOX') ?? 'data/inbox.db'

/** Why a header cannot carry this secret, or `undefined`. Never shows a character of it. */
export function problemWithSecret(secret: string): string | undefined {
  if (secret === '') return 'The secret is empty.'
  if (secret.trim() !== secret) return 'The secret begins or ends with white space.'
  if (!/^[\x20-\x7e]+$/.test(secret))
    return 'The secret has characters that are not visible ASCII, and a header cannot carry them.'
  return undefined
}
