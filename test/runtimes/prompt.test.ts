import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { post, seen } from './client.ts'
import { appCommand, everywhere } from './targets.ts'

describe.each(everywhere)('on %s', (runtime) => {
  test('a handler that burns CPU does not delay the answer to its own message', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, { burns: true }))
    // The first use loads and compiles code, so it does not count.
    await post(target.url, 'V0')
    await expect.poll(() => seen(target.url), { timeout: 10_000 }).toMatchObject({ stats: { handled: 1 } })

    const ratios: number[] = []
    for (const vin of inForm({ real: ['V1'], full: ['V1', 'V2', 'V3'] })) {
      const sentAt = performance.now()
      expect(await post(target.url, vin)).toBe(200)
      const answeredAt = performance.now()
      await expect
        .poll(() => seen(target.url), { timeout: 10_000, interval: 1 })
        .toMatchObject({ steps: expect.arrayContaining([`handled ${vin}`]) })
      ratios.push((answeredAt - sentAt) / (performance.now() - sentAt))
    }
    expect(Math.min(...ratios)).toBeLessThan(0.5)
  })
})
