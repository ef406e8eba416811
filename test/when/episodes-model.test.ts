import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, memoryInbox, type Receiver, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { afterAll, expect, test } from 'vitest'
import type { Row as Figure } from '../faults/figures.ts'
import { few, form, inForm } from '../form.ts'
import { silent } from '../vehicles/scene.ts'
import {
  charge,
  type Disorder,
  fields,
  fleet,
  isSame,
  modelOf,
  type Plain,
  plainOf,
  trip,
  type Value,
} from './episodes-model.ts'
import { idle, pendingOf, type SteppingClock, steppingClock, untidied } from './stepping.ts'

const startMs = Date.UTC(2026, 10, 21, 6)
const minute = 60_000
const folder = mkdtempSync(join(tmpdir(), 'fleethook-episodes-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

interface Told extends Plain {
  readonly vin: string
  readonly name: string
  readonly isDeclared: boolean
  readonly acrossGap: boolean
}

interface Life {
  readonly receiver: Receiver
  readonly clock: SteppingClock
}

/** What was told in the end of each episode by its id, and the number of times something was told. */
interface Scene {
  readonly last: Map<string, Told | undefined>
  tellings: number
  readonly revisions: Map<string, number>
  readonly wrong: string[]
  /** When nobody listened. */
  readonly downs: (readonly [fromMs: number, toMs: number])[]
}

function live(scene: Scene, clock: SteppingClock, inbox: InboxFactory): Life {
  let receiver = createReceiver({
    ...{ secret: false, log: silent, inbox, clock },
    parts: [vehicles({ fields })],
  })
  for (const edge of [trip, charge])
    receiver = receiver.when(edge, ({ vin, change }) => {
      scene.tellings += 1
      const expected = (scene.revisions.get(change.id) ?? 0) + 1
      if (change.revision !== expected) scene.wrong.push(`${change.id}: ${change.revision} in place of ${expected}`)
      scene.revisions.set(change.id, change.revision)
      const isDeclared = change.acrossGap || change.cut || change.missing.length > 0
      scene.last.set(
        change.id,
        change.revoked
          ? undefined
          : { ...plainOf(change), vin, name: edge.name, isDeclared, acrossGap: change.acrossGap },
      )
    })
  return { receiver, clock }
}

/** Sends all values as they arrive. With `restarts`, the receiver stops each so many messages, and misses what arrives meanwhile. */
async function play(values: readonly Value[], restarts = 0): Promise<Scene & { readonly received: readonly Value[] }> {
  const scene: Scene = { last: new Map(), tellings: 0, revisions: new Map(), wrong: [], downs: [] }
  const clock = steppingClock(startMs)
  files += 1
  const path = join(folder, `${files}.db`)
  const begin = async (): Promise<Life> => {
    const begun = live(scene, clock, restarts === 0 ? memoryInbox() : untidied(sqliteInbox({ path })))
    await begun.receiver.open()
    return begun
  }
  let life = await begin()
  const answers: ReturnType<Receiver['accept']>[] = []
  const settled = async (): Promise<void> => {
    for (const { status } of await Promise.all(answers.splice(0))) expect(status).toBe(200)
    await idle(pendingOf(life.receiver))
  }
  const received: Value[] = []
  let sent = 0
  let downTo = 0
  for (let index = 0; index < values.length;) {
    const first = values[index]
    if (first === undefined) break
    let end = index + 1
    while (values[end]?.message === first.message) end += 1
    const some = values.slice(index, end)
    index = end
    if (first.arrivesMs < downTo) continue
    if (first.arrivesMs > clock.now()) await clock.advance(first.arrivesMs - clock.now(), settled)
    if (downTo > 0) {
      life = await begin()
      downTo = 0
    }
    received.push(...some)
    const data = Object.fromEntries(some.map(({ field, value }) => [field, value]))
    const body = { vin: first.vin, createdAt: new Date(first.sentMs).toISOString(), data }
    answers.push(life.receiver.accept({ authorization: undefined, body }))
    if (restarts === 0) await answers[0]
    sent += 1
    // Those that wait together are written together.
    if (sent % 16 === 0) await settled()
    if (restarts > 0 && sent % restarts === 0) {
      await settled()
      const drained = life.receiver.drain()
      await clock.advance(1_000, settled)
      await drained
      downTo = clock.now() + 1_000 + ((sent * 7_919) % 119_000)
      scene.downs.push([clock.now(), downTo])
    }
  }
  await settled()
  if (downTo > 0) life = await begin()
  // The timers of silences and corrections.
  for (let hour = 0; hour < 14; hour += 1) {
    await clock.advance(3_600_000, settled)
  }
  await life.receiver.drain()
  return { ...scene, received }
}

/** Whether a restart is no gap for a vehicle: its first message after it came as soon as the longest time that it lately had between two, and half. */
function goesOn(own: readonly Value[], [, to]: readonly [from: number, to: number]): boolean {
  const arrivals = [...new Set(own.map(({ arrivesMs }) => arrivesMs))].toSorted((one, other) => one - other)
  let pace = 0
  for (const [index, at] of arrivals.entries()) {
    const ms = at - (arrivals[index - 1] ?? -Infinity)
    if (at >= to) return ms <= Math.min(2 * minute, 1.5 * pace)
    // Each counts for ten times its length.
    if (ms <= 2 * minute) pace = Math.max(ms, pace - ms / 10)
  }
  return false
}

interface Outcome {
  episodes: number
  messages: number
  differ: number
  readonly undeclared: unknown[]
  tellings: number
}

function compared(scene: Awaited<ReturnType<typeof play>>): Outcome {
  const { received, last, tellings, wrong, downs } = scene
  const endMs = (received.at(-1)?.arrivesMs ?? 0) + 14 * 3_600_000
  const undeclared: unknown[] = [...wrong]
  let [episodes, differ] = [0, 0]
  for (const vin of new Set(received.map((value) => value.vin))) {
    const own = received.filter((value) => value.vin === vin)
    for (const which of ['trip', 'charge'] as const) {
      const expected = modelOf(which, own, endMs)
      const told = [...last.values()]
        .filter((one) => one?.vin === vin && one.name === which)
        .flatMap((one) => one ?? [])
      episodes += expected.length
      const left = new Set(told)
      for (const each of expected) {
        const same = told.find((one) => isSame(each, one))
        if (same !== undefined) {
          left.delete(same)
          // What it says may be right by chance.
          const isAcross = downs.some(
            (down) => each.start < down[0] - minute && each.end > down[1] + minute && !goesOn(own, down),
          )
          if (isAcross && !same.acrossGap) undeclared.push({ vin, which, acrossGap: same })
          continue
        }
        differ += 1
        const near = told.filter(({ start, end }) => start <= each.end && end >= each.start)
        if (!near.some(({ isDeclared }) => isDeclared)) undeclared.push({ vin, which, expected: each, told: near })
      }
      for (const extra of left) {
        if (expected.some(({ start, end }) => start <= extra.end && end >= extra.start)) continue
        differ += 1
        if (!extra.isDeclared) undeclared.push({ vin, which, told: extra })
      }
    }
  }
  return { episodes, messages: received.length, differ, undeclared, tellings }
}

interface Row {
  readonly name: string
  readonly disorder: Disorder
  readonly restarts?: number
}

const restarts = inForm({ short: 300, full: 4_000 } as const)
const shuffled = { shuffledMs: 60_000, lateMs: 600_000 } as const
/** The short form takes the first four: `test/faults/episodes` shows that these find what the others do. */
const rows: readonly Row[] = [
  { name: 'none', disorder: { together: true, twice: 0 } },
  { name: 'bursts after a hole', disorder: { holes: 0.4 } },
  { name: 'restarts, shuffled and late', disorder: shuffled, restarts },
  // The same message at two receipts has two times, where both are earlier than its own.
  { name: 'clocks that are fast by up to ten minutes', disorder: { clockMs: [0, 600_000], twice: 0 } },
  { name: 'fields in pieces', disorder: { twice: 0 } },
  { name: 'duplicates', disorder: { twice: 0.3 } },
  { name: 'shuffled by up to a minute', disorder: { shuffledMs: 60_000 } },
  { name: 'shuffled, and a tenth late by up to ten minutes', disorder: shuffled },
  { name: 'restarts', disorder: { shuffledMs: 2_000 }, restarts },
  { name: 'clocks that are slow by up to ten minutes', disorder: { clockMs: [-600_000, 0] } },
]

const [cars, activities, fleets] = inForm({ short: [8, 4, 1], full: [24, 36, 8] } as const)

const figures: Figure[] = []

test.each(few(rows, 4))(
  'episodes are those of a plain model, or say why not: $name',
  { timeout: 3_600_000 },
  async ({ name, disorder, restarts }) => {
    const found: Outcome = { episodes: 0, messages: 0, differ: 0, undeclared: [], tellings: 0 }
    for (let seed = 1; seed <= fleets; seed += 1) {
      const each = compared(await play(fleet(cars, activities, seed, disorder, startMs), restarts))
      for (const name of ['episodes', 'messages', 'differ', 'tellings'] as const) found[name] += each[name]
      found.undeclared.push(...each.undeclared)
    }
    const { undeclared, episodes, messages, differ, tellings } = found
    figures.push({
      disorder: name,
      ...{ messages, episodes, tellings },
      different: differ,
      'and does not say so': undeclared.length,
    })
    // All of them would take minutes to print.
    expect(undeclared.slice(0, 3)).toEqual([])
    expect(episodes).toBeGreaterThan(cars)
    // What comes too late for its place is declared, and rare.
    if (restarts === undefined) expect(differ).toBeLessThan(episodes * (disorder.holes === undefined ? 0.02 : 0.1))
  },
)

afterAll(async () => {
  if (form !== 'long') return
  const { writeFigures } = await import('../faults/figures.ts')
  await writeFigures({
    piece: 'episodes',
    title: 'Episodes of a fleet, against a plain model',
    file: 'test/when/episodes-model.test.ts',
    about: `${cars * fleets} vehicles drive and charge: trips of one to three legs, stops of five seconds to ten minutes, charges with pauses, some without one of the fields, each field in a message of its own unless the row says otherwise. 3 % of the messages come twice, and in 2 % of the hours a vehicle is out of reach for ten minutes to two hours: half of what it says then is lost, and half comes afterwards at once. The model computes all episodes from lists of all values, by the vehicle's time. Compared are start, end, pauses, both ends of each value, growth, range, the length of the path (within 30 m, or half a percent) and \`missing\`; of an episode that ended by silence, the start, the pauses and the end within a minute. Vehicles whose clocks are fast say nothing twice. Restarts: the receiver ends each four thousand messages, and misses what arrives in the two seconds to two minutes until the next one listens. Different: the last telling is another one than the model's. Those say \`acrossGap\`, \`cut\` or \`missing\`, unless they are in the last column.`,
    tables: [{ title: 'Rows', rows: figures }],
  })
})
