import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { storedWorker } from './command.ts'
import { startLog } from './log.ts'
import { durableSource } from './programs/durable.ts'

describe('messages are kept in Durable Objects, and handled there', () => {
  test('in order per VIN, each once', async ({ expect }) => {
    await using log = await startLog()
    using worker = await storedWorker(durableSource({ handlerMs: 5 }), log.port)
    await using target = await spawnTarget(worker.command)
    for (let number = 0; number < 20; number++)
      for (const vin of ['V1', 'V2', 'V3']) expect(await post(target.url, vin, number)).toBe(200)
    await expect.poll(() => log.entries.length, { timeout: 10_000 }).toBe(60)
    console.log(target.output)
  })
})
