/**
 * Measures the CPU time of reading a message, as a ratio to `JSON.parse` of it. The budget is 1.0.
 *
 *     npm run bench -- normalize
 *
 * The corpus has the recorded distribution of sizes (median 152 B, mean 181 B, p95 289 B, largest 3.1 kB with 50 fields, in
 * the maker's format), half of it typed and half as text, as vehicles send it. Parsing alone and parsing with normalizing
 * take turns in one run. The cost of normalizing is the difference, so that it includes cold objects and garbage collection.
 */
import { builtInFields, createNormalizer, encode, type FieldCatalogue, type Format } from '../src/normalize.ts'

const seed = 20260221
const messages = 2000
const rounds = 41
const passes = 4

/** Mulberry32, so that every run has the same corpus. */
function randomFrom(start: number): () => number {
  let state = start
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

const random = randomFrom(seed)
const below = (count: number): number => Math.floor(random() * count)
const fields: FieldCatalogue = builtInFields
const names = Object.keys(fields)
// Fields that change while a car drives: most messages have these.
const frequent = [
  'VehicleSpeed',
  'Location',
  'Gear',
  'Soc',
  'Odometer',
  'InsideTemp',
  'PackCurrent',
  'EstBatteryRange',
] as const

function valueOf(name: string): unknown {
  const type = fields[name] ?? 'any'
  if (typeof type === 'object' && 'enum' in type) return type.enum[below(type.enum.length)]
  switch (type) {
    case 'number':
      return Math.round(random() * 100_000) / 1000
    case 'timestamp':
      return 1708750724
    case 'boolean':
      return random() < 0.5
    case 'location':
      return { latitude: 30.22 + random(), longitude: -97.62 + random() }
    case 'doors':
    case 'tires':
      return {}
    default:
      return 'Idle'
  }
}

/** A value as text, as old firmware and most configurations send it. */
function asText(value: unknown): unknown {
  return typeof value === 'object' || typeof value === 'string' ? value : JSON.stringify(value)
}

function fieldCount(): number {
  const dice = random()
  if (dice < 0.0015) return 50
  return dice < 0.74 ? 1 : dice < 0.92 ? 2 : dice < 0.98 ? 3 : 4 + below(4)
}

const events = Array.from({ length: messages }, (_, index) => {
  const text = random() < 0.5
  const data: Record<string, unknown> = {}
  for (let left = fieldCount(); left > 0; left--) {
    const known = random() < 0.8 && left < 9 ? frequent : names
    const name = known[below(known.length)] ?? 'Soc'
    data[name] = text ? asText(valueOf(name)) : valueOf(name)
  }
  const createdAt = new Date(1708750724983 + index * 500).toISOString().replace('Z', '607402Z')
  return { topic: 'data', vin: `0FLEETV14T0000004${100_000 + (index % 1000)}`, createdAt, data } as const
})

/** The bodies of a format. Only the maker's messages have `isResend`. */
function corpus(format: Format): string[] {
  const meta = format === 'vehicle_maker' ? { isResend: false } : {}
  return events.map((event) => JSON.stringify(encode({ ...event, meta }, format)))
}

const median = (numbers: readonly number[]): number => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0
const normalizer = createNormalizer()
let kept = 0

function time(texts: readonly string[], run: (text: string) => unknown): number {
  const start = performance.now()
  for (let pass = 0; pass < passes; pass++) for (const text of texts) if (run(text) === undefined) kept++
  return ((performance.now() - start) * 1e6) / (texts.length * passes)
}

const receivedAt = Date.now()
const parse = (text: string): unknown => JSON.parse(text)
const read = (text: string): unknown => normalizer.normalize(JSON.parse(text), receivedAt)

const sets = {
  service: corpus('service'),
  vehicle_maker: corpus('vehicle_maker'),
  event_collector: corpus('event_collector'),
  'all mixed': (['service', 'vehicle_maker', 'event_collector'] as const)
    .map(corpus)
    .flatMap((texts, index) => texts.filter((_, at) => at % 3 === index)),
}

const sizes = sets.vehicle_maker.map((text) => text.length).toSorted((a, b) => a - b)
const at = (share: number): number => sizes[Math.floor((sizes.length - 1) * share)] ?? 0
const mean = sizes.reduce((sum, size) => sum + size, 0) / sizes.length
console.log(
  `${messages} messages, vehicle_maker: median ${at(0.5)} B, mean ${mean.toFixed(0)} B, p95 ${at(0.95)} B, largest ${at(1)} B`,
)
console.log(`${process.version} ${process.arch}, median of ${rounds} rounds, seed ${seed}\n`)

const costs = Object.entries(sets).map(([name, texts]) => ({
  name,
  texts,
  parse: [] as number[],
  read: [] as number[],
}))
for (let round = 0; round < rounds; round++) {
  for (const cost of costs) {
    cost.parse.push(time(cost.texts, parse))
    cost.read.push(time(cost.texts, read))
  }
}

console.log('format            JSON.parse   normalize   ratio (budget 1.0)')
for (const cost of costs) {
  const parsing = median(cost.parse)
  const normalizing = median(cost.read.map((total, round) => total - (cost.parse[round] ?? 0)))
  const ratio = (normalizing / parsing).toFixed(2)
  console.log(
    `${cost.name.padEnd(16)} ${parsing.toFixed(0).padStart(8)} ns ${normalizing.toFixed(0).padStart(8)} ns ${ratio.padStart(7)}`,
  )
}
if (kept > 0) console.log(kept)
