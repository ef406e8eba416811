import type { EventOf } from '../../src/index.ts'
import type { Happening } from '../../src/when.ts'
import {
  alertEnds,
  alertStarts,
  all,
  any,
  becomes,
  below,
  between,
  ceases,
  changed,
  circle,
  comesOnline,
  crosses,
  type Edge,
  ends,
  enters,
  falls,
  fallsAsleep,
  goesOffline,
  inside,
  is,
  leaves,
  not,
  polygon,
  rises,
  starts,
} from '../../src/when.ts'

/** One table of rules and one script of messages, for every place that keeps the states of vehicles. Bundled for Workers, too. */

const depot = circle({ latitude: 52.3731, longitude: 4.8926, radiusMeters: 200 })
const city = polygon([
  { latitude: 52.3, longitude: 4.8 },
  { latitude: 52.3, longitude: 5 },
  { latitude: 52.5, longitude: 5 },
  { latitude: 52.5, longitude: 4.8 },
])
const pluggedIn = any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging'))

export const fields = [
  'BatteryLevel',
  'DestinationName',
  'DetailedChargeState',
  'DoorState',
  'Gear',
  'Location',
  'Odometer',
] as const

export const rules: readonly Edge[] = [
  becomes('Gear', 'P'),
  becomes('Gear', 'P').where(inside(depot), below('BatteryLevel', 50)),
  ceases('Gear', 'P'),
  changed('DestinationName'),
  changed('Gear', { first: true }).named('gear, also the first'),
  changed('Gear', { invalid: true }).named('gear, also none'),
  changed('BatteryLevel', { delta: 20 }),
  rises('Odometer', { delta: 50 }),
  falls('BatteryLevel', { delta: 30 }),
  crosses('BatteryLevel', { below: 20, again: 40 }),
  crosses('BatteryLevel', { above: 80 }),
  enters(depot),
  leaves(depot, { marginMeters: 300 }),
  enters(city),
  comesOnline(),
  goesOffline(),
  fallsAsleep(),
  alertStarts(),
  alertEnds('Low'),
  starts(all(pluggedIn, inside(depot), below('BatteryLevel', 50))),
  ends(pluggedIn),
  starts(between('BatteryLevel', 40, 60)),
  starts(all(inside(city), not(is('Gear', 'P')))),
]

/** A message of the service, or a gap: of one vehicle, or of all of them. */
export type Line = { readonly body: object; readonly vin: string } | { readonly gap: string | undefined }

export const vins: readonly string[] = ['V1', 'V2', 'V3', 'V4', 'V5']

/** Numbers that look random and are the same everywhere. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
}

/** Messages of all topics that rules read: late ones, repeated ones, ones with missing values, and gaps between them. */
export function script(length: number, seed: number): readonly Line[] {
  const next = numbers(seed)
  const pick = <T>(...list: readonly [T, ...T[]]): T => list[next(list.length)] ?? list[0]
  const lines: Line[] = []
  const startMs = Date.parse('2026-01-05T08:00:00Z')
  while (lines.length < length) {
    if (next(40) === 0) {
      lines.push({ gap: pick(undefined, ...vins) })
      continue
    }
    const vin = pick(vins[0] ?? '', ...vins.slice(1))
    const lateMs = pick(0, 0, 0, 0, 0, 7_500, 90_000)
    const createdAt = new Date(startMs + lines.length * 1_000 - lateMs).toISOString()
    const said = (): object => {
      const topic = next(12)
      if (topic === 0) return { state: pick('online', 'asleep', 'driving', 'offline') }
      if (topic === 1)
        return { alerts: [{ name: pick('Low', 'High'), startedAt: createdAt, ...pick({}, { endedAt: createdAt }) }] }
      const value: Readonly<Record<(typeof fields)[number], () => unknown>> = {
        BatteryLevel: () => pick(null, next(100), next(100), 19, 50),
        DestinationName: () => pick('Home', 'Work', null),
        DetailedChargeState: () => pick('Disconnected', 'Starting', 'Charging', 'Complete', null),
        DoorState: () => ({ DriverFront: pick(true, false) }),
        Gear: () => pick('P', 'R', 'D', null),
        Location: () =>
          pick({ latitude: 52.3731, longitude: 4.8926 + next(6) / 1_000 }, { latitude: 52.6, longitude: 4 }),
        Odometer: () => lines.length + next(10),
      }
      const names = fields.filter(() => next(4) === 0)
      return { data: Object.fromEntries(names.map((name) => [name, value[name]()])) }
    }
    const line: Line = { vin, body: { vin, createdAt, ...said() } }
    lines.push(line)
    if (next(10) === 0) lines.push(line)
  }
  return lines
}

/** An occurrence as one line of text. */
export function lineOf({ edge, event, change }: Pick<Happening, 'edge' | 'event' | 'change'>): string {
  return `${edge} ${event.createdAt} ${change.at.toISOString()}${change.acrossGap ? ' across a gap' : ''}`
}

/** Messages of this vehicle, or of any, may be missing between two times. It was noticed at its end, or later. */
export function gapOf(vin: string | undefined, from: Date, to: Date, receivedAt: Date = to): EventOf<'gap'> {
  const about = { topic: 'gap', from, to, reason: 'stream_interrupted', missed: 0 } as const
  const id = `gap:stream_interrupted:${vin ?? ''}:${to.getTime()}`
  const common = { createdAt: from.toISOString(), at: from, receivedAt, id, format: null, raw: null, meta: {} }
  return { ...about, ...common, ...(vin === undefined ? {} : { vin }) }
}

/** A gap that ends now. The next message must not arrive in the same millisecond. */
export const gapNow = (vin: string | undefined): EventOf<'gap'> => gapOf(vin, new Date(), new Date())
