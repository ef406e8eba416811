import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, memoryInbox, type Receiver, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock } from 'fleethook/testing'
import { afterAll, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { silent, unwatched } from '../vehicles/scene.ts'
import { charge, type Disorder, fields, fleet, isSame, modelOf, type Plain, plainOf, trip, type Value } from './episodes-model.ts' // prettier-ignore

const startMs = Date.UTC(2026, 10, 21, 6)
const folder = mkdtempSync(join(tmpdir(), 'fleethook-episodes-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

interface Told extends Plain {
  readonly vin: string
  readonly name: string
  readonly isDeclared: boolean
}

interface Life {
  readonly receiver: Receiver
  readonly clock: FakeClock
}

/** What was told in the end of each episode by its id, and how often something was told. */
interface Scene {
  readonly last: Map<string, Told | undefined>
  tellings: number
  readonly revisions: Map<string, number>
  readonly wrong: string[]
}

function live(scene: Scene, clock: FakeClock, inbox: InboxFactory): Life {
  let receiver = createReceiver({
    ...{ secret: false, log: silent, inbox, clock: unwatched(clock) },
    parts: [vehicles({ fields })],
  })
  for (const edge of [trip, charge])
    receiver = receiver.when(edge, ({ vin, change }) => {
      scene.tellings += 1
      const expected = (scene.revisions.get(change.id) ?? 0) + 1
      if (change.revision !== expected) scene.wrong.push(`${change.id}: ${change.revision} in place of ${expected}`)
      scene.revisions.set(change.id, change.revision)
      const isDeclared = change.acrossGap || change.cut || change.missing.length > 0
      scene.last.set(change.id, change.revoked ? undefined : { ...plainOf(change), vin, name: edge.name, isDeclared })
    })
  return { receiver, clock }
}

async function settled({ receiver, clock }: Life): Promise<void> {
  for (let turn = 0; turn < 10_000; turn += 1) {
    await clock.advance(0)
    if (receiver.stats().pending.messages === 0) return
    await new Promise((resolve) => setImmediate(resolve))
  }
  throw new Error('Messages are still pending.')
}

/** Sends all values as they arrive. With `restarts`, the receiver stops each so many messages, and misses what arrives meanwhile. */
async function play(values: readonly Value[], restarts = 0): Promise<Scene & { readonly received: readonly Value[] }> {
  const scene: Scene = { last: new Map(), tellings: 0, revisions: new Map(), wrong: [] }
  const clock = fakeClock(startMs)
  files += 1
  const path = join(folder, `${files}.db`)
  const begin = async (): Promise<Life> => {
    const begun = live(scene, clock, restarts === 0 ? memoryInbox() : sqliteInbox({ path }))
    await begun.receiver.open()
    return begun
  }
  let life = await begin()
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
    if (first.arrivesMs > clock.now()) await clock.advance(first.arrivesMs - clock.now())
    if (downTo > 0) {
      life = await begin()
      downTo = 0
    }
    received.push(...some)
    const data = Object.fromEntries(some.map(({ field, value }) => [field, value]))
    const body = { vin: first.vin, createdAt: new Date(first.sentMs).toISOString(), data }
    const { status } = await life.receiver.accept({ authorization: undefined, body })
    expect(status).toBe(200)
    sent += 1
    if (sent % 16 === 0) await settled(life)
    if (restarts > 0 && sent % restarts === 0) {
      await settled(life)
      const drained = life.receiver.drain()
      await clock.advance(1_000)
      await drained
      downTo = clock.now() + 1_000 + ((sent * 7_919) % 119_000)
    }
  }
  if (downTo > 0) life = await begin()
  // The timers of silences and corrections.
  for (let hour = 0; hour < 14; hour += 1) {
    await clock.advance(3_600_000)
    await settled(life)
  }
  await life.receiver.drain()
  return { ...scene, received }
}

interface Outcome {
  readonly episodes: number
  readonly messages: number
  readonly differ: number
  readonly undeclared: readonly unknown[]
  readonly tellings: number
}

function compared(scene: Awaited<ReturnType<typeof play>>, isWhole: boolean): Outcome {
  const { received, last, tellings, wrong } = scene
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
          continue
        }
        differ += 1
        const near = told.filter(({ start, end }) => start <= each.end && end >= each.start)
        if (isWhole || !near.some(({ isDeclared }) => isDeclared))
          undeclared.push({ vin, which, expected: each, told: near })
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

const shuffled = { shuffledMs: 60_000, lateMs: 600_000 } as const
const rows: readonly Row[] = [
  { name: 'none', disorder: { together: true, twice: 0 } },
  { name: 'fields in pieces', disorder: { twice: 0 } },
  { name: 'duplicates', disorder: { twice: 0.3 } },
  { name: 'shuffled by up to a minute', disorder: { shuffledMs: 60_000 } },
  { name: 'shuffled, and a tenth late by up to ten minutes', disorder: shuffled },
  { name: 'bursts after a hole', disorder: { holes: 0.4 } },
  { name: 'restarts', disorder: { shuffledMs: 2_000 }, restarts: 1_000 },
  { name: 'restarts, shuffled and late', disorder: shuffled, restarts: 1_000 },
  { name: 'clocks that are fast or slow', disorder: { clockMs: 600_000 } },
]

const [cars, activities] = inForm({ short: [24, 4], full: [300, 36] } as const)

test.concurrent.each(rows)('episodes are those of a plain model, or say why not: $name', { timeout: 3_600_000 }, async ({ disorder, restarts }) => {
  const values = fleet(cars, activities, 1, disorder, startMs)
  const outcome = compared(await play(values, restarts), restarts === undefined)
  expect(outcome.undeclared).toEqual([])
  expect(outcome.episodes).toBeGreaterThan(cars)
  if (restarts === undefined) expect(outcome.differ).toBe(0)
}) // prettier-ignore
