import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { episode, fact, is, path, span } from 'fleethook/when'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
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
  readonly fromMs: number
  readonly toMs: number
  readonly miles: number
}

interface HandOver {
  readonly at: number
  readonly toldAt: number
  readonly to: string
}

/** Who has the vehicle, as a table of handovers says it. */
const holderAt = (handOvers: readonly HandOver[], at: number): string | null =>
  handOvers
    .filter((each) => each.at <= at)
    .toSorted((a, b) => a.at - b.at)
    .at(-1)?.to ?? null

test.each(Array.from({ length: inForm({ short: 12, full: 120, long: 1_000 }) }, (_, seed) => seed))(
  'each mile is with the customer who had the vehicle, whenever the handover is told (seed %i)',
  async (seed) => {
    const random = xoroshiro128plus(seed + 1)
    const upTo = (most: number): number => uniformInt(random, 0, most)
    const clock = unwatched(fakeClock())
    const beganMs = clock.now()
    const rows = new Map<string, Row>()
    const receiver = createReceiver({
      secret: false,
      clock,
      log: silent,
      inbox: memoryInbox(),
      parts: [vehicles({ fields: ['Gear', 'Odometer', 'Location'], facts: [customer] })] as const,
    }).when(trip, ({ change }) => {
      expect(rows.get(change.id)?.customer ?? change.customer, 'a row moves to nobody else').toBe(change.customer)
      rows.set(change.id, {
        customer: change.customer,
        revoked: change.revoked,
        fromMs: change.startedAt.getTime() - beganMs,
        toMs: change.endedAt.getTime() - beganMs,
        miles: Math.round((Number(change.odometer.to) - Number(change.odometer.from)) * 1_000) / 1_000,
      })
    })
    await receiver.open()

    // A drive of 10 to 40 minutes, a rest of 5 to 20, three times. A value each 30 seconds.
    const steps: { at: number; data: Readonly<Record<string, unknown>>; sentAt: number; isDriving: boolean }[] = []
    let [at, odometer, isDriving] = [0, 100, false]
    const drives: [from: number, to: number][] = []
    for (let drive = 0; drive < 3; drive += 1) {
      const rest = (10 + upTo(30)) * 30 * second
      for (let end = at + rest; at < end; at += 60 * second)
        if (drive === 0 && at === 0) steps.push({ at, sentAt: at, data: { Gear: 'P', Odometer: odometer }, isDriving })
      const from = at
      const to = at + (20 + upTo(60)) * 30 * second
      for (; at <= to; at += 30 * second) {
        isDriving = at < to
        const Location = { latitude: 52 + odometer / 1_000, longitude: 5 }
        const late = upTo(5) === 0 ? upTo(120) * second : 0
        steps.push({
          at: at + late,
          sentAt: at,
          data: { Gear: isDriving ? 'D' : 'P', Odometer: odometer, Location },
          isDriving,
        })
        if (isDriving) odometer = Math.round((odometer + 0.4) * 1_000) / 1_000
      }
      drives.push([from, to])
    }
    const endMs = at
    const handOvers: HandOver[] = Array.from({ length: 2 + upTo(4) }, (_, nth) => {
      const when = upTo(Math.floor(endMs / second)) * second
      // Early, at once, or late.
      const shift = [-upTo(3_600), 0, upTo(1_500)][upTo(2)] ?? 0
      return { at: when, toldAt: Math.max(0, when + shift * second), to: `c-${nth}` }
    })
    const events = [
      ...steps.map((step) => ({
        at: step.at,
        run: async () => {
          const createdAt = new Date(beganMs + step.sentAt).toISOString()
          await (
            await deliver(receiver, { ...message.data({}, { vin, createdAt }), data: step.data })
          ).settled
        },
      })),
      ...handOvers.map((each) => ({
        at: each.toldAt,
        run: async () => {
          await receiver.vehicles.set(vin, { customer: each.to }, { from: new Date(beganMs + each.at) })
          await clock.advance(0)
        },
      })),
    ].toSorted((a, b) => a.at - b.at)
    for (const event of events) {
      const ms = beganMs + event.at - clock.now()
      if (ms > 0) await clock.advance(ms)
      await event.run()
    }
    await clock.advance(3 * 3_600 * second)

    const sent = steps.toSorted((a, b) => a.sentAt - b.sentAt)
    const wanted = new Map<string, number>()
    for (const [nth, step] of sent.entries()) {
      const next = sent[nth + 1]
      if (next === undefined || !step.isDriving) continue
      const who = String(holderAt(handOvers, next.sentAt - 1))
      wanted.set(
        who,
        Math.round(((wanted.get(who) ?? 0) + Number(next.data['Odometer']) - Number(step.data['Odometer'])) * 1_000) /
          1_000,
      )
    }
    const live = [...rows.values()].filter(({ revoked }) => !revoked)
    const found = new Map<string, number>()
    for (const { customer: who, miles } of live)
      found.set(String(who), Math.round(((found.get(String(who)) ?? 0) + miles) * 1_000) / 1_000)
    const sorted = (map: ReadonlyMap<string, number>): object =>
      Object.fromEntries([...map].filter(([, miles]) => miles > 0).toSorted(([a], [b]) => a.localeCompare(b)))
    const about = JSON.stringify({ drives, handOvers, rows: [...rows.values()] }, undefined, 1)
    expect(sorted(found), about).toEqual(sorted(wanted))
    await receiver.drain()
  },
)
