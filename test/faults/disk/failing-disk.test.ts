import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Target } from '../../conformance/spawn.ts'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../form.ts'
import { judge } from '../process/journal.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic, type Traffic } from '../process/traffic.ts'
import { native } from './native.ts'
import { createVolume, noVolumes } from './volume.ts'

const vins = Array.from({ length: 16 }, (_, n) => `V${n}`)
const rows: Row[] = []

const health = async ({ url }: Target): Promise<number> =>
  (
    await fetch(`${url}/services/collector/health`).then(async (response) => {
      await response.arrayBuffer()
      return response
    })
  ).status

const answered = ({ answers }: Traffic, status: number): number => answers.get(status) ?? 0

/** Resolves once so many more were answered like this. */
async function more(traffic: Traffic, status: number, count: number): Promise<void> {
  const before = answered(traffic, status)
  await expect
    .poll(() => answered(traffic, status), { timeout: 60_000, interval: 20 })
    .toBeGreaterThanOrEqual(before + count)
}

interface Fault {
  readonly name: string
  /** From now on the disk fails. */
  begin(): void
  /** It is over. */
  end(): Promise<void> | void
}

/**
 * Messages pour in while the disk is well, while it fails and when it is well again, no handler coming to its end; then a
 * receiver that handles all. What was acknowledged has to be what is handled, message by message.
 */
async function through(
  fault: Fault,
  folder: string,
  env: Readonly<Record<string, string>>,
  large: boolean,
): Promise<void> {
  const site = createSite('node24', { handlerMs: 0 }, folder)
  const traffic = createTraffic({ vins, ...(large ? { extraBytes: 100_000 } : {}) })
  let over = false
  let outputs: readonly string[] = []
  {
    await using target = await site.start({ holds: true }, env)
    const pouring = traffic.pour(target.url, () => over)
    await more(traffic, 200, 50)
    fault.begin()
    await more(traffic, 503, 30)
    await expect.poll(() => health(target), { timeout: 10_000 }).toBe(503)
    await fault.end()
    await expect.poll(() => health(target), { timeout: 60_000 }).toBe(200)
    await more(traffic, 200, 50)
    over = true
    await pouring
    outputs = target.output
    target.kill('SIGKILL')
    await target.exited
  }
  // It says what is wrong, a few times and not for each message.
  const said = outputs.filter((line) => /inbox/.test(line))
  expect(said.length).toBeGreaterThan(1)
  expect(said.length).toBeLessThan(60)
  await using next = await site.start()
  await idle(next, 30_000)
  await next.stop()
  const journal = site.journal()
  const { lost, outOfOrder, duplicates } = judge(traffic.acknowledged, journal)
  const handled = new Set(journal.map(({ vin, number }) => `${vin} ${number}`))
  const unasked = [...handled].filter((name) => !traffic.acknowledged.has(name))
  rows.push({
    disk: fault.name,
    acknowledged: traffic.acknowledged.size,
    'refused (503)': answered(traffic, 503),
    'acknowledged and lost': lost.length,
    'refused and handled': unasked.length,
  })
  expect({ lost, outOfOrder, duplicates, unasked }).toEqual({ lost: [], outOfOrder: [], duplicates: [], unasked: [] })
  expect([...traffic.answers.keys()].toSorted()).toEqual([200, 503])
}

describe.skipIf(noVolumes !== undefined)(
  'nothing is acknowledged that is not stored, and it goes on by itself:',
  () => {
    const minutes = inForm({ short: 120_000, long: 300_000 })

    test(
      'syncs that fail with EIO',
      async () => {
        using volume = createVolume(128)
        const file = join(volume.folder, '..', 'fault')
        const env = typeof native === 'string' ? {} : { LD_PRELOAD: native.faultySync, FAULTY_SYNC: file }
        const fault: Fault = {
          name: 'syncs fail with EIO',
          begin: () => writeFileSync(file, 'fail'),
          end: () => rmSync(file),
        }
        await through(fault, volume.folder, env, false)
      },
      minutes,
    )

    test(
      'a disk that is full',
      async () => {
        using volume = createVolume(40)
        const filler = join(volume.folder, 'filler')
        writeFileSync(filler, Buffer.alloc(12 * 1_048_576))
        // It fills by itself: the messages are large.
        const fault: Fault = { name: 'full', begin: () => {}, end: () => rmSync(filler) }
        await through(fault, volume.folder, {}, true)
      },
      minutes,
    )

    test(
      'a file system that is read-only after an error, and is mounted again',
      async () => {
        using volume = createVolume(128)
        const fault: Fault = {
          name: 'read-only after an error, then mounted again',
          begin: () => volume.makeReadOnly(),
          end: () => volume.mountAgain(),
        }
        await through(fault, volume.folder, {}, false)
        expect(existsSync(join(volume.folder, 'inbox.db'))).toBe(true)
      },
      minutes,
    )
  },
)

afterAll(() =>
  writeFigures({
    piece: 'failing-disk',
    title: 'Disks that fail, fill and come back',
    file: 'test/faults/disk/failing-disk.test.ts',
    about:
      'Sixteen vehicles send as fast as they are answered while the disk is well, while it fails, and when it is well again; no handler comes to its end before the process is killed. The next receiver handles what it finds.',
    tables: [{ title: 'Faults', rows }],
  }),
)
