// What vehicles said in public bug reports: each number is right, or its row names it.
import type { FleetEvent } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { any, energy, episode, type Edge, type Episode, type EpisodeOccurrence, is, path, span } from 'fleethook/when'
import { expect, test } from 'vitest'
import { episodeScene, type Said, startMs, vin } from './episodes-scene.ts'
import { charges, type History, trips } from './histories.ts'

const spans = { odometer: span('Odometer'), energy: span('EnergyRemaining'), route: path() }
const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 },
  silence: { hours: 1 },
  measures: spans,
})
const energies = { energy: energy() }
const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  joins: { minutes: 15 },
  splits: is('DetailedChargeState', 'Disconnected'),
  silence: { hours: 6 },
  measures: energies,
})

interface Row {
  readonly miles?: number | null
  readonly kwh: number | null
  readonly unseen: number
  readonly meters?: number | null
  readonly missing: readonly string[]
  readonly isNamed: boolean
}

const round = (value: number): number => Math.round(value * 1_000) / 1_000
const isDoubtful = ({ missing, cut, acrossGap }: EpisodeOccurrence, name: string): boolean =>
  missing.includes(name) || cut || acrossGap
type TripRow = Episode<typeof spans>
type ChargeRow = Episode<typeof energies>
const tripRow = (one: TripRow): Row => {
  const { odometer, energy: used, route, missing } = one
  const miles = odometer.from === null || odometer.to === null ? null : round(odometer.to - odometer.from)
  const kwh = used.from === null || used.to === null ? null : round(used.from - used.to)
  return {
    miles,
    kwh,
    unseen: odometer.unseen,
    meters: route.meters === null ? null : Math.round(route.meters / 10) * 10,
    missing,
    isNamed: isDoubtful(one, 'odometer'),
  }
}
const chargeRow = (one: ChargeRow): Row => {
  const { kwh, unseen } = one.energy
  return { kwh, unseen, missing: one.missing, isNamed: isDoubtful(one, 'energy') }
}
/** The last telling of each, without what was revoked. */
const settledOf = <Of extends { readonly id: string; readonly revoked: boolean }>(told: readonly Of[]): readonly Of[] =>
  [...new Map(told.map((one) => [one.id, one])).values()].filter(({ revoked }) => !revoked)

const eventsOf = (said: readonly Said[]): FleetEvent[] =>
  said.flatMap(([second, data]) => {
    const at = new Date(startMs + second * 1_000)
    const made = { ...message.data({}, { vin, createdAt: at.toISOString() }), data }
    return [...normalize([encode(made, 'service')], { receivedAt: at })]
  })

const inOrder = (says: readonly Said[]): readonly Said[] => says.toSorted(([one], [other]) => one - other)

async function told<Of extends TripRow | ChargeRow>(edge: Edge<Of>, says: readonly Said[]): Promise<readonly Of[]> {
  const [first = 0, last = 0] = [inOrder(says)[0]?.[0], inOrder(says).at(-1)?.[0]]
  const scene = episodeScene(edge, { startsAt: first - 60 })
  await scene.say(...says)
  await scene.until(last + 86_400)
  await scene.stop()
  return settledOf(scene.told)
}

const live = async ({ kind, says }: History): Promise<readonly Row[]> =>
  kind === 'trip' ? (await told(trip, says)).map(tripRow) : (await told(charge, says)).map(chargeRow)

const inList = ({ kind, says }: History): readonly Row[] =>
  kind === 'trip' ? trip.in(eventsOf(says)).map(tripRow) : charge.in(eventsOf(says)).map(chargeRow)

const sumOf = ({ kind }: History, rows: readonly Row[]): number =>
  round(rows.reduce((sum, { miles, kwh, unseen }) => sum + ((kind === 'trip' ? miles : kwh) ?? 0) + unseen, 0))

test.each([...trips, ...charges])('$kind: $name', async (history) => {
  for (const rows of [inList(history), await live(history)]) {
    const sum = sumOf(history, rows)
    if (history.isNamed !== true) expect(sum).toBeCloseTo(history.sum, 3)
    else if (Math.abs(sum - history.sum) > 0.001) {
      expect(sum).toBeLessThan(history.sum)
      expect(rows.some(({ isNamed }) => isNamed)).toBe(true)
    }
    expect(
      rows.every(
        ({ miles, kwh, unseen }) => (miles ?? 0) >= 0 && (history.kind === 'trip' || (kwh ?? 0) >= 0) && unseen >= 0,
      ),
    ).toBe(true)
    if (history.rows) expect(rows).toMatchObject(history.rows)
  }
})
