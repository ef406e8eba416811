// The truth is made first, and then disturbed: every mile is in exactly one row, and no kWh is wrong without a name.
import type { FleetEvent } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { any, type Edge, energy, episode, type Episode, is, span } from 'fleethook/when'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { type Disturbed, historyOf, type Sent, type TrueHistory } from './conservation.ts'
import { episodeScene, startMs, vin } from './episodes-scene.ts'

const spans = { odometer: span('Odometer') }
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
type Trip = Episode<typeof spans>
type Charge = Episode<typeof energies>

const secondOf = (at: Date): number => (at.getTime() - startMs) / 1_000
const inOrder = (messages: readonly Sent[]): readonly Sent[] =>
  messages.toSorted((one, other) => one.second + one.late - other.second - other.late)

function eventsOf(messages: readonly Sent[]): FleetEvent[] {
  return inOrder(messages).flatMap(({ second, data, late }) => {
    const about = { vin, createdAt: new Date(startMs + second * 1_000).toISOString() }
    return [
      ...normalize([encode({ ...message.data({}, about), data }, 'service')], {
        receivedAt: new Date(startMs + (second + late) * 1_000),
      }),
    ]
  })
}

/** What was told in the end by a receiver. */
async function told<Of extends Trip | Charge>(edge: Edge<Of>, messages: readonly Sent[]): Promise<readonly Of[]> {
  const scene = episodeScene(edge, { startsAt: -60 })
  await scene.say(...messages.map(({ second, data, late }) => [second, data, late] as const))
  await scene.until((inOrder(messages).at(-1)?.second ?? 0) + 100_000)
  await scene.stop()
  const last = new Map(scene.told.map((one) => [one.id, one]))
  return [...last.values()]
    .filter(({ revoked }) => !revoked)
    .toSorted((one, other) => Number(one.at) - Number(other.at))
}

/** Whether an odd odometer goes on from the value before, and nothing after it says that it is odd. */
function agree(messages: readonly Sent[]): boolean {
  const said = messages.filter(({ data }) => data.Odometer != null).toSorted((one, other) => one.second - other.second)
  return said.some((one, nth) => {
    const [before, next] = [said[nth - 1], said[nth + 1]]
    if (one.isOdd !== true || before === undefined || (next !== undefined && before.isOdd !== true)) return false
    const grown = Number(one.data.Odometer) - Number(before.data.Odometer)
    return grown >= 0 && grown <= 2 + (one.second - before.second) / 20
  })
}

/** What is wrong with these trips. */
function wrongMiles({ messages, milesAt, replacedAt }: TrueHistory, rows: readonly Trip[]): string[] {
  const wrong: string[] = []
  const readings = messages.filter(({ data, isOdd }) => isOdd !== true && data.Odometer != null)
  const first = Math.min(...readings.map(({ second }) => second))
  let [sum, last] = [0, first]
  for (const { odometer } of rows) {
    const { from, to, fromAt, toAt, unseen } = odometer
    const miles = from === null || to === null ? 0 : to - from
    sum += miles + unseen
    last = Math.max(last, ...[fromAt, toAt].flatMap((at) => (at === null ? [] : secondOf(at))))
    if (miles < 0 || unseen < 0) wrong.push(`negative: ${miles}, ${unseen}`)
  }
  const truth = rows.length === 0 ? 0 : milesAt(last) - milesAt(first)
  const isNamed = rows.some(({ missing, cut, acrossGap }) => missing.length > 0 || cut || acrossGap)
  // Two odd values that agree are another odometer, and an odd one that is the last word and can be true, is true.
  if (isNamed && agree(messages)) return wrong
  const isKnown = replacedAt === undefined || replacedAt > last || replacedAt < first
  if (isKnown && Math.abs(sum - truth) > 0.03) wrong.push(`${sum} miles in place of ${truth}`)
  if (!isKnown && (sum > truth + 0.03 || (Math.abs(sum - truth) > 1 && !isNamed)))
    wrong.push(`${sum} miles of ${truth}`)
  return wrong
}

/** One charge ended and the next one began without a word, and the counter went on as if it had not begun again. Nobody can tell. */
const twoInOne = 'two in one: '

/** What is wrong with these charges, and does not say so. */
function wrongKwh({ charges }: TrueHistory, rows: readonly Charge[]): string[] {
  const wrong: string[] = []
  for (const row of rows) {
    const [start, end] = [secondOf(row.startedAt), secondOf(row.endedAt)]
    const own = charges.filter((one) => one.start <= end + 1 && one.end >= start - 1)
    const truth = own.reduce((sum, { kwh }) => sum + kwh, 0)
    const most = Math.max(0, ...own.map(({ pace }) => pace))
    const { kwh, unseen } = row.energy
    const isNamed = row.missing.includes('energy') || row.cut || row.acrossGap
    if ((kwh ?? 0) < 0 || unseen < 0) wrong.push(`negative: ${kwh}, ${unseen}`)
    // The last value may be two minutes older than the end. It is rounded.
    if (!isNamed && (kwh === null || Math.abs(kwh - truth) > most * 125 + 0.03)) {
      const isOne = own.length > 1 && (kwh ?? 0) <= truth + 0.03
      wrong.push(`${isOne ? twoInOne : ''}${kwh} kWh in place of ${truth} at ${start}`)
    }
    if ((kwh ?? 0) > truth + most * 125 + 0.5 && !isNamed) wrong.push(`too much: ${kwh} kWh in place of ${truth}`)
  }
  const all = charges.reduce((sum, { kwh }) => sum + kwh, 0)
  const sum = rows.reduce((found, { energy: { kwh, unseen } }) => found + (kwh ?? 0) + unseen, 0)
  const isNamed = rows.some(({ missing, cut, acrossGap }) => missing.length > 0 || cut || acrossGap)
  if (sum > all + 1 && !isNamed) wrong.push(`all: ${sum} kWh of ${all}`)
  return wrong
}

const kinds: Readonly<Record<string, Disturbed>> = {
  nothing: {},
  'odd values': { odd: 0.05 },
  holes: { holes: 0.15 },
  'nulls, and messages that come twice': { nulls: 0.05, twice: 0.1 },
  'late and shuffled': { late: [0.1, 600] },
  'all at once': { odd: 0.03, holes: 0.08, nulls: 0.03, twice: 0.05, late: [0.1, 600] },
  'all at once, and another odometer': {
    odd: 0.03,
    holes: 0.08,
    nulls: 0.03,
    twice: 0.05,
    late: [0.1, 600],
    replaced: 0.6,
  },
}

const [lists, lives] = inForm({ short: [20, 1], full: [1_500, 20] } as const)

test.each(Object.entries(kinds))(
  'every mile is in one row, and no kWh is silently wrong: %s',
  { timeout: 3_600_000 },
  (_, disturbed) => {
    const wrong: string[] = []
    for (let seed = 1; seed <= lists; seed += 1) {
      const history = historyOf(seed, disturbed)
      const events = eventsOf(history.messages)
      const found = [...wrongMiles(history, trip.in(events)), ...wrongKwh(history, charge.in(events))]
      wrong.push(...found.map((what) => `${seed}: ${what}`))
    }
    const alike = wrong.filter((what) => what.includes(twoInOne))
    expect(wrong.filter((what) => !alike.includes(what))).toEqual([])
    expect(alike.length).toBeLessThanOrEqual(lists / 1_000)
  },
)

test.each(Object.entries(kinds))(
  'a receiver that folds what is old tells the same: %s',
  { timeout: 3_600_000 },
  async (_, disturbed) => {
    const wrong: string[] = []
    for (let seed = 1; seed <= lives; seed += 1) {
      const history = historyOf(100_000 + seed, disturbed)
      const found = [
        ...wrongMiles(history, await told(trip, history.messages)),
        ...wrongKwh(history, await told(charge, history.messages)),
      ]
      wrong.push(...found.map((what) => `${seed}: ${what}`))
    }
    expect(wrong).toEqual([])
  },
)
