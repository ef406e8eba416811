// Prints the spans and metrics of three messages as JSON, made by the SDK of OpenTelemetry on the runtime that runs this.
import { context, SpanKind, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { createReceiver } from '../../../src/index.ts'
import { otel } from '../../../src/otel.ts'

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
const spans = new InMemorySpanExporter()
const tracerProvider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: spans })] })
const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 })
const meterProvider = new MeterProvider({ readers: [reader] })

const tracer = tracerProvider.getTracer('test')
const receiver = createReceiver({
  ...{ secret: false, retry: { attempts: 1 }, log: { debug() {}, info() {}, warn() {}, error() {} } },
  observe: otel({ tracerProvider, meterProvider }),
}).on('data', async ({ data }) => {
  await new Promise((resolve) => setTimeout(resolve, 1))
  // A child of the span of the attempt.
  tracer.startSpan('query').end()
  if (data.BatteryLevel === 3) throw new RangeError('no')
})

const request = tracer.startSpan('POST', { kind: SpanKind.SERVER })
await context.with(trace.setSpan(context.active(), request), async () => {
  for (const [index, vin] of ['A', 'B', 'C'].entries())
    await receiver.accept({
      authorization: undefined,
      body: { vin, createdAt: '2026-11-21T10:00:00Z', data: { BatteryLevel: index + 1 } },
    })
})
request.end()
await receiver.drain()
await reader.forceFlush()

const all = spans.getFinishedSpans()
const attempts = all.filter(({ name }) => name.startsWith('process'))
const ids = new Map(attempts.map((span) => [span.spanContext().spanId, span.attributes['fleethook.attempt']]))
console.log(
  JSON.stringify({
    attempts: attempts.map(({ name, kind, links, parentSpanContext, attributes }) => ({
      ...{ name, isConsumer: kind === SpanKind.CONSUMER, isRoot: parentSpanContext === undefined },
      isLinked: links.length === 1 && links[0]?.context.spanId === request.spanContext().spanId,
      error: attributes['error.type'] ?? null,
    })),
    children: all
      .filter(({ name }) => name === 'query')
      .map(({ parentSpanContext }) => ids.get(parentSpanContext?.spanId ?? '') ?? null),
    metrics: Object.fromEntries(
      metrics
        .getMetrics()
        .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics))
        .filter(({ descriptor }) => /^messaging|messages.received|message.lag/.test(descriptor.name))
        .map(({ descriptor, dataPoints }) => [descriptor.name, dataPoints.length]),
    ),
  }),
)
await meterProvider.shutdown()
