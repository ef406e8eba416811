import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { type Found, underLoad, type Victim } from '../kills/kills.ts'
import { pause } from '../kills/victims.ts'
import { createSite, idle } from '../process/start.ts'
import { native } from './native.ts'
import { createVolume, noVolumes } from './volume.ts'

/*
 * kill -9 proves little: everything that the process wrote is in the kernel's memory and survives. So the test cuts the power: it
 * ends the inbox's file system, which writes nothing more, not even its own log, and mounts it again. The sender counts the
 * acknowledgments, outside of that file system.
 */
const vins = Array.from({ length: 32 }, (_, n) => `V${n}`)
const rows: Row[] = []

/** One power cut while messages arrive and no handler ends. Then the next receiver handles everything. */
async function cut(runtime: 'node24' | 'bun' | 'deno', thread: boolean, lying: boolean): Promise<Found> {
  using volume = createVolume(256)
  const site = createSite(runtime, { handlerMs: 0, inbox: { thread } }, volume.folder)
  const fault = join(volume.folder, '..', 'fault')
  if (lying) writeFileSync(fault, 'lie')
  const disk = typeof native === 'string' || !lying ? {} : { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: fault }
  await using target = await site.start({ holds: true }, disk)
  const victim: Omit<Victim, keyof AsyncDisposable> = {
    begin: async () => target.url,
    async strike() {
      await pause(Math.random() * 400)
      target.kill('SIGSTOP')
      volume.cutPower()
      target.kill('SIGKILL')
      await target.exited
    },
    async finish() {
      await volume.mountAgain()
      await using next = await site.start()
      await idle(next)
      await next.stop()
    },
    runs: () => site.journal().runs,
    dead: () => new Set(),
  }
  return await underLoad(victim, { vins, rounds: 1, acksBefore: 150 })
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
