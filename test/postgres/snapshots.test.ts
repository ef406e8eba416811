/* Reading what was committed, in whatever order, on a real server. */
import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { Database, type Row } from '../../adapters/inbox/postgres/client.ts'
import { Position } from '../../adapters/inbox/postgres/snapshots.ts'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { sceneOfFile, startScene } from './scene.ts'

/** What happens: a transaction inserts a message, commits or rolls back, or somebody reads. */
type Step = readonly ['insert' | 'commit' | 'rollback', writer: number] | readonly ['read']

const steps = fc.array(
  fc.oneof(
    fc.tuple(fc.constantFrom('insert' as const, 'insert' as const, 'commit' as const, 'rollback' as const), fc.nat(3)),
    fc.constant(['read'] as const),
  ),
  { minLength: 5, maxLength: 40 },
)

/** Reads rows that no read before has returned. */
type Read = () => Promise<readonly string[]>

describe.skipIf(!hasPostgres)('messages whose transactions end in any order', () => {
  const writers: pg.PoolClient[] = []
  const scene = sceneOfFile(async ({ prepare, newPool }) => {
    await prepare('fleethook')
    const pool = newPool(4)
    for (let n = 0; n < 4; n += 1) writers.push(await pool.connect())
  })
  afterAll(() => {
    for (const writer of writers) writer.release()
  })

  async function insert(writer: pg.PoolClient): Promise<string> {
    const { rows } = await writer.query<{ id: string }>(
      `WITH m AS (INSERT INTO fleethook.message VALUES (gen_random_uuid(), 'VIN', 0, 'root', 'wire', 2, '{}') RETURNING id)
INSERT INTO fleethook.waiting (part, id) SELECT 0, id FROM m RETURNING id`,
    )
    return rows[0]?.id ?? ''
  }

  /** Runs the steps. Returns the messages that were committed, and those that were read. */
  async function play(
    course: readonly Step[],
    read: Read,
  ): Promise<{ committed: readonly string[]; seen: readonly string[] }> {
    const open = new Map<number, string[]>()
    const committed: string[] = []
    const seen: string[] = []
    const end = async (number: number, how: 'commit' | 'rollback'): Promise<void> => {
      const ids = open.get(number)
      if (ids === undefined) return
      open.delete(number)
      await writers[number]?.query(how)
      if (how === 'commit') for (const id of ids) committed.push(id)
    }
    for (const [what, number = 0] of course) {
      if (what === 'read') for (const id of await read()) seen.push(id)
      else if (what !== 'insert') await end(number, what)
      else {
        const writer = writers[number]
        if (writer === undefined) continue
        if (!open.has(number)) await writer.query('BEGIN')
        open.set(number, [...(open.get(number) ?? []), await insert(writer)])
      }
    }
    for (const number of open.keys()) await end(number, 'commit')
    for (const id of await read()) seen.push(id)
    return { committed: committed.toSorted(), seen: seen.toSorted() }
  }

  const clear = (): Promise<unknown> => scene.pool.query('TRUNCATE fleethook.waiting, fleethook.message')

  test('every one of them is read, and once', async () => {
    const db = new Database(scene.pool, 'fleethook', systemClock)
    await fc.assert(
      fc.asyncProperty(steps, async (course) => {
        await clear()
        const position = new Position()
        const { committed, seen } = await play(course, async () =>
          ((await position.read(db, [0], 0)) ?? []).map(({ id }) => String(id)),
        )
        expect(seen).toEqual(committed)
      }),
      { numRuns: inForm({ short: 40, full: 300, long: 3_000 }) },
    )
  })

  test('control: a reader that goes by position misses some', async () => {
    let missed = 0
    await fc.assert(
      fc.asyncProperty(steps, async (course) => {
        await clear()
        let last = '0'
        const { committed, seen } = await play(course, async () => {
          const { rows } = await scene.pool.query<{ id: string; seq: string }>(
            'SELECT id, seq FROM fleethook.waiting WHERE seq > $1 ORDER BY seq',
            [last],
          )
          last = rows.at(-1)?.seq ?? last
          return rows.map(({ id }) => id)
        })
        missed += committed.length - seen.length
      }),
      { numRuns: inForm({ short: 60, full: 300, long: 1_000 }) },
    )
    expect(missed).toBeGreaterThan(0)
  })

  const many = (count: number, part = 0): Promise<unknown> =>
    scene.pool.query(
      `WITH m AS (INSERT INTO fleethook.message SELECT gen_random_uuid(), 'VIN', 0, 'root', 'wire', 2, '{}' FROM generate_series(1, $1) RETURNING id)
INSERT INTO fleethook.waiting (part, id) SELECT $2, id FROM m`,
      [count, part],
    )

  test('pages show what one snapshot showed, and the next read shows the rest', async () => {
    await clear()
    const db = new Database(scene.pool, 'fleethook', systemClock)
    await many(700)
    const position = new Position()
    const first = (await position.read(db, [0], 0)) ?? []
    await many(10)
    expect(position.isBehind).toBe(true)
    const second = (await position.read(db, [0], 0)) ?? []
    const third = (await position.read(db, [0], 0)) ?? []
    expect([first.length, second.length, third.length]).toEqual([500, 200, 10])
    const seqs = [...first, ...second, ...third].map(({ seq }) => Number(seq))
    expect(seqs).toEqual(seqs.toSorted((one, other) => one - other))
  })

  test('a page has a budget in bytes: the texts beyond it are read when the turn of their messages comes', async () => {
    await clear()
    const db = new Database(scene.pool, 'fleethook', systemClock)
    const large = 'x'.repeat(900_000)
    for (let n = 0; n < 12; n += 1)
      await scene.pool.query(
        `WITH m AS (INSERT INTO fleethook.message (id, lane, received_at, door, kind, bytes, text)
  VALUES (gen_random_uuid(), 'V', 1, 'root', 'wire', 900000, $1) RETURNING id)
INSERT INTO fleethook.waiting (part, id) SELECT 0, id FROM m`,
        [large],
      )
    // The first read of a new schema only marks it.
    const rows = (await new Position().read(db, [0], 0)) ?? (await new Position().read(db, [0], 0)) ?? []
    expect(rows).toHaveLength(12)
    const texts = rows.flatMap(({ text }) => (text === null ? [] : [String(text).length]))
    expect(texts).toEqual([900_000, 900_000, 900_000, 900_000])
  })

  test('a page shows some of each partition, and takes no longer when more waits', async () => {
    await clear()
    const statements: { readonly text: string; readonly values: unknown[] }[] = []
    const db = new Database(
      {
        query(text, values = []) {
          statements.push({ text, values })
          return scene.pool.query(text, values)
        },
      },
      'fleethook',
      systemClock,
    )
    const position = new Position()
    const readAll = async (parts: readonly number[]): Promise<Record<string, number>> => {
      const read: number[][] = []
      do
        for (const { part, seq } of (await position.read(db, parts, 0)) ?? [])
          (read[Number(part)] ??= []).push(Number(seq))
      while (position.isBehind)
      for (const seqs of read) expect(seqs).toEqual([...new Set(seqs)].toSorted((one, other) => one - other))
      return Object.fromEntries(read.map(({ length }, part) => [part, length]))
    }
    for (const [part, count] of [20_000, 700, 3].entries()) await many(count, part)
    expect(await readAll([0, 1, 2])).toEqual({ 0: 20_000, 1: 700, 2: 3 })
    // What comes behind a complete read has pages too.
    for (const [part, count] of [5, 800, 400].entries()) await many(count, part)
    expect(await readAll([0, 1, 2])).toEqual({ 0: 5, 1: 800, 2: 400 })

    const { text, values } = statements[1] ?? expect.fail('There was one page.')
    const { rows } = await scene.pool.query<{ 'QUERY PLAN': string }>(`EXPLAIN ANALYZE ${text}`, values)
    const scanned = rows.flatMap(
      (row) => /waiting w .*actual.* rows=([\d.]+) loops=(\d+)/.exec(row['QUERY PLAN'])?.slice(1) ?? [],
    )
    expect(scanned).toHaveLength(2)
    expect(Number(scanned[0]) * Number(scanned[1])).toBeLessThan(1_000)
  })

  test('a server that crashed gives ids of transactions again, and is read from the start', async () => {
    // It writes ids down late, so that the crash loses some.
    await using frail = await startScene(['wal_writer_delay=10s'])
    await frail.prepare('fleethook')
    const db = new Database(frail.newPool(1), 'fleethook', systemClock)
    let position = new Position()
    const seen = new Set<string>()
    const readAll = async (): Promise<void> => {
      for (let rows: readonly Row[] | undefined; rows?.length !== 0;) {
        rows = await position.read(db, [0], 0)
        if (rows === undefined) position = new Position()
        else for (const { id } of rows) seen.add(String(id))
      }
    }
    const started = 'SELECT pg_postmaster_start_time()::text AS at, pg_backend_pid() AS pid'
    const victim = await frail.newPool(1).connect()
    const { rows: before } = await victim.query<{ at: string; pid: number }>(started)
    await victim.query('SET synchronous_commit = off')
    for (let n = 0; n < 100; n += 1) await victim.query('SELECT pg_current_xact_id()')
    await readAll()
    const witness = await frail.newPool(1).connect()
    witness.on('error', () => {})
    const isCut = new Promise((resolve) => witness.once('end', resolve))
    process.kill(before[0]?.pid ?? 0, 'SIGKILL')
    victim.release(true)
    // The server ends all connections when it has noticed. Until then, it still answers.
    await isCut
    witness.release(true)
    const insertAgain = async (): Promise<void> => {
      await frail.pool.query(
        `WITH m AS (INSERT INTO fleethook.message VALUES (gen_random_uuid(), 'VIN', 0, 'root', 'wire', 2, '{}') RETURNING id)
INSERT INTO fleethook.waiting (part, id) SELECT 0, id FROM m`,
      )
    }
    await expect
      .poll(() =>
        insertAgain().then(
          () => true,
          () => false,
        ),
      )
      .toBe(true)
    // A pooler hides the lost connection, and the server has the same start time.
    await expect
      .poll(() =>
        readAll().then(
          () => true,
          () => false,
        ),
      )
      .toBe(true)
    expect((await frail.pool.query<{ at: string }>(started)).rows[0]?.at).toBe(before[0]?.at)
    expect(seen.size).toBeGreaterThan(0)
    expect(seen.size).toBe((await frail.pool.query('SELECT FROM fleethook.waiting')).rowCount)
  })
})
