/**
 * Metrics of a receiver in the text format of Prometheus, without a dependency.
 *
 * @module
 */
import { Hono } from 'hono'
import { FleethookError } from './base/errors.ts'
import type { Secret } from './http/secret.ts'
import { guardOf, keepPrivate } from './operator/guard.ts'
import type { MissingWatch } from './observe/missing.ts'
import type { Observer, OperatorApi } from './observe/observer.ts'
import {
  type Attributes,
  type Measure,
  measuresOf,
  missingMeasure,
  ofBranch,
  timed,
  type Timing,
  together,
} from './operator/measures.ts'
import type { Histogram, Stats } from './observe/stats.ts'

/** Options of {@link metricsRoutes}. */
export interface MetricsOptions<Bindings extends object = object> {
  /**
   * The value of `Authorization` that guards the metrics, with or without the scheme word `Bearer`. Use another secret than the
   * webhook's. A string, a list for rotation, or a function of the runtime's `env`. `false` shows the metrics to everybody.
   */
  readonly secret: Secret<Bindings> | undefined
  /** `client.missing(receiver)`: also counts the shared vehicles that are not heard, by the reason. It asks the service once an hour. */
  readonly missing?: Pick<MissingWatch, 'last'>
}

/** What the metrics are made of: a receiver. */
export interface Measured {
  stats(): Stats
  observe?(observer: Observer): () => void
  readonly branches?: ReadonlyMap<string, Pick<OperatorApi, 'observe'>>
}

const contentType = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * A Hono app that answers `GET /` with the metrics of a receiver, for Prometheus and everything that reads its text format.
 * `docs/observing.md` lists the metrics. Most are read from `receiver.stats()`. From this call on, the receiver also
 * measures how long its handlers run.
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
export function metricsRoutes<Bindings extends object = object>(
  receiver: Measured,
  { secret, missing }: MetricsOptions<Bindings>,
): Hono<{ Bindings: Bindings }> {
  if (secret === undefined) {
    throw new FleethookError('secret_missing', 'Option `secret` of metricsRoutes is missing.', {
      hint: 'Pass a secret of its own, not the webhook’s, or write out `secret: false` to show the metrics to everybody.',
    })
  }
  timesOf(receiver).measures()
  const guard = guardOf('metricsRoutes', secret, { takesBearer: true })
  const app = new Hono<{ Bindings: Bindings }>()
  app.get('/', keepPrivate, async (c) => {
    const refused = await guard(c)
    if (refused !== undefined) return refused
    return c.body(metricsText(receiver, { missing }), 200, { 'content-type': contentType })
  })
  return app
}

/**
 * The metrics of a receiver as text, in the format 0.0.4 of Prometheus. For a server without Hono, or a push. Times are measured from
 * the first call on.
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
export function metricsText(
  receiver: Measured,
  { missing }: { readonly missing?: MetricsOptions['missing'] | undefined } = {},
): string {
  const ofService = missing === undefined ? [] : [missingMeasure(missing.last())]
  const all = [...measuresOf(receiver.stats()), ...timesOf(receiver).measures(), ...ofService]
  const lines = all.flatMap((measure) => {
    const { samples, help, type } = measure
    if (samples.length === 0) return []
    const name = nameOf(measure)
    return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...samples.flatMap((sample) => linesOf(name, sample))]
  })
  return `${lines.join('\n')}\n`
}

/** The times of each receiver whose metrics somebody reads. */
const times = /* @__PURE__ */ new WeakMap<object, Times>()

function timesOf(receiver: Omit<Measured, 'stats'>): Times {
  const known = times.get(receiver) ?? new Times(receiver)
  times.set(receiver, known)
  return known
}

interface Series {
  readonly attributes: Attributes
  readonly value: Histogram & { readonly counts: number[]; sum: number }
}

class Times {
  readonly #series = new Map<Timing, Map<Attributes, Series>>()
  readonly #branches: Measured['branches']

  constructor(receiver: Omit<Measured, 'stats'>) {
    this.#branches = receiver.branches
    receiver.observe?.(timed((timing, ms, attributes) => this.#record(timing, ms, attributes)))
  }

  measures(): readonly Measure[] {
    const all = [...this.#series].map(([{ name, help }, series]): Measure => {
      return { name, help, unit: 's', type: 'histogram', samples: [...series.values()] }
    })
    const behind = [...(this.#branches ?? [])].flatMap(([name, branch]) => ofBranch(name, timesOf(branch).measures()))
    // One metric has one name and help, also where a branch has it too.
    const names = new Set([...all, ...behind].map(({ name }) => name))
    return [...names].flatMap((name) => {
      const [first, ...others] = [...all, ...behind].filter((measure) => measure.name === name)
      return first === undefined ? [] : together(first, others)
    })
  }

  #record(timing: Timing, ms: number, attributes: Attributes): void {
    let series = this.#series.get(timing)
    if (series === undefined) {
      series = new Map()
      this.#series.set(timing, series)
    }
    let found = series.get(attributes)
    if (found === undefined) {
      const counts = Array.from({ length: timing.boundsMs.length + 1 }, () => 0)
      found = { value: { bounds: timing.boundsMs, counts, sum: 0 }, attributes }
      series.set(attributes, found)
    }
    const { value } = found
    const within = timing.boundsMs.findIndex((bound) => ms <= bound)
    const bucket = within === -1 ? timing.boundsMs.length : within
    value.counts[bucket] = (value.counts[bucket] ?? 0) + 1
    value.sum += ms
  }
}

const suffixes: Readonly<Record<string, string>> = { s: '_seconds', By: '_bytes', '1': '_ratio' }

/** The name of a metric as Prometheus wants it: with its unit, and `_total` for a counter. */
function nameOf({ name, unit, type }: Measure): string {
  return `${name.replaceAll('.', '_')}${suffixes[unit] ?? ''}${type === 'counter' ? '_total' : ''}`
}

function linesOf(name: string, { value, attributes }: Measure['samples'][number]): readonly string[] {
  if (typeof value === 'number') return [`${name}${labelled(attributes)} ${value}`]
  const { bounds, counts, sum } = value
  let total = 0
  const cumulative = counts.map((count, at) => {
    total += count
    const bound = bounds[at]
    return `${name}_bucket${labelled({ ...attributes, le: bound === undefined ? '+Inf' : String(bound / 1000) })} ${total}`
  })
  const labels = labelled(attributes)
  return [...cumulative, `${name}_sum${labels} ${sum / 1000}`, `${name}_count${labels} ${total}`]
}

/** Names of handlers come from functions and files, so they are escaped. */
function labelled(attributes: Attributes): string {
  const labels = Object.entries(attributes).map(
    ([name, text]) => `${name.replaceAll('.', '_')}="${text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`,
  )
  return labels.length === 0 ? '' : `{${labels.join(',')}}`
}
