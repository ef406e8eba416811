import { describe, test } from 'vitest'
import { inForm } from '../form.ts'
import { post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'
import { expected } from '../vehicles/everywhere-expected.ts'
import { fields, script, vins } from '../vehicles/everywhere.ts'
import type { DurableSettings } from './programs/durable.ts'
import { started } from './running.ts'

const numbers: DurableSettings = { edges: 'numbers', vehicles: { fields: ['BatteryLevel'] } }
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

describe('states of vehicles in Durable Objects', () => {
  test(
    'the same rules over the same messages find the same edges as in memory',
    { timeout: 180_000 },
    async ({ expect }) => {
      await using running = await started({ edges: 'rules', vehicles: { fields } })
      const lines = script(inForm({ real: 150, full: 400 }), 7)
      for (const line of lines) {
        if ('gap' in line) {
          await running.json(`/gap${line.gap === undefined ? '' : `?vin=${line.gap}`}`)
          await pause(2)
          continue
        }
        const answer = await fetch(running.url, {
          method: 'POST',
          headers: { authorization: secret },
          body: JSON.stringify(line.body),
        })
        expect(answer.status).toBe(200)
      }
      const all = expected(lines)
      const happened = (vin: string): readonly unknown[] =>
        running.entries.flatMap((entry) =>
          entry.vin === vin && entry.happened !== undefined ? [entry.happened.line] : [],
        )
      const count = Object.values(all).flat().length
      await expect.poll(() => vins.flatMap(happened).length, { timeout: 60_000 }).toBe(count)
      expect(Object.fromEntries(vins.map((vin) => [vin, happened(vin)]))).toEqual(all)
      expect(new Set(running.entries.flatMap(({ happened: each }) => each?.id ?? [])).size).toBe(count)
    },
  )

  test('the Worker reads, lists and forgets the vehicles of all objects, also after a kill', async ({ expect }) => {
    await using running = await started(numbers)
    const names = Array.from({ length: 12 }, (_, n) => `V${String(n).padStart(2, '0')}`)
    for (const number of [1, 2]) for (const vin of names) expect(await post(running.url, vin, number)).toBe(200)
    await expect.poll(() => names.flatMap((vin) => running.told(vin))).toEqual(names.map(() => [1, 2]))
    // The handler in the object saw the newest state, by way of `receiver.vehicles`.
    expect(running.entries.flatMap(({ happened }) => Reflect.get(happened ?? {}, 'newest') ?? [])).toEqual(
      names.map(() => 2),
    )
    for (const time of [1, 2]) {
      expect(await running.json('/vehicle?vin=V03')).toMatchObject({
        vin: 'V03',
        values: { BatteryLevel: [2, 'certain'] },
      })
      expect(await running.json('/vehicle?vin=W')).toBe(null)
      const list = async (query: string): Promise<readonly unknown[]> =>
        ((await running.json(`/vehicles${query}`)) as { vin: string }[]).map(({ vin }) => vin)
      expect(await list('')).toEqual(names)
      expect(await list('?limit=3')).toEqual(names.slice(0, 3))
      expect(await list('?limit=5&after=V04')).toEqual(names.slice(5, 10))
      expect(await running.json('/count')).toEqual({ vehicles: 12, unwritten: 0, edges: 1 })
      if (time === 1) await running.again()
    }
    expect(await running.json('/forget?vin=V03')).toBe(true)
    expect(await running.json('/forget?vin=V03')).toBe(false)
    expect(await running.json('/vehicle?vin=V03')).toBe(null)
    expect(await running.json('/count')).toMatchObject({ vehicles: 11 })
    // The first value after it is no change, and that of another vehicle is one.
    for (const vin of ['V03', 'V04']) expect(await post(running.url, vin, 3)).toBe(200)
    await expect.poll(() => running.told('V04').at(-1)).toEqual([2, 3])
    expect(running.told('V03')).toEqual([[1, 2]])
  })

  test('a gap of all vehicles makes those of all objects uncertain, also after a kill, and its event comes once', async ({
    expect,
  }) => {
    await using running = await started(numbers)
    const names = Array.from({ length: 8 }, (_, n) => `V${n}`)
    for (const vin of names) expect(await post(running.url, vin, 1)).toBe(200)
    await expect.poll(() => running.entries.length).toBe(8)
    // Nothing was heard of this one but a gap.
    await running.json('/gap?vin=W')
    await running.json('/gap')
    await expect.poll(() => running.entries.length).toBe(10)
    await running.again()
    for (const vin of names)
      expect(await running.json(`/vehicle?vin=${vin}`)).toMatchObject({ values: { BatteryLevel: [1, 'uncertain'] } })
    expect(await running.json('/vehicle?vin=W')).toEqual({ vin: 'W', online: null, seenAt: null, values: {} })
    for (const vin of names) expect(await post(running.url, vin, 2)).toBe(200)
    await expect.poll(() => names.flatMap((vin) => running.told(vin))).toEqual(names.map(() => [1, 2]))
    for (const { happened } of running.entries)
      if (happened !== undefined) expect(happened.line).toMatch(/across a gap$/)
    expect(running.entries.filter(({ number, vin }) => String(number) === 'gap' && vin === '')).toHaveLength(1)
    expect(await running.json('/vehicle?vin=V1')).toMatchObject({ values: { BatteryLevel: [2, 'certain'] } })
  })

  test('a dead letter keeps its changes, and its replay shows the same', async ({ expect }) => {
    await using running = await started({
      ...numbers,
      failing: { BAD: 3 },
      receiver: { ...numbers.receiver, retry: { attempts: 2, minMs: 1, maxMs: 1 } },
    })
    for (const number of [1, 2, 3]) expect(await post(running.url, 'BAD', number)).toBe(200)
    await expect.poll(async () => Object(await running.json('/dead')).length).toBe(3)
    expect(await running.json('/vehicle?vin=BAD')).toMatchObject({ values: { BatteryLevel: [3, 'certain'] } })
    await running.again()
    const letters = (await running.json('/dead')) as { id: string }[]
    for (const { id } of letters) expect(await running.json(`/replay?id=${id}`)).toBe(1)
    await expect
      .poll(() => running.told('BAD'))
      .toEqual([
        [1, 2],
        [2, 3],
      ])
    const ids = running.entries.flatMap(({ happened, delivery }) =>
      happened === undefined ? [] : [[happened.id, delivery]],
    )
    expect(ids.map(([id, delivery]) => id?.endsWith(String(delivery)))).toEqual([true, true])
    expect(await running.json('/vehicle?vin=BAD')).toMatchObject({ values: { BatteryLevel: [3, 'certain'] } })
  })
})
