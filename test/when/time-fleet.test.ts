import fc from 'fast-check'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, memoryInbox, type Receiver, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock, vehicle } from 'fleethook/testing'
import { all, becomes, below, heardAgain, is, silent, starts } from 'fleethook/when'
import { afterAll, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'

/** Everything here is in seconds since this time. */
const startMs = Date.UTC(2026, 10, 21, 10)
const fields = ['Gear', 'BatteryLevel'] as const

/** `unwatched` leaves out timers of exactly a second, so no two of these times may be that far apart. */
const after = { parked: 30.011, parkedLow: 45.123, parksHalf: 20.237, lost: 60.341, noGear: 90.453 } as const

const parked = starts(is('Gear', 'P'), { first: true }).after({ seconds: after.parked })
const parkedLow = starts(all(is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).after({
  seconds: after.parkedLow,
})
const parksHalf = becomes('Gear', 'P', { first: true })
  .after({ seconds: after.parksHalf })
  .where(below('BatteryLevel', 50))
const lost = silent({ seconds: after.lost })
const noGear = silent({ seconds: after.noGear }, { fields: ['Gear'] })

/** What a vehicle sends. The receiver is away in some times, and what was sent then waits at its port. */
interface Sent {
  readonly vin: string
  readonly at: number
  readonly gear: 'P' | 'D' | undefined
  readonly level: number | undefined
}

interface Fleet {
  readonly sent: readonly Sent[]
  /** The receiver ends at the first time, and begins again at the second. */
  readonly away: readonly (readonly [from: number, to: number, isCrash: boolean])[]
  readonly end: number
}

const fleet: fc.Arbitrary<Fleet> = fc
  .record({
    sent: fc.array(
      fc.record({
        vin: fc.constantFrom('A', 'B', 'C'),
        wait: fc.integer({ min: 2, max: 40 }),
        gear: fc.constantFrom('P', 'P', 'D', undefined),
        level: fc.constantFrom(10, 30, 80, undefined),
      }),
      { minLength: 1, maxLength: 25 },
    ),
    away: fc.array(
      fc.record({
        wait: fc.integer({ min: 20, max: 200 }),
        lasts: fc.integer({ min: 2, max: 150 }),
        isCrash: fc.boolean(),
      }),
      { maxLength: 2 },
    ),
  })
  .map(({ sent, away }) => {
    let at = 0
    const messages = sent.map(({ vin, wait, gear, level }): Sent => {
      at += wait
      return { vin, at: at + (vin === 'A' ? 0 : vin === 'B' ? 0.003 : 0.007), gear, level }
    })
    let until = 0
    const times = away.map(({ wait, lasts, isCrash }) => {
      const from = until + wait
      until = from + lasts
      return [from + 0.5, until + 0.5, isCrash] as const
    })
    return { sent: messages, away: times, end: Math.max(at, until) + 200 }
  })

/** A receiver begins a millisecond before what waits arrives: what is received in the millisecond of a gap's end counts as before it. */
const arrival = ({ at }: Sent, { away }: Fleet): number => {
  const begun = away.find(([from, to]) => at >= from && at < to)?.[1]
  return begun === undefined ? at : begun + 0.001
}

/** After a restart, a value from before it is uncertain: what depends on it waits for the next one, or is not told. So it is left out here. */
function isUncertain({ sent, away }: Fleet, vin: string, due: number): boolean {
  const known = sent.findLast((one) => one.vin === vin && one.level !== undefined && one.at < due)?.at ?? -Infinity
  return away.some(([from]) => known < from && from < due)
}

/** All messages of a vehicle at once, in the order of its time. */
function expected(all_: Fleet): readonly string[] {
  const found: string[] = []
  for (const vin of new Set(all_.sent.map((one) => one.vin))) {
    const own = all_.sent.filter((one) => one.vin === vin)
    const level = (at: number): number | undefined =>
      own.findLast((one) => one.level !== undefined && one.at < at)?.level
    const lasted = (name: string, seconds: number, isSo: (gear: string | undefined, level: number | undefined) => boolean, isTold = (_: number): boolean => true): void => {
      let since: number | undefined
      let [gear, charge]: [string | undefined, number | undefined] = [undefined, undefined]
      const over = (at: number): void => {
        if (since !== undefined && at >= since + seconds && isTold(since + seconds)) found.push(`${vin} ${name} ${since}`)
        since = undefined
      }
      for (const one of own) {
        gear = one.gear ?? gear
        charge = one.level ?? charge
        if (!isSo(gear, charge)) over(one.at)
        else since ??= one.at
      }
      over(all_.end)
    } // prettier-ignore
    lasted('parked', after.parked, (gear) => gear === 'P')
    lasted('parkedLow', after.parkedLow, (gear, charge) => gear === 'P' && charge !== undefined && charge < 20)
    lasted(
      'parksHalf',
      after.parksHalf,
      (gear) => gear === 'P',
      (due) => (level(due) ?? 100) < 50 && !isUncertain(all_, vin, due),
    )
    for (const [name, seconds, counts] of [['lost', after.lost, () => true], ['noGear', after.noGear, ({ gear }: Sent) => gear !== undefined]] as const) {
      const times = own.filter(counts).map((one) => arrival(one, all_))
      for (const [index, at] of times.entries()) {
        const next = times[index + 1]
        if ((next ?? all_.end) < at + seconds) continue
        found.push(`${vin} ${name} ${at}`)
        if (name === 'lost' && next !== undefined) found.push(`${vin} heard ${at} ${Math.round((next - at) * 1_000)}`)
      }
    } // prettier-ignore
  }
  return found.toSorted()
}

const folder = mkdtempSync(join(tmpdir(), 'fleethook-fleet-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

const seconds = (at: Date | number): number => (Number(at) - startMs) / 1_000

/** What one receiver after another tells. */
async function told({ sent, away, end }: Fleet, inbox: (path: string) => InboxFactory): Promise<readonly string[]> {
  const clock = fakeClock(startMs)
  const log = new Map<string, string>()
  const wrong: string[] = []
  /** By vehicle: the newest time of the messages whose handlers ran. */
  const newest = new Map<string, number>()
  let path = join(folder, `${(files += 1)}`)
  const begin = (): { receiver: Receiver; isOver: boolean } => {
    const life = { receiver: undefined as unknown as Receiver, isOver: false }
    const tell = (id: string, vin: string, what: string, due: number, isByArrival = false): void => {
      if (life.isOver) return
      if (log.has(id) && log.get(id) !== what) wrong.push(`${what} has the id of ${log.get(id)}`)
      log.set(id, what)
      if (seconds(clock.now()) < due) wrong.push(`${what} early`)
      if (!isByArrival && (newest.get(vin) ?? 0) > due) wrong.push(`${what} after a message of ${newest.get(vin)}`)
    }
    life.receiver = createReceiver({
      secret: false,
      clock: unwatched(clock),
      log: silentLog,
      inbox: inbox(path),
      parts: [vehicles({ fields })],
    })
      .on('data', ({ vin, at }) => void (life.isOver || newest.set(vin, Math.max(newest.get(vin) ?? 0, seconds(at)))))
      .when(parked, ({ id, vin, change }) => tell(id, vin, `${vin} parked ${seconds(change.since)}`, seconds(change.dueAt)))
      .when(parkedLow, ({ id, vin, change }) => tell(id, vin, `${vin} parkedLow ${seconds(change.since)}`, seconds(change.dueAt)))
      .when(parksHalf, ({ id, vin, change }) => isUncertain({ sent, away, end }, vin, seconds(change.dueAt)) || tell(id, vin, `${vin} parksHalf ${seconds(change.since)}`, seconds(change.dueAt)))
      .when(lost, ({ id, vin, change }) => tell(id, vin, `${vin} lost ${seconds(change.lastAt)}`, seconds(change.dueAt), true))
      .when(noGear, ({ id, vin, change }) => tell(id, vin, `${vin} noGear ${seconds(change.lastAt)}`, seconds(change.dueAt), true))
      .when(heardAgain(lost), ({ id, vin, change }) => tell(id, vin, `${vin} heard ${seconds(change.lastAt)} ${Math.round(change.silentMs)}`, 0, true))
    return life
  } // prettier-ignore
  const lives = [begin()]
  const quiet = async (): Promise<void> => {
    const { receiver } = lives.at(-1) ?? begin()
    await clock.advance(0)
    await expect.poll(() => receiver.stats().pending.messages, { interval: 1, timeout: 30_000 }).toBe(0)
  }
  const pass = async (until: number): Promise<void> => {
    while (seconds(clock.now()) < until) {
      await clock.advance(Math.min(5, until - seconds(clock.now())) * 1_000)
      await quiet()
    }
  }
  const send = async (some: readonly Sent[]): Promise<void> => {
    const { receiver } = lives.at(-1) ?? begin()
    for (const { vin, at, gear, level } of some) {
      const data = { ...(gear && { Gear: gear }), ...(level !== undefined && { BatteryLevel: level }) }
      void vehicle(receiver, vin).data(data, { createdAt: new Date(startMs + at * 1_000).toISOString() })
      // The requests of a burst come one after another.
      await Promise.resolve()
    }
    await quiet()
  }
  await lives[0]?.receiver.open()
  const pauses = away.map(([from, to, isCrash]) => ({ from, to, isCrash }))
  for (const [index, one] of sent.entries()) {
    for (let next = pauses[0]; next !== undefined && one.at >= next.from; next = pauses[0]) {
      const { from, to, isCrash } = next
      await pass(from)
      await restart(to, isCrash)
      await clock.advance(1)
      pauses.shift()
      await send(sent.slice(index).filter(({ at }) => at >= from && at < to))
    }
    if (sent.slice(0, index).some(({ at }) => at >= one.at) || away.some(([a, b]) => one.at >= a && one.at < b))
      continue
    await pass(one.at)
    await send([one])
  }
  for (const { from, to, isCrash } of pauses) {
    await pass(from)
    await restart(to, isCrash)
  }
  await pass(end + 10)
  for (const life of lives) life.isOver = true
  const drained = Promise.all(lives.map(({ receiver }) => receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 })))
  await clock.advance(1_000)
  await drained
  expect(wrong).toEqual([])
  return [...log.values()].toSorted()

  async function restart(to: number, isCrash: boolean): Promise<void> {
    const life = lives.at(-1)
    if (isCrash) {
      const copy = `${path}-copy`
      cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
      path = copy
    } else await life?.receiver.drain()
    if (life !== undefined) life.isOver = true
    await advance(clock, to)
    lives.push(begin())
    await lives.at(-1)?.receiver.open()
  }
}

const advance = (clock: FakeClock, to: number): Promise<void> =>
  clock.advance(Math.max(0, to - seconds(clock.now())) * 1_000)

test('every occurrence that all messages in the order of the vehicle show is told once, before newer messages, over restarts', { timeout: 600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fleet, async (one) => {
      expect(await told(one, (path) => sqliteInbox({ path: join(path, 'inbox.db') }))).toEqual(expected(one))
    }),
    { endOnFailure: true, numRuns: inForm({ short: 8, full: 30, long: 3_000 }) },
  )
}) // prettier-ignore

test('the same in memory, without restarts', { timeout: 600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fleet, async ({ sent, end }) => {
      const one = { sent, end, away: [] }
      expect(await told(one, () => memoryInbox())).toEqual(expected(one))
    }),
    { endOnFailure: true, numRuns: inForm({ short: 20, full: 200, long: 10_000 }) },
  )
})
