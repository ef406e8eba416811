/* The table of semantics of facts, a test for each row, for every inbox that keeps vehicles. */
import { afterAll, describe, expect, test } from 'vitest'
import type { FactRow, FactsSettings, Noted, Question, Shown } from './facts-receiver.ts'

export interface FactTimes {
  readonly from?: number
  readonly until?: number
}

/** What a place is asked, each time in another process if there are several. What is only just told may not be shown yet. */
export interface Asked {
  /** Rejects with the text of the error. */
  set(vin: string, facts: Readonly<Record<string, unknown>>, times?: FactTimes): Promise<void>
  setAll(rows: readonly FactRow[], facts?: readonly string[]): Promise<unknown>
  /** What all processes show. Rejects while they differ. */
  shown(vin: string, at?: number): Promise<Shown | null>
  dead(vin: string): Promise<unknown>
  replay(vin: string): Promise<unknown>
  /** How many messages of the vehicle were handled and are kept. */
  handled(vin: string): Promise<unknown>
  /** Replays them. */
  again(vin: string): Promise<unknown>
  forget(vin: string): Promise<unknown>
  /** Messages of the vehicle may be missing. */
  gap(vin: string): Promise<unknown>
}

/** The methods of a place that are questions. */
export const askedBy = (ask: <Answer>(question: Question) => Promise<Answer>): Asked => ({
  set: (vin, facts, { from, until } = {}) => ask({ what: 'set', vin, facts, from, until }),
  setAll: (rows, facts) => ask({ what: 'setAll', rows, facts }),
  shown: (vin, at) => ask({ what: 'shown', vin, at }),
  dead: (vin) => ask({ what: 'dead', vin }),
  replay: (vin) => ask({ what: 'replay', vin }),
  handled: (vin) => ask({ what: 'handled', vin }),
  again: (vin) => ask({ what: 'again', vin }),
  forget: (vin) => ask({ what: 'forget', vin }),
  gap: (vin) => ask({ what: 'gap', vin }),
})

/** Where a receiver of `facts-receiver.ts` runs, with its inbox, and by which clock. */
export interface FactsPlace extends Asked, AsyncDisposable {
  /** When it began. The night and the end of a day are soon after. */
  readonly startMs: number
  now(): number
  /** Lets time pass. `isAsleep`: its process does not run meanwhile, if the clock is one of the test. */
  pass(ms: number, isAsleep?: boolean): Promise<void>
  /** Resolves when this is so: at once on a clock of the test. */
  eventually(read: () => unknown, expected: unknown): Promise<void>
  /** Sends values. Resolves when the receiver has acknowledged them, and here when they are handled. */
  send(body: object): Promise<void>
  /** What its handlers were told of a vehicle, in order. */
  told(vin: string, ...rules: readonly string[]): readonly Noted[]
  /** Kills what handles, and starts it again. Left out: nothing outlives it. */
  crash?(): Promise<void>
}

interface PlacesOptions {
  readonly unitMs: number
  readonly open: (settings: FactsSettings, startMs: number) => Promise<FactsPlace>
  readonly now: () => number
  /** What it keeps outlives its process. */
  readonly survives: boolean
  /** One place for most rows at the same time, because its clock is the real one. */
  readonly isShared?: boolean
  /** Only the rows that end its process. */
  readonly onlyCrashes?: boolean
  /** It keeps handled messages for replays. */
  readonly keepsHandled?: boolean
}

/** Units of time, seconds on a real clock and minutes on the clock of a test. */
type Units = (count: number) => number

interface Row {
  readonly name: string
  run(place: FactsPlace, vin: string, units: Units): Promise<void>
  /** It ends its process, or needs what others do not: it has a place of its own. */
  readonly needs?: 'crash' | 'branch' | 'forgetting' | 'handled' | 'nobody else'
}

const texts = (noted: readonly Noted[]): readonly string[] => noted.map(({ text }) => text)

/** The newest revision of each row of an episode, without revoked rows. */
const rowsOf = (noted: readonly Noted[]): readonly string[] =>
  [...new Map(noted.map(({ id, text }) => [id, text])).values()]
    .filter((text) => !text.startsWith('revoked'))
    .toSorted()

async function say(
  place: FactsPlace,
  vin: string,
  data: Readonly<Record<string, unknown>>,
  at: number = place.now(),
): Promise<void> {
  await place.send({ vin, createdAt: new Date(at).toISOString(), data })
}

/** Whether a sign of the vehicle is shown, and when it was seen. */
async function seen(place: FactsPlace, vin: string): Promise<number | undefined> {
  return (await place.shown(vin))?.seenAt ?? undefined
}

const minute = 60_000

/** A drive of ten minutes, a mile each minute, sent at once. */
async function drive(place: FactsPlace, vin: string, startMs: number): Promise<void> {
  await say(place, vin, { Gear: 'P', Miles: 100 }, startMs - minute)
  for (let at = 0; at <= 10; at += 1)
    await say(place, vin, { Gear: at === 10 ? 'P' : 'D', Miles: 100 + at }, startMs + at * minute)
}

const circle = (latitude: number): object => ({ latitude, longitude: 4.89, radiusMeters: 500 })
const parked = { Location: { latitude: 52.37, longitude: 4.89 } }

const rows: readonly Row[] = [
  {
    name: 'a limit or an area that changes around a parked vehicle starts and ends its rule at once',
    async run(place, vin, units) {
      await say(place, vin, { Level: 30, ...parked })
      await place.set(vin, { lowBattery: 25, home: circle(52.37) })
      await place.eventually(() => place.told(vin, 'home').length, 1)
      expect(place.told(vin, 'low')).toEqual([])
      await place.set(vin, { lowBattery: 40, home: circle(53.37) })
      await place.eventually(() => [place.told(vin, 'low').length, place.told(vin, 'away').length], [1, 1])
      await place.set(vin, { lowBattery: null })
      await place.pass(units(1))
      await place.set(vin, { lowBattery: 40 })
      await place.eventually(() => place.told(vin, 'low').length, 2)
    },
  },
  {
    name: 'a fact is by the clock of the business and no sign of the vehicle: it ends no silence, and is not when it was seen',
    async run(place, vin, units) {
      await place.set(vin, { customer: 'c-1' })
      await place.eventually(() => place.shown(vin), { facts: { customer: 'c-1' }, seenAt: null, atThen: {} })
      const sentMs = place.now()
      await say(place, vin, { Gear: 'P' })
      let seenAt: number | undefined
      await place.eventually(async () => typeof (seenAt = await seen(place, vin)), 'number')
      await place.pass(units(7))
      await place.set(vin, { customer: 'c-2' })
      await place.eventually(() => place.shown(vin), { facts: { customer: 'c-2' }, seenAt, atThen: {} })
      await place.pass(units(4))
      await place.eventually(() => place.told(vin, 'silent').length, 1)
      expect((place.told(vin, 'silent')[0]?.at ?? 0) - sentMs).toBeLessThan(units(14))
    },
  },
  {
    name: 'edges decide a late message by what holds now, and `vehicle.fact` says what held then',
    async run(place, vin, units) {
      await say(place, vin, { Level: 80 })
      await place.set(vin, { lowBattery: 10 })
      const then = place.now() + units(2)
      await place.pass(units(4))
      await place.set(vin, { lowBattery: 40 })
      await say(place, vin, { Level: 30 }, then)
      await place.eventually(() => place.told(vin, 'low').length, 1)
      const facts = async (): Promise<unknown> => {
        const { facts: now, atThen } = (await place.shown(vin, then)) ?? {}
        return { now, atThen }
      }
      await place.eventually(facts, { now: { lowBattery: 40 }, atThen: { lowBattery: 10 } })
    },
  },
  {
    name: 'a late message belongs to whoever had the vehicle then',
    async run(place, vin) {
      const startMs = place.now() - 20 * minute
      await place.set(vin, { customer: 'c-1' }, { from: startMs - 30 * minute })
      await place.set(vin, { customer: 'c-2' }, { from: startMs + 5 * minute + 30_000 })
      await drive(place, vin, startMs)
      await place.eventually(() => rowsOf(place.told(vin, 'trip')), ['c-1 100-105', 'c-2 105-110'])
    },
  },
  {
    name: 'a fact for the past changes the time line and not what is newer, and edges see nothing of it',
    async run(place, vin) {
      const at = (minutes: number): number => place.now() + minutes * minute
      await place.set(vin, { customer: 'c-1' }, { from: at(-60) })
      await place.set(vin, { customer: 'c-3' }, { from: at(-20) })
      await place.eventually(() => texts(place.told(vin, 'customer')), ['nobody > c-1', 'c-1 > c-3'])
      await place.set(vin, { customer: 'c-2' }, { from: at(-40) })
      const then = async (minutes: number): Promise<unknown> =>
        (await place.shown(vin, at(minutes)))?.atThen['customer']
      await place.eventually(async () => [await then(-50), await then(-30), await then(-10)], ['c-1', 'c-2', 'c-3'])
      await place.set(vin, { customer: 'c-4' })
      await place.eventually(() => texts(place.told(vin, 'customer')).slice(2), ['c-3 > c-4'])
    },
  },
  {
    name: 'a fact that is told late corrects the trip of then: each mile is with the customer of then, and no row moves to another one',
    async run(place, vin) {
      const startMs = place.now() - 20 * minute
      await place.set(vin, { customer: 'c-1' }, { from: startMs - 30 * minute })
      await drive(place, vin, startMs)
      await place.eventually(() => rowsOf(place.told(vin, 'trip')), ['c-1 100-110'])
      await place.set(vin, { customer: 'c-2' }, { from: startMs + 5 * minute + 30_000 })
      await place.eventually(() => rowsOf(place.told(vin, 'trip')), ['c-1 100-105', 'c-2 105-110'])
      await place.set(vin, { customer: 'c-3' }, { from: startMs - 10 * minute })
      await place.eventually(() => rowsOf(place.told(vin, 'trip')), ['c-2 105-110', 'c-3 100-105'])
    },
  },
  {
    name: 'a fact for the future begins and ends by itself, each at its own time, and then what was said without an end holds again',
    async run(place, vin, units) {
      await place.set(vin, { lowBattery: 10, customer: 'c-1' })
      await say(place, vin, { Level: 30 })
      const [from, until] = [place.now() + units(3), place.now() + units(6)]
      await place.set(vin, { lowBattery: 40, customer: 'c-2' }, { from, until })
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 10, customer: 'c-1' })
      await place.pass(units(4))
      await place.eventually(() => place.told(vin, 'low').map(({ at }) => at), [from])
      await place.pass(units(3))
      const all = ['nobody > c-1', 'c-1 > c-2', 'c-2 > c-1']
      await place.eventually(() => texts(place.told(vin, 'customer')), all)
      expect(
        place
          .told(vin, 'customer')
          .slice(1)
          .map(({ at }) => at),
      ).toEqual([from, until])
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 10, customer: 'c-1' })
    },
  },
  {
    name: 'a booking takes its vehicle out of a rule for its time, and no longer',
    async run(place, vin, units) {
      await say(place, vin, { Gear: 'P' })
      const until = place.now() + units(8)
      await place.set(vin, { booking: 'b-7' }, { until })
      await say(place, vin, { Gear: 'D' })
      await place.pass(units(7))
      expect(place.told(vin, 'unbooked')).toEqual([])
      await place.pass(units(7))
      await place.eventually(() => place.told(vin, 'unbooked').length, 1)
      expect(place.told(vin, 'unbooked')[0]?.at).toBe(until + units(5))
    },
  },
  {
    name: 'what is planned is applied before the next message, in the order of its time',
    async run(place, vin, units) {
      await say(place, vin, { Level: 30 })
      const from = place.now() + units(2)
      await place.set(vin, { lowBattery: 40 }, { from })
      await place.pass(units(3), true)
      await say(place, vin, { Level: 90 })
      await place.eventually(() => place.told(vin, 'low').map(({ at }) => at), [from])
    },
  },
  {
    name: 'without a fact, `has` and each comparison are false, and `not` of them is true',
    async run(place, vin) {
      await say(place, vin, { ...parked, Level: 5, Gear: 'P' })
      // Nothing is unknown, so each of these starts its rule.
      await place.set(vin, { home: circle(52.37), lowBattery: 10, booking: 'b-1' })
      const count = (): readonly number[] =>
        ['home', 'low', 'booked', 'away'].map((rule) => place.told(vin, rule).length)
      await place.eventually(count, [1, 1, 1, 0])
      await place.set(vin, { home: null, lowBattery: null, booking: null })
      await place.eventually(count, [1, 1, 1, 1])
    },
  },
  {
    name: 'a fact is never uncertain: what it changes after a gap is not marked, and what a value decides with it is',
    async run(place, vin) {
      await place.set(vin, { customer: 'c-1', lowBattery: 10 })
      await say(place, vin, { Level: 30 })
      await place.eventually(async () => typeof (await seen(place, vin)), 'number')
      await place.gap(vin)
      await place.set(vin, { customer: 'c-2', lowBattery: 40 })
      await place.eventually(() => texts(place.told(vin, 'customer')), ['nobody > c-1', 'c-1 > c-2'])
      expect(place.told(vin, 'customer').map(({ acrossGap }) => acrossGap)).toEqual([false, false])
      await place.eventually(() => place.told(vin, 'low').map(({ acrossGap }) => acrossGap), [true])
    },
  },
  {
    name: 'what `after` waits for ends with the fact, and begins again at its `from`',
    async run(place, vin, units) {
      await say(place, vin, { Gear: 'P' })
      await say(place, vin, { Gear: 'D' })
      await place.pass(units(3))
      await place.set(vin, { booking: 'b-1' })
      await place.pass(units(5))
      expect(place.told(vin, 'unbooked')).toEqual([])
      const from = place.now() - units(2)
      await place.set(vin, { booking: null }, { from })
      await place.pass(units(4))
      await place.eventually(() => place.told(vin, 'unbooked').map(({ at }) => at), [from + units(5)])
    },
  },
  {
    name: 'what was due before a fact is told before it',
    async run(place, vin, units) {
      await say(place, vin, { Gear: 'P' })
      await say(place, vin, { Gear: 'D' })
      // Late messages are waited for, for five seconds.
      const from = place.now() + units(5) + 8_000
      await place.set(vin, { booking: 'b-1' }, { from })
      await place.pass(units(5) + 9_000)
      await place.eventually(
        () => place.told(vin, 'unbooked', 'booked').map(({ rule }) => rule),
        ['unbooked', 'booked'],
      )
      expect(place.told(vin, 'booked')[0]?.at).toBe(from)
    },
  },
  {
    name: 'an id has the name of the fact and not its value, and each occurrence has one of its own',
    async run(place, vin) {
      await say(place, vin, { Level: 30 })
      for (const limit of [40, null, 50, null, 60, null, 70, null, 80]) await place.set(vin, { lowBattery: limit })
      await place.eventually(() => place.told(vin, 'low').length, 5)
      const ids = place.told(vin, 'low').map(({ id }) => id)
      expect(new Set(ids).size).toBe(5)
      for (const id of ids) expect(id).toContain(`${vin}:starts(below(Level,fact lowBattery)):`)
      expect(ids).toEqual(ids.toSorted())
    },
  },
  {
    name: 'a customer that changes is told with both, once, and what is said again changes nothing',
    async run(place, vin) {
      for (const customer of ['c-1', 'c-2', 'c-2', null]) await place.set(vin, { customer })
      await place.eventually(() => texts(place.told(vin, 'customer')), ['nobody > c-1', 'c-1 > c-2', 'c-2 > nobody'])
    },
  },
  {
    name: 'a handler that fails makes the message of the fact a dead letter, the fact holds, and a replay tells the same',
    async run(place, name) {
      const vin = `FAILS${name}`
      await say(place, vin, { Level: 30 })
      await place.set(vin, { lowBattery: 40 })
      await place.eventually(() => place.dead(vin), 1)
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 40 })
      await place.set(vin, { lowBattery: 35 })
      await place.replay(vin)
      await place.eventually(() => place.told(vin, 'low').length, 2)
      const [first, second] = place.told(vin, 'low')
      expect(second).toEqual(first)
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 35 })
      await place.eventually(() => place.dead(vin), 0)
    },
  },
  {
    name: 'a replay of a dead letter shows what held when it died, and changes nothing of what holds now',
    async run(place, name) {
      const vin = `FAILS${name}`
      await say(place, vin, { Level: 30 })
      await place.set(vin, { customer: 'c-1', lowBattery: 10 })
      await say(place, vin, { Level: 5 })
      await place.set(vin, { customer: 'c-2' })
      await place.eventually(() => place.dead(vin), 3)
      await place.replay(vin)
      await place.eventually(() => texts(place.told(vin, 'low')), ['c-1', 'c-1'])
      const handOvers = ['nobody > c-1', 'c-1 > c-2']
      await place.eventually(() => texts(place.told(vin, 'customer')), [...handOvers, ...handOvers])
      await place.eventually(async () => (await place.shown(vin))?.facts, { customer: 'c-2', lowBattery: 10 })
    },
  },
  {
    name: 'a replay of handled messages changes nothing and tells no change again: it shows what holds now, and with a time what held then',
    needs: 'handled',
    async run(place, vin, units) {
      await place.set(vin, { customer: 'c-1', lowBattery: 10 })
      await say(place, vin, { Level: 30 })
      await place.pass(units(2))
      await place.set(vin, { customer: 'c-2', lowBattery: 40 })
      await say(place, vin, { Level: 60 })
      await place.eventually(() => place.told(vin, 'topic', 'customer', 'low').length, 5)
      await place.eventually(() => place.handled(vin), 2)
      await place.again(vin)
      const shown = ['data c-2 60, then c-1', 'data c-2 60, then c-2']
      await place.eventually(() => texts(place.told(vin, 'again')), shown)
      expect(place.told(vin, 'topic', 'customer', 'low')).toHaveLength(5)
      await place.eventually(async () => (await place.shown(vin))?.facts, { customer: 'c-2', lowBattery: 40 })
    },
  },
  {
    name: '`null` removes a fact, and `forget` erases all of them',
    async run(place, vin) {
      await place.set(vin, { customer: 'c-1', lowBattery: 10 })
      await place.set(vin, { customer: null })
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 10 })
      expect(await place.forget(vin)).toBe(true)
      await place.eventually(() => place.shown(vin), null)
      await place.set(vin, { customer: 'c-2' })
      await place.eventually(() => texts(place.told(vin, 'customer')).at(-1), 'nobody > c-2')
      await place.eventually(async () => (await place.shown(vin))?.facts, { customer: 'c-2' })
    },
  },
  {
    name: 'topic handlers do not see facts come, and have them; a sender who posts their names changes nothing',
    async run(place, vin) {
      await place.set(vin, { customer: 'c-1' })
      await say(place, vin, { 'fact:customer': 'thief', customer: 'thief', facts: { customer: 'thief' }, Level: 1 })
      await place.eventually(() => texts(place.told(vin, 'topic')), ['data c-1 1'])
      await place.send({
        vin,
        topic: 'facts',
        createdAt: new Date(place.now()).toISOString(),
        facts: { customer: 'thief' },
      })
      await say(place, vin, { Level: 2 })
      await place.eventually(() => texts(place.told(vin, 'topic')).at(-1), 'data c-1 2')
      expect(texts(place.told(vin, 'topic')).join()).not.toContain('facts')
      await place.eventually(async () => (await place.shown(vin))?.facts, { customer: 'c-1' })
    },
  },
  {
    name: '`setAll` tells what differs, and removes facts from vehicles that no row has',
    needs: 'nobody else',
    async run(place, vin) {
      const [one, other, third] = ['A', 'B', 'C'].map((letter) => vin + letter) as [string, string, string]
      await place.set(third, { tariff: 'night', customer: 'c-3' })
      await place.eventually(async () => (await place.shown(third))?.facts, { tariff: 'night', customer: 'c-3' })
      // What is shown may not be stored yet. It is when the next message of the vehicle is handled.
      await say(place, third, { Level: 1 })
      await place.eventually(() => place.told(third, 'topic').length, 1)
      const table = [
        { vin: one, tariff: 'day' },
        { vin: other, tariff: 'night' },
      ]
      expect(await place.setAll(table)).toEqual({ told: 3 })
      await place.eventually(async () => (await place.shown(third))?.facts, { customer: 'c-3' })
      await place.eventually(async () => (await place.shown(one))?.facts, { tariff: 'day' })
      await place.eventually(async () => (await place.shown(other))?.facts, { tariff: 'night' })
      expect(await place.setAll(table)).toEqual({ told: 0 })
      expect(await place.setAll(table.slice(1))).toEqual({ told: 1 })
      await place.eventually(async () => (await place.shown(one))?.facts, {})
      expect(await place.setAll([], ['tariff'])).toEqual({ told: 1 })
      await place.eventually(async () => (await place.shown(other))?.facts, {})
    },
  },
  {
    name: 'what is no fact, no value or no time is refused, and says why',
    async run(place, vin) {
      const refused = (facts: Readonly<Record<string, unknown>>, times?: FactTimes): Promise<string> =>
        place.set(vin, facts, times).then(() => '', String)
      expect(await refused({ custmer: 'c-1' })).toContain('keeps no fact `custmer`')
      expect(await refused({ lowBattery: '20' })).toContain('was set to a text')
      expect(await refused({ booking: 'b' }, { from: 5, until: 5 })).toContain('not after `from`')
      expect(await place.shown(vin)).toBe(null)
    },
  },
  {
    name: 'a trip over the end of the day is told as two',
    async run(place, vin) {
      // The zone is one in which a day has just ended.
      await drive(place, vin, midnightBefore(place.startMs) - 4 * minute)
      await place.eventually(() => rowsOf(place.told(vin, 'day')), ['nobody 100-104', 'nobody 104-110'])
    },
  },
  {
    name: 'a trip that goes on over the end of the day is told as two, the first one by the clock',
    async run(place, vin, units) {
      await say(place, vin, { Gear: 'P', Miles: 100 }, place.now() - 20_000)
      await say(place, vin, { Gear: 'D', Miles: 101 }, place.now() - 10_000)
      await say(place, vin, { Miles: 102 })
      await place.pass(Math.max(0, nightAfter(place.startMs) - place.now()) + units(3))
      await place.eventually(() => rowsOf(place.told(vin, 'midnight')), ['nobody 101-102'])
      await say(place, vin, { Miles: 103 })
      await say(place, vin, { Gear: 'P', Miles: 104 })
      await place.eventually(() => rowsOf(place.told(vin, 'midnight')), ['nobody 101-102', 'nobody 102-104'])
    },
  },
  {
    name: '`hours` with a fact begin by themselves, for a parked vehicle too',
    async run(place, vin) {
      await say(place, vin, { Gear: 'P' })
      await place.set(vin, { tariff: 'night' })
      const begins = nightAfter(place.startMs)
      await place.pass(Math.max(0, begins - place.now()))
      await place.eventually(() => place.told(vin, 'night').map(({ at }) => at), [begins])
    },
  },
  {
    name: 'a fact that was acknowledged outlives its process, and so does what is planned',
    needs: 'crash',
    async run(place, vin, units) {
      await say(place, vin, { Level: 30 })
      await place.set(vin, { lowBattery: 10, customer: 'c-1' })
      const [from, until] = [place.now() + units(4), place.now() + units(8)]
      await place.set(vin, { lowBattery: 40 }, { from, until })
      await place.crash?.()
      await place.eventually(async () => (await place.shown(vin))?.facts['customer'], 'c-1')
      await place.pass(units(5))
      await place.eventually(() => new Set(place.told(vin, 'low').map(({ at }) => at)), new Set([from]))
      expect(new Set(place.told(vin, 'low').map(({ id }) => id)).size).toBe(1)
      await place.crash?.()
      await place.pass(units(4))
      await place.eventually(async () => (await place.shown(vin))?.facts, { lowBattery: 10, customer: 'c-1' })
      expect(new Set(texts(place.told(vin, 'customer')))).toEqual(new Set(['nobody > c-1']))
    },
  },
  {
    name: 'a fact whose message is given up unread holds, and its replay tells what it changed',
    needs: 'crash',
    async run(place, name) {
      const vin = `HANGS${name}`
      await place.set(vin, { customer: 'c-1' })
      // On a busy machine, a process can lose its vehicles to another one before it ends. That counts as its end.
      const told = (): number => place.told(vin, 'customer').length
      for (let before = 0; before < 3;) {
        await place.eventually(() => told() > before, true)
        before = told()
        await place.crash?.()
      }
      await place.eventually(() => place.dead(vin), 1)
      await place.eventually(async () => (await place.shown(vin))?.facts, { customer: 'c-1' })
      expect(place.told(vin, 'customer')).toHaveLength(3)
      await place.replay(vin)
      await place.eventually(() => place.told(vin, 'customer').length, 4)
      expect(new Set(place.told(vin, 'customer').map(({ id }) => id)).size).toBe(1)
      await place.eventually(() => place.dead(vin), 0)
    },
  },
  {
    name: '`forgetAfterMs` forgets the facts of a vehicle of which nothing comes, and what is said again keeps them',
    needs: 'forgetting',
    async run(place, vin) {
      const other = `${vin}B`
      await place.set(vin, { customer: 'c-1' })
      await place.set(other, { customer: 'c-2' })
      for (let second = 0; second < 8; second += 1) {
        await place.pass(15_000)
        await place.set(other, { customer: 'c-2' })
      }
      await place.eventually(() => place.shown(vin), null)
      expect((await place.shown(other))?.facts).toEqual({ customer: 'c-2' })
    },
  },
  {
    name: 'a branch has the facts that it declares, and ignores others',
    needs: 'branch',
    async run(place, vin, units) {
      await place.set(vin, { customer: 'c-1', lowBattery: 5 })
      await place.pass(units(1))
      await place.eventually(() => texts(place.told(vin, 'branch')), ['c-1 of customer'])
    },
  },
]

/** A little later than its start, so that a row is ready for it. */
const nightAfter = (startMs: number): number => Math.ceil((startMs + 30_000) / minute) * minute

/** A day has ended then, in some zone, at least eleven minutes ago. */
const midnightBefore = (startMs: number): number => Math.floor((startMs - 11 * minute) / (60 * minute)) * 60 * minute

function settingsAt(startMs: number, unitMs: number): FactsSettings {
  const hour = new Date(midnightBefore(startMs)).getUTCHours()
  const night = [nightAfter(startMs), nightAfter(startMs) + 3 * minute] as const
  const [from, until] = night.map((ms) => new Date(ms).toISOString().slice(11, 16))
  const zone = hour <= 12 ? `Etc/GMT+${hour}` : `Etc/GMT-${24 - hour}`
  return { unitSeconds: unitMs / 1_000, zone, night: [String(from), String(until)] }
}

/** A test for each row. */
export function factRows(where: string, options: PlacesOptions): void {
  const { unitMs, open, now, survives, isShared = false, onlyCrashes = false, keepsHandled = false } = options
  const units: Units = (count) => count * unitMs
  const runs = ({ needs }: Row): boolean =>
    needs === 'crash' ? survives : !onlyCrashes && (needs !== 'handled' || keepsHandled)
  const opened = (more: Partial<FactsSettings> = {}): Promise<FactsPlace> => {
    const startMs = now()
    return open({ ...settingsAt(startMs, unitMs), ...more }, startMs)
  }
  let shared: Promise<FactsPlace> | undefined
  const placeFor = async ({ needs }: Row): Promise<FactsPlace> => {
    if (needs === 'forgetting') return opened({ forgetAfterMs: 60_000 })
    if (needs === 'branch') return opened({ branch: true })
    return needs !== undefined || !isShared ? opened() : (shared ??= opened())
  }
  describe(where, { concurrent: isShared, timeout: 300_000 }, () => {
    test.each(rows.filter(runs).map((row) => [row.name, row] as const))('%s', async (_, row) => {
      const place = await placeFor(row)
      const vin = `0FLEETV14T${String(rows.indexOf(row)).padStart(7, '0')}`
      try {
        await row.run(place, vin, units)
      } finally {
        if (place !== (await shared)) await place[Symbol.asyncDispose]()
      }
    })
    afterAll(async () => {
      await (await shared)?.[Symbol.asyncDispose]()
    })
  })
}
