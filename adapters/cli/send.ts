import { type Command, Option } from 'commander'
import type { Format, WireTopic } from '../../src/events/event.ts'
import { maxVins } from '../../src/service/fleet/vin.ts'
import { wireTopics } from '../../src/wire/envelope.ts'
import { dotenvOption, environment, formats, number, time, topicList, webAddress, whole } from './arguments.ts'
import { problemWithSecret, type SendOptions } from './send/post.ts'

interface Given {
  readonly url: URL
  readonly secret?: string
  readonly format: Format | 'all'
  readonly topic?: readonly WireTopic[]
  readonly vins: number
  readonly rate: number
  readonly count: number
  readonly seed: number
  readonly startAt?: Date
  readonly concurrency: number
  readonly timeout: number
  readonly insecure?: true
  readonly quiet?: true
  readonly json?: true
  readonly dotenv: string
}

export function defineSend(command: Command): void {
  command
    .description(
      'Posts the messages of a simulated fleet to a receiver, as the service does: each message once, in order per vehicle, ' +
        'with the secret in the Authorization header. Reports what was accepted and how fast.',
    )
    .option('-u, --url <url>', 'the address of the receiver', url, new URL('http://localhost:3000'))
    .option(
      '-s, --secret <secret>',
      'the `auth` of the webhook (default: WEBHOOK_SECRET; without it no header is sent)',
    )
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
    .option(
      '--start-at <time>',
      'when the fleet wakes up, ISO 8601 (default: early enough that the last message is from now)',
      time,
    )
    .option('--concurrency <n>', 'POSTs at once; a vehicle has at most one', whole(1, 10_000), 64)
    .option('--timeout <ms>', 'time to wait for an answer', whole(1, 600_000), 10_000)
    .option('--insecure', 'do not check the TLS certificate')
    .option('-q, --quiet', 'print only the summary')
    .option('--json', 'print only the summary, as one JSON object')
    .addHelpText(
      'after',
      `
Examples:
  fleethook send
  fleethook send --url https://example.com/telemetry --format event_collector --rate 500 --count 0
  fleethook send --url http://localhost:3000/ --topic alerts,errors --count 20 --json

Environment: WEBHOOK_SECRET, also read from .env.

Exit status: 0 everything was accepted, 1 something was refused or failed, 2 bad usage.`,
    )
    .action(async () => {
      const given = command.opts<Given>()
      const secret = given.secret ?? environment(given.dotenv)('WEBHOOK_SECRET')
      // Not checked by a parser of the option: commander would print the value.
      const problem = secret === undefined ? undefined : problemWithSecret(secret)
      if (problem !== undefined) command.error(`error: ${problem}`)
      const { run } = await import('./send/run.ts')
      process.exitCode = await run(options({ ...given, ...(secret === undefined ? {} : { secret }) }))
    })
}

function options(given: Given): SendOptions {
  return {
    url: given.url,
    secret: given.secret,
    formats: given.format === 'all' ? formats : [given.format],
    topics: given.topic ?? wireTopics,
    vins: given.vins,
    ratePerSecond: given.rate,
    count: given.count === 0 ? Infinity : given.count,
    seed: given.seed,
    startAt: given.startAt?.getTime(),
    concurrency: given.concurrency,
    timeoutMs: given.timeout,
    checkCertificate: !given.insecure,
    output: given.json ? 'json' : given.quiet ? 'quiet' : 'progress',
  }
}

const url = webAddress('http:// or https://, as in http://localhost:3000/telemetry')
