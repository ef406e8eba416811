import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Target } from '../../conformance/spawn.ts'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic, type Traffic } from '../process/traffic.ts'
import { native } from './native.ts'
import { createVolume, noVolumes, type Volume } from './volume.ts'

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

/** Resolves when `count` messages were answered with this status. */
async function reaches(traffic: Traffic, status: number, count: number): Promise<void> {
  await expect.poll(() => answered(traffic, status), { timeout: 60_000, interval: 20 }).toBeGreaterThanOrEqual(count)
}

interface Subject {
  readonly runtime: 'node24' | 'bun' | 'deno'
  readonly thread: boolean
}

const node: Subject = { runtime: 'node24', thread: false }
const subjects = inForm<readonly Subject[]>({
  full: [node],
  long: [
    node,
    { runtime: 'node24', thread: true },
    { runtime: 'bun', thread: false },
    { runtime: 'deno', thread: false },
  ],
})

interface Fault {
  readonly name: string
  /** Starts the fault. */
  begin(target: Target): Promise<void> | void
  /** Ends the fault. */
  end(): Promise<void> | void
}

/**
 * Messages arrive before, during and after the fault, and no handler ends. Then another receiver handles everything. It must
 * handle exactly the acknowledged messages.
 */
async function through(
  fault: Fault,
  folder: string,
  env: Readonly<Record<string, string>>,
  subject: Subject,
  large = false,
): Promise<void> {
  const { runtime, thread } = subject
  const site = createSite(runtime, { handlerMs: 0, inbox: { thread } }, folder)
  const traffic = createTraffic({ vins, ...(large ? { extraBytes: 100_000 } : {}) })
  let over = false
  let outputs: readonly string[] = []
  {
    await using target = await site.start({ holds: true }, env)
    const pouring = traffic.pour(target.url, () => over)
    await reaches(traffic, 200, 50)
    await fault.begin(target)
    await reaches(traffic, 503, 30)
    await expect.poll(() => health(target), { interval: 10 }).toBe(503)
    const before = answered(traffic, 200)
    await fault.end()
    await expect.poll(() => health(target), { timeout: 60_000, interval: 10 }).toBe(200)
    await reaches(traffic, 200, before + 50)
    over = true
    await pouring
    outputs = target.output
    target.kill('SIGKILL')
    await target.exited
  }
  // The log reports the fault a few times, not for each message.
  const said = outputs.filter((line) => /inbox/.test(line))
  expect(said.length).toBeGreaterThan(1)
  expect(said.length).toBeLessThan(60)
  await using next = await site.start()
  await idle(next)
  await next.stop()
  const journal = site.journal().runs
  const { lost, outOfOrder, duplicates } = judge(traffic.acknowledged, journal)
  const handled = new Set(journal.map(({ vin, number }) => `${vin} ${number}`))
  const unasked = [...handled].filter((name) => !traffic.acknowledged.has(name))
  rows.push({
    disk: fault.name,
    receiver: `${runtime}${thread ? ', thread' : ''}`,
    acknowledged: traffic.acknowledged.size,
    'refused (503)': answered(traffic, 503),
    'acknowledged and lost': lost.length,
    'refused and handled': unasked.length,
  })
  expect({ lost, outOfOrder, duplicates, unasked }).toEqual({ lost: [], outOfOrder: [], duplicates: [], unasked: [] })
  expect([...traffic.answers.keys()].toSorted()).toEqual([200, 503])
}

/** A disk with a fault, for as long as the file of the fault exists. */
function faulty(
  volume: Volume,
  fault: string,
  file: string = join(volume.folder, '..', 'fault'),
): Fault & { readonly env: Readonly<Record<string, string>> } {
  return {
    name: names[fault] ?? fault,
    env: typeof native === 'string' ? {} : { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: file },
    begin: () => writeFileSync(file, fault),
    end: () => rmSync(file, { force: true }),
  }
}

/**
 * Runs while no sync is under way. A sync during which ext4 finds an error may report success without having written
 * anything: on Linux 6.18 that happened to a loop of `pwrite` and `fdatasync` in one of 25 rounds.
 */
async function between({ pid, kill }: Target, run: () => void): Promise<void> {
  kill('SIGSTOP')
  const states = (): readonly string[] =>
    readdirSync(`/proc/${pid}/task`).map((task) => {
      const about = readFileSync(`/proc/${pid}/task/${task}/stat`, 'utf8')
      return about.slice(about.lastIndexOf(')') + 2)[0] ?? ''
    })
  await expect.poll(() => states().every((state) => state === 'T'), { interval: 5 }).toBe(true)
  run()
  kill('SIGCONT')
}

const names: Readonly<Record<string, string>> = {
  fail: 'syncs fail with EIO',
  once: 'one sync fails with EIO, and later syncs report success',
  write: 'writes fail with EIO',
  quota: 'a quota is used up: writes fail with EDQUOT',
}

const limitMs = inForm({ full: 240_000, long: 300_000 })

describe.skipIf(noVolumes !== undefined).each(subjects)(
  'only stored messages are acknowledged, and the receiver recovers by itself ($runtime, thread: $thread):',
  (subject) => {
    test.each(inForm({ real: ['fail'], full: ['fail', 'write'] }))(
      'a disk with EIO errors: %s',
      async (name) => {
        using volume = createVolume(128)
        const fault = faulty(volume, name)
        await through(fault, volume.folder, fault.env, subject)
      },
      limitMs,
    )

    test(
      'a full disk',
      async () => {
        using volume = createVolume(64)
        const filler = join(volume.folder, 'filler')
        writeFileSync(filler, Buffer.alloc(30 * 1_048_576))
        // The large messages fill the disk.
        const fault: Fault = { name: 'full', begin: () => {}, end: () => rmSync(filler) }
        await through(fault, volume.folder, {}, subject, true)
      },
      limitMs,
    )

    test(
      'a quota that is used up',
      async () => {
        using volume = createVolume(4096)
        const file = join(volume.folder, 'fault')
        writeFileSync(file, `quota ${32 * 1_048_576}`)
        const { env, end } = faulty(volume, 'quota', file)
        await through({ name: names['quota'] ?? '', begin: () => {}, end }, volume.folder, env, subject, true)
      },
      limitMs,
    )

    test(
      'a file system that is read-only after an error, and is mounted again',
      async () => {
        using volume = createVolume(128)
        const fault: Fault = {
          name: 'read-only after an error, then mounted again',
          begin: (target) => between(target, () => volume.makeReadOnly()),
          end: () => volume.mountAgain(),
        }
        await through(fault, volume.folder, {}, subject)
        expect(existsSync(join(volume.folder, 'inbox.db'))).toBe(true)
      },
      limitMs,
    )
  },
)

describe.skipIf(noVolumes !== undefined)('a file handle is not trusted after a failed sync:', () => {
  test.each(subjects)(
    'after one failed sync, acknowledged messages survive a power cut ($runtime, thread: $thread)',
    async ({ runtime, thread }) => {
      using volume = createVolume(128)
      const fault = faulty(volume, 'once')
      const site = createSite(runtime, { handlerMs: 0, inbox: { thread } }, volume.folder)
      const traffic = createTraffic({ vins })
      {
        await using target = await site.start({ holds: true }, fault.env)
        const pouring = traffic.pour(target.url)
        await reaches(traffic, 200, 50)
        await fault.begin(target)
        await reaches(traffic, 503, 1)
        await expect.poll(() => health(target), { timeout: 60_000, interval: 10 }).toBe(200)
        await reaches(traffic, 200, answered(traffic, 200) + 200)
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
      rows.push({
        disk: `${fault.name}; then a power cut`,
        receiver: `${runtime}${thread ? ', thread' : ''}`,
        acknowledged: traffic.acknowledged.size,
        'refused (503)': answered(traffic, 503),
        'acknowledged and lost': lost.length,
        'refused and handled': 'not counted: the cut leaves some unanswered',
      })
      expect({ lost, outOfOrder }).toEqual({ lost: [], outOfOrder: [] })
    },
    limitMs,
  )
})

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'failing-disk',
    title: 'Disks that fail, fill and come back',
    file: 'test/faults/disk/failing-disk.test.ts',
    about:
      '16 vehicles send as fast as they are answered: before, during and after the fault. No handler ends before the process is killed. Then the next receiver handles every message in the inbox.',
    tables: [{ title: 'Faults', rows }],
  })
})
