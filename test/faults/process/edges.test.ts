import { randomInt } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { type Row, writeFigures } from '../figures.ts'
import type { EdgeLine } from './journal.ts'
import { createSite, idle } from './start.ts'
import { createTraffic } from './traffic.ts'

const setups = [
  { name: 'node24', runtime: 'node24', inbox: {}, rounds: inForm({ full: 4, long: 50 }) },
  {
    name: 'node24, thread',
    runtime: 'node24',
    inbox: { thread: true },
    rounds: inForm({ full: 2, long: 30 }),
  },
  { name: 'bun', runtime: 'bun', inbox: {}, rounds: inForm({ full: 2, long: 40 }) },
  { name: 'deno', runtime: 'deno', inbox: {}, rounds: inForm({ full: 2, long: 30 }) },
] as const
const vins = Array.from({ length: 32 }, (_, n) => `V${n}`)
const rows: Row[] = []
/** States are written in rounds that begin after five seconds. */
const longestMs = 6_000

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

describe.each(setups)('$name', ({ name, runtime, inbox, rounds }) => {
  test(
    'every change of every vehicle is reported at least once, in order, when receivers are killed under load',
    async () => {
      const site = createSite(runtime, { handlerMs: 2, inbox, edges: true, options: { concurrency: 8 } })
      // Fewer than the handlers can take, because otherwise the backlog grows from round to round.
      const traffic = createTraffic({ vins, ratePerSecond: 500 })
      for (let round = 0; round < rounds; round++) {
        await using target = await site.start()
        const before = traffic.acknowledged.size
        const pouring = traffic.pour(target.url)
        await expect
          .poll(() => traffic.acknowledged.size, { timeout: 20_000, interval: 1 })
          // Two messages of each vehicle make a change.
          .toBeGreaterThan(before + 2 * vins.length)
        // The moment must be random.
        await pause(randomInt(0, longestMs))
        target.kill('SIGKILL')
        await target.exited
        await pouring
      }
      await using last = await site.start()
      await idle(last, inForm({ full: 120_000, long: 300_000 }))
      expect(await last.stop()).toEqual({ status: 0, signal: null })

      const { runs, edges } = site.journal()
      const reported = new Map<string, EdgeLine>()
      for (const edge of edges) {
        const known = reported.get(edge.id)
        if (known === undefined) reported.set(edge.id, edge)
        // A message that is handed out again reports the same change again.
        else expect({ ...edge, pid: 0 }).toEqual({ ...known, pid: 0 })
      }
      let changes = 0
      for (const vin of vins) {
        const first = [...reported.values()].filter((edge) => edge.vin === vin)
        const handled = [...new Set(runs.filter((run) => run.vin === vin).map(({ number }) => number))]
        const numbers = handled.toSorted((a, b) => a - b)
        // One change from each message to the next, and no other: none is missing, none is made up, and they are in order.
        const expected = numbers.slice(1).map((to, at) => ({ from: numbers[at], to }))
        expect(first.map(({ from, to }) => ({ from, to }))).toEqual(expected)
        const acknowledged = [...traffic.acknowledged].flatMap((key) => (key.startsWith(`${vin} `) ? [key] : []))
        expect(acknowledged.filter((key) => !numbers.includes(Number(key.split(' ')[1])))).toEqual([])
        changes += expected.length
      }
      rows.push({ runtime: name, rounds, changes, 'reported again': edges.length - reported.size })
      expect(changes).toBeGreaterThan(rounds * 10)
    },
    inForm({ full: 240_000, long: 3_600_000 }),
  )
})

afterAll(() =>
  writeFigures({
    piece: 'process-edges',
    title: 'Changes of vehicles through crashes',
    file: 'test/faults/process/edges.test.ts',
    about:
      'A receiver with the SQLite inbox and the part `vehicles`. 32 vehicles send 500 messages a second, each in its order, and each message changes a field. Each round kills the process at a random moment, and the next process continues. Reported again: the handler of the change had run, and the process ended before that was on the disk. The id of the change was the same.',
    tables: [{ title: 'Rounds', rows }],
  }),
)
