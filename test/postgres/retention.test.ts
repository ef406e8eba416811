/* What is deleted, and when. */
import { createReceiver, type GapEvent } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { Database } from '../../adapters/inbox/postgres/client.ts'
import { Store } from '../../adapters/inbox/postgres/store.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile } from './scene.ts'
import { DeliveryIds } from '../../src/testing/kept-message.ts'

const minute = 60_000

describe.skipIf(!hasPostgres)('what is no longer kept', () => {
  const scene = sceneOfFile()
  const clock: FakeClock = fakeClock()

  /** A store with handled messages of these ages. */
  async function storeWith(schema: string, keepForMs: number, ...agesMs: readonly number[]): Promise<Store> {
    await scene.prepare(schema)
    for (const age of agesMs)
      await scene.pool.query(`INSERT INTO ${schema}.message VALUES ($1, 'V', $2, 'root', 'wire', 2, $3)`, [
        new DeliveryIds().next(clock.now() - age),
        clock.now() - age,
        JSON.stringify({ vin: 'V', age }),
      ])
    return new Store(new Database(scene.pool, schema, clock), clock, {
      keepForMs,
      deadForMs: 30 * 86_400_000,
      confirmMs: 10_000,
    })
  }
  const always = { from: new Date(0), to: new Date(clock.now() + minute) }
  const unread = (): never => expect.fail('No topic was asked for.')
  async function replayed(store: Store): Promise<number> {
    let isDone = false
    const replay = store.replayHandled(always, unread).finally(() => (isDone = true))
    await expect.poll(() => clock.advance(100).then(() => isDone)).toBe(true)
    return replay
  }

  test('a message that may be deleted at any moment is not replayed', async () => {
    const keepForMs = 10 * minute
    const store = await storeWith(
      'replays',
      keepForMs,
      keepForMs - minute,
      keepForMs + minute / 2,
      keepForMs + 2 * minute,
    )
    await store.tidy()
    expect(await scene.count('replays.message')).toBe(2)
    expect(await store.replayHandled({ ...always, dryRun: true }, unread)).toBe(1)
    expect(await replayed(store)).toBe(1)
    expect(await scene.count('replays.waiting')).toBe(1)
  })

  test('with keepForMs 0, an insert that is sent again still finds its message', async () => {
    const store = await storeWith('none', 0, 5_000)
    await store.tidy()
    expect(await scene.count('none.message')).toBe(1)
    expect(await replayed(store)).toBe(0)
    await clock.advance(2 * minute)
    await store.tidy()
    expect(await scene.count('none.message')).toBe(0)
  })

  test('a server whose clock is far ahead deletes nothing for an hour, in any process', async () => {
    const set = { aheadMs: 0 }
    const jumping = { ...clock, now: () => clock.now() + set.aheadMs, elapsedMs: () => clock.now() }
    const schema = 'ahead'
    await storeWith(schema, 0, minute)
    await scene.pool.query(
      `INSERT INTO ${schema}.dead SELECT id, 'no', 1, received_at FROM ${schema}.message; UPDATE ${schema}.meta SET known_ms = ${clock.now()}`,
    )
    const settings = { keepForMs: 86_400_000, deadForMs: 30 * 86_400_000, confirmMs: 10_000 }
    const newStore = async (): Promise<Store> => {
      const store = new Store(new Database(scene.pool, schema, clock), jumping, settings)
      await store.follow()
      return store
    }
    const before = await newStore()
    set.aheadMs = 40 * 86_400_000
    const started = await newStore()
    for (const store of [before, started]) {
      expect(await store.expired()).toEqual([])
      await store.tidy()
    }
    expect(await scene.count(`${schema}.message`)).toBe(1)
    for (let at = 0; at <= 60; at += 1) {
      await clock.advance(minute)
      await started.tidy()
    }
    expect(await started.expired()).toHaveLength(1)
  })

  test('an expired dead letter is deleted, counted, told in the log, and a gap', async () => {
    await scene.prepare('expired')
    const lines: string[] = []
    const gaps: GapEvent[] = []
    const inbox = postgresInbox({ db: scene.newPool(), schema: 'expired', retention: { dead: { forMs: 0 } } })
    const log = { ...quiet, warn: (line: string) => void lines.push(line) }
    const first = receiverOn({ db: scene.newPool(), schema: 'expired' }).receiver
    first.on('data', () => Promise.reject(new Error('no')))
    await first.open()
    expect(await post(first, 1, 1)).toBe(200)
    await expect.poll(() => scene.count('expired.dead')).toBe(1)
    await first.drain()
    const receiver = createReceiver({ secret: false, inbox, log }).on('gap', (gap) => void gaps.push(gap))
    await receiver.open()
    await expect.poll(() => scene.count('expired.dead')).toBe(0)
    await expect.poll(() => gaps.map(({ reason }) => reason)).toContain('inbox_expired')
    expect(receiver.stats().deadLettersDropped).toBe(1)
    expect(lines).toContain('dead letters were deleted: their retention is over')
    await receiver.drain()
  })

  test('what somebody has locked makes tidying up fail soon, and leaves no statement behind', async () => {
    const store = await storeWith('tidied', 0, 5_000)
    const holder = await scene.pool.connect()
    await holder.query('BEGIN; SELECT FROM tidied.meta FOR UPDATE')
    await expect(store.tidy()).rejects.toMatchObject({ message: 'Another session has locked a row of the inbox.' })
    const waiting = await holder.query(`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)
    expect(waiting.rowCount).toBe(0)
    await holder.query('ROLLBACK')
    holder.release()
    await store.tidy()
  })

  test('a notice stays for as long as a message may need it', async () => {
    const store = await storeWith('notices', 0)
    const notice = (vin: string, seq: number | null, hours: number, kind: string | null = null): Promise<unknown> =>
      scene.pool.query(
        `INSERT INTO notices.notice (vin, seq, at, kind) VALUES ($1, $2, now() - $3 * interval '1 hour', $4)`,
        [vin, seq, hours, kind],
      )
    const kept = async (): Promise<readonly string[]> =>
      (
        await scene.pool.query<{ vin: string; seq: string | null }>('SELECT vin, seq FROM notices.notice ORDER BY id')
      ).rows.map(({ vin, seq }) => `${vin}${seq}`)
    await scene.pool.query(
      `INSERT INTO notices.waiting (part, seq, id) OVERRIDING SYSTEM VALUE VALUES (3, 250, gen_random_uuid()), (4, 400, gen_random_uuid())`,
    )
    for (const seq of [100, 200, 300]) await notice('', seq, 2)
    for (const seq of [110, 210, 310]) await notice('', seq, 2, 'pause 1')
    await notice('', 350, 0)
    await notice('A', null, 2)
    await notice('B', null, 0)
    await store.tidy()
    // The message 250 needs the gap 200, and the pause 210 does not stand for it.
    expect(await kept()).toEqual(['200', '300', '210', '310', '350', 'Bnull'])
    await scene.pool.query('DELETE FROM notices.waiting')
    await store.tidy()
    expect(await kept()).toEqual(['300', '310', '350', 'Bnull'])
  })
})
