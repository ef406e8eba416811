import { randomInt } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { createSite, idle } from './start.ts'
import { createTraffic } from './traffic.ts'

const setups = [
  { name: 'node24', runtime: 'node24', inbox: {}, rounds: inForm({ real: 1, full: 6, long: 100 }) },
  {
    name: 'node24, thread',
    runtime: 'node24',
    inbox: { thread: true },
    rounds: inForm({ real: 1, full: 3, long: 100 }),
  },
  { name: 'bun', runtime: 'bun', inbox: {}, rounds: inForm({ real: 1, full: 2, long: 100 }) },
  { name: 'deno', runtime: 'deno', inbox: {}, rounds: inForm({ real: 1, full: 2, long: 100 }) },
] as const
const vins = Array.from({ length: 32 }, (_, n) => `V${n}`)
const rows: Row[] = []

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

describe.each(setups)('$name', ({ name, runtime, inbox, rounds }) => {
  test.each(['SIGKILL', 'SIGTERM'] as const)(
    'receivers that %s ends under load lose no acknowledged message and keep the order of each vehicle',
    async (signal) => {
      const site = createSite(runtime, { handlerMs: 2, inbox, options: { concurrency: 8 } })
      const traffic = createTraffic({ vins })
      for (let round = 0; round < rounds; round++) {
        await using target = await site.start()
        const before = traffic.acknowledged.size
        const pouring = traffic.pour(target.url)
        // On a busy machine the first messages take longer than the pause.
        await expect
          .poll(() => traffic.acknowledged.size, { timeout: 20_000, interval: 1 })
          .toBeGreaterThan(before + 20)
        // The moment must be random.
        await pause(randomInt(0, 400))
        target.kill(signal)
        await target.exited
        await pouring
      }
      await using last = await site.start()
      // A hundred stops can leave more than a hundred thousand messages.
      await idle(last, inForm({ full: 120_000, long: 300_000 }))
      expect(await last.stop()).toEqual({ status: 0, signal: null })

      const journal = site.journal().runs
      const { lost: unhandled, outOfOrder, duplicates, settledAgain } = judge(traffic.acknowledged, journal)
      const dead = site.dead()
      const lost = unhandled.filter((name) => !dead.has(name))
      rows.push({
        runtime: name,
        signal,
        rounds,
        acknowledged: traffic.acknowledged.size,
        lost: lost.length,
        'dead letters': dead.size,
        'out of order': outOfOrder.length,
        'handled twice': duplicates.length,
      })
      expect({ lost, outOfOrder, settledAgain }).toEqual({ lost: [], outOfOrder: [], settledAgain: [] })
      expect(duplicates.filter(({ redelivered }) => !redelivered)).toEqual([])
      if (signal === 'SIGTERM') expect({ duplicates, dead: [...dead] }).toEqual({ duplicates: [], dead: [] })
      expect(traffic.acknowledged.size).toBeGreaterThan(rounds * 20)
    },
    inForm({ full: 180_000, long: 3_600_000 }),
  )
})

afterAll(() =>
  writeFigures({
    piece: 'process-killed',
    title: 'Receivers that are killed under load',
    file: 'test/faults/process/kill.test.ts',
    about:
      'A receiver with the SQLite inbox. 32 vehicles each send their next message when the last one was answered. Handlers take 2 to 4 ms, 8 at once. Each round ends the process at a random moment up to 400 ms after its twentieth acknowledgment, and the next process continues. The sender counts the acknowledgments. Dead letters: messages that three kills met before their handler had ended ([why](../delivery.md#a-message-that-ends-its-process)). Handled twice: the handler had run, and the process ended before that was on the disk.',
    tables: [{ title: 'Rounds', rows }],
  }),
)
