import { describe, expect, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { createTraffic } from '../faults/process/traffic.ts'
import { seen } from './client.ts'
import { appCommand } from './targets.ts'

const vins = Array.from({ length: 50 }, (_, n) => `V${n}`)

describe.each(['node24', 'bun', 'deno'] as const)('SIGTERM under load on %s', (runtime) => {
  test('everything that was acknowledged is handled', async () => {
    await using target = await spawnTarget(await appCommand(runtime, { handlerMs: 5 }))
    // A connection that closed between two messages does not mean that the server is gone.
    const traffic = createTraffic({ vins, field: 'BatteryLevel', goesOn: true, ratePerSecond: 5_000 })
    let isOver = false
    const pouring = traffic.pour(target.url, () => isOver)
    // Each connection can end before it has the answer of its last message.
    await expect.poll(() => seen(target.url)).toSatisfy(({ stats }) => stats.received >= 500 + vins.length)
    target.kill('SIGTERM')
    const stopped = await target.line(/^stats/)
    await target.exited
    isOver = true
    await pouring

    const { received, handled, lost }: Record<string, number> = JSON.parse(stopped.slice('stats '.length))
    expect(traffic.acknowledged.size).toBeGreaterThanOrEqual(500)
    expect({ handled, lost }).toEqual({ handled: received, lost: 0 })
    // A message can be accepted without its answer arriving. The opposite must not happen.
    expect(received).toBeGreaterThanOrEqual(traffic.acknowledged.size)
    expect([...traffic.answers.keys()].filter((status) => ![200, 503, 0].includes(status))).toEqual([])
  })
})
