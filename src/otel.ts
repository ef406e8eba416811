/**
 * Traces and metrics of a receiver by the OpenTelemetry API. It brings no SDK: give the process one.
 *
 * @module
 */
import {
  type Attributes,
  context,
  type Context,
  type Histogram,
  type Link,
  type MeterProvider,
  metrics as globalMetrics,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
  type TracerProvider,
} from '@opentelemetry/api'
import { checkOptions, aFunction, trueOrFalse, withMethods } from './base/options.ts'
import { FleethookError } from './base/errors.ts'
import { errorText } from './core/retry.ts'
import type { FleetEvent } from './events/event.ts'
import type { MalformedBody } from './events/malformed.ts'
import type { ObservedRun, Observer, RunEnd } from './observe/observer.ts'
import { attemptTiming, measuresOf, timed, type Timing } from './operator/measures.ts'

/** Options of {@link otel}. */
export interface OtelOptions {
  /** Makes a span for each attempt. Default `true`. Without an SDK a span does nothing. */
  readonly spans?: boolean
  /** Makes metrics. Default `true`. Without an SDK a metric does nothing. */
  readonly metrics?: boolean
  /**
   * `true` puts a span into the trace of the request that brought the message. Use it for a backend that does not draw links.
   * Default `false`: each attempt is a trace of its own, with a link to the request. Batches always have links.
   */
  readonly joinRequest?: boolean
  /** `true` puts the text of an error on its span. The text can quote a payload. Default `false`. */
  readonly errorText?: boolean
  /** Attributes of your own for a span. A VIN is personal data: whether it belongs there is your choice. */
  readonly attributes?: (event: FleetEvent | MalformedBody) => Attributes
  /** Default: the global provider of `@opentelemetry/api`. */
  readonly tracerProvider?: TracerProvider
  readonly meterProvider?: MeterProvider
}

/** The most links that a span of an SDK takes. */
const mostLinks = 128

/** What a run was about, before it ended. */
type Labels = Readonly<Record<string, string>>

/**
 * An observer that makes OpenTelemetry spans and metrics: one span `process {topic}` of kind CONSUMER for each attempt at a
 * message, or for each run of a batch, and the metrics of `fleethook/metrics` under the names of OpenTelemetry. Handlers run
 * inside the span, so the spans of their database are its children. Attributes follow the conventions for messaging and
 * never hold a payload.
 *
 * `docs/observing.md` lists spans and metrics and what they cost. Throws `option_invalid` for a wrong option.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { otel } from 'fleethook/otel'
 *
 * createReceiver({ secret: process.env.WEBHOOK_SECRET, observe: otel() }).on('data', (event) => console.log(event.vin))
 * ```
 */
export function otel(options: OtelOptions = {}): Observer {
  checkOptions('otel', options, {
    spans: trueOrFalse,
    metrics: trueOrFalse,
    joinRequest: trueOrFalse,
    errorText: trueOrFalse,
    attributes: aFunction,
    tracerProvider: withMethods('getTracer'),
    meterProvider: withMethods('getMeter'),
  })
  const { spans = true, metrics = true } = options
  const record = metrics ? recorder(options) : undefined
  const tracing = spans ? new Tracing(options) : undefined
  return {
    ...(metrics ? { attached: (receiver) => observeStats(receiver, options) } : {}),
    ...(tracing === undefined ? {} : { received: (messages) => tracing.received(messages.map(({ event }) => event)) }),
    around(run, what) {
      const startedAt = performance.now()
      const ended = tracing === undefined ? run() : tracing.run(run, what)
      return record === undefined
        ? ended
        : ended.then((end) => record(attemptTiming, performance.now() - startedAt, labelsOf(what, end)))
    },
    ...(record === undefined ? {} : timed(record)),
  }
}

class Tracing {
  readonly #tracer: Tracer
  readonly #options: OtelOptions
  /** The spans of the requests that brought messages. An entry disappears when its event is no longer in memory. */
  readonly #requests = new WeakMap<object, SpanContext>()

  constructor(options: OtelOptions) {
    this.#options = options
    this.#tracer = (options.tracerProvider ?? trace).getTracer('fleethook')
  }

  received(events: readonly object[]): void {
    const request = trace.getSpanContext(context.active())
    if (request === undefined || !trace.isSpanContextValid(request)) return
    for (const event of events) this.#requests.set(event, request)
  }

  run(run: () => Promise<RunEnd>, { messages, isBatch }: ObservedRun): Promise<RunEnd> {
    const { joinRequest = false, attributes, errorText: showsText = false } = this.#options
    const [first] = messages
    if (first === undefined) return run()
    const requests = messages.flatMap(({ event }) => this.#requests.get(event) ?? [])
    const joined = joinRequest && !isBatch ? requests[0] : undefined
    const parent: Context = joined === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, joined)
    const links: readonly Link[] =
      joined === undefined ? requests.slice(0, mostLinks).map((request) => ({ context: request })) : []
    const { topic } = first.event
    const { id, attempt, redelivered, replayed } = first.delivery
    const about: Attributes = isBatch
      ? { 'messaging.batch.message_count': messages.length }
      : {
          'messaging.message.id': id,
          'fleethook.attempt': attempt,
          'fleethook.redelivered': redelivered,
          'fleethook.replayed': replayed,
        }
    const span = this.#tracer.startSpan(
      `process ${topic}`,
      {
        kind: SpanKind.CONSUMER,
        // Whatever is active here belongs to another request.
        root: joined === undefined,
        links: [...links],
        attributes: { ...messaging, 'messaging.destination.name': topic, ...about, ...attributes?.(first.event) },
      },
      parent,
    )
    const ended = context.with(trace.setSpan(parent, span), run)
    // A span that is not sampled takes no attributes and needs no end. Through its context, the spans of the handlers still
    // learn that they are not sampled.
    if (!span.isRecording()) return ended
    return ended.then((end) => {
      if (end.failure !== undefined) {
        const { error } = end.failure
        span.setAttribute('error.type', errorType(error))
        span.setStatus({ code: SpanStatusCode.ERROR, ...(showsText ? { message: errorText(error) } : {}) })
      }
      span.end()
      return end
    })
  }
}

const messaging: Attributes = {
  'messaging.system': 'fleethook',
  'messaging.operation.name': 'process',
  'messaging.operation.type': 'process',
}

function labelsOf({ messages }: ObservedRun, { failure }: RunEnd): Labels {
  return {
    'messaging.system': 'fleethook',
    'messaging.operation.name': 'process',
    'messaging.destination.name': messages[0]?.event.topic ?? 'unknown',
    ...(failure === undefined ? {} : { 'error.type': errorType(failure.error) }),
  }
}

/** A code or a name that programs choose, and never the text of an error. */
function errorType(error: unknown): string {
  if (error instanceof FleethookError) return error.code
  if (!(error instanceof Error)) return typeof error
  if ('code' in error && typeof error.code === 'string' && /^[\w.-]{1,60}$/.test(error.code)) return error.code
  return /^[A-Z]\w{0,40}$/.test(error.name) ? error.name : 'Error'
}

/** Records times, each in a histogram that is made when it is first needed. */
function recorder({ meterProvider }: OtelOptions): (timing: Timing, ms: number, attributes: Labels) => void {
  const meter = (meterProvider ?? globalMetrics).getMeter('fleethook')
  const made = new Map<Timing, Histogram>()
  return (timing, ms, attributes) => {
    let histogram = made.get(timing)
    if (histogram === undefined) {
      const explicitBucketBoundaries = timing.boundsMs.map((bound) => bound / 1000)
      const options = { unit: 's', description: timing.help, advice: { explicitBucketBoundaries } }
      histogram = meter.createHistogram(timing.name, options)
      made.set(timing, histogram)
    }
    histogram.record(ms / 1000, attributes)
  }
}

/** The counts of `stats()` as instruments that are read when somebody collects them, so that a message costs nothing. */
function observeStats(
  receiver: Parameters<NonNullable<Observer['attached']>>[0],
  { meterProvider }: OtelOptions,
): void {
  const { stats } = receiver
  if (stats === undefined) return
  const meter = (meterProvider ?? globalMetrics).getMeter('fleethook')
  const instruments = new Map(
    measuresOf(stats()).flatMap(({ name, type, unit, help }) => {
      const options = { unit, description: help }
      if (type === 'histogram') return []
      const made =
        type === 'counter' ? meter.createObservableCounter(name, options) : meter.createObservableGauge(name, options)
      return [[name, made] as const]
    }),
  )
  meter.addBatchObservableCallback(
    (result) => {
      for (const { name, samples } of measuresOf(stats())) {
        const instrument = instruments.get(name)
        if (instrument === undefined) continue
        for (const { value, attributes } of samples)
          if (typeof value === 'number') result.observe(instrument, value, attributes)
      }
    },
    [...instruments.values()],
  )
}
