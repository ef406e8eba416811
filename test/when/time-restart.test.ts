import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type Receiver, type Vehicles, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { vehicle } from 'fleethook/testing'
import { is, type Lasted, starts } from 'fleethook/when'
import { afterAll, expect, test } from 'vitest'
import { silent } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000004'
const edge = starts(is('Gear', 'P')).after({ seconds: 1 })
const folder = mkdtempSync(join(tmpdir(), 'fleethook-time-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

interface Told {
  readonly id: string
  readonly change: Lasted
}

function receiverOf(
  path: string,
  told: Told[],
  isDone: Promise<void> = Promise.resolve(),
): Receiver & { readonly vehicles: Vehicles } {
  const inbox = sqliteInbox({ path: join(path, 'inbox.db') })
  return createReceiver({ secret: false, log: silent, inbox, parts: [vehicles({ fields: ['Gear'] })] })
    .on('data', () => undefined)
    .when(edge, ({ id, change }) => {
      told.push({ id, change })
      return isDone
    })
}

/** What a power cut would leave: the file as it is, without the end of the process. */
function copied(path: string): string {
  const copy = `${path}-after`
  cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
  return copy
}

async function parks(receiver: Receiver): Promise<void> {
  const car = vehicle(receiver, vin)
  const times = [2_000, 0].map((ago) => ({ createdAt: new Date(Date.now() - ago).toISOString() }))
  await car.data({ Gear: 'D' }, times[0])
  await car.data({ Gear: 'P' }, times[1])
}

const passed = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

test('a time that is up while nobody runs is told after the start, as late and across a gap', { timeout: 30_000 }, async () => {
  const path = join(folder, 'down')
  const before = receiverOf(path, [])
  await parks(before)
  const told: Told[] = []
  const after = receiverOf(copied(path), told)
  await passed(2_200)
  await after.open()
  await expect.poll(() => told.length).toBe(1)
  const [{ change }] = told as [Told]
  expect(change).toMatchObject({ late: true, acrossGap: true, at: change.dueAt })
  expect(change.dueAt.getTime() - change.since.getTime()).toBe(1_000)
  await Promise.all([before.drain(), after.drain()])
  expect(told).toHaveLength(1)
}) // prettier-ignore

test('a crash while its handler runs repeats it with the same id', { timeout: 30_000 }, async () => {
  const path = join(folder, 'crash')
  let done = (): void => {}
  const first: Told[] = []
  const before = receiverOf(path, first, new Promise((resolve) => (done = resolve)))
  await parks(before)
  await expect.poll(() => first.length, { timeout: 5_000 }).toBe(1)
  expect(first[0]?.change.late).toBe(false)
  const told: Told[] = []
  const after = receiverOf(copied(path), told)
  await after.open()
  await expect.poll(() => told.length).toBe(1)
  await passed(100)
  done()
  await Promise.all([before.drain(), after.drain()])
  expect(told.map(({ id }) => id)).toEqual(first.map(({ id }) => id))
})

test('a crash after it was told, and before the state is written, does not tell it under another id', { timeout: 30_000 }, async () => {
  const path = join(folder, 'told')
  const first: Told[] = []
  const before = receiverOf(path, first)
  await parks(before)
  await expect.poll(() => first.length, { timeout: 5_000 }).toBe(1)
  await passed(50)
  const told: Told[] = []
  const after = receiverOf(copied(path), told)
  await after.open()
  await passed(1_500)
  expect(await after.vehicles.get(vin)).toMatchObject({ timers: [] })
  await Promise.all([before.drain(), after.drain()])
  const [known] = first
  for (const { id } of told) expect(id).toBe(known?.id)
}) // prettier-ignore

test('a restart that is a stop keeps the timers', { timeout: 30_000 }, async () => {
  const path = join(folder, 'stop')
  const before = receiverOf(path, [])
  await parks(before)
  await before.drain()
  const told: Told[] = []
  const after = receiverOf(path, told)
  await after.open()
  await expect.poll(() => told.length, { timeout: 5_000 }).toBe(1)
  await after.drain()
})
