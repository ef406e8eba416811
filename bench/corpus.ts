import { randomFrom, between, chance, oneOf, whole, type Random } from '../src/service/fleet/random.ts'
import { syntheticVin } from '../src/service/fleet/vin.ts'
import { builtInFields, encode, type Format } from '../src/normalize.ts'

type FieldName = keyof typeof builtInFields

const names = Object.keys(builtInFields) as [FieldName, ...FieldName[]]
// Fields that change while a car drives: most messages have these.
const frequent: readonly [FieldName, ...FieldName[]] = [
  'VehicleSpeed',
  'Location',
  'Gear',
  'Soc',
  'Odometer',
  'InsideTemp',
  'PackCurrent',
  'EstBatteryRange',
]

/** Options of a corpus. The same options make the same corpus. */
export interface CorpusOptions {
  readonly messages: number
  readonly vins: number
  readonly format: Format
}

/**
 * Bodies of one `data` message each, with the recorded distribution of sizes in the maker's format: median 152 B, mean
 * 181 B, 95th percentile 289 B, largest 3.1 kB with 50 fields. Half of the messages are typed and half are text.
 */
export function corpus({ messages, vins, format }: CorpusOptions): string[] {
  const random = randomFrom(20_260_221)
  return Array.from({ length: messages }, (_, index) => {
    const createdAt = new Date(1_708_750_724_983 + index * 500).toISOString().replace('Z', '607402Z')
    const vin = syntheticVin(whole(random, 0, vins - 1))
    return JSON.stringify(encode({ topic: 'data', vin, createdAt, data: dataOf(random) }, format))
  })
}

function dataOf(random: Random): Record<string, unknown> {
  const text = chance(random, 0.5)
  const data: Record<string, unknown> = {}
  for (let left = fieldCount(random); left > 0; left--) {
    const name = left < 9 && chance(random, 0.8) ? oneOf(random, frequent) : oneOf(random, names)
    const value = valueOf(name, random)
    data[name] = text && typeof value !== 'object' ? String(value) : value
  }
  return data
}

function fieldCount(random: Random): number {
  const dice = between(random, 0, 1)
  if (dice < 0.0015) return 50
  return dice < 0.74 ? 1 : dice < 0.92 ? 2 : dice < 0.98 ? 3 : whole(random, 4, 7)
}

function valueOf(name: FieldName, random: Random): unknown {
  const type = builtInFields[name]
  if (typeof type === 'object') return type.enum[whole(random, 0, type.enum.length - 1)]
  switch (type) {
    case 'number':
      return whole(random, 0, 100_000) / 1000
    case 'timestamp':
      return 1_708_750_724
    case 'boolean':
      return chance(random, 0.5)
    case 'location':
      return { latitude: between(random, 30, 31), longitude: between(random, -98, -97) }
    case 'doors':
    case 'tires':
      return {}
    default:
      return 'Idle'
  }
}

/** The fields whose newest values a receiver keeps when the part `vehicles` is measured. */
export const tenFields = [
  'BatteryLevel',
  'Soc',
  'Gear',
  'VehicleSpeed',
  'Odometer',
  'InsideTemp',
  'OutsideTemp',
  'DetailedChargeState',
  'Location',
  'Locked',
] as const
