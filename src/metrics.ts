/**
 * Metrics of a receiver in the text format of Prometheus, without a dependency.
 *
 * @module
 */
import { type Env, Hono } from 'hono'
import { FleethookError } from './base/errors.ts'
import { consoleLog } from './base/log.ts'
import { refuse, responseOf } from './http/answers.ts'
import { createSecretCheck, type Secret } from './http/secret.ts'
import { type Measure, measuresOf } from './receiver/measures.ts'
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
    if (refusal !== undefined) return responseOf(refuse(refusal))
    return new Response(metricsText(receiver), {
      headers: { 'content-type': contentType, 'cache-control': 'no-store' },
    })
  })
  return app
}

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
  const lines = measuresOf(receiver.stats()).flatMap((measure) => {
    const samples = samplesOf(measure)
    if (samples.length === 0) return []
    const name = nameOf(measure)
    const head = [`# HELP ${name} ${measure.help}`, `# TYPE ${name} ${measure.type}`]
    return [...head, ...samples.map(([suffix, value]) => `${name}${suffix} ${value}`)]
  })
  return `${lines.join('\n')}\n`
}

const suffixes: Readonly<Record<string, string>> = { s: '_seconds', By: '_bytes' }

/** The name of a metric as Prometheus wants it: with its unit, and `_total` for a counter. */
function nameOf({ name, unit, type }: Measure): string {
  return `${name.replaceAll('.', '_')}${suffixes[unit] ?? ''}${type === 'counter' ? '_total' : ''}`
}

/** The text after the name of a metric, and the value. */
type MetricLine = readonly [suffix: string, value: number | string]

/** Labels are codes and topics of our own, so nothing in them needs escaping. */
function samplesOf({ samples, histogram }: Measure): readonly MetricLine[] {
  if (histogram !== undefined) return buckets(histogram)
  return samples.map(({ value, attributes }) => {
    const labels = Object.entries(attributes).map(([name, text]) => `${name.replaceAll('.', '_')}="${text}"`)
    return [labels.length === 0 ? '' : `{${labels.join(',')}}`, value]
  })
}

function buckets({ bounds, counts, sum }: Histogram): readonly MetricLine[] {
  let total = 0
  const cumulative = counts.map((count, at): MetricLine => {
    total += count
    const bound = bounds[at]
    return [`_bucket{le="${bound === undefined ? '+Inf' : bound / 1000}"}`, total]
  })
  return [...cumulative, ['_sum', sum / 1000], ['_count', total]]
}
