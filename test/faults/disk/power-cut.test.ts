import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { type Found, underLoad, type Victim } from '../kills/kills.ts'
import { pause } from '../kills/victims.ts'
import { type RunLine, runsOf } from '../process/journal.ts'
import { createSite, idle } from '../process/start.ts'
import { DatabaseSync } from 'node:sqlite'
import { spawnTarget, type Target } from '../../conformance/spawn.ts'
import { programCommand } from '../../runtimes/targets.ts'
import { native } from './native.ts'
import { createVolume, noVolumes, type Volume } from './volume.ts'

/*
 * kill -9 proves little: everything that the process wrote is in the kernel's memory and survives. So the test cuts the power: it
 * ends the inbox's file system, which writes nothing more, not even its own log, and mounts it again. The sender counts the
 * acknowledgments, outside of that file system.
 */
const vins = Array.from({ length: 32 }, (_, n) => `V${n}`)
const rows: Row[] = []

/** What is ended with its file system. `start` starts it, `read` reads what the next one finds. */
function onVolume(volume: Volume, start: () => Promise<Target>, read: () => Promise<readonly RunLine[]>): Victim {
  let target: Target | undefined
  let found: readonly RunLine[] = []
  return {
    async begin() {
      target = await start()
      return target.url
    },
    async strike() {
      await pause(Math.random() * 400)
      target?.kill('SIGSTOP')
      volume.cutPower()
      target?.kill('SIGKILL')
      await target?.exited
    },
    async finish() {
      await volume.mountAgain()
      found = await read()
    },
    runs: () => found,
    dead: () => new Set(),
    async [Symbol.asyncDispose]() {
      await target?.stop('SIGKILL')
    },
  }
}

/** One power cut while messages arrive and no handler ends. Then the next receiver handles everything. */
async function cut(runtime: 'node24' | 'bun' | 'deno', thread: boolean, lying: boolean): Promise<Found> {
  using volume = createVolume(256)
  const site = createSite(runtime, { handlerMs: 0, inbox: { thread } }, volume.folder)
  const fault = join(volume.folder, '..', 'fault')
  if (lying) writeFileSync(fault, 'lie')
  const disk = typeof native === 'string' || !lying ? {} : { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: fault }
  async function read(): Promise<readonly RunLine[]> {
    await using next = await site.start()
    await idle(next)
    await next.stop()
    return site.journal().runs
  }
  await using victim = onVolume(volume, () => site.start({ holds: true }, disk), read)
  return await underLoad(victim, { vins, rounds: 1, acksBefore: 150 })
}

/** The same with a handwritten route. `lost` are acknowledged messages that are not in its table. */
async function cutByHand(synchronous: string): Promise<Found> {
  using volume = createVolume(256)
  const database = join(volume.folder, 'by-hand.db')
  const program = join(import.meta.dirname, 'by-hand.ts')
  const command = programCommand('node24', program, { DATABASE: database, SYNCHRONOUS: synchronous })
  await using victim = onVolume(
    volume,
    () => spawnTarget(command),
    async () => storedByHand(database),
  )
  return await underLoad(victim, { vins, rounds: 1, acksBefore: 400 })
}

/** The messages in the table after the cut. Empty when not even the table was on the disk. */
function storedByHand(path: string): readonly RunLine[] {
  const db = new DatabaseSync(path)
  try {
    const text = "SELECT body ->> 'vin' AS vin, body ->> '$.data.Odometer' AS number FROM messages"
    const tables = db.prepare("SELECT name FROM sqlite_schema WHERE name = 'messages'").all()
    const rows = tables.length === 0 ? [] : db.prepare(text).all()
    return runsOf(rows)
  } finally {
    db.close()
  }
}

const subjects = inForm<readonly { runtime: 'node24' | 'bun' | 'deno'; thread: boolean; rounds: number }[]>({
  full: [{ runtime: 'node24', thread: false, rounds: 1 }],
  long: [
    { runtime: 'node24', thread: false, rounds: 20 },
    { runtime: 'node24', thread: true, rounds: 20 },
    { runtime: 'bun', thread: false, rounds: 20 },
    { runtime: 'deno', thread: false, rounds: 20 },
  ],
})

describe.skipIf(noVolumes !== undefined)('a power cut', () => {
  test.each(subjects)(
    'loses no acknowledged message and no order of a vehicle: $runtime, thread: $thread, $rounds times',
    async ({ runtime, thread, rounds }) => {
      let [acknowledged, lost] = [0, 0]
      for (let round = 0; round < rounds; round++) {
        const result = await cut(runtime, thread, false)
        expect(result).toMatchObject({ lost: [], outOfOrder: [] })
        expect(result.acknowledged).toBeGreaterThan(100)
        acknowledged += result.acknowledged
        lost += result.lost.length
      }
      rows.push({ receiver: `${runtime}${thread ? ', thread' : ''}`, disk: 'syncs', rounds, acknowledged, lost })
    },
    inForm({ full: 180_000, long: 1_800_000 }),
  )

  test('control: with a disk that reports syncs without doing them, the same cut loses acknowledged messages', async () => {
    let [acknowledged, lost, rounds] = [0, 0, 0]
    // A cut may come right after the kernel wrote everything by itself, so it can take several.
    while (rounds < 5 && lost <= 10) {
      const result = await cut('node24', false, true)
      acknowledged += result.acknowledged
      lost += result.lost.length
      rounds += 1
    }
    rows.push({ receiver: 'node24', disk: 'lies (control)', rounds, acknowledged, lost })
    expect(acknowledged).toBeGreaterThan(100)
    expect(lost).toBeGreaterThan(10)
  })

  test.each([
    { synchronous: 'FULL', loses: false },
    { synchronous: 'NORMAL', loses: true },
    { synchronous: 'OFF', loses: true },
  ])(
    'control: a handwritten route with synchronous=$synchronous loses messages: $loses',
    async ({ synchronous, loses }) => {
      let [acknowledged, lost, rounds] = [0, 0, 0]
      // A cut may come right after SQLite synced its journal by itself, so it takes several.
      while (rounds < (loses ? 5 : 1) && lost === 0) {
        const result = await cutByHand(synchronous)
        acknowledged += result.acknowledged
        lost += result.lost.length
        rounds += 1
      }
      rows.push({
        receiver: `by hand, synchronous=${synchronous} (control)`,
        disk: 'syncs',
        rounds,
        acknowledged,
        lost,
      })
      expect(acknowledged).toBeGreaterThan(100)
      expect(lost > 0).toBe(loses)
    },
    180_000,
  )
})

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'power-cut',
    title: 'Power cuts',
    file: 'test/faults/disk/power-cut.test.ts',
    about:
      '32 vehicles send as fast as they are acknowledged, and no handler ends. Then the ext4 file system of the inbox is ended without writing anything more. The disk of the control reports syncs without doing them.',
    tables: [{ title: 'Rounds', rows }],
  })
})
