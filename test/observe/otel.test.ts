import { createServer } from 'node:http'
import { once } from 'node:events'
import { context, type Context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { TracerProvider, InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from '@opentelemetry/sdk-trace'
import { otel, type OtelOptions } from 'fleethook/otel'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { data, scene } from '../dispatch/scene.ts'

const contexts = new AsyncLocalStorageContextManager()
beforeAll(() => void context.setGlobalContextManager(contexts.enable()))
afterAll(() => context.disable())

function traced(options: OtelOptions = {}, more: Parameters<typeof scene>[0] = {}) {
  const exporter = new InMemorySpanExporter()
  const tracerProvider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] })
  const all = scene({ observe: otel({ tracerProvider, metrics: false, ...options }), ...more })
  const tracer = tracerProvider.getTracer('test')
  return {
    ...all,
    spans: (): readonly ReadableSpan[] => exporter.getFinishedSpans().filter(({ name }) => name.startsWith('process')),
    /** Posts inside the span of a request, whose context it returns. */
    async request(body: unknown) {
      const span = tracer.startSpan('POST', { kind: SpanKind.SERVER })
      const within: Context = trace.setSpan(context.active(), span)
      await context.with(within, () => all.post(body))
      span.end()
      return span.spanContext()
    },
  }
}

describe('spans', () => {
  test('each attempt is a trace of its own, with a link to the request, and no payload', async () => {
    const { receiver, clock, request, spans } = traced({}, { retry: { attempts: 2 } })
    let active: string | undefined
    receiver.on('data', async () => {
      await Promise.resolve()
      active ??= trace.getActiveSpan()?.spanContext().spanId
      if (spans().length === 0) throw new RangeError('81.5 is too much')
    })
    const from = await request(data('0FLEETV14T0000004', 1, { BatteryLevel: 81.5 }))
    await clock.advance(2_000)
    const [first, second, ...others] = spans()
    expect(others).toEqual([])
    expect(first).toMatchObject({
      ...{ name: 'process data', kind: SpanKind.CONSUMER, parentSpanContext: undefined },
      status: { code: SpanStatusCode.ERROR },
      links: [{ context: { traceId: from.traceId, spanId: from.spanId } }],
      attributes: {
        'messaging.system': 'fleethook',
        'messaging.operation.name': 'process',
        'messaging.operation.type': 'process',
        'messaging.destination.name': 'data',
        'messaging.message.id': expect.stringMatching(/^[\da-f-]{36}$/),
        'fleethook.attempt': 1,
        'fleethook.redelivered': false,
        'fleethook.replayed': false,
        'error.type': 'RangeError',
      },
    })
    expect(second).toMatchObject({ status: { code: SpanStatusCode.UNSET }, attributes: { 'fleethook.attempt': 2 } })
    expect(first?.spanContext().traceId).not.toBe(from.traceId)
    expect(active).toBe(first?.spanContext().spanId)
    const written = JSON.stringify([first, second].map((span) => [span?.attributes, span?.status, span?.events]))
    expect(written).not.toMatch(/81\.5|0FLEETV/)
  })

  test('joins the trace of the request when asked to, and shows the text of errors when asked to', async () => {
    const { receiver, clock, request, spans } = traced(
      { joinRequest: true, errorText: true, attributes: ({ topic }) => ({ 'app.topic': topic }) },
      { retry: { attempts: 1 } },
    )
    receiver.on('data', () => {
      throw new Error('no')
    })
    const from = await request(data('A', 1))
    await clock.advance(100)
    const [span] = spans()
    expect(span?.spanContext().traceId).toBe(from.traceId)
    expect(span).toMatchObject({
      parentSpanContext: { spanId: from.spanId },
      ...{ links: [], status: { message: 'Error: no' }, attributes: { 'app.topic': 'data' } },
    })
  })

  test('a batch is one span, with a link to each request', async () => {
    const { receiver, clock, request, spans } = traced()
    receiver.batch('data', { size: 3, withinMs: 100 }, () => {})
    for (const vin of ['A', 'B', 'C']) await request(data(vin, 1))
    await clock.advance(200)
    const [span, ...others] = spans()
    expect(others).toEqual([])
    expect(span?.links).toHaveLength(3)
    expect(span?.attributes).toMatchObject({ 'messaging.batch.message_count': 3 })
  })

  test('without an SDK nothing is made, and messages are handled', async () => {
    const { receiver, post, clock } = scene({ observe: otel() })
    receiver.on('data', () => {})
    await post(data('A', 1))
    await clock.advance(10)
    expect(receiver.stats()).toMatchObject({ handled: 1 })
  })

  test('arrive at a collector over OTLP', async () => {
    const bodies: string[] = []
    const collector = createServer((incoming, outgoing) => {
      let body = ''
      incoming
        .on('data', (chunk) => (body += String(chunk)))
        .on('end', () => {
          bodies.push(`${incoming.url} ${body}`)
          outgoing.writeHead(200, { 'content-type': 'application/json' }).end('{}')
        })
    }).listen(0, '127.0.0.1')
    await once(collector, 'listening')
    const address = collector.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const exporter = new OTLPTraceExporter({ url: `http://127.0.0.1:${port}/v1/traces` })
    const tracerProvider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] })
    const { receiver, post, clock } = scene({ observe: otel({ tracerProvider, metrics: false }) })
    receiver.on('data', () => {})
    await post(data('A', 1))
    await clock.advance(10)
    await tracerProvider.forceFlush()
    await tracerProvider.shutdown()
    collector.close()
    expect(bodies).toEqual([expect.stringMatching(/^\/v1\/traces .*"process data"/)])
  })
})

test('metrics have the names of fleethook/metrics, and are read when they are collected', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })
  const meterProvider = new MeterProvider({ readers: [reader] })
  const { receiver, post, clock } = scene({ observe: otel({ meterProvider, spans: false }), retry: { attempts: 1 } })
  receiver.on('data', ({ vin }) => {
    if (vin === 'BAD') throw new RangeError('no')
  })
  for (const vin of ['A', 'B', 'BAD']) await post(data(vin, 1))
  await clock.advance(100)
  await reader.forceFlush()
  const found = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics))
  const points = (name: string): readonly (readonly [object, unknown])[] =>
    found
      .filter(({ descriptor }) => descriptor.name === name)
      .flatMap(({ dataPoints }) => dataPoints.map(({ attributes, value }) => [attributes, value] as const))
  expect(points('fleethook.messages.received')).toContainEqual([{ 'fleethook.topic': 'data' }, 3])
  expect(points('fleethook.messages.settled')).toContainEqual([{ 'fleethook.outcome': 'handled' }, 2])
  expect(points('fleethook.dead_letters')).toEqual([[{}, 1]])
  const durations = points('messaging.process.duration')
  expect(durations.map(([attributes]) => Reflect.get(attributes, 'error.type'))).toEqual([undefined, 'RangeError'])
  expect(points('fleethook.handler.duration')).toEqual([
    [{ 'fleethook.handler': expect.stringMatching(/^otel\.test\.ts:\d+$/) }, expect.objectContaining({ count: 3 })],
  ])
  expect(points('fleethook.message.lag')).toMatchObject([[{ 'fleethook.topic': 'data' }, { count: 2 }]])
  await meterProvider.shutdown()
})
