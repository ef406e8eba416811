/* Facts of vehicles in Durable Objects. */
import { describe, expect, test } from 'vitest'
import { post } from '../runtimes/client.ts'
import { started } from './running.ts'

const asked = (facts: object): string => encodeURIComponent(JSON.stringify(facts))

describe('facts in Durable Objects', () => {
  test('the Worker sets facts of vehicles in all objects, and each edge is told once', async () => {
    await using running = await started({ edges: 'facts', vehicles: { fields: ['BatteryLevel'] } })
    const vins = Array.from({ length: 8 }, (_, n) => `V${n}`)
    for (const vin of vins) expect(await post(running.url, vin, 20)).toBe(200)
    for (const [n, vin] of vins.entries())
      await running.json(`/set?vin=${vin}&facts=${asked({ customer: `c-${n}`, limit: 30 })}`)
    const lines = (): readonly unknown[] => running.entries.flatMap(({ happened }) => happened?.line ?? [])
    await expect.poll(() => lines().length).toBe(16)
    expect(new Set(running.entries.flatMap(({ happened }) => happened?.id ?? [])).size).toBe(16)
    expect(await running.json('/vehicle?vin=V3')).toMatchObject({ facts: { customer: 'c-3', limit: 30 } })
    const rows = vins.slice(1).map((vin, n) => ({ vin, customer: n === 0 ? 'c-new' : `c-${n + 1}` }))
    expect(await running.json(`/set-all?rows=${asked(rows)}`)).toEqual({ told: 2 })
    await expect.poll(() => running.json('/vehicle?vin=V0')).toMatchObject({ facts: { limit: 30 } })
    await expect.poll(() => running.json('/vehicle?vin=V1')).toMatchObject({ facts: { customer: 'c-new', limit: 30 } })
  })

  test('a plan begins and ends by itself', async () => {
    await using running = await started({ edges: 'facts', vehicles: { fields: ['BatteryLevel'] } })
    const from = Date.now() + 2_000
    await running.json(`/set?vin=V&facts=${asked({ booking: 'b-7' })}&from=${from}&until=${from + 1_500}`)
    expect(await running.json('/vehicle?vin=V')).not.toHaveProperty('facts')
    await expect.poll(() => running.entries.filter(({ happened }) => happened !== undefined).length).toBe(1)
    await expect.poll(() => running.json('/vehicle?vin=V')).not.toHaveProperty('facts')
  })
})
