import { type Command, Option } from 'commander'
import prettyMs from 'pretty-ms'
import * as z from 'zod/mini'
import { FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { ShownItem } from '../../src/operator/feed.ts'
import { isJsonObject } from '../../src/wire/record.ts'
import { webAddress, whole } from './arguments.ts'
import { follow } from './feed.ts'
import { operates, type Operator } from './operator.ts'
import { postOn } from './post-on.ts'
import { type Colors, colorsFor, escapeJson, inShell } from './terminal.ts'

interface Given {
  readonly vin?: string
  readonly topic?: string
  readonly errors?: true
  readonly last: number
  readonly follow: boolean
  readonly to?: URL
  readonly auth?: string
  readonly dotenv: string
}

export function defineTail(command: Command): void {
  command
    .description(
      'Shows what happens in a running receiver until Ctrl+C, one line per event: its outcome, the time from receipt to the ' +
        'outcome, and a short text. Continues when the receiver restarts. With --json, each line is an item of the feed.',
    )
    .option('--vin <vin>', 'only items about this vehicle')
    .option('--topic <topic>', 'only messages of this topic')
    .option('--errors', 'only refused requests, failed handlers, dead letters, lost messages, gaps and test messages')
    .option('-n, --last <n>', 'begin with the last n items; the receiver keeps up to 500 errors', whole(0, 500), 10)
    .option('--no-follow', 'end after those: show what happened before')
    .addOption(
      new Option('--to <url>', 'post each message that it receives from now on to this receiver too, as it came')
        .argParser(webAddress('http:// or https://, as in http://localhost:3000'))
        .conflicts(['errors', 'last', 'follow']),
    )
    .option('--auth <value>', 'the secret of the receiver at --to, if WEBHOOK_SECRET is not it')
  operates<[], Given>(
    command,
    async ({ operator, isJson, asking }, { last, vin, topic, errors, follow: isLive, to, auth, dotenv }) => {
      const ended = new AbortController()
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => ended.abort())
      await sayWhatIsUnheard(operator)
      if (to !== undefined)
        return postOn(operator, { to, auth, dotenv, isJson, which: defined({ vin, topic }) }, ended.signal)
      const show = isJson ? showJson : showLines(colorsFor(process.stdout), asking)
      const query = new URLSearchParams(defined({ vin, topic, errors: errors && 'true' }))
      const onLost = (): void =>
        console.error('The receiver stopped. Waiting until it runs again. Press Ctrl+C to end.')
      const onFound = (): void => console.error('The receiver runs again.')
      const kept: ShownItem[] = []
      for await (const { items, missed, isKept, isLast } of follow(operator, query, ended.signal, onLost, onFound)) {
        if (isKept) kept.push(...items)
        else show(items, missed)
        // The kept items can come in several parts.
        if (isKept && isLast) {
          // The feed has handled messages only while somebody reads, and errors for longer. The inbox has both, so the newest are among them.
          const older = errors || last === 0 ? [] : await listed(operator, last, { vin, topic })
          const newest = merged(older, kept)
          show(newest.slice(Math.max(0, newest.length - last)), missed)
        }
        if (!isLive && isLast) return true
      }
      return true
    },
    'receiver',
  )
}

const sharing = z.looseObject({
  inbox: z.looseObject({ isShared: z.optional(z.boolean()) }),
  backlog: z.optional(z.looseObject({ processes: z.optional(z.number()) })),
})

/** Each process has a feed of its own. Where several share an inbox, each has a part of the messages. */
async function sayWhatIsUnheard(operator: Operator): Promise<void> {
  const { data } = sharing.safeParse(await operator.ask('GET', '/stats').catch(() => undefined))
  if (data?.inbox.isShared !== true) return
  const { processes } = data.backlog ?? {}
  const others = processes === undefined ? 'others' : `others: ${processes} processes run handlers`
  console.error(
    `The process that answers shares its inbox with ${others}. Only what happens in it is heard, so messages that others take are missing here. Run the command for each process, with its own --url.`,
  )
}

const list = z.object({
  messages: z.array(
    z.looseObject({
      id: z.string(),
      state: z.enum(['waiting', 'settled', 'dead']),
      event: z.custom<NonNullable<ShownItem['event']> & { readonly receivedAt: string }>(isJsonObject),
      line: z.optional(z.string()),
      death: z.optional(z.looseObject({ error: z.string(), attempts: z.number(), diedAt: z.string() })),
    }),
  ),
})

/** The newest messages of the inbox as items of the feed, oldest first. None, when it cannot list them. */
async function listed(
  operator: Operator,
  limit: number,
  which: { readonly vin: string | undefined; readonly topic: string | undefined },
): Promise<readonly ShownItem[]> {
  const query = new URLSearchParams(defined({ ...which, limit: String(limit) }))
  const answer = await operator.ask('GET', `/messages?${query}`).catch((error: unknown) => {
    if (error instanceof FleethookError) return { messages: [] }
    throw error
  })
  return list
    .parse(answer)
    .messages.toReversed()
    .map(({ id, state, event, line, death }): ShownItem => {
      const about = { id, event, at: death?.diedAt ?? event.receivedAt, ...defined({ line }) }
      if (death !== undefined) return { ...about, kind: 'dead', error: death.error, attempts: death.attempts }
      return state === 'settled' ? { ...about, kind: 'settled', outcome: 'handled' } : { ...about, kind: 'received' }
    })
}

/** In the order of their times, without messages that the feed shows itself. */
function merged(older: readonly ShownItem[], kept: readonly ShownItem[]): readonly ShownItem[] {
  const known = new Set(kept.flatMap(({ kind, id }) => (kind === 'settled' || kind === 'dead' ? (id ?? []) : [])))
  const others = older.filter(({ id, kind }) => kind !== 'received' && !known.has(id ?? ''))
  return [...others, ...kept].toSorted((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0))
}

function showJson(items: readonly ShownItem[], missed: number): void {
  if (missed > 0) console.log(JSON.stringify({ missed }))
  for (const one of items) console.log(escapeJson(JSON.stringify(one)))
}

/** Prints one line for each message when its outcome is known. */
function showLines(colors: Colors, asking: string): (items: readonly ShownItem[], missed: number) => void {
  return (items, missed) => {
    if (missed > 0) console.log(colors.dim(`${missed} events not shown: they arrived too fast.`))
    for (const one of items) if (one.kind !== 'received') console.log(lineOf(one, colors, asking))
  }
}

/** The outcome, then the time from receipt to it, then what happened. */
function lineOf(one: ShownItem, colors: Colors, asking: string): string {
  const [paint, outcome, measure] = headOf(one, colors)
  return `${paint(outcome.padEnd(10))} ${measure.padStart(7)}  ${textOf(one, asking)}`
}

function headOf({ kind, isTest, outcome, lagMs, status, attempt, attempts }: ShownItem, colors: Colors): Head {
  const lag = lagMs === undefined ? '' : prettyMs(lagMs, { compact: true })
  switch (kind) {
    case 'settled':
      return [outcome === 'handled' ? colors.green : outcome === 'lost' ? colors.red : colors.dim, outcome ?? '', lag]
    case 'failed':
      return [colors.yellow, 'failed', attempt === undefined ? '' : `run ${attempt}`]
    case 'dead':
      return [colors.red, 'dead', attempts === 1 ? '1 run' : `${attempts} runs`]
    case 'refused':
      return [isTest ? colors.cyan : colors.red, isTest ? 'test' : 'refused', status === 0 ? '' : String(status)]
    default:
      return [kind === 'test' ? colors.cyan : colors.magenta, kind, '']
  }
}

type Head = readonly [paint: (text: string) => string, outcome: string, measure: string]

function textOf(one: ShownItem, asking: string): string {
  const { kind, at, id = '', vin, line, event, error = '', handler, nextAt, hint, vins = [], count } = one
  const about = [at.slice(11, 19), vin ?? event?.vin, event?.topic].filter((part) => part !== undefined).join(' ')
  switch (kind) {
    case 'refused': {
      if (one.isTest) return escapeControls(`${about} a request of fleethook doctor was refused: ${error}`)
      const [first, ...others] = vins
      const lost = first === undefined ? '' : ` Lost: ${first}${others.length > 0 ? ` and ${others.length} more` : ''}.`
      const number = count === undefined || count === 1 ? '' : ` (${count} since the start)`
      return escapeControls(`${about} ${error}${number}.${lost} ${hint ?? ''}`.trimEnd())
    }
    case 'failed': {
      const next = nextAt === undefined ? 'none' : nextAt.slice(11, 19)
      return escapeControls(
        `${about} ${handler === undefined ? `the inbox: ${error}` : `${handler}: ${error}, next ${next}`}`,
      )
    }
    case 'dead':
      return escapeControls(`${about} ${error}, fleethook dead show ${inShell(id)}${asking}`)
    case 'test': {
      const { test = '', bytes = 0, encoding = 'read by the host', headers = [] } = one
      return escapeControls(`${about} test message ${test}: ${bytes} bytes, ${encoding}, ${headers.length} headers`)
    }
    default:
      return escapeControls(line ?? about)
  }
}
