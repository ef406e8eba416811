import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Target } from '../../conformance/spawn.ts'
import { newFolder } from '../../folder.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import type { Journal } from '../process/journal.ts'
import type { BranchSettings } from '../process/program.ts'
import { createSite, idle, type Site } from '../process/start.ts'
import { createTraffic, type Traffic } from '../process/traffic.ts'
import { native } from './native.ts'
import { createVolume, noVolumes } from './volume.ts'

const vins = Array.from({ length: 16 }, (_, n) => `V${n}`)
const limitMs = 480_000
/** `crm` is up all the time. The server of `analytics` is down until a test writes this file. */
const twoBranches = (): {
  readonly names: readonly string[]
  readonly up: string
  readonly branches: readonly BranchSettings[]
} => {
  const up = join(newFolder('faults'), 'up')
  return { names: ['crm', 'analytics'], up, branches: [{ name: 'crm' }, { name: 'analytics', downUntil: up }] }
}

const answered = ({ answers }: Traffic, status: number): number => answers.get(status) ?? 0

async function reaches(traffic: Traffic, status: number, count: number): Promise<void> {
  await expect.poll(() => answered(traffic, status), { timeout: 300_000, interval: 20 }).toBeGreaterThanOrEqual(count)
}

const preload = (library: 'slowDisk' | 'faultyDisk', env: Readonly<Record<string, string>>): Record<string, string> =>
  typeof native === 'string' ? {} : { LD_PRELOAD: native[library], ...env }

/** What a reader has not handled and has no dead letter of, and what it did out of order, or twice in one process. */
function judged({ acknowledged }: Traffic, { runs, dead }: Journal): object {
  const buried = new Set(dead.map(({ vin, number }) => `${vin} ${number}`))
  const { lost, outOfOrder, duplicates } = judge(
    acknowledged,
    runs.filter(({ vin, number }) => acknowledged.has(`${vin} ${number}`)),
  )
  return {
    lost: lost.filter((name) => !buried.has(name)),
    outOfOrder,
    unmarked: duplicates.filter(({ redelivered, attempt }) => !redelivered && attempt === 1),
  }
}

const asPromised = { lost: [], outOfOrder: [], unmarked: [] }

/** Another process handles what is left, also of the branch whose server was down. */
async function finish(site: Site, up: string): Promise<void> {
  writeFileSync(up, '')
  await using last = await site.start({ listsDead: true })
  await idle(last, 240_000)
  await expect.poll(() => last.output.includes('dead letters listed'), { timeout: 60_000 }).toBe(true)
  await last.stop()
}

describe.skipIf(noVolumes !== undefined).each(inForm({ real: [false], full: [false, true] }))(
  'the receiver and two branches of one file each handle what is acknowledged once and in order (thread: %s):',
  (thread) => {
    const inbox = { thread }

    test(
      'processes that are killed while each sync takes 400 ms, from the first message of a new file on',
      async () => {
        const { names, up, branches } = twoBranches()
        const site = createSite('node24', { handlerMs: 0, inbox, branches })
        const traffic = createTraffic({ vins })
        const slow = preload('slowDisk', { SLOW_DISK: join(site.path, '..') })
        for (const atLeast of inForm({ real: [40, 200], full: [40, 200, 600, 1_200] })) {
          await using target = await site.start({}, slow)
          const pouring = traffic.pour(target.url)
          await reaches(traffic, 200, atLeast)
          target.kill('SIGKILL')
          await target.exited
          await pouring
        }
        await finish(site, up)
        expect(judged(traffic, site.journal())).toEqual(asPromised)
        for (const name of names) expect([name, judged(traffic, site.journal(name))]).toEqual([name, asPromised])
        expect([...traffic.answers.keys()].toSorted()).toEqual([0, 200])
      },
      limitMs,
    )

    test(
      'syncs that fail for a while',
      async () => {
        const { names, up, branches } = twoBranches()
        using volume = createVolume(128)
        const site = createSite('node24', { handlerMs: 0, inbox, branches }, volume.folder)
        const traffic = createTraffic({ vins })
        const fault = join(volume.folder, '..', 'fault')
        {
          await using target = await site.start({}, preload('faultyDisk', { FAULTY_DISK: fault }))
          let isOver = false
          const pouring = traffic.pour(target.url, () => isOver)
          await reaches(traffic, 200, 200)
          writeFileSync(fault, 'fail')
          await reaches(traffic, 503, 30)
          rmSync(fault)
          await reaches(traffic, 200, answered(traffic, 200) + 200)
          isOver = true
          await pouring
          await kill(target)
        }
        await finish(site, up)
        expect(judged(traffic, site.journal())).toEqual(asPromised)
        for (const name of names) expect([name, judged(traffic, site.journal(name))]).toEqual([name, asPromised])
      },
      limitMs,
    )

    test(
      'a volume that the branch of a server that is down fills: the receiver refuses nothing, and a gap of the branch has what made room',
      async () => {
        const { up, branches } = twoBranches()
        using volume = createVolume(32)
        const extraBytes = 20_000
        const site = createSite('node24', { handlerMs: 0, inbox, branches }, volume.folder)
        const traffic = createTraffic({ vins, extraBytes })
        {
          await using target = await site.start()
          let isOver = false
          const pouring = traffic.pour(target.url, () => isOver)
          await reaches(traffic, 200, (3 * 32 * 1_048_576) / extraBytes)
          isOver = true
          await pouring
          await kill(target)
        }
        await finish(site, up)
        expect([...traffic.answers.keys()]).toEqual([200])
        expect(judged(traffic, site.journal())).toEqual(asPromised)
        expect(judged(traffic, site.journal('crm'))).toEqual(asPromised)
        const { gaps, runs } = site.journal('analytics')
        const { lost, outOfOrder } = judge(traffic.acknowledged, runs)
        // A gap can be told again after the kill.
        const told = new Map(gaps.map((gap) => [`${gap.reason} ${gap.fromMs} ${gap.toMs}`, gap]))
        const room = [...told.values()].filter(({ reason }) => reason === 'inbox_expired')
        const outside = traffic.sent.filter(
          ({ vin, number, sentAtMs, endedAtMs }) =>
            lost.includes(`${vin} ${number}`) &&
            !room.some(({ fromMs, toMs }) => sentAtMs <= toMs && endedAtMs >= fromMs),
        )
        expect({ outOfOrder, outside }).toEqual({ outOfOrder: [], outside: [] })
        expect(lost.length).toBeGreaterThan(0)
        expect(room.reduce((sum, { missed }) => sum + missed, 0)).toBe(lost.length)
      },
      limitMs,
    )
  },
)

async function kill(target: Target): Promise<void> {
  target.kill('SIGKILL')
  await target.exited
}
