/* The time in which no receiver listened, over several receivers. */
import type { GapEvent } from 'fleethook'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { post, receiverOn, type Scene, startScene } from './scene.ts'

describe.skipIf(!hasPostgres)('gaps of several receivers', () => {
  let scene: Scene
  beforeAll(async () => {
    scene = await startScene()
    for (const schema of ['alone', 'crashed', 'company']) await scene.prepare(schema)
  }, 120_000)
  afterAll(() => scene?.[Symbol.asyncDispose]())

  /** A receiver that collects the gaps that its handlers see. */
  async function start(schema: string): Promise<{
    readonly gaps: GapEvent[]
    readonly end: () => Promise<unknown>
    readonly one: ReturnType<typeof receiverOn>['receiver']
  }> {
    const { receiver } = receiverOn({ db: scene.newPool(), schema })
    const gaps: GapEvent[] = []
    receiver.on('gap', (gap) => void gaps.push(gap)).on('data', () => {})
    await receiver.open()
    return { gaps, one: receiver, end: () => receiver.drain() }
  }
  const signed = async (schema: string): Promise<number> =>
    (await scene.pool.query(`SELECT FROM ${schema}.receiver WHERE NOT closed`)).rowCount ?? 0

  test('the time between the last one and the next one is a gap', async () => {
    const first = await start('alone')
    await expect.poll(() => signed('alone')).toBe(1)
    await first.end()
    const second = await start('alone')
    await expect.poll(() => second.gaps.map(({ reason }) => reason)).toEqual(['stopped'])
    expect(first.gaps).toEqual([])
    await second.end()
  })

  test('after a crash, the gap begins at the last sign of life', async () => {
    await scene.pool.query(
      `INSERT INTO crashed.receiver VALUES (gen_random_uuid(), extract(epoch FROM clock_timestamp()) * 1000 - 60000, false, '[{"reason":"inbox_unavailable","fromMs":1000,"toMs":2000,"missed":3}]')`,
    )
    const { gaps, end } = await start('crashed')
    const seen = (): readonly string[] => gaps.map(({ reason }) => reason).toSorted()
    await expect.poll(seen).toEqual(['inbox_unavailable', 'restarted'])
    const restarted = gaps.find(({ reason }) => reason === 'restarted')
    expect(Number(restarted?.to) - Number(restarted?.from)).toBeGreaterThanOrEqual(60_000)
    await end()
  })

  test.skipIf(inForm({ short: true, full: false }))(
    'while another one listens, a start and a stop are no gap',
    { timeout: 60_000 },
    async () => {
      const first = await start('company')
      await expect.poll(() => signed('company')).toBe(1)
      const second = await start('company')
      await expect.poll(() => signed('company')).toBe(2)
      // Three signs of each.
      await new Promise((resolve) => setTimeout(resolve, 16_000))
      await second.end()
      expect(await post(first.one, 1, 1)).toBe(200)
      await expect.poll(() => first.one.stats().handled).toBeGreaterThan(0)
      expect([...first.gaps, ...second.gaps]).toEqual([])
      await first.end()
    },
  )
})
