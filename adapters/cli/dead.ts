import type { Command } from 'commander'
import * as z from 'zod/mini'
import { type ErrorCode, FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { Letter, LetterSummary } from '../../src/operator/app.ts'
import { isJsonObject } from '../../src/wire/record.ts'
import { whole } from './arguments.ts'
import { type Filter, filters, operates, type Operating } from './operator.ts'
import { columns, escapeJson, inShell, jsonText, table, timeOf } from './terminal.ts'

const isLetter = (value: unknown): boolean => isJsonObject(value) && typeof value['id'] === 'string'
const listed = z.looseObject({
  letters: z.array(z.custom<LetterSummary>(isLetter)),
  next: z.nullable(z.string()),
  unasked: z.optional(z.array(z.object({ branch: z.string(), text: z.string() }))),
})
const changed = z.looseObject({ messages: z.number(), next: z.optional(z.nullable(z.string())) })
const letter = z.custom<Letter>(isLetter)

interface Listing extends Filter {
  readonly limit: number
  readonly after?: string
}

export function defineDead(command: Command): void {
  command.description(
    'Lists, replays, or discards dead letters: messages whose handlers failed in every attempt. `fleethook failing` shows messages that are still tried.',
  )
  defineList(command.command('list').description('Lists dead letters in the order of their arrival, without payloads.'))
  defineShow(
    command.command('show').argument('<id>', 'an id from the list').description('Shows a dead letter with its event.'),
  )
  defineChange(
    command.command('replay').argument('[id]', 'an id from the list; without it, the filters select'),
    'replay',
    'Replays dead letters: their handlers run again, with `delivery.replayed` set. Handlers that write exactly once and had succeeded do not.',
  )
  defineChange(
    command.command('discard').argument('[id]', 'an id from the list; without it, the filters select'),
    'discard',
    'Deletes dead letters.',
  )
}

function defineList(command: Command): void {
  filters(command)
    .option('--limit <n>', 'at most this many', whole(1, 1_000), 50)
    .option('--after <id>', 'the next page: dead letters after this one')
  operates<[], Listing>(command, async ({ operator, print }, { limit, after, ...filter }) => {
    const query = new URLSearchParams({ limit: String(limit), ...asked(filter), ...defined({ after }) })
    const found = listed.parse(await operator.ask('GET', `/dead?${query}`))
    const { unasked = [] } = found
    const others = found.letters.length === 0 ? operator.butBranches() : ''
    const without = unasked.map(({ branch, text }) => `\n\nThe branch ${branch} did not answer: ${text}`).join('')
    print(found, () => page(found.letters, found.next) + others + without)
    return unasked.length === 0
  })
}

function page(letters: readonly LetterSummary[], next: string | null): string {
  if (letters.length === 0) return 'There are no dead letters.'
  const hasBranches = letters.some(({ branch }) => branch !== undefined)
  const rows = letters.map(({ id, branch, vin, topic, diedAt, attempts, error }) => [
    ...(hasBranches ? [branch ?? 'receiver'] : []),
    timeOf(diedAt),
    vin ?? '',
    topic,
    String(attempts),
    id,
    error,
  ])
  const shown = table(
    [...(hasBranches ? ['WHERE'] : []), 'DIED (UTC)', 'VIN', 'TOPIC', 'ATTEMPTS', 'ID', 'ERROR'],
    rows,
  )
  return next === null ? shown : `${shown}\n\nThere may be more: --after ${escapeControls(next)}`
}

function defineShow(command: Command): void {
  operates<[string], object>(command, async ({ operator, print }, _, id) => {
    const found = letter.parse(await operator.ask('GET', `/dead/${encodeURIComponent(id)}`))
    print(found, () => {
      const { event, text, ...about } = found
      const rows = Object.entries(about).map(([name, value]) => [name, String(value)])
      const came = text === undefined ? '' : `\n\nAs it came:\n${escapeJson(text)}`
      return `${columns(rows)}\n\n${jsonText(event)}${came}`
    })
    return true
  })
}

function defineChange(command: Command, what: 'replay' | 'discard', description: string): void {
  filters(command)
    .description(description)
    .option('--dry-run', 'only count the messages')
    .option('--yes', 'do not ask for confirmation')
  operates<[string | undefined], Filter & { readonly dryRun?: true }>(command, async (operating, options, id) => {
    const { dryRun, ...filter } = options
    if (id !== undefined) {
      const one = changed.parse(await operating.operator.ask('POST', `/dead/${encodeURIComponent(id)}/${what}`))
      operating.print(one, () =>
        one.messages === 0 ? `There is no dead letter ${escapeControls(id)}.` : done(operating, what, 1),
      )
      return one.messages > 0
    }
    return changeAll(operating, `/dead/${what}`, what, asked(filter), dryRun === true)
  })
}

/** Counts the messages, asks for confirmation, and changes them. */
async function changeAll(
  operating: Operating,
  path: string,
  what: 'replay' | 'discard',
  filter: object,
  dryRun: boolean,
): Promise<boolean> {
  const { operator, print, agreed } = operating
  const count = changed.parse(await operator.ask('POST', path, { ...filter, dryRun: true }))
  if (dryRun || count.messages === 0) {
    print(count, () => matching(count.messages))
    return count.messages > 0
  }
  if (count.messages > 1 && !(await agreed(`${what === 'replay' ? 'Replay' : 'Discard'} ${count.messages} messages?`)))
    return false
  const result = changed.parse(await operator.ask('POST', path, filter))
  print(result, () => done(operating, what, result.messages))
  return result.messages > 0
}

/** The messages of one request of a replay. */
const partSize = 100

/** Asks for one part after the other. When the receiver ends before all are done, it says what is done and how to go on. */
async function replayAll(operating: Operating, range: Record<string, string>, dryRun: boolean): Promise<boolean> {
  const { operator, asking, print, agreed } = operating
  const { after: begin, ...all } = range
  const count = changed.parse(await operator.ask('POST', '/replay', { ...all, dryRun: true }))
  if (dryRun || count.messages === 0) {
    print(count, () => matching(count.messages))
    return count.messages > 0
  }
  const those =
    begin === undefined ? `${count.messages} messages` : `what lies after ${begin}, of ${count.messages} messages`
  if (count.messages > 1 && !(await agreed(`Replay ${those}?`))) return false
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      stop.abort()
      console.error('Stopping when this part is handled. Press Ctrl+C again to end at once.')
    })
  let messages = 0
  let after = begin
  let isDone = false
  const brokenOff = (code: ErrorCode, what: string, doubt: string, cause?: unknown): FleethookError => {
    const again = Object.entries({ ...all, ...defined({ after }) }).map(
      ([name, value]) => ` --${name}=${inShell(value)}`,
    )
    return new FleethookError(code, `${what} Before that, ${messages} messages were replayed.`, {
      hint: `Go on where it stopped, when the receiver runs: fleethook replay${again.join('')}${asking}.${doubt}`,
      cause,
    })
  }
  try {
    while (!isDone && !stop.signal.aborted) {
      const part = changed.parse(
        await operator.ask('POST', '/replay', { ...all, ...defined({ after }), limit: partSize }),
      )
      messages += part.messages
      isDone = part.next == null
      after = part.next ?? after
    }
  } catch (error) {
    if (!(error instanceof FleethookError)) throw error
    const doubt = ` Up to ${partSize} messages after that may have been replayed too.`
    throw brokenOff(error.code, error.message, doubt, error)
  }
  if (!isDone) throw brokenOff('inbox_unavailable', 'The replay was stopped.', '')
  print({ messages }, () => done(operating, 'replay', messages))
  return messages > 0
}

const matching = (messages: number): string => (messages === 1 ? '1 message matches.' : `${messages} messages match.`)

function done({ operator }: Operating, what: 'replay' | 'discard', messages: number): string {
  const them = messages === 1 ? '1 message' : `${messages} messages`
  if (what === 'discard') return `${them} discarded.`
  return operator.isRunning
    ? `${them} replayed: the handlers run now.`
    : `${them} replayed: the receiver does not run. It handles them when it starts.`
}

/** The filter for the receiver, without options that are not given. */
function asked({ vin, topic, from, to }: Filter): Record<string, string> {
  return defined({ vin, topic, from: from?.toISOString(), to: to?.toISOString() })
}

export function defineReplay(command: Command): void {
  filters(command)
    .description(
      'Replays handled messages that the inbox still keeps, in order: all handlers run again, with `delivery.replayed` set.',
    )
    .option('--after <id>', 'go on after this message: a replay that was broken off names it')
    .option('--dry-run', 'only count the messages')
    .option('--yes', 'do not ask for confirmation')
  command.options.find(({ long }) => long === '--from')?.makeOptionMandatory()
  operates<[], Filter & { readonly from: Date; readonly after?: string; readonly dryRun?: true }>(
    command,
    (operating, { dryRun, from, to = new Date(), after, ...filter }) =>
      replayAll(operating, { ...asked({ ...filter, from, to }), ...defined({ after }) }, dryRun === true),
  )
}
