import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { createHistogram } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { type Command, Option } from 'commander'
import prettyMs from 'pretty-ms'
import type { Format, WireTopic } from '../../src/events/event.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { secretErrors } from '../../src/reports/refusals.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { type SimulatedMessage, wireMessage } from '../../src/service/fleet/messages.ts'
import { maxVins } from '../../src/service/fleet/vin.ts'
import { authorization } from '../../src/wire/encode.ts'
import { wireTopics } from '../../src/wire/envelope.ts'
import {
  dotenvOption,
  environment,
  formats,
  number,
  portFor,
  problemWithSecret,
  topicList,
  variablesIn,
  webAddress,
  whole,
} from './arguments.ts'
import { adviceFor, codeOf, exchange, type Exchanged, parsed } from './exchange.ts'
import { type Colors, colorsFor, jsonText } from './terminal.ts'

interface Asked {
  readonly url?: URL
  readonly format: Format | 'all'
  readonly topic?: readonly WireTopic[]
  readonly vins: number
  readonly rate: number
  readonly count: number
  readonly seed: number
  readonly json?: true
  readonly dotenv: string
}

interface Given extends Asked {
  readonly url: URL
}

/** The output of `--json`. */
export interface SendResult {
  /** Where the messages went. */
  readonly url: string
  readonly sent: number
  readonly accepted: number
  readonly refused: number
  readonly failed: number
  readonly vins: number
  readonly seed: number
  /** When the fleet woke up. ISO 8601. */
  readonly startAt: string
  readonly stopped: 'interrupted' | 'unreachable' | null
  readonly elapsedMs: number
  readonly perSecond: number
  /** Response times. `null` when nothing was answered. */
  readonly ackMs: { readonly p50: number; readonly p95: number; readonly p99: number; readonly max: number } | null
  /** Refusals and network errors by kind, the most frequent first. */
  readonly problems: readonly Readonly<Problem>[]
}

interface Problem {
  readonly what: string
  readonly hint: string
  count: number
}

/** Messages that wait for an answer, or for the one before them of their vehicle. */
const mostOpen = 256
const timeoutMs = 10_000
/** If this many messages at the start all fail, nothing listens at the address. */
const hopeless = 20
/** A server can use new words for every refusal. */
const mostKinds = 50

export function defineSend(command: Command): void {
  command
    .description(
      'Posts the messages of a simulated fleet to a receiver, as the service does: each message once, in order per vehicle, ' +
        'with WEBHOOK_SECRET in the Authorization header, if it is set. Reports what was accepted and how fast.',
    )
    .option('-u, --url <url>', 'the address of the receiver (default: http://localhost and PORT, or 3000)', url)
    .addOption(dotenvOption)
    .addOption(
      new Option('-f, --format <format>', 'the payload format; "all" uses them in turn')
        .choices([...formats, 'all'])
        .default('all'),
    )
    .option('-t, --topic <topics>', `only these topics, separated by commas: ${wireTopics.join(', ')}`, topicList)
    .option('--vins <n>', 'number of vehicles', whole(1, maxVins), 25)
    .option('-r, --rate <n>', 'messages per second', number(Number.MIN_VALUE, 1_000_000), 100)
    .option('-c, --count <n>', 'number of messages; 0 sends until Ctrl+C', whole(0), 1_000)
    .option('--seed <n>', 'the same seed sends the same fleet', whole(0, 0x7fff_ffff), 1)
    .option('--json', 'print the summary as JSON')
    .addHelpText(
      'after',
      `
Examples:
  fleethook send
  fleethook send --url https://example.com/telemetry --format event_collector --rate 500 --count 0
  fleethook send --url http://localhost:3000/ --topic alerts,errors --count 20 --json

Environment: WEBHOOK_SECRET and PORT, also read from .env.

Exit status: 0 everything was accepted, 1 something was refused or failed, 2 bad usage.`,
    )
    .action(async () => {
      const asked = command.opts<Asked>()
      const given = { ...asked, url: asked.url ?? new URL(`http://localhost:${portFor({ dotenv: asked.dotenv })}`) }
      const secret = environment(given.dotenv)('WEBHOOK_SECRET')
      const problem = secret === undefined ? undefined : problemWithSecret(secret)
      if (problem !== undefined) command.error(`error: ${problem}`)
      const result = await send({ ...given, count: given.count === 0 ? Infinity : given.count }, secret)
      console.log(given.json ? jsonText(result) : summary(result, given, colorsFor(process.stdout)))
      process.exitCode = result.accepted < result.sent ? 1 : 0
    })
}

const url = webAddress('http:// or https://, as in http://localhost:3000/telemetry')

/** Sends the messages, and resolves when the last one is answered. */
async function send(given: Given, secret: string | undefined): Promise<SendResult> {
  const { vins, seed } = given
  const startAt = wakesUpAt(given)
  const { post, close } = createPost(given, secret)
  const over = new AbortController()
  const total = { sent: 0, accepted: 0, refused: 0, failed: 0 }
  const problems = new Map<string, Problem>()
  const ackMicros = createHistogram()
  let stopped: SendResult['stopped'] = null
  const stop = (why: 'interrupted' | 'unreachable'): void => {
    stopped ??= why
    over.abort()
  }
  const interrupt = (): void => {
    // The first Ctrl+C waits for answers, the second ends at once.
    if (stopped === 'interrupted') process.exit(130)
    stop('interrupted')
  }
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt)

  const startedAt = performance.now()
  await sendAll(given, startAt, over.signal, async (event, format) => {
    const { kind, ackMs, what, hint } = await post(JSON.stringify(wireMessage(event, format)), format)
    total.sent++
    total[kind]++
    if (ackMs !== undefined) ackMicros.record(Math.max(1, Math.round(ackMs * 1_000)))
    if (kind !== 'accepted') {
      const name = problems.size < mostKinds ? what : 'other'
      const problem = problems.get(name) ?? { what: name, hint, count: 0 }
      problem.count++
      problems.set(name, problem)
    }
    if (total.failed === total.sent && total.sent >= hopeless) stop('unreachable')
  })
  const elapsedMs = performance.now() - startedAt
  process.off('SIGINT', interrupt).off('SIGTERM', interrupt)
  close()

  const ack = (percentile: number): number => ackMicros.percentile(percentile) / 1_000
  return {
    url: given.url.href,
    ...total,
    vins,
    seed,
    startAt: new Date(startAt).toISOString(),
    stopped,
    elapsedMs: rounded(elapsedMs),
    perSecond: rounded((1_000 * Math.max(0, total.sent - 1)) / elapsedMs),
    ackMs: ackMicros.count === 0 ? null : { p50: ack(50), p95: ack(95), p99: ack(99), max: ackMicros.max / 1_000 },
    problems: [...problems.values()].toSorted((a, b) => b.count - a.count),
  }
}

/** Starts each message at its time, answered or not, in order per vehicle. Resolves when the last one is answered. */
async function sendAll(
  given: Given,
  startAt: number,
  signal: AbortSignal,
  sendOne: (event: SimulatedMessage['event'], format: Format) => Promise<void>,
): Promise<void> {
  const inTurn = given.format === 'all' ? formats : [given.format]
  const lanes = new Map<string, Promise<void>>()
  const startedAt = performance.now()
  let [open, taken] = [0, 0]
  let closed = (): void => {}
  const go = async (event: SimulatedMessage['event'], format: Format): Promise<void> => {
    if (!signal.aborted) await sendOne(event, format)
    open--
    closed()
  }
  for (const { event } of simulated(given, startAt)) {
    const format = inTurn[taken % inTurn.length]
    if (taken >= given.count || signal.aborted || format === undefined) break
    const dueMs = startedAt + (1_000 * taken) / given.rate
    taken++
    // A timer can fire a part of a millisecond early.
    for (let early = dueMs - performance.now(); early > 0 && !signal.aborted; early = dueMs - performance.now())
      await setTimeout(Math.ceil(early), undefined, { signal }).catch(() => {})
    while (open >= mostOpen) await new Promise<void>((resolve) => (closed = resolve))
    if (signal.aborted) break
    open++
    const before = lanes.get(event.vin) ?? Promise.resolve()
    const done = before.then(() => go(event, format))
    lanes.set(event.vin, done)
  }
  await Promise.all(lanes.values())
}

/** Simulated ahead to know how long it takes. More are about as dense, or less. */
const mostAhead = 100_000

/** A high rate makes the fleet's time pass faster. It wakes up in the past, so that its last message is from about now, and none from later. */
function wakesUpAt(given: Given): number {
  const { count, rate } = given
  if (!Number.isFinite(count)) return Date.now()
  const ahead = Math.min(count, mostAhead)
  let taken = 0
  let lastMs = 0
  for (const { at } of simulated(given, 0)) {
    if (++taken > ahead) break
    lastMs = at
  }
  const simulatedMs = lastMs * (count / ahead)
  return Math.round(Date.now() - Math.max(0, simulatedMs - (1_000 * count) / rate))
}

function* simulated({ vins, seed, topic = wireTopics }: Given, startAt: number): Generator<SimulatedMessage> {
  for (const message of createFleet({ vins, seed, startAt, firmware: 'mixed' })) {
    if (topic.includes(message.event.topic)) yield message
  }
}

interface Outcome {
  readonly kind: 'accepted' | 'refused' | 'failed'
  /** `undefined`: there was no answer. */
  readonly ackMs?: number
  readonly what: string
  readonly hint: string
}

/** The sender's side of the webhook. Its connections stay open. */
function createPost(
  { url: to, dotenv }: Given,
  secret: string | undefined,
): { readonly post: (body: string, format: Format) => Promise<Outcome>; readonly close: () => void } {
  const agent = to.protocol === 'https:' ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true })
  const secretHint = hintAboutSecret(dotenv, secret)
  return {
    async post(body, format) {
      const headers = {
        'content-type': 'application/json',
        'user-agent': 'fleethook-send',
        ...(secret === undefined ? {} : { authorization: authorization(secret, format) }),
      }
      const signal = AbortSignal.timeout(timeoutMs)
      try {
        const answer = await exchange(to, { agent, headers, body, signal })
        const { status, ms: ackMs, text } = answer
        // A page of an app has taken no message.
        if (status >= 200 && status < 300 && !isPage(text)) return { kind: 'accepted', ackMs, what: '', hint: '' }
        return { kind: 'refused', ackMs, ...refusalOf(answer, to, secretHint) }
      } catch (error) {
        const code = signal.aborted ? 'TIMEOUT' : codeOf(error)
        return { kind: 'failed', what: code, hint: adviceFor(code) }
      }
    },
    close: () => agent.destroy(),
  }
}

export const isPage = (text: string): boolean => /^\s*<(!doctype|html)/i.test(text)

/** What `send` adds to the receiver's own hint when the secret is refused. */
export function hintAboutSecret(dotenv: string, secret: string | undefined): string {
  if (secret === undefined) return 'No secret was sent: set WEBHOOK_SECRET in the environment or in .env.'
  const written = variablesIn(dotenv)['WEBHOOK_SECRET']
  const different = written && written !== secret ? `, and ${dotenv} has another one` : ''
  return `The secret that was sent is from ${process.env['WEBHOOK_SECRET'] ? `the environment${different}` : dotenv}.`
}

/** `option`: that with which the command was given the address. */
export function refusalOf(
  answer: Exchanged,
  to: URL,
  secretHint: string,
  option: '--url' | '--to' = '--url',
): Pick<Outcome, 'what' | 'hint'> {
  const { status, text } = answer
  const { error, code, hint, text: words = text.split('\n', 1)[0] } = Object(parsed(text))
  const said = typeof error === 'string' ? error : isPage(text) ? 'an HTML page' : String(words).slice(0, 120)
  const own = typeof hint === 'string' ? hint : code === undefined ? foreignHint(answer, to, option) : ''
  return {
    what: printable(`${status} ${said}${typeof code === 'number' ? ` (code ${code})` : ''}`),
    hint: printable(secretErrors.has(said) ? `${own} ${secretHint}` : own),
  }
}

/** What to try when something other than a receiver has answered. */
function foreignHint(
  { status, headers: { location } }: Exchanged,
  { origin, pathname }: URL,
  option: '--url' | '--to',
): string {
  if (location !== undefined && status >= 300 && status < 400)
    return `It redirects to ${location}: the service does not follow redirects, so give the final address.`
  if (status !== 404 && status >= 300) return ''
  const other = pathname === '/' ? '/telemetry' : '/'
  return `A server answers there, and no receiver is at ${pathname}. Give the path at which it is mounted, for instance ${option} ${origin}${other}`
}

/** Text from a server in one line, without control characters for a terminal. */
const printable = (text: string): string => escapeControls(text.replaceAll(/\s+/g, ' ').trim())

/** The summary for people: the outcomes, the speed, and what to do about problems. */
function summary(result: SendResult, { rate: asked, url: to }: Given, colors: Colors): string {
  const { perSecond: achieved, ackMs, elapsedMs, problems } = result
  const lines = ['', verdict(result, to, colors), '']
  for (const { count, what, hint } of problems)
    lines.push(`  ${colors.red(`${grouped(count)} × ${what}`)}`, `      ${hint}`)
  if (problems.length > 0)
    lines.push('  The service sends each message once. A message that the receiver does not accept is lost.', '')
  if (ackMs === null) return lines.join('\n')
  const isSlow = achieved < 0.97 * asked
  const speed = `${grouped(achieved)}/s${isSlow ? ` of the ${grouped(asked)}/s asked for` : ''}`
  lines.push(`  rate  ${speed}, in ${prettyMs(elapsedMs, { unitCount: 2 })}`)
  // What to do about `Vehicles waited for answers.`: Use more `--vins`.
  if (isSlow) lines.push('        Vehicles waited for answers. Try more --vins.')
  const times = (['p50', 'p95', 'p99', 'max'] as const).map((name) => `${name} ${duration(ackMs[name])}`)
  lines.push(`  ack   ${times.join(' · ')}`)
  lines.push('')
  return lines.join('\n')
}

function verdict({ sent, accepted, refused, failed, stopped }: SendResult, to: URL, colors: Colors): string {
  const { bold, green, red } = colors
  const reasons = { interrupted: 'Stopped. ', unreachable: `Stopped: ${to.href} cannot be reached. ` }
  const ended = stopped === null ? '' : reasons[stopped]
  if (sent === 0) return bold(`${ended}Nothing was sent.`)
  const all = sent === 1 ? 'The message was accepted.' : `All ${grouped(sent)} messages were accepted.`
  if (accepted === sent) return `${green('✔')} ${bold(ended + all)}`
  const fates = `${grouped(accepted)} accepted, ${grouped(refused)} refused, ${grouped(failed)} failed`
  return `${red('✖')} ${bold(`${ended}${grouped(sent)} sent to ${to.href}:`)} ${fates}.`
}

const rounded = (value: number): number => Math.round(value * 1_000) / 1_000

/** `12,500`, `99.8` */
const grouped = (value: number): string => value.toLocaleString('en-US', { maximumFractionDigits: 1 })

/** A response time: `0.8ms`, `120ms`, `3.4s`. */
const duration = (ms: number): string => prettyMs(ms, { millisecondsDecimalDigits: ms < 9.95 ? 1 : 0 })
