import { appendFileSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { type Row, writeFigures } from '../figures.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic } from '../process/traffic.ts'
import { native } from './native.ts'
import { createVolume, noVolumes } from './volume.ts'

const mebibyte = 1_048_576
/** With a quota, they send more at once than the file can take beside a journal that is made for the whole volume. */
const vinsOf = (hasQuota: boolean): string[] => Array.from({ length: hasQuota ? 64 : 16 }, (_, n) => `V${n}`)
/** A volume of this size looks as if it never got full, in MiB. */
const spacious = 4_096
/** How long messages arrive after three times the size of the volume went into the inbox. */
const afterMs = inForm({ real: 1_000, full: 5_000, long: 3_600_000 })
/** Messages per second, where the sender has to remember an hour of them. */
const rate = inForm({ full: {}, long: { ratePerSecond: 500 } })
const rows: Row[] = []

/** Another program takes the rest of the volume. */
function fill(folder: string): void {
  try {
    for (;;) appendFileSync(join(folder, 'filler'), new Uint8Array(65_536))
  } catch {
    // It is full.
  }
}

const endings = ['it', 'another program', 'a quota'] as const
const volumes = inForm({ real: [32], full: [32, 64] })
const cases = volumes.flatMap((size) => endings.map((filledBy) => ({ size, filledBy })))

test.skipIf(noVolumes !== undefined).each(cases)(
  'what is kept for replays costs no new message on a volume of $size MiB that $filledBy fills',
  async ({ size, filledBy }) => {
    const hasQuota = filledBy === 'a quota'
    using volume = createVolume(hasQuota ? spacious : size)
    const fault = join(volume.folder, 'fault')
    if (hasQuota) writeFileSync(fault, `quota ${size * mebibyte}`)
    const env = hasQuota && typeof native !== 'string' ? { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: fault } : {}
    const site = createSite('node24', { handlerMs: 0 }, volume.folder)
    const extraBytes = 20_000
    const traffic = createTraffic({ vins: vinsOf(hasQuota), extraBytes, ...rate })
    const sentBytes = (): number => traffic.sent.length * extraBytes
    let endMs = Infinity
    await using target = await site.start({}, env)
    const pouring = traffic.pour(target.url, () => performance.now() > endMs)
    const wasFull = (): boolean => sentBytes() > 3 * size * mebibyte
    await expect.poll(wasFull, { timeout: 300_000 }).toBe(true)
    if (filledBy === 'another program') fill(volume.folder)
    endMs = performance.now() + afterMs
    await pouring
    await idle(target)
    const { bavail, bsize } = statfsSync(volume.folder)
    await target.stop()
    const { lost, outOfOrder, duplicates } = judge(traffic.acknowledged, site.journal().runs)
    rows.push({
      'volume, MiB': size,
      'filled by': filledBy === 'it' ? 'the inbox' : filledBy,
      'sent, MiB': Math.round(sentBytes() / mebibyte),
      acknowledged: traffic.acknowledged.size,
      'refused (503)': traffic.answers.get(503) ?? 0,
      'free at the end, MiB': Math.round((bavail * bsize) / mebibyte),
    })
    expect({ lost, outOfOrder, duplicates }).toEqual({ lost: [], outOfOrder: [], duplicates: [] })
    expect([...traffic.answers.keys()]).toEqual([200])
  },
  afterMs + 480_000,
)

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'small-volume',
    title: 'An inbox on a small volume',
    file: 'test/faults/disk/small-volume.test.ts',
    about:
      '16 vehicles, and 64 with a quota, send messages of 20 kB, 500 a second, and handlers succeed, so that the inbox keeps messages for replays until the volume has no more room. Then messages arrive for another hour. In some runs another program fills the volume first, or a quota ends before a large volume does.',
    tables: [{ title: 'Volumes', rows }],
  })
})
