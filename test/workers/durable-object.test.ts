import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { createAcknowledged, disorderIn, missingFrom } from './acknowledged.ts'
import { storedWorker } from './command.ts'
import { startLog } from './log.ts'
import { durableSource } from './programs/durable.ts'

const numbersOf = (entries: readonly { readonly vin: string; readonly number: number }[], vin: string): number[] =>
  entries.filter((entry) => entry.vin === vin).map(({ number }) => number)

describe('messages are kept in Durable Objects, and handled there', () => {
  test('in order per VIN, each once', async ({ expect }) => {
    await using log = await startLog()
    using worker = await storedWorker(durableSource({ handlerMs: 5 }), log.port)
    await using target = await spawnTarget(worker.command)
    const vins = ['V1', 'V2', 'V3']
    for (let number = 1; number <= 20; number++)
      for (const vin of vins) expect(await post(target.url, vin, number)).toBe(200)
    await expect.poll(() => log.entries.length, { timeout: 10_000 }).toBe(60)
    for (const vin of vins) expect(numbersOf(log.entries, vin)).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
    expect(log.entries.every(({ attempt, redelivered }) => attempt === 1 && !redelivered)).toBe(true)
  })

  test('killed under load, again and again, on the same storage: all that was acknowledged is handled, in order per VIN, and again only what was under way', async ({
    expect,
  }) => {
    await using log = await startLog()
    using worker = await storedWorker(durableSource({ handlerMs: 20 }), log.port)
    const acknowledged = createAcknowledged()
    const vins = Array.from({ length: 12 }, (_, n) => `V${n}`)
    for (let round = 0; round < 4; round++) {
      await using target = await spawnTarget(worker.command)
      const load = acknowledged.load(target.url, vins)
      const before = acknowledged.count
      await expect.poll(() => acknowledged.count, { interval: 5 }).toBeGreaterThan(before + 60 + 37 * round)
      await target.stop('SIGKILL')
      await load.stop()
    }
    await using _target = await spawnTarget(worker.command)
    await expect.poll(() => missingFrom(log.entries, acknowledged), { timeout: 30_000 }).toEqual([])
    expect(disorderIn(log.entries)).toEqual([])
    console.log(acknowledged.count, log.entries.length, _target.output)
  }, 60_000)
})
