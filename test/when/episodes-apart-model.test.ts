import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { episode, fact, is, path, span } from 'fleethook/when'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { Painted } from '../vehicles/painted.ts'
import { silent, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000001'
const customer = fact('customer', 'string')
const trip = episode('trip', {
  during: is('Gear', 'D'),
  by: [customer],
  joins: { minutes: 2 },
  measures: { odometer: span('Odometer'), route: path() },
})
const second = 1_000

interface Row {
  readonly customer: string | null
  readonly revoked: boolean
  readonly miles: number
}

/** A handover, or with an end a booking. */
interface HandOver {
  readonly at: number
  readonly until?: number
  /** `Infinity`: never. */
  readonly toldAt: number
  readonly to: string
}

/** Who has the vehicle, as far as it was told. */
function holders(handOvers: readonly HandOver[]): (at: number) => string | null {
  const times = [...new Set(handOvers.flatMap(({ at, until = at }) => [at, until]))].toSorted((a, b) => a - b)
  const painted = new Painted<string>()
  for (const { at, until, to } of inTold(handOvers))
    painted.say(to, times.indexOf(at), until === undefined ? undefined : times.indexOf(until))
  return (at) => painted.at(times.findLastIndex((each) => each <= at)) ?? null
}

/** Those that were told, in that order. */
const inTold = (handOvers: readonly HandOver[]): readonly HandOver[] =>
  handOvers.filter(({ toldAt }) => toldAt < Infinity).toSorted((a, b) => a.toldAt - b.toldAt)

interface Step {
  /** When it arrives, and when it was sent. */
  readonly at: number
  readonly sentAt: number
  readonly data: Readonly<Record<string, unknown>>
  readonly isDriving: boolean
}

const rounded = (miles: number): number => Math.round(miles * 1_000) / 1_000

/** A drive of 10 to 40 minutes, a rest of 5 to 20, three times. A value each 30 seconds, some of them late. */
function drivesOf(upTo: (most: number) => number): readonly Step[] {
  const steps: Step[] = [{ at: 0, sentAt: 0, data: { Gear: 'P', Odometer: 100 }, isDriving: false }]
  let [at, odometer] = [0, 100]
  for (let drive = 0; drive < 3; drive += 1) {
    at += (10 + upTo(30)) * 30 * second
    const to = at + (20 + upTo(60)) * 30 * second
    for (; at <= to; at += 30 * second) {
      const isDriving = at < to
      const Location = { latitude: 52 + odometer / 1_000, longitude: 5 }
      const data = { Gear: isDriving ? 'D' : 'P', Odometer: odometer, Location }
      steps.push({ at: at + (upTo(5) === 0 ? upTo(120_000) : 0), sentAt: at, data, isDriving })
      if (isDriving) odometer = rounded(odometer + 0.4)
    }
  }
  return steps
}

/** Told early, at once, late, or never. Not at whole seconds: `unwatched` drops what would be due in exactly one. */
function handOversOf(upTo: (most: number) => number, endMs: number): readonly HandOver[] {
  return Array.from({ length: 3 + upTo(5) }, (_, nth) => {
    const at = upTo(endMs)
    const shift = [-upTo(3_600), 0, upTo(1_500), Infinity][upTo(3)] ?? 0
    const told = { at, toldAt: Math.max(0, at + shift * second + upTo(999)), to: `c-${nth}` }
    return upTo(1) === 0 ? told : { ...told, until: at + 1 + upTo(1_800_000) }
  })
}

/** The miles of each customer: those between two readings are with whoever had the vehicle before the second one. */
function milesOf(steps: readonly Step[], handOvers: readonly HandOver[]): object {
  const miles = new Map<string, number>()
  const sent = steps.toSorted((a, b) => a.sentAt - b.sentAt)
  const holderAt = holders(handOvers)
  for (const [nth, step] of sent.entries()) {
    const next = sent[nth + 1]
    if (next === undefined || !step.isDriving) continue
    const way = Number(next.data['Odometer']) - Number(step.data['Odometer'])
    const who = String(holderAt(next.sentAt - 1))
    miles.set(who, rounded((miles.get(who) ?? 0) + way))
  }
  return inOrder(miles)
}

const inOrder = (miles: ReadonlyMap<string, number>): object =>
  Object.fromEntries([...miles].filter(([, each]) => each > 0).toSorted(([a], [b]) => a.localeCompare(b)))

function told(rows: Iterable<Row>): object {
  const miles = new Map<string, number>()
  for (const row of rows)
    if (!row.revoked) miles.set(String(row.customer), rounded((miles.get(String(row.customer)) ?? 0) + row.miles))
  return inOrder(miles)
}

/** Runs it all. Resolves to the newest revision of each row. */
async function run(steps: readonly Step[], handOvers: readonly HandOver[]): Promise<readonly Row[]> {
  const clock = unwatched(fakeClock())
  const beganMs = clock.now()
  const rows = new Map<string, Row>()
  const parts = [vehicles({ fields: ['Gear', 'Odometer', 'Location'], facts: [customer] })] as const
  const receiver = createReceiver({ secret: false, clock, log: silent, inbox: memoryInbox(), parts }).when(
    trip,
    ({ change: { id, odometer, revoked, customer: who } }) => {
      expect(rows.get(id)?.customer ?? who, 'a row moves to nobody else').toBe(who)
      // A part without a reading says so: the way to the next one is in the next part.
      const miles = odometer.to === null ? 0 : rounded(odometer.to - Number(odometer.from))
      rows.set(id, { customer: who, revoked, miles })
    },
  )
  await receiver.open()
  const send = async ({ sentAt, data }: Step): Promise<void> => {
    const createdAt = new Date(beganMs + sentAt).toISOString()
    const { settled } = await deliver(receiver, { ...message.data({}, { vin, createdAt }), data })
    await settled
  }
  const tell = async ({ at, until, to }: HandOver): Promise<void> => {
    const end = until === undefined ? undefined : new Date(beganMs + until)
    await receiver.vehicles.set(vin, { customer: to }, { from: new Date(beganMs + at), until: end })
    await clock.advance(0)
  }
  const events = [
    ...steps.map((step) => ({ at: step.at, run: () => send(step) })),
    ...inTold(handOvers).map((each) => ({ at: each.toldAt, run: () => tell(each) })),
  ].toSorted((a, b) => a.at - b.at)
  for (const event of events) {
    const ms = beganMs + event.at - clock.now()
    if (ms > 0) await clock.advance(ms)
    await event.run()
  }
  await clock.advance(3 * 3_600 * second)
  await receiver.drain()
  return [...rows.values()]
}

test.each(Array.from({ length: inForm({ short: 6, full: 120, long: 1_000 }) }, (_, seed) => seed))(
  'each mile is with the customer who had the vehicle, as far as was told: early, late or never (seed %i)',
  async (seed) => {
    const random = xoroshiro128plus(seed + 1)
    const upTo = (most: number): number => uniformInt(random, 0, most)
    const steps = drivesOf(upTo)
    const handOvers = handOversOf(upTo, Math.max(...steps.map(({ sentAt }) => sentAt)))
    const rows = await run(steps, handOvers)
    expect(told(rows), JSON.stringify({ handOvers, rows }, undefined, 1)).toEqual(milesOf(steps, handOvers))
  },
)
