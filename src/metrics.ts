/**
 * Metrics of a receiver in the text format of Prometheus, without a dependency.
 *
 * @module
 */
import { type Env, Hono } from 'hono'
import { FleethookError } from './base/errors.ts'
import { consoleLog } from './base/log.ts'
import { refusalErrors, refuse } from './http/answers.ts'
import { createSecretCheck, type Secret } from './http/secret.ts'
import { runtimeRefusalErrors } from './receiver/refusals.ts'
import type { Histogram, Stats } from './inbox/stats.ts'

/** Options of {@link metricsRoutes}. */
export interface MetricsOptions<E extends Env = Env> {
  /**
   * The value of `Authorization` that guards the metrics, with or without the scheme word `Bearer`. Use another secret than the
   * webhook's. A string, a list for rotation, or a function of the runtime's `env`. `false` shows the metrics to everybody.
   */
  readonly secret: Secret<NonNullable<E['Bindings']>> | undefined
}

/** What the metrics are made of: a receiver. */
export interface Measured {
  stats(): Stats
}

/** The media type of {@link metricsText}. */
const contentType = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * A Hono app that answers `GET /` with the metrics of a receiver, for Prometheus and everything that reads its text format.
 * `docs/metrics.md` lists the metrics. They are read from `receiver.stats()`, so a message costs nothing more.
 *
 * Throws `secret_missing` or `option_invalid` for a secret that can never work. `secret: false` has to be written out.
 *
 * @example
 * ```ts
 * import { Hono } from 'hono'
 * import { createReceiver } from 'fleethook'
 * import { metricsRoutes } from 'fleethook/metrics'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const app = new Hono()
 * app.route('/telemetry', receiver.routes())
 * app.route('/metrics', metricsRoutes(receiver, { secret: process.env.METRICS_SECRET }))
 * ```
 */
export function metricsRoutes<E extends Env = Env>(receiver: Measured, { secret }: MetricsOptions<E>): Hono<E> {
  if (secret === undefined) {
    throw new FleethookError('secret_missing', 'Option `secret` of metricsRoutes is missing.', {
      hint: 'Pass a secret of its own, not the webhook’s, or write out `secret: false` to show the metrics to everybody.',
    })
  }
  const guard = createSecretCheck(secret, consoleLog)
  const app = new Hono<E>()
  app.get('/', async (c) => {
    const given = c.req.header('authorization')
    const check = (value: string | undefined): ReturnType<typeof guard> =>
      guard(value, 'root', c.env as NonNullable<E['Bindings']>)
    let refusal = await check(given)
    // Prometheus sends `Bearer` unless it is told another scheme word.
    if (refusal !== undefined && /^bearer /i.test(given ?? '')) refusal = await check(given?.slice(7).trimStart())
    if (refusal !== undefined) {
      const { status, headers, body } = refuse(refusal)
      return new Response(body, { status, headers })
    }
    return new Response(metricsText(receiver), {
      headers: { 'content-type': contentType, 'cache-control': 'no-store' },
    })
  })
  return app
}

const topics = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity', 'unknown']

/**
 * The metrics of a receiver as text, in the format 0.0.4 of Prometheus. For a server without Hono, or a push.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { metricsText } from 'fleethook/metrics'
 *
 * const receiver = createReceiver({ secret: 'a-long-random-value' })
 * console.log(metricsText(receiver)) // # HELP fleethook_messages_received_total …
 * ```
 */
export function metricsText(receiver: Measured): string {
  const stats = receiver.stats()
  const { inbox, pending } = stats
  const lines: string[] = []
  const add = (name: string, type: string, help: string, samples: readonly Sample[]): void => {
    if (samples.length === 0) return
    lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`)
    for (const [suffix, value] of samples) lines.push(`${name}${suffix} ${value}`)
  }
  const counter = (name: string, help: string, samples: readonly Sample[]): void =>
    add(`fleethook_${name}_total`, 'counter', help, samples)
  const gauge = (name: string, help: string, value: number | undefined): void =>
    add(`fleethook_${name}`, 'gauge', help, value === undefined ? [] : [['', value]])

  // Every label value is there from the start: a counter that begins at 1 shows no increase.
  const received = { ...zeros(topics), ...stats.topics }
  const refused = { ...zeros([...refusalErrors, ...runtimeRefusalErrors]), ...stats.refused }
  const { handled, deadLettered: dead, duplicates: duplicate, conflated, lost } = stats
  counter('messages_received', 'Messages that were accepted.', labelled('fleethook_topic', received))
  counter(
    'messages_settled',
    'Messages that need no more work.',
    labelled('fleethook_outcome', { handled, dead, duplicate, conflated, lost }),
  )
  counter('messages_recovered', 'Messages that an earlier process left.', [['', stats.recovered]])
  counter('messages_replayed', 'Messages that were replayed.', [['', stats.replayed]])
  counter('requests_refused', 'Requests that were refused.', labelled('error_type', refused))
  counter('handler_retries', 'Attempts after the first.', [['', stats.retried]])
  counter('handler_discards', 'Messages that a handler discarded.', [['', stats.discarded]])
  counter('values_drifted', 'Values of another type than in the catalogue.', [['', stats.drifted]])
  gauge('pending_messages', 'Messages that wait or are being handled.', pending.messages)
  gauge('pending_limit', 'The most messages that can be pending.', inbox.mostMessages)
  gauge('pending_size_bytes', 'Size of the pending messages.', pending.bytes)
  // An inbox that tells ages leaves out the age when nothing waits.
  const age = inbox.oldestWaitingMs ?? (pending.messages === 0 ? 0 : undefined)
  gauge('pending_oldest_age_seconds', 'Age of the oldest pending message.', seconds(age))
  const lastMs = stats.lastReceivedAtMs ?? 0
  gauge('last_received_timestamp_seconds', 'When the last message was received; 0 before the first.', seconds(lastMs))
  gauge('lanes', 'Vehicles that have work.', stats.lanes)
  gauge('running', 'Messages whose handlers run now.', stats.running)
  gauge('dead_letters', 'Dead letters that are kept now.', inbox.deadLetters)
  gauge('gaps_open', 'Gaps that no event has reported yet.', stats.openGaps)
  gauge('inbox_size_bytes', 'Size of the inbox with its journal.', inbox.bytes)
  add(
    'fleethook_inbox_commit_duration_seconds',
    'histogram',
    'How long commits of the inbox took.',
    inbox.commitMs === undefined ? [] : histogram(inbox.commitMs),
  )
  return `${lines.join('\n')}\n`
}

/** What follows the name of a metric, and a value. */
type Sample = readonly [suffix: string, value: number | string]

const zeros = (names: readonly string[]): Record<string, number> => Object.fromEntries(names.map((name) => [name, 0]))

/** Labels are codes and topics of our own, so nothing in them needs escaping. */
function labelled(label: string, values: Readonly<Record<string, number>>): readonly Sample[] {
  return Object.entries(values).map(([value, count]) => [`{${label}="${value}"}`, count])
}

const seconds = (ms: number | undefined): number | undefined => (ms === undefined ? undefined : ms / 1000)

function histogram({ bounds, counts, sum }: Histogram): readonly Sample[] {
  let total = 0
  const buckets = counts.map((count, at): Sample => {
    total += count
    const bound = bounds[at]
    return [`_bucket{le="${bound === undefined ? '+Inf' : bound / 1000}"}`, total]
  })
  return [...buckets, ['_sum', sum / 1000], ['_count', total]]
}
