import fc from 'fast-check'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { message } from 'fleethook/testing'
import { all, becomes, below, heardAgain, is, silent, starts } from 'fleethook/when'
import { expect } from 'vitest'
import { silent as silentLog } from '../vehicles/scene.ts'
import { idle, steppingClock } from './stepping.ts'

/** Everything here is in seconds since this time. */
const startMs = Date.UTC(2026, 10, 21, 10)
const fields = ['Gear', 'BatteryLevel'] as const

/** `steppingClock` leaves out timers of exactly a second, so no two of these times may be that far apart. */
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

/** What a vehicle sends. */
interface Sent {
  readonly vin: string
  readonly at: number
  readonly gear: 'P' | 'D' | null | undefined
  readonly level: number | null | undefined
}

/** The receiver is away. What is sent then, and until it has read its port, waits there. */
interface Away {
  readonly from: number
  readonly to: number
  readonly readsAt: number
  /** `hanging`: a crash while the last message before it is being handled. */
  readonly ends: 'stop' | 'crash' | 'hanging'
}

export interface Fleet {
  readonly sent: readonly Sent[]
  readonly away: readonly Away[]
  readonly end: number
}

/** Where one receiver after another keeps its messages. */
export interface Place {
  /** The inbox of the next process. */
  next(): InboxFactory
  /** The process before is gone from now on, with all that it has in hand. */
  crash(): void | Promise<void>
  /** It knows of a gap, and tells what is due, some real time after its start. */
  readonly beginsLate?: true
  /** How many messages wait, where the receiver cannot say. */
  pending?(): Promise<number>
}

export const fleets: fc.Arbitrary<Fleet> = fc
  .record({
    sent: fc.array(
      fc.record({
        vin: fc.constantFrom('A', 'B', 'C'),
        wait: fc.integer({ min: 2, max: 40 }),
        gear: fc.constantFrom('P', 'P', 'D', null, undefined),
        level: fc.constantFrom(10, 30, 80, null, undefined),
      }),
      { minLength: 1, maxLength: 25 },
    ),
    away: fc.array(
      fc.record({
        wait: fc.integer({ min: 20, max: 200 }),
        lasts: fc.integer({ min: 2, max: 150 }),
        reads: fc.constantFrom(0.001, 0.001, 2.013, 4.517),
        ends: fc.constantFrom('stop', 'crash', 'hanging'),
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
    const times = away.map(({ wait, lasts, reads, ends }): Away => {
      const hangs = messages.findLast((one) => one.at < until + wait && one.at > until + 6)?.at
      const from = ends === 'hanging' && hangs !== undefined ? hangs + 0.0005 : until + wait + 0.5
      until += wait + lasts
      const to = until + 0.5
      return { from, to, readsAt: to + reads, ends: hangs === undefined && ends === 'hanging' ? 'crash' : ends }
    })
    return { sent: messages, away: times, end: Math.max(at, until) + 200 }
  })

/** What is received in the millisecond of a gap's end counts as before it, so no port is read in that of the start. */
const arrival = ({ at }: Sent, { away }: Fleet): number =>
  away.find(({ from, readsAt }) => at >= from && at < readsAt)?.readsAt ?? at

/** Null keeps the last one. */
const levelAt = (sent: readonly Sent[], vin: string, due: number): Sent | undefined =>
  sent.findLast((one) => one.vin === vin && typeof one.level === 'number' && one.at < due)

/** After a restart, a level from before it is uncertain. When it was not low, what depends on it may be told with the next one. */
function mayBeTold({ sent, away }: Fleet, vin: string, due: number): boolean {
  const { at: known = -Infinity, level } = levelAt(sent, vin, due) ?? {}
  return (level ?? 100) >= 50 && away.some(({ from }) => known < from && from < due)
}

/** All messages of a vehicle at once, in the order of its time. */
export function expected(all_: Fleet): readonly string[] {
  const found: string[] = []
  for (const vin of new Set(all_.sent.map((one) => one.vin))) {
    const own = all_.sent.filter((one) => one.vin === vin)
    const lasted = (
      name: string,
      seconds: number,
      isSo: (gear: string | undefined, level: number | undefined) => boolean,
      isTold = (_: number): boolean => true,
    ): void => {
      let since: number | undefined
      let [gear, charge]: [string | undefined, number | undefined] = [undefined, undefined]
      const over = (at: number): void => {
        if (since !== undefined && at >= since + seconds && isTold(since + seconds))
          found.push(`${vin} ${name} ${since}`)
        since = undefined
      }
      for (const one of own) {
        gear = one.gear ?? gear
        charge = one.level ?? charge
        if (!isSo(gear, charge)) over(one.at)
        else since ??= one.at
      }
      over(all_.end)
    }
    lasted('parked', after.parked, (gear) => gear === 'P')
    lasted('parkedLow', after.parkedLow, (gear, charge) => gear === 'P' && charge !== undefined && charge < 20)
    lasted(
      'parksHalf',
      after.parksHalf,
      (gear) => gear === 'P',
      (due) => (levelAt(own, vin, due)?.level ?? 100) < 50,
    )
    for (const [name, seconds, counts] of [
      ['lost', after.lost, () => true],
      ['noGear', after.noGear, ({ gear }: Sent) => gear !== undefined],
    ] as const) {
      const times = own.filter(counts).map((one) => arrival(one, all_))
      for (const [index, at] of times.entries()) {
        const next = times[index + 1]
        if ((next ?? all_.end) < at + seconds) continue
        found.push(`${vin} ${name} ${at}`)
        if (name === 'lost' && next !== undefined) found.push(`${vin} heard ${at} ${Math.round((next - at) * 1_000)}`)
      }
    }
  }
  return found.toSorted()
}

const seconds = (at: Date | number): number => (Number(at) - startMs) / 1_000

interface Life {
  readonly receiver: Receiver
  /** The next handler of a message never ends. */
  hang: (() => void) | undefined
  knowsGap: boolean
  isOver: boolean
}

/** What one receiver after another tells. */
export async function told(fleet: Fleet, place: Place): Promise<readonly string[]> {
  const { sent, away, end } = fleet
  const clock = steppingClock(startMs)
  const log = new Map<string, string>()
  const wrong: string[] = []
  /** By vehicle: the newest time of the messages whose handlers ran. */
  const newest = new Map<string, number>()
  const lives: Life[] = []
  const drains: Promise<unknown>[] = []
  const begin = async (): Promise<void> => {
    const tell = (id: string, vin: string, what: string, due: number, isByArrival = false): void => {
      if (life.isOver) return
      // A message that a crash left is handled again.
      const known = log.get(id)
      if (known !== undefined && known !== what) wrong.push(`${what} has the id of ${known}`)
      log.set(id, what)
      if (seconds(clock.now()) < due) wrong.push(`${what} early`)
      if (known === undefined && !isByArrival && (newest.get(vin) ?? 0) > due)
        wrong.push(`${what} after a message of ${newest.get(vin)}`)
    }
    const receiver = createReceiver({
      secret: false,
      clock,
      log: silentLog,
      inbox: place.next(),
      // These levels jump as no battery can.
      fields: { BatteryLevel: { number: {} } },
      parts: [vehicles({ fields })],
    })
      .on('data', ({ vin, at }) => {
        if (life.isOver) return undefined
        if (life.hang !== undefined) return new Promise(life.hang)
        newest.set(vin, Math.max(newest.get(vin) ?? 0, seconds(at)))
      })
      .on('gap', () => void (life.knowsGap = true))
      .when(parked, ({ id, vin, change }) =>
        tell(id, vin, `${vin} parked ${seconds(change.since)}`, seconds(change.dueAt)),
      )
      .when(parkedLow, ({ id, vin, change }) =>
        tell(id, vin, `${vin} parkedLow ${seconds(change.since)}`, seconds(change.dueAt)),
      )
      .when(
        parksHalf,
        ({ id, vin, change }) =>
          mayBeTold(fleet, vin, seconds(change.dueAt)) ||
          tell(id, vin, `${vin} parksHalf ${seconds(change.since)}`, seconds(change.dueAt)),
      )
      .when(lost, ({ id, vin, change }) =>
        tell(id, vin, `${vin} lost ${seconds(change.lastAt)}`, seconds(change.dueAt), true),
      )
      .when(noGear, ({ id, vin, change }) =>
        tell(id, vin, `${vin} noGear ${seconds(change.lastAt)}`, seconds(change.dueAt), true),
      )
      .when(heardAgain(lost), ({ id, vin, change }) =>
        tell(id, vin, `${vin} heard ${seconds(change.lastAt)} ${Math.round(change.silentMs)}`, 0, true),
      )
    const life: Life = { receiver, hang: undefined, knowsGap: false, isOver: false }
    lives.push(life)
    await receiver.open()
    if (place.beginsLate && lives.length > 1)
      await expect.poll(() => life.knowsGap, { interval: 1, timeout: 60_000 }).toBe(true)
  }
  const alive = (): Life => lives.at(-1) ?? expect.fail('No life began.')
  const quiet = async (): Promise<void> => {
    const { receiver } = alive()
    await idle(async () => receiver.stats().pending.messages + ((await place.pending?.()) ?? 0))
  }
  const pass = async (until: number): Promise<void> => {
    await clock.advance(Math.max(0, until - seconds(clock.now())) * 1_000, quiet)
  }
  const post = async ({ vin, at, gear, level }: Sent): Promise<void> => {
    const data = { ...(gear !== undefined && { Gear: gear }), ...(level !== undefined && { BatteryLevel: level }) }
    const body = message.data(data, { vin, createdAt: new Date(startMs + at * 1_000).toISOString() })
    expect((await alive().receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  const send = async (some: readonly Sent[]): Promise<void> => {
    const posts: Promise<void>[] = []
    for (const one of some) {
      posts.push(post(one))
      // The requests of a burst come one after another.
      await Promise.resolve()
    }
    await Promise.all(posts)
    await quiet()
  }
  const restart = async ({ to, readsAt, ends }: Away): Promise<void> => {
    const life = alive()
    if (ends === 'stop') await life.receiver.drain()
    else await place.crash()
    life.isOver = true
    if (ends !== 'stop') drains.push(life.receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 }))
    await clock.advance(Math.max(0, to - seconds(clock.now())) * 1_000, async () => {})
    await begin()
    await pass(readsAt)
  }
  await begin()
  const pauses = [...away]
  let next = 0
  for (;;) {
    const [one, pause] = [sent[next], pauses[0]]
    if (pause !== undefined && (one === undefined || one.at >= pause.from)) {
      pauses.shift()
      if (pause.ends !== 'hanging') await pass(pause.from)
      await restart(pause)
      const waited = sent.slice(next).filter(({ at }) => at < pause.readsAt)
      next += waited.length
      await send(waited)
    } else if (one === undefined) break
    else {
      next += 1
      await pass(one.at)
      if (pause?.ends === 'hanging' && (sent[next]?.at ?? Infinity) >= pause.from) {
        const hangs = new Promise<void>((resolve) => (alive().hang = resolve))
        await post(one)
        await hangs
      } else await send([one])
    }
  }
  await pass(end + 10)
  alive().isOver = true
  drains.push(alive().receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 }))
  const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1))
  let areDrained = false
  void Promise.all(drains).then(() => (areDrained = true))
  while (!areDrained) await clock.advance(10, turn).then(turn)
  expect(wrong).toEqual([])
  return [...log.values()].toSorted()
}
