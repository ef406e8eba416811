import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic, type Traffic } from '../process/traffic.ts'
import { DatabaseSync } from 'node:sqlite'
import { spawnTarget } from '../../conformance/spawn.ts'
import { programCommand } from '../../runtimes/targets.ts'
import { native } from './native.ts'
import { createVolume, noVolumes } from './volume.ts'

/*
 * kill -9 proves little: everything that the process wrote is in the kernel's memory and survives. So the test cuts the power: it
 * ends the inbox's file system, which writes nothing more, not even its own log, and mounts it again. The sender counts the
 * acknowledgments, outside of that file system.
 */
const vins = Array.from({ length: 32 }, (_, n) => `V${n}`)
const rows: Row[] = []
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Resolves when `count` messages are acknowledged. */
async function pours({ acknowledged }: Traffic, count: number): Promise<void> {
  await expect.poll(() => acknowledged.size, { timeout: 20_000, interval: 5 }).toBeGreaterThanOrEqual(count)
}

interface Cut {
  readonly acknowledged: number
  readonly lost: readonly string[]
  readonly outOfOrder: readonly string[]
}

/** One power cut while messages arrive and no handler ends. Then the next receiver handles everything. */
async function cut(runtime: 'node24' | 'bun' | 'deno', thread: boolean, lying: boolean): Promise<Cut> {
  using volume = createVolume(256)
  const site = createSite(runtime, { handlerMs: 0, inbox: { thread } }, volume.folder)
  const traffic = createTraffic({ vins })
  const fault = join(volume.folder, '..', 'fault')
  if (lying) writeFileSync(fault, 'lie')
  const disk = typeof native === 'string' || !lying ? {} : { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: fault }
  {
    await using target = await site.start({ holds: true }, disk)
    const pouring = traffic.pour(target.url)
    await pours(traffic, 150)
    await pause(Math.random() * 500)
    target.kill('SIGSTOP')
    volume.cutPower()
    target.kill('SIGKILL')
    await target.exited
    await pouring
  }
  await volume.mountAgain()
  await using next = await site.start()
  await idle(next)
  await next.stop()
  const { lost, outOfOrder } = judge(traffic.acknowledged, site.journal().runs)
  return { acknowledged: traffic.acknowledged.size, lost, outOfOrder }
}

/** The same with a handwritten route. `lost` counts acknowledged messages that are not in its table. */
async function cutByHand(synchronous: string): Promise<{ readonly acknowledged: number; readonly lost: number }> {
  using volume = createVolume(256)
  const database = join(volume.folder, 'by-hand.db')
  const traffic = createTraffic({ vins })
  const program = join(import.meta.dirname, 'by-hand.ts')
  {
    await using target = await spawnTarget(
      programCommand('node24', program, { DATABASE: database, SYNCHRONOUS: synchronous }),
    )
    const pouring = traffic.pour(target.url)
    await pours(traffic, 400)
    await pause(Math.random() * 200)
    target.kill('SIGSTOP')
    volume.cutPower()
    target.kill('SIGKILL')
    await target.exited
    await pouring
  }
  await volume.mountAgain()
  const stored = storedByHand(database)
  const lost = [...traffic.acknowledged].filter((name) => !stored.has(name)).length
  return { acknowledged: traffic.acknowledged.size, lost }
}

/** The messages in the table after the cut. Empty when not even the table was on the disk. */
function storedByHand(path: string): ReadonlySet<string> {
  const db = new DatabaseSync(path)
  try {
    const text = "SELECT body ->> 'vin' AS vin, body ->> '$.data.Odometer' AS number FROM messages"
    const tables = db.prepare("SELECT name FROM sqlite_schema WHERE name = 'messages'").all()
    const rows = tables.length === 0 ? [] : db.prepare(text).all()
    return new Set(rows.map((row) => `${String(row['vin'])} ${String(row['number'])}`))
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
  }, 60_000)

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
        lost += result.lost
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
    60_000,
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
