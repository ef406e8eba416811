// Measures what observers cost: the CPU time of a message through `receiver.accept`, including its handler, with an inbox in
// memory. Every round runs each variant once, so that all of them run under the same conditions.
import { TraceIdRatioBasedSampler, TracerProvider } from '@opentelemetry/sdk-trace'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { createReceiver, type Observer } from '../src/index.ts'
import { Feed } from '../src/operator/feed.ts'
import { metricsText } from '../src/metrics.ts'
import { otel } from '../src/otel.ts'
import { median } from './median.ts'
import { table } from './table.ts'

const messages = 20_000
const rounds = 7

const spanning = (ratio: number): Observer =>
  otel({
    metrics: false,
    tracerProvider: new TracerProvider({ sampler: new TraceIdRatioBasedSampler(ratio), spanProcessors: [] }),
  })

const measuring = (): Observer => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })
  return otel({ spans: false, meterProvider: new MeterProvider({ readers: [reader] }) })
}

const variants: Readonly<Record<string, (receiver: ReturnType<typeof createReceiver>) => void>> = {
  'no observer': () => {},
  'a feed that nobody reads': (receiver) => void new Feed(receiver.observe),
  'a feed that is read': (receiver) => void new Feed(receiver.observe).keep(),
  'spans, all sampled': (receiver) => void receiver.observe(spanning(1)),
  'spans, 1 % sampled': (receiver) => void receiver.observe(spanning(0.01)),
  metrics: (receiver) => void receiver.observe(measuring()),
  'metrics as text': (receiver) => void metricsText(receiver),
}

async function run(add: (receiver: ReturnType<typeof createReceiver>) => void): Promise<number> {
  const receiver = createReceiver({ secret: false, limits: { pendingMessages: 1_000_000 } }).on('data', () => {})
  add(receiver)
  const body = JSON.stringify({
    ...{ vin: '0FLEETV14T0000004', createdAt: '2026-11-20T06:00:00.123Z' },
    data: { BatteryLevel: 81.5, Gear: 'D' },
  })
  const before = process.cpuUsage()
  for (let n = 0; n < messages; n += 1) {
    await receiver.accept({ authorization: undefined, body })
    if (n % 100 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  await receiver.drain()
  const { user, system } = process.cpuUsage(before)
  if (receiver.stats().handled !== messages) throw new Error('not every message was handled')
  return (user + system) / messages
}

const results = new Map<string, number[]>(Object.keys(variants).map((name) => [name, []]))
for (let round = -1; round < rounds; round += 1)
  for (const [name, add] of Object.entries(variants)) {
    const us = await run(add)
    // The first round warms up.
    if (round >= 0) results.get(name)?.push(us)
  }
const base = results.get('no observer') ?? []
console.log(
  table(
    ['what', 'CPU µs', 'more', 'ratio'],
    [...results].map(([name, values]) => [
      name,
      median(values).toFixed(2),
      median(values.map((value, round) => value - (base[round] ?? Number.NaN))).toFixed(2),
      median(values.map((value, round) => value / (base[round] ?? Number.NaN))).toFixed(3),
    ]),
  ),
)
