import fc from 'fast-check'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, memoryInbox, type Receiver, type Vehicles, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock, vehicle } from 'fleethook/testing'
import { all, below, heardAgain, is, type Lasted, silent, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'
import { newFolder } from '../folder.ts'
import { idle, pendingOf } from './stepping.ts'

const vin = '0FLEETV14T0000004'
const startMs = Date.UTC(2026, 10, 21, 10)
/** All times here are counts of steps. */
const stepMs = 2_500
/** How long the receiver waits for messages that come late, and for those at its port after a start. */
const quiet = 2
const parkedLow = starts(all(is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).after({ seconds: 75 })
/** The level counts for this number of steps. */
const freshFor = 20
const fresh = starts(all(is('Gear', 'P'), below('BatteryLevel', 20, { freshFor: { seconds: 50 } })), {
  first: true,
}).after({ seconds: 75 })
const lost = silent({ seconds: 150 })

/** A message, and what happens before it. */
interface Line {
  readonly data: { readonly Gear?: 'P' | 'D' | null; readonly BatteryLevel?: number | null }
  /** The steps that pass before it. */
  readonly wait: number
  /** How many steps earlier the vehicle sent it. */
  readonly ago: number
  /** The process ends before the message, and another one begins after this number of steps. */
  readonly down: number | undefined
  /** It ends by a crash, while the first handler that was called since the message before this one still runs. */
  readonly isCrash: boolean
  /** The clock is set forward or back by this number of steps, and at the next message it is right again. */
  readonly jump: number
}

/** What a handler was told. How it was marked is open when the process crashed meanwhile: before the mark, or after it. */
interface Told {
  readonly what: string
  readonly marks?: string
}

const arbitraryLine = (jumps: fc.Arbitrary<number>, ago: fc.Arbitrary<number>): fc.Arbitrary<Line> =>
  fc.record({
    data: fc.record(
      { Gear: fc.constantFrom('P', 'P', 'D', null), BatteryLevel: fc.constantFrom(10, 15, 30, null) },
      { requiredKeys: [] },
    ),
    wait: fc.integer({ min: 1, max: 50 }),
    ago,
    down: fc.option(fc.integer({ min: 1, max: 90 }), { freq: 4, nil: undefined }),
    isCrash: fc.boolean(),
    jump: jumps,
  })

/** What is known of a field. Null changes nothing of it. */
interface Known {
  readonly value: unknown
  readonly at: number
  readonly since: number
  /** No gap came after it was reported. */
  readonly isCertain: boolean
}

/** Something that lasts, until it is over. `due` is missing when it was told, or is interrupted because a value got too old. */
interface Lasting {
  readonly since: number
  readonly due?: number | undefined
  readonly acrossGap: boolean
  readonly isTold?: boolean
}

/** A rule about being parked and low for 30 steps. */
interface Rule {
  readonly name: string
  /** How long the level counts without a report. */
  readonly freshFor: number
  /** What was true when it was last known. */
  was: boolean
  lasting: Lasting | undefined
}

interface Late {
  readonly steps: number
  readonly at: number
  readonly slow: number | undefined
}

function wake(due: number, lag: Late | undefined): number {
  if (lag === undefined) return due
  const { steps, at, slow = 0 } = lag
  return steps === slow || steps <= quiet ? due + steps : Math.max(due + slow, at + quiet)
}

/** Takes back what a restart made uncertain, when the vehicle goes on as before. */
class Restarts {
  /** The longest time between two messages, which counts for ten times its length. */
  #paceMs = 0
  #lastAt = -Infinity
  #takeBack: ((told: number) => boolean | undefined) | undefined

  /** A restart, before it makes something uncertain. `told`: so many were told. */
  begin(known: Map<string, Known>, rules: readonly Rule[], told: number, isSilenceAcross: boolean): void {
    const [fields, lasting] = [[...known], rules.map((rule) => rule.lasting)]
    this.#takeBack = (toldNow) => {
      // What was told since has marked what lasts.
      if (toldNow > told) return undefined
      for (const [name, field] of fields) known.set(name, field)
      for (const [index, rule] of rules.entries()) rule.lasting = lasting[index]
      return isSilenceAcross
    }
  }

  /** Returns whether the silence was across a gap before, when the restart is none. */
  heard(now: number, told: number): boolean | undefined {
    const silentMs = (now - this.#lastAt) * stepMs
    const isAsBefore = silentMs <= Math.min(120_000, 1.5 * this.#paceMs)
    const before = isAsBefore ? this.#takeBack?.(told) : undefined
    this.#takeBack = undefined
    this.#lastAt = now
    if (silentMs <= 120_000) this.#paceMs = Math.max(silentMs, Math.round(this.#paceMs - silentMs / 10))
    return before
  }
}

/** A loop over all steps: what is true in each of them, by all messages that were received. */
function model(lines: readonly Line[], end: number): readonly Told[] {
  const found: Told[] = []
  let now = 0
  const known = new Map<string, Known>()
  const rules: readonly Rule[] = [
    { name: 'lasted', freshFor: Infinity, was: false, lasting: undefined },
    { name: 'fresh', freshFor, was: false, lasting: undefined },
  ]
  let lastAt: number | undefined
  /** When the vehicle sent its last message. */
  let heardAt = 0
  let isSilent = false
  let isSilenceAcross = false
  /** How late the last message came, when, and how slow the vehicle's clock is. */
  let lag: Late | undefined
  /** After a start, nothing is told before this step, but what a message tells. */
  let holdTo = 0
  const restarts = new Restarts()

  const silentAt = (): number => (lastAt === undefined || isSilent ? Infinity : lastAt + 60)

  /** Parked and low at a moment of the vehicle, or neither that nor the opposite. */
  const truth = (maxAge: number, moment: number): boolean | undefined => {
    const [gear, level] = ['Gear', 'BatteryLevel'].map((name) => known.get(name))
    const charge = level === undefined || moment - level.at > maxAge ? undefined : level.value
    if ((gear !== undefined && gear.value !== 'P') || (charge !== undefined && Number(charge) >= 20)) return false
    return gear === undefined || charge === undefined ? undefined : true
  }
  const tell = (what: string, isMarked: boolean, due: number, acrossGap: boolean, more = ''): void => {
    const marks = `${now > due ? ' late' : ''}${acrossGap ? ' across' : ''}${more}`
    found.push(isMarked ? { what, marks } : { what })
  }
  const tellLasting = (rule: Rule, isMarked: boolean): void => {
    const { lasting, name, freshFor: most } = rule
    if (lasting?.due === undefined) return
    const { since, due, acrossGap } = lasting
    if (truth(most, due) === true) {
      const unheard = Math.min(Math.max(due - heardAt, 0), 30)
      tell(`${name} ${since}`, isMarked, due, acrossGap, ` unheard ${unheard}`)
      rule.lasting = { since, acrossGap, isTold: true }
    } else rule.lasting = { since, acrossGap }
  }
  const tellSilence = (isMarked: boolean): void => {
    if (now < silentAt()) return
    tell(`silent ${lastAt}`, isMarked, silentAt(), isSilenceAcross)
    isSilent = true
  }
  /** All that is due, in the order of its times. */
  const tellDue = (isDue: (due: number) => boolean, isMarked: boolean): void => {
    const dues = rules.flatMap((rule) => (rule.lasting?.due !== undefined && isDue(rule.lasting.due) ? [rule] : []))
    const silence = silentAt()
    for (const rule of dues.toSorted((one, other) => (one.lasting?.due ?? 0) - (other.lasting?.due ?? 0))) {
      if (silence < (rule.lasting?.due ?? 0)) tellSilence(isMarked)
      tellLasting(rule, isMarked)
    }
    tellSilence(isMarked)
  }
  const pass = (to: number, isUp: boolean, isMarked: boolean): void => {
    for (; now <= to; now += 1) if (isUp && now >= holdTo) tellDue((due) => now >= wake(due, lag), isMarked)
    now = to
  }
  const gap = (): void => {
    restarts.begin(known, rules, found.length, isSilenceAcross)
    for (const [name, field] of known) known.set(name, { ...field, isCertain: false })
    for (const rule of rules) if (rule.lasting !== undefined) rule.lasting = { ...rule.lasting, acrossGap: true }
    isSilenceAcross = true
  }
  const decide = (rule: Rule, at: number, wasTrue: boolean | undefined, wasUncertain: boolean): void => {
    const { lasting, freshFor: most } = rule
    const isTrue = truth(most, at)
    const hasStarted = isTrue === true && !rule.was
    rule.was = isTrue ?? rule.was
    if (isTrue === false) rule.lasting = undefined
    const isOn = lasting !== undefined && (lasting.isTold === true || (lasting.due !== undefined && wasTrue === true))
    if (isTrue === undefined && lasting !== undefined && lasting.isTold !== true)
      rule.lasting = { since: lasting.since, acrossGap: lasting.acrossGap }
    if (isTrue !== true || (!hasStarted && (lasting === undefined || isOn))) return
    const since = Math.max(at, known.get('Gear')?.since ?? 0, known.get('BatteryLevel')?.since ?? 0)
    rule.lasting = { since, due: since + 30, acrossGap: hasStarted ? wasUncertain : lasting?.acrossGap === true }
  }
  const receive = (data: Line['data'], at: number): void => {
    isSilenceAcross = restarts.heard(now, found.length) ?? isSilenceAcross
    tellDue((due) => due <= at, true)
    const late = now - at
    const { slow } = lag ?? {}
    const isSlow = late === slow || (lag !== undefined && lag.steps === late && now - lag.at >= quiet)
    const before = slow !== undefined && late < slow ? undefined : slow
    lag = late === 0 ? undefined : { steps: late, at: now, slow: isSlow ? late : before }
    heardAt = at
    const wasUncertain = [...known.values()].some(({ isCertain }) => !isCertain)
    const wasTrue = rules.map((rule) => truth(rule.freshFor, at))
    for (const [name, value] of Object.entries(data)) {
      const before = known.get(name)
      if (value === null || (before !== undefined && at < before.at)) continue
      const isSame = before !== undefined && before.value === value
      known.set(name, { value, at, since: isSame ? before.since : at, isCertain: true })
    }
    for (const [index, rule] of rules.entries()) decide(rule, at, wasTrue[index], wasUncertain)
    if (isSilent) tell(`heard ${lastAt} ${now - (lastAt ?? 0)}`, true, now, isSilenceAcross)
    isSilent = false
    isSilenceAcross = false
    lastAt = now
  }
  for (const line of lines) {
    const { data, wait, ago, down } = line
    pass(now + wait, true, !isCrash(line))
    if (down !== undefined) {
      pass(now + down, false, true)
      holdTo = now + quiet
      gap()
      pass(now + 1, true, true)
    }
    receive(data, Math.max(0, now - (isCrash(line) ? 0 : ago)))
  }
  pass(end, true, true)
  return found
}

const folder = newFolder('time-model')
let files = 0

/** One life of the receiver. */
interface Life {
  readonly receiver: Receiver & { readonly vehicles: Vehicles }
  /** The next handler that is called tells what it is told, and never ends. */
  isStuck: boolean
  /** Resolves when that handler is called. */
  readonly stuck: Promise<void>
  /** The process is no longer there. */
  isOver: boolean
}

interface Scene {
  readonly clock: FakeClock
  /** By id: what is told again with the same id is the same. */
  readonly told: Map<string, Told>
  readonly early: string[]
  /** How far ahead of the clock the time of day is that the receiver gets, in milliseconds. */
  jumpMs: number
}

const createScene = (): Scene => ({ clock: fakeClock(startMs), told: new Map(), early: [], jumpMs: 0 })

function createLife(scene: Scene, inbox: InboxFactory): Life {
  const { clock, early } = scene
  const { promise: stuck, resolve: stick } = Promise.withResolvers<void>()
  const steps = (at: Date | number): number => (Number(at) - startMs) / stepMs
  const tell = (id: string, due: number, given: Told): unknown => {
    if (life.isOver) return undefined
    if (steps(clock.now()) < due) early.push(`${given.what} at ${steps(clock.now())}`)
    if (!scene.told.has(id)) scene.told.set(id, given)
    if (!life.isStuck) return undefined
    stick()
    return new Promise(() => {})
  }
  const marks = ({ late = false, acrossGap }: { late?: boolean; acrossGap: boolean }): string =>
    `${late ? ' late' : ''}${acrossGap ? ' across' : ''}`
  const lastedMarks = (change: Lasted): string => `${marks(change)} unheard ${change.unheardMs / stepMs}`
  const receiver = createReceiver({
    secret: false,
    clock: { ...unwatched(clock), now: () => clock.now() + scene.jumpMs, elapsedMs: () => clock.now() },
    log: silentLog,
    inbox,
    // These levels jump as no battery can.
    fields: { BatteryLevel: { number: {} } },
    parts: [vehicles({ fields: ['Gear', 'BatteryLevel'] })],
  })
    .when(parkedLow, ({ id, change }) =>
      tell(id, steps(change.since) + 30, { what: `lasted ${steps(change.since)}`, marks: lastedMarks(change) }),
    )
    .when(fresh, ({ id, change }) =>
      tell(id, steps(change.since) + 30, { what: `fresh ${steps(change.since)}`, marks: lastedMarks(change) }),
    )
    .when(lost, ({ id, change }) =>
      tell(id, steps(change.lastAt) + 60, { what: `silent ${steps(change.lastAt)}`, marks: marks(change) }),
    )
    .when(heardAgain(lost), ({ id, change }) =>
      tell(id, 0, { what: `heard ${steps(change.lastAt)} ${change.silentMs / stepMs}`, marks: marks(change) }),
    )
  const life: Life = { receiver, isStuck: false, stuck, isOver: false }
  return life
}

/** Lets the time pass, and waits in each step until all is handled: a file needs some of the real time. */
async function pass({ receiver }: Life, clock: FakeClock, steps: number): Promise<void> {
  for (let left = steps; ; left -= 1) {
    await clock.advance(0)
    await idle(pendingOf(receiver))
    if (left <= 0) return
    await clock.advance(stepMs)
  }
}

/** The same by a receiver with a file. Another process goes on with that file, or with a copy of it as it was at a crash. */
async function receive(lines: readonly Line[], end: number): Promise<Scene> {
  const scene = createScene()
  const { clock } = scene
  files += 1
  let path = join(folder, `${files}`)
  const begin = async (): Promise<Life> => {
    const life = createLife(scene, sqliteInbox({ path: join(path, 'inbox.db') }))
    await life.receiver.open()
    return life
  }
  const lives = [await begin()]
  for (const [index, line] of lines.entries()) {
    const { data, wait, ago: sentBefore, down } = line
    // A late message after a crash can say otherwise of what may have been told.
    const ago = isCrash(line) ? 0 : sentBefore
    let life = last(lives)
    if (life.isStuck) await clock.advance(wait * stepMs)
    else await pass(life, clock, wait)
    if (down !== undefined) {
      if (isCrash(line)) {
        const copy = `${path}-${index}`
        cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
        path = copy
      } else await life.receiver.drain()
      life.isOver = true
      await clock.advance(down * stepMs)
      lives.push((life = await begin()))
      await pass(life, clock, 1)
    }
    life.isStuck = isCrash(lines[index + 1])
    const createdAt = new Date(Math.max(startMs, clock.now() - ago * stepMs)).toISOString()
    await Promise.race([vehicle(life.receiver, vin).data(data, { createdAt }), life.stuck])
  }
  await pass(last(lives), clock, end - (clock.now() - startMs) / stepMs)
  for (const life of lives) life.isOver = true
  const drained = Promise.all(lives.map(({ receiver }) => receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 })))
  await clock.advance(1_000)
  await drained
  return scene
}

const last = (lives: readonly Life[]): Life => {
  const life = lives.at(-1)
  if (life === undefined) throw new Error('No life began.')
  return life
}

const isCrash = (line: Line | undefined): boolean => line?.isCrash === true && line.down !== undefined

const numRuns = inForm({ short: 6, full: 40, long: 5_000 })
const late = fc.constantFrom(0, 0, 0, 5, 20, 60)

test(
  'the receiver tells what a loop over all steps tells, with late messages, gaps, stops and crashes',
  { timeout: 600_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(arbitraryLine(fc.constant(0), late), { minLength: 1, maxLength: 10 }),
        async (lines) => {
          const end = lines.reduce((sum, { wait, down = 0 }) => sum + wait + down + 1, 0) + 100
          const { told, early } = await receive(lines, end)
          expect(early).toEqual([])
          const expected = model(lines, end)
          const isOpen = new Set(expected.flatMap(({ what, marks }) => (marks === undefined ? [what] : [])))
          expect([...told.values()].map(({ what, marks }) => (isOpen.has(what) ? { what } : { what, marks }))).toEqual(
            expected,
          )
        },
      ),
      {
        numRuns,
        examples: [
          [
            [
              { data: { Gear: 'P', BatteryLevel: 10 }, wait: 1, ago: 0, down: undefined, isCrash: false, jump: 0 },
              { data: { Gear: null }, wait: 1, ago: 0, down: 1, isCrash: false, jump: 0 },
              { data: { Gear: 'P' }, wait: 1, ago: 0, down: undefined, isCrash: false, jump: 0 },
              { data: {}, wait: 1, ago: 0, down: undefined, isCrash: false, jump: 0 },
            ],
          ],
        ],
      },
    )
  },
)

test('nothing happens early while the clock jumps', { timeout: 600_000 }, async () => {
  const jumps = fc.constantFrom(0, 0, -120, -10, 10, 120, 1_440)
  await fc.assert(
    fc.asyncProperty(fc.array(arbitraryLine(jumps, fc.constant(0)), { minLength: 1, maxLength: 10 }), async (lines) => {
      const scene = createScene()
      const { clock, early } = scene
      const { receiver } = createLife(scene, memoryInbox())
      const car = vehicle(receiver, vin)
      for (const { data, wait, jump } of lines) {
        scene.jumpMs = jump * stepMs
        await clock.advance(wait * stepMs)
        scene.jumpMs = 0
        await car.data(data, { createdAt: new Date(clock.now()).toISOString() })
      }
      await clock.advance(100 * stepMs)
      await receiver.drain()
      expect(early).toEqual([])
    }),
    { numRuns },
  )
})
