/* The time in which no receiver listened, over several receivers. */
import type { GapEvent } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { receiverOn, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('gaps of several receivers', () => {
  const scene = sceneOfFile(async ({ prepare }) => {
    for (const schema of ['alone', 'crashed', 'between', 'unaccounted', 'together']) await prepare(schema)
  })

  /** A receiver that collects the gaps that its handlers see. */
  async function start(schema: string): Promise<{
    readonly gaps: GapEvent[]
    readonly end: () => Promise<unknown>
  }> {
    const { receiver } = receiverOn({ db: scene.newPool(), schema })
    const gaps: GapEvent[] = []
    receiver.on('gap', (gap) => void gaps.push(gap)).on('data', () => {})
    await receiver.open()
    return { gaps, end: () => receiver.drain() }
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

  test('one that crashed before it could account leaves the time before it to the next', async () => {
    // The first one was there until a minute ago. The second one lived from 40 to 30 seconds ago.
    const row = (since: number, seen: number): string =>
      `INSERT INTO between.receiver VALUES (gen_random_uuid(), extract(epoch FROM clock_timestamp()) * 1000 - ${seen}, false, '[]', false, extract(epoch FROM clock_timestamp()) * 1000 - ${since})`
    await scene.pool.query(row(90_000, 60_000))
    await scene.pool.query(row(40_000, 30_000))
    const nowMs = Date.now()
    const { gaps, end } = await start('between')
    // Each begins where one was last heard, and reaches to this one.
    const begins = (): readonly number[] =>
      gaps.map(({ from }) => Math.round((nowMs - Number(from)) / 10_000)).toSorted()
    await expect.poll(begins).toEqual([3, 6])
    for (const { to } of gaps) expect(Number(to)).toBeGreaterThan(nowMs - 5_000)
    await end()
  })

  test('one that listened until now and did not account leaves the time before it to the next', async () => {
    const row = (since: number, seen: number, isAccounted: boolean): string =>
      `INSERT INTO unaccounted.receiver VALUES (gen_random_uuid(), extract(epoch FROM clock_timestamp()) * 1000 - ${seen}, true, '[]', ${isAccounted}, extract(epoch FROM clock_timestamp()) * 1000 - ${since})`
    await scene.pool.query(row(90_000, 60_000, true))
    // Its last sign comes after the first one of the next.
    await scene.pool.query(row(40_000, -5_000, false))
    const nowMs = Date.now()
    const { gaps, end } = await start('unaccounted')
    const begins = (): readonly number[] => gaps.map(({ from }) => Math.round((nowMs - Number(from)) / 10_000))
    await expect.poll(begins).toEqual([6])
    expect(Number(gaps[0]?.to)).toBeGreaterThan(nowMs - 5_000)
    await end()
  })

  test('two that start together right after a crash report it once', async () => {
    await scene.pool.query(
      `INSERT INTO together.receiver VALUES (gen_random_uuid(), extract(epoch FROM clock_timestamp()) * 1000 - 3000, false, '[]', true, 0)`,
    )
    const both = await Promise.all([start('together'), start('together')])
    const reasons = (): readonly string[] => both.flatMap(({ gaps }) => gaps.map(({ reason }) => reason))
    await expect.poll(reasons, { timeout: 60_000 }).toEqual(['restarted'])
    // Until both have accounted, and the row of the one that crashed is gone.
    await expect
      .poll(
        async () => (await scene.pool.query('SELECT FROM together.receiver WHERE accounted AND since > 0')).rowCount,
        { timeout: 60_000 },
      )
      .toBe(2)
    expect(reasons()).toEqual(['restarted'])
    for (const { end } of both) await end()
  })
})
