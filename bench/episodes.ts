/**
 * Measures what an episode costs: the CPU time of a message in memory and the room of a vehicle, of forty vehicles on the road, in one process without a
 * socket, in turns.
 *
 *     node bench/episodes.ts
 */
import { parseArgs } from 'node:util'
import { createReceiver, memoryInbox, type Receiver, vehicles } from '../src/index.ts'
import { any, type Edge, ends, episode, is, path, range, span, starts } from '../src/when.ts'
import { median } from './median.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '5' }, minutes: { type: 'string', default: '60' } },
})
const log = { debug() {}, info() {}, warn() {}, error() {} }
const during = any(is('Gear', 'D'), is('Gear', 'R'))
const two = { odometer: span('Odometer'), energy: span('EnergyRemaining') } as const
const options = { during, joins: { minutes: 3 }, silence: { hours: 1 } } as const
const kinds: Readonly<Record<string, readonly Edge[]>> = {
  'no edge': [],
  'starts and ends': [starts(during), ends(during)],
  'an episode with two spans': [episode('trip', { ...options, measures: two })],
  'and a range and a path': [
    episode('trip', { ...options, measures: { ...two, speed: range('VehicleSpeed'), route: path() } }),
  ],
}
const fields = ['Gear', 'Odometer', 'EnergyRemaining', 'Location', 'VehicleSpeed', 'BatteryLevel'] as const

interface Body {
  readonly vin: string
  readonly createdAt: string
  readonly data: Readonly<Record<string, unknown>>
}

/** Trips of 12 minutes and stops of 5, each field on its own, nine messages a minute. */
function bodies(minutes: number, shuffleMs: number): readonly Body[] {
  const startMs = Date.now() - minutes * 60_000
  const all: { at: number; body: Body }[] = []
  for (let car = 0; car < 40; car += 1)
    for (let n = 0; n < minutes * 9; n += 1) {
      const sent = startMs + n * 6_667 + car * 150
      const inTrip = (n + car * 7) % 153
      const turn = n % 6
      const data: Record<string, unknown> =
        inTrip === 0 ? { Gear: 'D' } : inTrip === 108 ? { Gear: 'P' } : turn < 2 ? { Location: { latitude: 52 + n / 1_000, longitude: 4 + car } } : turn === 2 ? { VehicleSpeed: n % 70 } : turn === 3 ? { Odometer: 1_000 + n / 10 } : turn === 4 ? { EnergyRemaining: 60 - n / 100 } : { BatteryLevel: 90 - n / 100 } // prettier-ignore
      all.push({ at: sent + ((n * 7_919) % 1_000) / 1_000 * shuffleMs, body: { vin: `0FLEETV14T${String(car).padStart(7, '0')}`, createdAt: new Date(sent).toISOString(), data } }) // prettier-ignore
    }
  return all.toSorted((one, other) => one.at - other.at).map(({ body }) => body)
}

const make = (edges: readonly Edge[]): Receiver =>
  edges.reduce<Receiver>(
    (receiver, edge) => receiver.when(edge, () => undefined),
    createReceiver({ secret: false, log, inbox: memoryInbox(), parts: [vehicles({ fields })] }),
  )

async function cpuOf(receiver: Receiver, sent: readonly Body[]): Promise<number> {
  const before = process.cpuUsage()
  for (let at = 0; at < sent.length; at += 64) {
    await Promise.all(sent.slice(at, at + 64).map((body) => receiver.accept({ authorization: undefined, body })))
    while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setImmediate(resolve))
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / sent.length
}

const rows: string[][] = []
for (const [order, shuffleMs] of [
  ['in order', 0],
  ['shuffled by up to a minute', 60_000],
] as const) {
  // prettier-ignore
  const sent = bodies(Number(values.minutes), shuffleMs)
  const laps = new Map<string, number[]>(Object.keys(kinds).map((name) => [name, []]))
  for (let round = -1; round < Number(values.rounds); round += 1)
    for (const [name, edges] of Object.entries(kinds)) {
      const receiver = make(edges)
      const took = await cpuOf(receiver, sent)
      if (round >= 0) laps.get(name)?.push(took)
      await receiver.drain()
    }
  for (const [name, each] of laps) rows.push([order, name, `${median(each).toFixed(1)} µs`])
}
console.log(table(['messages', 'receiver', 'CPU of a message'], rows))
