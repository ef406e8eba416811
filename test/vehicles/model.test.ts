import fc from 'fast-check'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import type { Change, Edge } from 'fleethook/when'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { cpSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { edgeOf, silent } from './scene.ts'
import { newFolder } from '../folder.ts'

const folder = newFolder('vehicles')

/** One message of a script, and what happens around it. */
interface Line {
  readonly vin: string
  readonly data: Readonly<Record<string, string | number | null>>
  /** How much earlier the vehicle sent it, in milliseconds. Negative: its clock is fast. */
  readonly agoMs: number
  /** Whether the vehicle sent it in the same millisecond as its last one. */
  readonly sameTime: boolean
  /** Whether the message comes twice. */
  readonly twice: boolean
  /** Whether the process crashes before the message, and another one continues. */
  readonly crash: boolean
  /** The time that passes after the message, in milliseconds. States may be written then. */
  readonly pauseMs: number
  /** Whether its handler fails in the last attempt, so that the message is a dead letter. */
  readonly dies: boolean
  /** Its handler runs until this number of messages have arrived after it, or the process ends. */
  readonly holds: number
}

const arbitraryLine: fc.Arbitrary<Line> = fc.record({
  vin: fc.constantFrom('A', 'B'),
  data: fc.record(
    {
      BatteryLevel: fc.option(fc.integer({ min: 0, max: 3 }), { nil: null }),
      Gear: fc.constantFrom('P', 'R', 'D', null),
      DestinationName: fc.constantFrom('Home', 'Work', null),
    },
    { requiredKeys: [] },
  ),
  agoMs: fc.constantFrom(0, 0, 300, 1_000, 5_000, 60_000, -50, -300, -3_000, -30_000, -60_000, -240_000),
  sameTime: fc.integer({ min: 0, max: 2 }).map((n) => n === 0),
  twice: fc.boolean(),
  crash: fc.integer({ min: 0, max: 2 }).map((n) => n === 0),
  pauseMs: fc.constantFrom(0, 10, 1_000, 6_000, 12_000),
  dies: fc.integer({ min: 0, max: 6 }).map((n) => n === 0),
  holds: fc.constantFrom(0, 0, 0, 1, 3),
})

const nullIsValue = 'DestinationName'

/** One message as its vehicle's clock and the receiver's saw it. */
interface Moment {
  readonly vin: string
  readonly saidMs: number
  readonly receivedMs: number
}

const isAhead = ({ saidMs, receivedMs }: Moment): boolean => saidMs > receivedMs

/** What was reported last of a field. */
interface Report {
  readonly value: unknown
  /** The last message with the field, and the last one in which it had a value. */
  readonly last: Moment
  readonly lastValue: Moment
}

/** How far a clock is ahead. Two clocks that are right differ by less than five seconds. */
const leadMs = ({ saidMs, receivedMs }: Moment): number => Math.max(0, saidMs - receivedMs)
const isWrong = (moment: Moment): boolean => leadMs(moment) > 5_000

/** It was not sent before this time. A clock that is ahead by a second is rather right, and then no message takes five seconds. */
const fromMs = (moment: Moment): number =>
  isAhead(moment) ? moment.receivedMs - (leadMs(moment) <= 1_000 ? 5_000 : 300_000) : moment.saidMs

/** Whether a message was certainly sent before the last report of a field. `past` are all messages before it, as they arrived. */
function isCertainlyOlder(late: Moment, { last, lastValue }: Report, past: readonly Moment[]): boolean {
  const ofVehicle = past.filter(({ vin }) => vin === late.vin)
  if (isWrong(late) && !isWrong(last)) {
    // It was ahead and was corrected, and this one was sent before that.
    const newest = ofVehicle
      .filter(isAhead)
      .reduce<Moment | undefined>((a, b) => (a && a.saidMs > b.saidMs ? a : b), undefined)
    if (newest !== undefined && newest.saidMs > late.saidMs)
      return ofVehicle.indexOf(newest) < ofVehicle.indexOf(lastValue)
  }
  const isCorrected = !isWrong(late) && leadMs(last) - leadMs(late) > 5_000
  // Both are by the same clock, so it decides.
  if (isAhead(last) === isAhead(late) && !isCorrected) return late.saidMs < last.saidMs
  if (!isAhead(last)) return false
  // The clock was corrected since then. It is right after five minutes, and the messages of a vehicle come in order.
  const before = ofVehicle.slice(0, ofVehicle.indexOf(last) + 1).map(fromMs)
  return !isAhead(late) && late.saidMs < Math.max(...before)
}

/** The plainest form of the promise: an arrival is newer, unless it was certainly sent before the last report of its field. */
function naiveFold(): (vin: string, data: Line['data'], saidMs: number, receivedMs: number) => string[] {
  const past: Moment[] = []
  const known = new Map<string, Report & { readonly isInvalid: boolean }>()
  return (vin, data, saidMs, receivedMs) => {
    const moment = { vin, saidMs, receivedMs }
    const changes: string[] = []
    for (const [field, value] of Object.entries(data)) {
      const before = known.get(`${vin} ${field}`)
      if (before !== undefined && isCertainlyOlder(moment, before, past)) continue
      if (value === null && field !== nullIsValue) {
        // It has had no value since the first such report.
        if (before !== undefined && !before.isInvalid)
          known.set(`${vin} ${field}`, { ...before, last: moment, isInvalid: true })
        continue
      }
      if (before !== undefined && before.value !== value)
        changes.push(`${field} ${JSON.stringify(before.value)}>${JSON.stringify(value)}`)
      known.set(`${vin} ${field}`, { value, last: moment, lastValue: moment, isInvalid: false })
    }
    past.push(moment)
    return changes
  }
}

/** One run of the handlers of a message. */
interface Run {
  readonly changes: string
  readonly edges: string[]
  /** The edge that counts happened. */
  isThird: boolean
  isDone: boolean
}

/** Every third change of the gear. It detects a message that was applied twice, or not at all. */
const thirdChange: Edge<Change> = {
  ...{ name: 'third change', fields: ['Gear'], reads: ['Gear'], topics: [] },
  detect({ changes, memory }) {
    const change = changes.find(({ field, first, invalid }) => field === 'Gear' && !first && !invalid)
    if (change === undefined) return undefined
    const count = Number(memory ?? 0) + 1
    return count % 3 === 0 ? { happened: change, memory: count } : { memory: count }
  },
  where: () => thirdChange,
}

/** A receiver with everything that it reported, over crashes. */
class Life {
  readonly clock: FakeClock
  /** The runs of each receipt, by the number that the message carries. */
  readonly told = new Map<number, Run[]>()
  /** The ids of each edge, by its number and field. */
  readonly ids = new Map<string, Set<string>>()
  /** The numbers in the order in which a vehicle first reported an edge. */
  readonly order = new Map<string, number[]>()
  receiver!: Receiver
  #path = ''
  #files = 0
  readonly #dying = new Set<number>()
  /** Running handlers, with the number of messages that they still wait for. */
  #held: { left: number; readonly release: () => void }[] = []
  readonly #holds = new Map<number, number>()
  readonly #durable: boolean

  constructor(durable: boolean) {
    this.clock = fakeClock()
    this.#durable = durable
  }

  async begin(): Promise<void> {
    const from = this.#path
    this.#files += 1
    // Its process is gone.
    this.#held = []
    this.#path = join(folder, `${Math.random()}-${this.#files}.db`)
    // A crashed process leaves the file and its journal as they are at this moment.
    for (const suffix of ['', '-wal']) if (existsSync(from + suffix)) cpSync(from + suffix, this.#path + suffix)
    const receiver = createReceiver({
      ...{ secret: false, clock: this.clock, log: silent, retry: { attempts: 1 } },
      parts: [vehicles({ fields: ['BatteryLevel', 'Gear', 'DestinationName'] })],
      ...(this.#durable ? { inbox: sqliteInbox({ path: this.#path }) } : {}),
    })
    receiver.observe({ failed: () => {} })
    const life = this.#files
    // A crashed process runs no handlers, even if the fake clock continues.
    const isGone = (): boolean => this.#files !== life
    receiver.on('data', (event, { changes }) => {
      if (isGone()) return undefined
      const number = Number(event.raw['number'])
      const run: Run = { changes: changes.map(shown).join(), edges: [], isThird: false, isDone: false }
      this.told.set(number, [...(this.told.get(number) ?? []), run])
      const left = this.#holds.get(number) ?? 0
      if (left === 0) {
        run.isDone = true
        return undefined
      }
      return new Promise<void>((resolve) => {
        const release = (): void => {
          run.isDone = true
          resolve()
        }
        this.#held.push({ left, release })
      })
    })
    for (const field of ['BatteryLevel', 'Gear', 'DestinationName'])
      receiver.when(edgeOf(field), ({ id, vin, change, event }) => {
        if (isGone()) return
        const number = Number(event.raw?.['number'])
        const ids = this.ids.get(`${number} ${field}`) ?? new Set()
        this.ids.set(`${number} ${field}`, ids.add(id))
        const seen = this.order.get(vin) ?? []
        if (!seen.includes(number)) seen.push(number)
        this.order.set(vin, seen)
        this.told.get(number)?.at(-1)?.edges.push(shown(change))
        if (this.#dying.has(number)) throw new Error('for the last time')
      })
    receiver.when(thirdChange, ({ event }) => {
      const run = this.told.get(Number(event.raw?.['number']))?.at(-1)
      if (!isGone() && run !== undefined) run.isThird = true
    })
    receiver.on('data', (event) => {
      if (isGone()) return
      if (this.#dying.has(Number(event.raw['number']))) throw new Error('for the last time')
    })
    this.receiver = receiver
    await receiver.open()
    await this.settled()
  }

  async send(line: Line, number: number, atMs: number): Promise<void> {
    if (line.dies) this.#dying.add(number)
    this.#holds.set(number, line.holds)
    const createdAt = new Date(atMs).toISOString()
    const body = { vin: line.vin, createdAt, data: line.data, number }
    await this.receiver.accept({ authorization: undefined, body })
    for (const held of this.#held) held.left -= 1
    this.#release((left) => left <= 0)
  }

  #release(isOver: (left: number) => boolean): void {
    const over = this.#held.filter(({ left }) => isOver(left))
    this.#held = this.#held.filter(({ left }) => !isOver(left))
    for (const { release } of over) release()
  }

  /** Resolves when no message waits. */
  async settled(): Promise<void> {
    this.#holds.clear()
    for (;;) {
      this.#release(() => true)
      await this.clock.advance(0)
      if (this.receiver.stats().pending.messages === 0) return
    }
  }

  async replayDead(): Promise<void> {
    this.#dying.clear()
    await this.receiver.deadLetters.replay({})
    await this.settled()
  }
}

const shown = ({ field, from, to }: Change): string => `${field} ${JSON.stringify(from)}>${JSON.stringify(to)}`

const script = fc.array(arbitraryLine, { minLength: 1, maxLength: 30 })

async function played(lines: readonly Line[], durable: boolean): Promise<void> {
  const life = new Life(durable)
  await life.begin()
  const fold = naiveFold()
  const expected: (readonly string[])[] = []
  const thirds: boolean[] = []
  const gearChanges = new Map<string, number>()
  const lastMs = new Map<string, number>()
  const vins: string[] = []
  for (const line of lines) {
    if (line.crash && durable) await life.begin()
    for (let time = 0; time < (line.twice ? 2 : 1); time += 1) {
      const number = expected.length
      const now = life.clock.now()
      const atMs = (line.sameTime ? lastMs.get(line.vin) : undefined) ?? now - line.agoMs
      lastMs.set(line.vin, Math.min(atMs, now))
      const changes = fold(line.vin, line.data, atMs, now)
      const isShift = changes.some((change) => change.startsWith('Gear'))
      const count = (gearChanges.get(line.vin) ?? 0) + (isShift ? 1 : 0)
      gearChanges.set(line.vin, count)
      expected.push(changes)
      thirds.push(isShift && count % 3 === 0)
      vins.push(line.vin)
      await life.send(line, number, atMs)
      await life.clock.advance(1)
    }
    await life.clock.advance(line.pauseMs)
    // Long enough for a commit, so that a crash comes before or after it.
    if (line.pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, 10))
    if (!durable) await life.settled()
  }
  await life.settled()
  await life.replayDead()
  for (const [number, changes] of expected.entries()) {
    const runs = life.told.get(number) ?? []
    const done = runs.filter(({ isDone }) => isDone)
    // Every change is in a run that completed, and no other change is reported.
    expect([number, done.some((run) => run.changes === changes.join())]).toEqual([number, true])
    for (const run of runs) expect([changes.join(), '']).toContain(run.changes)
    for (const run of done) expect(run.edges.join()).toBe(run.changes)
    for (const run of done)
      expect([number, run.isThird]).toEqual([number, thirds[number] === true && run.changes !== ''])
  }
  const ids = [...life.ids.values()].flatMap((each) => [...each])
  expect([ids.length, new Set(ids).size]).toEqual([life.ids.size, life.ids.size])
  for (const [vin, order] of life.order) {
    const first = expected.flatMap((changes, number) => (changes.length > 0 && vins[number] === vin ? [number] : []))
    expect(order).toEqual(first)
  }
}

const calm: Omit<Line, 'vin' | 'data'> = {
  ...{ agoMs: 0, sameTime: false, twice: false, crash: false, pauseMs: 1_000, dies: false, holds: 0 },
}

/** What crashes found. */
const crashes: [Line[]][] = [
  // A message that runs while its vehicle is written shows its change again.
  [
    [
      { ...calm, vin: 'A', data: { Gear: 'P' } },
      { ...calm, vin: 'A', data: { Gear: 'R' }, holds: 3, pauseMs: 12_000 },
      { ...calm, vin: 'B', data: { Gear: 'R' }, crash: true },
    ],
  ],
  // A message that is settled after newer ones were written is in the state.
  [
    [
      { ...calm, vin: 'A', data: { Gear: 'P' } },
      { ...calm, vin: 'A', data: { Gear: 'R' }, holds: 2 },
      { ...calm, vin: 'B', data: { Gear: 'R' }, pauseMs: 12_000 },
      { ...calm, vin: 'B', data: { Gear: 'P' }, pauseMs: 10 },
      { ...calm, vin: 'A', data: { Gear: 'D' }, crash: true },
    ],
  ],
]

/** A script of one vehicle: its gear, how far its clock is ahead, and the time that passes after the message. */
const gears = (...said: readonly (readonly [gear: string, aheadMs: number, thenMs: number])[]): [Line[]] => [
  said.map(([Gear, aheadMs, pauseMs]) => ({ ...calm, vin: 'A', data: { Gear }, agoMs: -aheadMs, pauseMs })),
]
const all = (names: string, aheadMs: number, thenMs: number): (readonly [string, number, number])[] =>
  [...names].map((gear) => [gear, aheadMs, thenMs])
/** Clocks that are ahead, all the time or until they are corrected. */
const clocks: [Line[]][] = [
  // Corrected within one upload, or after it. What was stamped before the correction comes late.
  gears(['R', -600_000, 100], ['P', 30_000, 20], ['D', -20_000, 20], ['P', -15_000, 20], ['D', -10_000, 20]),
  gears(['R', 25_000, 100], ['P', 30_000, 100], ['D', -200, 100], ['R', 26_000, 100]),
  // They keep their own order, however far they are ahead.
  gears(...all('PDPD', 240_000, 30_000), ['P', 195_000, 600_000], ['P', 240_000, 100]),
  ...[50, 500, 1_000, 240_000].map((ms) => gears(...all('RPDPD', ms, 1_500), ['P', ms, 20], ['R', ms - 40, 20])),
  gears(...all('RPDP', 120_000, 0)),
  // What is certainly older does not win.
  gears(['R', -300, 100], ['P', 30_000, 10], ['D', -5_000, 100], ['D', -60_000, 100], ['D', -3_600_000, 100]),
  gears(['P', 30_000, 100], ['D', -600_000, 100]),
  ...[50, 900].map((ms) =>
    gears(...all('RPD', ms, 1_000), ['P', ms - 10_000, 100], ['P', ms - 60_000, 100], ['P', ms - 240_000, 100]),
  ),
]

test('a message that the stored state includes is not applied to it again after a crash', async () => {
  await played(
    [
      { ...calm, vin: 'A', data: { Gear: 'P' } },
      { ...calm, vin: 'A', data: { Gear: 'R' }, holds: 3 },
      { ...calm, vin: 'B', data: { Gear: 'R' }, pauseMs: 12_000 },
      { ...calm, vin: 'A', data: { Gear: 'D' }, pauseMs: 0 },
      // This ends the handler of the second message. The state of A that is written then includes both messages.
      { ...calm, vin: 'A', data: { Gear: 'P' }, sameTime: true, pauseMs: 10 },
      { ...calm, vin: 'A', data: { Gear: 'R' }, crash: true },
      { ...calm, vin: 'A', data: { Gear: 'D' } },
      { ...calm, vin: 'A', data: { Gear: 'P' } },
    ],
    true,
  )
})

test('in memory, the reported changes of a script are those of a naive fold', async () => {
  await fc.assert(
    fc.asyncProperty(script, (lines) => played(lines, false)),
    { examples: clocks, numRuns: clocks.length + inForm({ short: 10, full: 60, long: 1_000 }) },
  )
}, 280_000)

test('in a file, no crash at any step loses a change, and none reports a change that did not happen', async () => {
  await fc.assert(
    fc.asyncProperty(script, (lines) => played(lines, true)),
    { examples: crashes, numRuns: crashes.length + inForm({ short: 10, full: 60, long: 1_000 }) },
  )
}, 280_000)
