/* Handlers whose writes happen exactly once, on a real server. */
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { handleWaiting, postgresInbox } from 'fleethook/inbox/postgres'
import pg from 'pg'
import { beforeEach, describe, expect, test } from 'vitest'
import { bodiesOf, twice } from '../once/repeated.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile, tablesOf, vinOf } from './scene.ts'
import { transactionsOf } from './transactions.ts'

describe.skipIf(!hasPostgres)('exactlyOnce', () => {
  const scene = sceneOfFile(async ({ pool }) => {
    await pool.query('CREATE TABLE written (schema text, handler text, n int)')
  })
  let number = 0
  let schema = ''
  beforeEach(async () => {
    schema = `once${++number}`
    await scene.prepare(schema)
  })

  const write = (tx: pg.PoolClient, handler: string, n: number): Promise<unknown> =>
    tx.query('INSERT INTO written VALUES ($1, $2, $3)', [schema, handler, n])
  const written = async (): Promise<readonly string[]> =>
    (
      await scene.pool.query<{ row: string }>(
        "SELECT handler || ' ' || n AS row FROM written WHERE schema = $1 ORDER BY handler, n",
        [schema],
      )
    ).rows.map(({ row }) => row)
  const waiting = (): Promise<number> => scene.count(`${schema}.waiting`)

  test('a statement has the same text for all messages, because each text is read to qualify it', async () => {
    const pool = scene.newPool()
    const texts = new Set<string>()
    const db = {
      query(text: string, values?: unknown[]) {
        texts.add(text)
        return pool.query(text, values)
      },
    }
    const { inbox, receiver } = receiverOn({ db, schema })
    const exactly = inbox.exactlyOnce(transactionsOf(scene.newPool()))
    let last = 0
    receiver.on(
      'data',
      exactly('trips', async ({ data }, _, tx) => {
        await write(tx, 'trips', Number(data.Odometer))
        last = Number(data.Odometer)
      }),
    )
    await receiver.open()
    const handle = async (from: number, to: number): Promise<number> => {
      for (let n = from; n < to; n += 1) expect(await post(receiver, 1, n)).toBe(200)
      await expect.poll(() => last).toBe(to - 1)
      await expect.poll(waiting).toBe(0)
      return texts.size
    }
    const before = await handle(0, 50)
    expect(await handle(50, 250)).toBeLessThan(before + 10)
    await receiver.drain()
  })

  test.each([
    ['all', 3, ['first', 'second'], { handled: 1, dead: 0, replayed: [] }],
    ['one', 3, ['first'], { handled: 0, dead: 1, replayed: ['second 3'] }],
    ['all', 4, ['first', 'second'], { handled: 1, dead: 0, replayed: [] }],
    ['one', 4, ['first'], { handled: 0, dead: 1, replayed: ['second 3'] }],
  ] as const)(
    'a message with the marks of %s of its handlers, that %d processes had in hand when they ended',
    async (_, processes, done, expected) => {
      await scene.pool.query(`CREATE OR REPLACE FUNCTION ${schema}.crashed() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.deliveries := ${processes}; NEW.done := '{${done.join(',')}}'; RETURN NEW; END $$`)
      await scene.pool.query(`CREATE TRIGGER crashed BEFORE INSERT ON ${schema}.waiting
        FOR EACH ROW EXECUTE FUNCTION ${schema}.crashed()`)
      const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
      const exactly = inbox.exactlyOnce(transactionsOf(scene.newPool()))
      for (const name of ['first', 'second'])
        receiver.on(
          'data',
          exactly(name, (event, _, tx) => write(tx, name, Number(event.data.Odometer))),
        )
      await receiver.open()
      await post(receiver, 1, 3)
      await expect.poll(waiting).toBe(0)
      expect(await written()).toEqual([])
      await scene.pool.query(`DROP TRIGGER crashed ON ${schema}.waiting`)
      const { handled } = receiver.stats()
      const dead = await receiver.deadLetters.replay({})
      await expect.poll(waiting).toBe(0)
      expect({ handled, dead, replayed: await written() }).toEqual(expected)
      await receiver.drain()
    },
  )

  test('a handler that never ends keeps no other message from being settled', async () => {
    const inbox = postgresInbox({ db: scene.newPool(), schema })
    const exactly = inbox.exactlyOnce(transactionsOf(scene.newPool()))
    const receiver = createReceiver({ secret: false, inbox, log: quiet, timeoutMs: 2_000, retry: { minMs: 500 } })
    let isStuck = true
    let end = (): void => {}
    receiver.on(
      'data',
      exactly('stuck', async (event, _, tx) => {
        await write(tx, 'stuck', Number(event.data.Odometer))
        if (event.data.Odometer !== 1 || !isStuck) return
        isStuck = false
        await new Promise<void>((resolve) => {
          end = resolve
        })
      }),
    )
    await receiver.open()
    await post(receiver, 1, 1)
    await expect.poll(() => receiver.stats().retried).toBeGreaterThan(0)
    for (let n = 2; n < 6; n += 1) await post(receiver, n, n)
    await expect.poll(waiting).toBe(1)
    end()
    await expect.poll(waiting).toBe(0)
    expect(await written()).toEqual(['stuck 1', 'stuck 2', 'stuck 3', 'stuck 4', 'stuck 5'])
    await receiver.drain()
  })

  test('a commit whose answer is lost counts as done', async () => {
    const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
    const run = transactionsOf(scene.newPool())
    let lost = 0
    const exactly = inbox.exactlyOnce<pg.PoolClient>(async (work) => {
      await run(work)
      if (lost++ === 0) throw new Error('The connection ended before the answer to COMMIT.')
    })
    let runs = 0
    receiver.on(
      'data',
      exactly('unsure', (event, _, tx) => {
        runs += 1
        return write(tx, 'unsure', Number(event.data.Odometer))
      }),
    )
    await receiver.open()
    await post(receiver, 1, 1)
    await expect.poll(waiting).toBe(0)
    expect({ runs, rows: await written(), retried: receiver.stats().retried }).toEqual({
      runs: 1,
      rows: ['unsure 1'],
      retried: 0,
    })
    await receiver.drain()
  })

  test('two times that one message tells write two rows, once each, also when the process ends before the message is settled', async () => {
    const ids: string[] = []
    const rules = (db: pg.Pool, last: () => Promise<void>): Receiver => {
      const inbox = postgresInbox({ db, schema, leaseMs: 3_000 })
      const exactly = inbox.exactlyOnce(scene.newPool())
      return createReceiver({ secret: false, inbox, log: quiet, parts: [vehicles({ fields: ['Gear'] })] })
        .when(
          twice,
          exactly('times', async ({ id, change }, _context, tx) => {
            ids.push(id)
            await write(tx, 'times', Math.round((Date.now() - change.at.getTime()) / 60_000))
          }),
        )
        .when(twice, last)
    }
    const pool = new pg.Pool({ host: '127.0.0.1', port: scene.server.port, user: 'test', database: 'postgres', max: 3 })
    let runs = 0
    const first = rules(pool, async () => {
      runs += 1
      if (runs === 2) await new Promise(() => {})
    })
    await first.open()
    for (const body of bodiesOf(vinOf(1)))
      expect((await first.accept({ authorization: undefined, body })).status).toBe(200)
    await expect.poll(written).toEqual(['times 18', 'times 19'])
    await pool.end()

    const second = rules(scene.newPool(), async () => {})
    await second.open()
    await expect.poll(waiting).toBe(0)
    expect(await written()).toEqual(['times 18', 'times 19'])
    expect(new Set(ids).size).toBe(2)
    // A replay is a new run of both.
    expect(await second.replay({ from: new Date(0), to: new Date(Date.now() + 60_000) })).toBe(2)
    await second.drain()
    await first.drain({ deadlineMs: 100 })
  })

  describe('when the transactions of a handler are in another database', () => {
    /** Posts a message. Its handler writes into the other database, by the pool or by a function of its own. */
    async function postTo(
      other: pg.Pool,
      isPool: boolean,
    ): Promise<{ readonly errors: readonly unknown[]; readonly runs: number }> {
      const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
      const exactly = isPool ? inbox.exactlyOnce(other) : inbox.exactlyOnce(transactionsOf(other))
      let runs = 0
      receiver.on(
        'data',
        exactly('elsewhere', () => {
          runs += 1
        }),
      )
      const errors: unknown[] = []
      receiver.observe({ failed: (error) => errors.push(error) })
      await receiver.open()
      await post(receiver, 1, 1)
      await expect.poll(() => receiver.stats().deadLettered).toBe(1)
      await receiver.drain()
      return { errors, runs }
    }
    const loud = expect.objectContaining({
      code: 'option_invalid',
      message: expect.stringContaining('is not in the database of the inbox'),
      hint: expect.stringContaining('same database'),
    })

    test.each([true, false])('nothing counts as handled, and each attempt says so (a pool: %s)', async (isPool) => {
      await scene.pool.query(`CREATE DATABASE other${number}`)
      const other = scene.newPool(3, scene.server.port, `other${number}`)
      // Without the tables.
      expect(await postTo(other, isPool)).toEqual({ errors: Array.from({ length: 5 }, () => loud), runs: 0 })
      // With the tables, but without rows.
      await other.query(tablesOf(schema))
      expect(await postTo(other, isPool)).toEqual({ errors: Array.from({ length: 5 }, () => loud), runs: 0 })
    })

    test('also in a copy that has the same row', async () => {
      await scene.pool.query(`CREATE DATABASE copy${number}`)
      const copy = scene.newPool(3, scene.server.port, `copy${number}`)
      await copy.query(tablesOf(schema))
      const { receiver } = receiverOn({ db: scene.newPool(), schema, role: 'receive' })
      await receiver.open()
      await post(receiver, 1, 1)
      await receiver.drain()
      const { rows } = await scene.pool.query(`SELECT part, seq, id FROM ${schema}.waiting`)
      await copy.query(`INSERT INTO ${schema}.waiting (part, seq, id) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3)`, [
        ...Object.values(rows[0]),
      ])
      const { inbox, receiver: handler } = receiverOn({ db: scene.newPool(), schema, role: 'handle' })
      let runs = 0
      handler.on(
        'data',
        inbox.exactlyOnce(copy)('elsewhere', () => {
          runs += 1
        }),
      )
      await handler.open()
      await expect.poll(() => handler.stats().deadLettered).toBe(1)
      expect(runs).toBe(0)
      await handler.drain()
    })
  })

  test('a handler that takes a second connection of its pool fails with a text that says so, and all messages are written', async () => {
    const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
    const pool = scene.newPool(2, scene.server.port, 'postgres', { connectionTimeoutMillis: 300 })
    let takesSecond = true
    const errors: unknown[] = []
    receiver.observe({ failed: (error) => errors.push(error) })
    receiver.on(
      'data',
      inbox.exactlyOnce(pool)('second', async (event, _context, tx) => {
        if (takesSecond) await pool.query('SELECT 1')
        await write(tx, 'second', Number(event.data.Odometer))
      }),
    )
    await receiver.open()
    await Promise.all(Array.from({ length: 8 }, (_, n) => post(receiver, n, n)))
    await expect
      .poll(() => errors)
      .toContainEqual(expect.objectContaining({ message: expect.stringContaining('second connection of its pool') }))
    takesSecond = false
    await expect.poll(waiting).toBe(0)
    await receiver.deadLetters.replay({})
    await expect.poll(written).toHaveLength(8)
    await receiver.drain()
  })

  test('such handlers do not wait without end, although the pool has no time limit', async () => {
    const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
    // The server ends what is idle in a transaction, by the limit of the pool or by that of 20 seconds.
    const pool = scene.newPool(2, scene.server.port, 'postgres', { idle_in_transaction_session_timeout: 500 })
    let seconds = 4
    receiver.on(
      'data',
      inbox.exactlyOnce(pool)('second', async (event, _context, tx) => {
        if (seconds-- > 0) await pool.query('SELECT 1')
        await write(tx, 'second', Number(event.data.Odometer))
      }),
    )
    const errors: unknown[] = []
    receiver.observe({ failed: (error) => errors.push(error) })
    await receiver.open()
    await Promise.all(Array.from({ length: 4 }, (_, n) => post(receiver, n, n)))
    await expect.poll(waiting).toBe(0)
    expect(await written()).toEqual(['second 0', 'second 1', 'second 2', 'second 3'])
    expect(errors).toContainEqual(expect.objectContaining({ code: 'handler_timeout' }))
    await receiver.drain()
  })

  test('a name is used once, and has only characters that need no quotes', () => {
    const { inbox } = receiverOn({ db: scene.pool, schema })
    const exactly = inbox.exactlyOnce(transactionsOf(scene.pool))
    exactly('one', () => {})
    expect(() => exactly('one', () => {})).toThrow('Two handlers of exactlyOnce have the name one.')
    expect(() => inbox.exactlyOnce(transactionsOf(scene.pool)).batch('one', () => {})).toThrow('Two handlers')
    expect(() => exactly("o'ne", () => {})).toThrow('The name of a handler must have')
  })

  test('handleWaiting handles what waits, and returns', async () => {
    const { receiver } = receiverOn({ db: scene.newPool(), schema, role: 'receive' })
    await receiver.open()
    for (let n = 0; n < 50; n += 1) await post(receiver, n % 5, n)
    await receiver.drain()
    const handled: number[] = []
    const worker = createReceiver({
      secret: false,
      log: quiet,
      inbox: postgresInbox({ db: scene.newPool(), schema, role: 'handle' }),
    }).on('data', ({ data }) => void handled.push(Number(data.Odometer)))
    await handleWaiting(worker, { forMs: 10_000 })
    expect(handled).toHaveLength(50)
    for (let vehicle = 0; vehicle < 5; vehicle += 1)
      expect(handled.filter((n) => n % 5 === vehicle)).toEqual(Array.from({ length: 10 }, (_, n) => vehicle + 5 * n))
    expect(await waiting()).toBe(0)
    const parts = await scene.pool.query(`SELECT part FROM ${schema}.part WHERE owner IS NOT NULL`)
    expect(parts.rows).toEqual([])
  })
})
