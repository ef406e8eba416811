import type { Command } from 'commander'
import * as z from 'zod/mini'
import type { LetterSummary } from '../../src/operator/app.ts'
import { type Filter, filters, operates, type Operating, wholeNumber } from './operator/command.ts'
import { table } from './operator/table.ts'

const summary = z.looseObject({
  id: z.string(),
  vin: z.nullable(z.string()),
  topic: z.string(),
  receivedAt: z.string(),
  diedAt: z.string(),
  attempts: z.number(),
  error: z.string(),
})
const listed = z.looseObject({ letters: z.array(summary), next: z.nullable(z.string()) })
const changed = z.looseObject({ messages: z.number() })
const letter = z.extend(summary, { event: z.unknown() })

interface Listing extends Filter {
  readonly limit: number
  readonly after?: string
}

/** `fleethook dead` */
export function define(command: Command): void {
  command.description('Looks at messages that were given up, and puts them back or forgets them.')
  defineList(command.command('list').description('Lists them in the order in which they came, without their payloads.'))
  defineShow(command.command('show').argument('<id>', 'as listed').description('Shows one, with its event.'))
  defineChange(
    command.command('replay').argument('[id]', 'one, as listed; without it those that the filters mean'),
    'replay',
    'Puts them back: all of their handlers run anew, marked as replayed.',
  )
  defineChange(
    command.command('discard').argument('[id]', 'one, as listed; without it those that the filters mean'),
    'discard',
    'Forgets them for good.',
  )
}

function defineList(command: Command): void {
  filters(command)
    .option('--limit <n>', 'at most so many', wholeNumber, 50)
    .option('--after <id>', 'those that come after this one: the next page')
  operates<[], Listing>(command, async ({ connection, print }, { limit, after, ...filter }) => {
    const query = new URLSearchParams({ limit: String(limit), ...asked(filter) })
    if (after !== undefined) query.set('after', after)
    const found = listed.parse(await connection.ask('GET', `/dead?${query}`))
    print(found, () => page(found.letters, found.next))
    return true
  })
}

function page(letters: readonly LetterSummary[], next: string | null): string {
  if (letters.length === 0) return 'There are no dead letters.'
  const rows = letters.map(({ id, vin, topic, diedAt, attempts, error }) => [
    diedAt.replace('T', ' ').slice(0, 19),
    vin ?? '',
    topic,
    String(attempts),
    id,
    error,
  ])
  const shown = table(['DIED (UTC)', 'VIN', 'TOPIC', 'ATTEMPTS', 'ID', 'ERROR'], rows)
  return next === null ? shown : `${shown}\n\nThere may be more: --after ${next}`
}

function defineShow(command: Command): void {
  operates<[string], object>(command, async ({ connection, print }, _, id) => {
    const found = letter.parse(await connection.ask('GET', `/dead/${encodeURIComponent(id)}`))
    print(found, () => {
      const { event, ...about } = found
      const lines = Object.entries(about).map(([name, value]) => `${name.padEnd(11)} ${String(value)}`)
      return `${lines.join('\n')}\n\n${JSON.stringify(event, undefined, 2)}`
    })
    return true
  })
}

function defineChange(command: Command, what: 'replay' | 'discard', description: string): void {
  filters(command)
    .description(description)
    .option('--dry-run', 'only say how many there are')
    .option('--yes', 'do not ask')
  operates<[string | undefined], Filter & { readonly dryRun?: true }>(command, async (operating, options, id) => {
    const { dryRun, ...filter } = options
    if (id !== undefined) {
      const one = changed.parse(await operating.connection.ask('POST', `/dead/${encodeURIComponent(id)}/${what}`))
      operating.print(one, () => (one.messages === 0 ? `There is no dead letter ${id}.` : done(operating, what, 1)))
      return one.messages > 0
    }
    return changeAll(operating, `/dead/${what}`, what, asked(filter), dryRun === true)
  })
}

/** Counts, asks, and does it. */
export async function changeAll(
  operating: Operating,
  path: string,
  what: 'replay' | 'discard',
  filter: object,
  dryRun: boolean,
): Promise<boolean> {
  const { connection, print, agreed } = operating
  const count = changed.parse(await connection.ask('POST', path, { ...filter, dryRun: true }))
  if (dryRun || count.messages === 0) {
    print(count, () => `${count.messages} messages are meant.`)
    return count.messages > 0
  }
  if (count.messages > 1 && !(await agreed(`${what === 'replay' ? 'Replay' : 'Discard'} ${count.messages} messages?`)))
    return false
  const result = changed.parse(await connection.ask('POST', path, filter))
  print(result, () => done(operating, what, result.messages))
  return result.messages > 0
}

function done({ connection }: Operating, what: 'replay' | 'discard', messages: number): string {
  const them = messages === 1 ? '1 message' : `${messages} messages`
  if (what === 'discard') return `${them} discarded.`
  return connection.to === 'running'
    ? `${them} put back: their handlers run now.`
    : `${them} put back: the receiver does not run, and handles them when it starts.`
}

/** A filter as it is asked for, without what was not said. */
export function asked({ vin, topic, from, to }: Filter): Record<string, string> {
  const given = { vin, topic, from: from?.toISOString(), to: to?.toISOString() }
  return Object.fromEntries(
    Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  )
}
