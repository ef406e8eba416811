import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Format, WireTopic } from '../../src/events/event.ts'
import { maxVins } from '../../src/service/fleet/vin.ts'
import { flawOfSecret } from './send/authorization.ts'
import type { SendOptions } from './send/options.ts'

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
const topics: readonly WireTopic[] = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

interface Given {
  readonly url: URL
  readonly secret?: string
  readonly format: Format | 'all'
  readonly topic?: readonly WireTopic[]
  readonly vins: number
  readonly rate: number
  readonly count: number
  readonly seed: number
  readonly startAt?: number
  readonly concurrency: number
  readonly timeout: number
  readonly insecure?: true
  readonly quiet?: true
  readonly json?: true
}

/** `fleethook send`: its options, their bounds and defaults. */
export function define(command: Command): void {
  command
    .description(
      'Posts the messages of a simulated fleet to a receiver, as the service does: each once, those of one vehicle in order, ' +
        'with the secret in the Authorization header. Tells what was accepted and how fast.',
    )
    .requiredOption('-u, --url <url>', 'where the receiver takes messages', url)
    .addOption(
      new Option(
        '-s, --secret <secret>',
        'what was set as `auth` of the webhook; without it no Authorization header is sent',
      ).env('WEBHOOK_SECRET'),
    )
    .addOption(
      new Option('-f, --format <format>', 'the payload format; "all" takes turns')
        .choices([...formats, 'all'])
        .default('all'),
    )
    .option('-t, --topic <topics>', `only these topics, with commas between: ${topics.join(', ')}`, topicList)
    .option('--vins <n>', 'how many vehicles', whole(1, maxVins), 25)
    .option('-r, --rate <n>', 'messages a second', positive, 100)
    .option('-c, --count <n>', 'how many messages; 0 goes on until Ctrl+C', whole(0, Number.MAX_SAFE_INTEGER), 1_000)
    .option('--seed <n>', 'the same seed sends the same fleet', whole(0, 0x7fff_ffff), 1)
    .option(
      '--start-at <time>',
      'when the fleet wakes up, ISO 8601 (default: so that the last message is from now)',
      time,
    )
    .option('--concurrency <n>', 'POSTs in flight at once, never two of one vehicle', whole(1, 10_000), 64)
    .option('--timeout <ms>', 'how long to wait for an answer', whole(1, 600_000), 10_000)
    .option('--insecure', 'do not check the TLS certificate')
    .option('-q, --quiet', 'no progress, only the summary')
    .option('--json', 'no progress, the summary as one JSON object')
    .addHelpText(
      'after',
      `
Examples:
  WEBHOOK_SECRET=… fleethook send --url http://localhost:3000/telemetry
  fleethook send --url https://example.com/telemetry --format event_collector --rate 500 --count 0
  fleethook send --url http://localhost:3000/ --topic alerts,errors --count 20 --json

Exit status: 0 everything was accepted, 1 something was refused or failed, 2 bad usage.`,
    )
    .action(async () => {
      const given = command.opts<Given>()
      // Not in a parser of its own: commander's complaint would show the value.
      const flaw = given.secret === undefined ? undefined : flawOfSecret(given.secret)
      if (flaw !== undefined) command.error(`error: ${flaw}`)
      const { run } = await import('./send/run.ts')
      process.exitCode = await run(options(given))
    })
}

function options(given: Given): SendOptions {
  return {
    url: given.url,
    secret: given.secret,
    formats: given.format === 'all' ? formats : [given.format],
    topics: given.topic ?? topics,
    vins: given.vins,
    ratePerSecond: given.rate,
    count: given.count === 0 ? Infinity : given.count,
    seed: given.seed,
    startAt: given.startAt,
    concurrency: given.concurrency,
    timeoutMs: given.timeout,
    checkCertificate: !given.insecure,
    output: given.json ? 'json' : given.quiet ? 'quiet' : 'progress',
  }
}

function url(text: string): URL {
  const parsed = URL.canParse(text) ? new URL(text) : undefined
  if (parsed?.protocol === 'http:' || parsed?.protocol === 'https:') return parsed
  throw new InvalidArgumentError('It must begin with http:// or https://, as in http://localhost:3000/telemetry.')
}

function topicList(text: string, before: readonly WireTopic[] = []): readonly WireTopic[] {
  return [...before, ...text.split(',').map((name) => topic(name.trim()))]
}

function topic(name: string): WireTopic {
  const known = topics.find((candidate) => candidate === name)
  if (known !== undefined) return known
  throw new InvalidArgumentError(`There is no topic "${name}". There are ${topics.join(', ')}.`)
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isInteger(value) && value >= min && value <= max) return value
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

function positive(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && value > 0 && value <= 1_000_000) return value
  throw new InvalidArgumentError('It must be a number above 0, at most 1000000.')
}

function time(text: string): number {
  const ms = Date.parse(text)
  if (!Number.isNaN(ms)) return ms
  throw new InvalidArgumentError('It must be a time such as 2026-06-01T08:00:00Z.')
}
