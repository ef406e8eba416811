import { randomInt } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { secret } from '../../runtimes/targets.ts'
import { type Row, writeFigures } from '../figures.ts'
import { createSite } from './start.ts'

const setups = [
  { name: 'node24', runtime: 'node24', rounds: inForm({ full: 6, long: 100 }) },
  { name: 'bun', runtime: 'bun', rounds: inForm({ full: 4, long: 50 }) },
  { name: 'deno', runtime: 'deno', rounds: inForm({ full: 4, long: 50 }) },
] as const
const perRound = 40
const rows: Row[] = []

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Posts that a vehicle drives and then parks, now. Resolves to whether both were answered. */
async function parks(url: string, vin: string, atMs: number): Promise<boolean> {
  for (const [data, ms] of [
    [{ Gear: 'D' }, atMs - 1_000],
    [{ Gear: 'P' }, atMs],
  ] as const) {
    const body = JSON.stringify({ vin, createdAt: new Date(ms).toISOString(), data })
    const answer = await fetch(url, { method: 'POST', headers: { authorization: secret }, body }).catch(() => undefined)
    if (answer?.status !== 200) return false
  }
  return true
}

describe.each(setups)('$name', ({ name, runtime, rounds }) => {
  test(
    'no time that is up is missing, early or under another id, when receivers are killed at random moments',
    async () => {
      const site = createSite(runtime, { handlerMs: 0, times: true })
      /** When each vehicle parked, of those whose messages were acknowledged. */
      const parked = new Map<string, number>()
      const started = new Map<string, number>()
      for (let round = 0; round < rounds; round++) {
        await using target = await site.start()
        const sent = Array.from({ length: perRound }, async (_, n) => {
          await pause(randomInt(0, 500))
          const vin = `R${round}V${n}`
          const atMs = Date.now()
          started.set(vin, atMs)
          if (await parks(target.url, vin, atMs)) parked.set(vin, atMs)
        })
        await pause(randomInt(300, 2_500))
        target.kill('SIGKILL')
        await target.exited
        await Promise.all(sent)
      }
      await using last = await site.start()
      const told = (): ReadonlySet<string> => new Set(site.journal().times.map(({ vin }) => vin))
      await expect
        .poll(() => [...parked.keys()].filter((vin) => !told().has(vin)), { timeout: 20_000, interval: 100 })
        .toEqual([])
      expect(await last.stop()).toEqual({ status: 0, signal: null })

      const { times } = site.journal()
      const ids = new Map<string, string>()
      for (const { vin, sinceMs, dueMs, atMs, id } of times) {
        expect(sinceMs).toBe(started.get(vin))
        expect(dueMs).toBe(sinceMs + 1_000)
        // The two clocks differ by less than this.
        expect(atMs).toBeGreaterThan(dueMs - 20)
        expect(ids.get(vin) ?? id).toBe(id)
        ids.set(vin, id)
      }
      rows.push({ runtime: name, rounds, times: ids.size, 'reported again': times.length - ids.size })
    },
    inForm({ full: 120_000, long: 3_600_000 }),
  )
})

afterAll(() =>
  writeFigures({
    piece: 'process-time',
    title: 'Rules with a time through crashes',
    file: 'test/faults/process/time.test.ts',
    about:
      'A receiver with the SQLite inbox and a rule that happens when a vehicle was in park for a second. Each round, 40 vehicles park, and the process is killed at a random moment of the next 2.5 seconds. Reported again: the handler had run, and the process ended before that was on the disk. The id was the same.',
    tables: [{ title: 'Rounds', rows }],
  }),
)
