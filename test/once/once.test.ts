/* Writes that happen once: beside the data of the user in three real databases, and with the inbox in one of them. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type Delivery, type Receiver, type ReceiverOptions, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { type ExactlyOnce, postgresInbox, type RunTransaction } from 'fleethook/inbox/postgres'
import { createOnce, type Once } from 'fleethook/once'
import { createPool } from 'mysql2/promise'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { newFolder } from '../folder.ts'
import { onceIn } from './in-sqlite.ts'
import { startScene } from '../postgres/scene.ts'
import { transactionsOf } from '../postgres/transactions.ts'
import { silent } from '../vehicles/scene.ts'
import { bodiesOf, twice } from './repeated.ts'
import { hasMysql, hasPostgres, startMysql, startPostgres } from './servers.ts'

/** Where the marks are, beside a table of the user. */
interface Place {
  /** What the handlers of the next receiver write with. `inbox`: of its messages, where that has the marks too. */
  begin(): Promise<{ readonly once: ExactlyOnce<Write>; readonly inbox?: InboxFactory }>
  /** Runs a statement outside of transactions. */
  readonly run: (sql: string) => Promise<unknown>
  readonly rows: () => Promise<readonly string[]>
  readonly end: () => Promise<unknown>
}

/** Writes in the transaction of a handler. */
type Write = (sql: string) => Promise<number>

/** The tables of marks, and the handlers that write them. */
async function made(once: Once<Write>, run: Place['run']): Promise<{ readonly once: Once<Write> }> {
  for (const sql of once.schema) await run(sql)
  return { once }
}

function inSqlite(): Place & { readonly once: Once<Write> } {
  const db = new DatabaseSync(':memory:')
  const once = onceIn<Write>(db, async (sql) => Number(db.prepare(sql).run().changes))
  return {
    once,
    begin: async () => ({ once }),
    run: async (sql) => db.exec(sql),
    rows: async () =>
      db
        .prepare('SELECT text FROM written ORDER BY text')
        .all()
        .map(({ text }) => String(text)),
    end: async () => db.close(),
  }
}

/** `isInbox`: the messages are in the same database, and their rows have the marks. */
async function inPostgres(isInbox: boolean): Promise<Place> {
  const scene = await startScene()
  const pool = scene.newPool(8)
  const clients = new WeakMap<Write, pg.PoolClient>()
  const transaction: RunTransaction<Write> = (work) =>
    transactionsOf(pool)((client) => {
      const write: Write = async (sql) => (await client.query(sql)).rowCount ?? 0
      clients.set(write, client)
      return work(write)
    })
  const run = (sql: string): Promise<unknown> => pool.query(sql)
  const once = createOnce<Write>({
    database: 'postgres',
    run: async (write, sql, values) => (await clients.get(write)?.query(sql, values))?.rowCount ?? 0,
    transaction: async (work) => void (await transaction(work)),
  })
  let schemas = 0
  return {
    async begin() {
      if (!isInbox) return made(once, run)
      const schema = `once${(schemas += 1)}`
      await scene.prepare(schema)
      const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 })
      const query = async (write: Write, sql: string): Promise<readonly unknown[]> =>
        (await clients.get(write)?.query(sql))?.rows ?? []
      return { inbox, once: inbox.exactlyOnce(transaction, { run: query }) }
    },
    run,
    rows: async () =>
      (await pool.query<{ text: string }>('SELECT text FROM written ORDER BY text')).rows.map(({ text }) => text),
    end: async () => scene[Symbol.asyncDispose](),
  }
}

async function inMysql(): Promise<Place> {
  const server = await startMysql()
  const pool = createPool({ host: '127.0.0.1', port: server.port, user: 'root', connectionLimit: 8 })
  await vi.waitFor(() => pool.query('CREATE DATABASE IF NOT EXISTS test'), { timeout: 60_000, interval: 100 })
  type Connection = Awaited<ReturnType<typeof pool.getConnection>>
  const writers = new WeakMap<Write, Connection>()
  const changed = ([result]: readonly unknown[]): number => Number(Reflect.get(Object(result), 'affectedRows'))
  const once = createOnce<Write>({
    database: 'mysql',
    run: async (write, sql, values) => changed((await writers.get(write)?.query(sql, values)) ?? []),
    async transaction(work) {
      const connection = await pool.getConnection()
      const write: Write = async (sql) => changed(await connection.query(sql))
      writers.set(write, connection)
      try {
        await connection.query('USE test')
        await connection.beginTransaction()
        await work(write)
        await connection.commit()
      } catch (error) {
        await connection.rollback()
        throw error
      } finally {
        connection.release()
      }
    },
  })
  async function run(sql: string): Promise<void> {
    const connection = await pool.getConnection()
    await connection.query('USE test')
    await connection.query(sql).finally(() => connection.release())
  }
  return {
    begin: () => made(once, run),
    run,
    async rows() {
      const [found] = await pool.query('SELECT text FROM test.written ORDER BY text')
      return (found as { text: string }[]).map(({ text }) => text)
    },
    async end() {
      await pool.end()
      await server[Symbol.asyncDispose]()
    },
  }
}

let names = 0

const places: readonly (readonly [where: string, isThere: boolean, open: () => Place | Promise<Place>])[] = [
  ['SQLite', true, inSqlite],
  ['Postgres', hasPostgres, () => inPostgres(false)],
  ['MySQL', hasMysql, inMysql],
  ['the inbox in Postgres', hasPostgres, () => inPostgres(true)],
]

describe.each(places.filter(([, isThere]) => isThere))('with marks in %s', (where, _isThere, open) => {
  let place: Place
  let once: ExactlyOnce<Write>
  let inbox: InboxFactory | undefined
  const receivers: Receiver[] = []
  beforeAll(async () => {
    place = await open()
  })
  afterAll(() => place?.end())
  beforeEach(async () => {
    ;({ once, inbox } = await place.begin())
    await place.run('CREATE TABLE IF NOT EXISTS written (text VARCHAR(100))')
    await place.run('DELETE FROM written')
  })
  afterEach(async () => {
    for (const receiver of receivers.splice(0)) await receiver.drain()
  })

  function receiverWith(options: Partial<ReceiverOptions> = {}): Receiver {
    const retry = { attempts: 3, minMs: 1, maxMs: 1 }
    const receiver = createReceiver({ secret: false, log: silent, retry, ...(inbox && { inbox }), ...options })
    receivers.push(receiver)
    return receiver
  }
  const done = (receiver: Receiver): number => receiver.stats().handled + receiver.stats().deadLettered
  const post = async (receiver: Receiver, ...numbers: readonly number[]): Promise<void> => {
    const createdAt = '2026-05-01T00:00:00Z'
    const body = numbers.map((number) => ({ vin: `V${number}`, createdAt, data: { Odometer: number } }))
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  /** Posts messages, and waits until each of them is handled or given up. */
  const send = async (receiver: Receiver, ...numbers: readonly number[]): Promise<void> => {
    await post(receiver, ...numbers)
    await expect.poll(() => done(receiver)).toBe(numbers.length)
  }
  const insert = async (write: Write, text: string): Promise<void> =>
    void (await write(`INSERT INTO written VALUES ('${text}')`))
  /** A handler that writes its name and the vehicle. */
  const writing = (name: string): ((event: { vin: string }, context: { delivery: Delivery }) => Promise<void>) =>
    once(`${name}_${(names += 1)}`, ({ vin }: { vin: string }, _, write) => insert(write, `${name} ${vin}`))
  const always = { from: new Date(0), to: new Date(Date.now() + 3_600_000) }

  test('a message that is handed out again writes nothing more, and each handler has its own mark', async () => {
    const receiver = receiverWith().on('data', writing('one')).on('data', writing('two'))
    const again = writing('three')
    let runs = 0
    // The process ends after all have written: the message is handed out again.
    receiver.on('data', async (event, context) => {
      await again(event, context)
      await again(event, context)
      runs += 1
      if (runs === 1) throw new Error('once more')
    })
    await send(receiver, 1)
    expect(runs).toBe(2)
    expect(await place.rows()).toEqual(['one V1', 'three V1', 'two V1'])
  })

  test('a handler that fails has written nothing, its retry writes once, and others of its message do not run again', async () => {
    const receiver = receiverWith()
    const handle = once(
      `fails_${(names += 1)}`,
      async ({ vin }: { vin: string }, { delivery: { attempt } }: { delivery: Delivery }, write) => {
        await insert(write, `${vin} ${attempt}`)
        if (attempt < 3) throw new Error('no')
      },
    )
    await send(receiver.on('data', writing('other')).on('data', handle), 1, 2)
    expect(await place.rows()).toEqual(expect.arrayContaining(['V1 3', 'V2 3', 'other V1', 'other V2']))
    expect(await place.rows()).toHaveLength(4)
  })

  test('a handler that swallows an error of the database does not lose its writes in silence', async () => {
    const handle = once(
      `swallows_${(names += 1)}`,
      async ({ vin }: { vin: string }, { delivery: { attempt } }: { delivery: Delivery }, write) => {
        await insert(write, `${vin} ${attempt}`)
        if (attempt === 1) await write('INSERT INTO nowhere VALUES (1)').catch(() => {})
      },
    )
    await send(receiverWith().on('data', handle), 1)
    // Only in Postgres an error ends the transaction.
    expect(await place.rows()).toEqual([where.includes('Postgres') ? 'V1 2' : 'V1 1'])
  })

  test('a batch of which some messages were handled before writes the others', async () => {
    const sizes: number[] = []
    const handle = once.batch(
      `batch_${(names += 1)}`,
      async (events: readonly { vin: string }[], _: { deliveries: readonly Delivery[] }, write) => {
        sizes.push(events.length)
        for (const { vin } of events) await insert(write, vin)
      },
    )
    let isFirst = true
    const receiver = receiverWith().batch('data', { size: 3, withinMs: 20 }, async (events, context) => {
      // One of three was written when the process ended.
      if (isFirst) await handle(events.slice(0, 1), { ...context, deliveries: context.deliveries.slice(0, 1) })
      isFirst = false
      await handle(events, context)
    })
    await send(receiver, 1, 2, 3)
    expect(await place.rows()).toEqual(['V1', 'V2', 'V3'])
    // A mark in the row of its message says which are left. Another one is found by the message that it refuses.
    expect(sizes).toEqual(inbox === undefined ? [1, 1, 1] : [1, 2])
  })

  test('a dead letter that is replayed goes on where it failed: what had succeeded does not run again', async () => {
    const receiver = receiverWith({ retry: { attempts: 1 } }).on('data', writing('succeeds'))
    const failing = writing('failing')
    let fails = true
    receiver.on('data', async (event, context) => {
      if (fails) throw new Error('no')
      await failing(event, context)
    })
    await send(receiver, 1)
    fails = false
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await expect.poll(() => receiver.stats().handled).toBe(1)
    expect(await place.rows()).toEqual(['failing V1', 'succeeds V1'])
  })

  test('a replay of handled messages is a new run, which writes once however often it is handed out', async () => {
    const path = join(newFolder('once'), 'inbox.db')
    const receiver = receiverWith({ inbox: inbox ?? sqliteInbox({ path }) })
    const write = writing('again')
    receiver.on('data', async (event, context) => {
      await write(event, context)
      // As if the process had ended here.
      if (context.delivery.attempt < 3) throw new Error('again')
    })
    await send(receiver, 1)
    for (const runs of [1, 2, 3]) {
      await expect.poll(() => receiver.stats().handled).toBe(runs)
      expect(await place.rows()).toEqual(Array.from({ length: runs }, () => 'again V1'))
      // An inbox in a database may still be writing that it was handled.
      if (runs < 3) await expect.poll(() => receiver.replay(always)).toBe(1)
    }
  })

  test('a transaction that is committed after the time limit ends the message, and leaves no dead letter', async () => {
    const receiver = receiverWith({ timeoutMs: 100, retry: { attempts: 1 } })
    const committing = Promise.withResolvers<void>()
    let failures = 0
    receiver.observe({ failed: () => (failures += 1) })
    receiver.on(
      'data',
      once(`late_${(names += 1)}`, async ({ vin }, _, write) => {
        await insert(write, vin)
        await committing.promise
      }),
    )
    await post(receiver, 1)
    await expect.poll(() => failures).toBeGreaterThan(0)
    committing.resolve()
    await expect.poll(() => place.rows()).toEqual(['V1'])
    await expect.poll(() => Array.fromAsync(receiver.deadLetters.list())).toEqual([])
  })

  test.runIf(where !== 'the inbox in Postgres')(
    'a handler that runs twice for one message writes twice: for two times of an edge, and for two subjects',
    async () => {
      const receiver = receiverWith({ ack: 'handled', parts: [vehicles({ fields: ['Gear'] })] })
      receiver.when(
        twice,
        once(`edge_${(names += 1)}`, ({ change }, _, write) =>
          insert(write, `${Math.round((Date.now() - change.at.getTime()) / 60_000)} minutes ago`),
        ),
      )
      const both = once(`both_${(names += 1)}`, (_what: unknown, _: { delivery: Delivery }, write) =>
        insert(write, 'both'),
      )
      receiver.on('data', both).on('data', { fields: ['Odometer'] }, both)
      for (const body of bodiesOf('V1')) await receiver.accept({ authorization: undefined, body })
      expect(await place.rows()).toEqual(['18 minutes ago', '19 minutes ago', 'both', 'both', 'both', 'both'])
    },
  )
})

test('what a replay had begun goes on in the next process, and writes once', async () => {
  const path = join(newFolder('once'), 'inbox.db')
  const place = inSqlite()
  await place.run('CREATE TABLE written (text VARCHAR(100))')
  const write = place.once(
    'replays',
    async ({ vin }: { vin: string }, _: { delivery: Delivery }, run) =>
      void (await run(`INSERT INTO written VALUES ('${vin}')`)),
  )
  let isStuck = false
  const begin = async (): Promise<Receiver> => {
    const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path }) })
    receiver.on('data', async (event, context) => {
      await write(event, context)
      if (isStuck) await new Promise(() => {})
    })
    await receiver.open()
    return receiver
  }
  const first = await begin()
  const body = ['A', 'B'].map((vin) => ({ vin, createdAt: '2026-05-01T00:00:00Z', data: { Odometer: 1 } }))
  await first.accept({ authorization: undefined, body })
  await expect.poll(() => first.stats().handled).toBe(2)
  isStuck = true
  expect(await first.replay({ from: new Date(0), to: new Date(Date.now() + 60_000) })).toBe(2)
  await expect.poll(() => place.rows()).toEqual(['A', 'A', 'B', 'B'])
  expect(await first.drain({ handlerGraceMs: 0 })).toMatchObject({ left: 2 })
  isStuck = false
  const second = await begin()
  await expect.poll(() => second.stats().handled).toBe(2)
  expect(await place.rows()).toEqual(['A', 'A', 'B', 'B'])
  await second.drain()
})

test('old marks are deleted', async () => {
  const database = inSqlite()
  await database.run('CREATE TABLE written (text VARCHAR(100))')
  await database.run(`INSERT INTO fleethook_once VALUES ('old', 'old', 0)`)
  const handle = database.once.batch(
    'tidy',
    async (_events: readonly unknown[], _context: { deliveries: readonly Delivery[] }, write) =>
      void (await write(`INSERT INTO written SELECT id FROM fleethook_once WHERE id = 'old'`)),
  )
  const deliveries = Array.from({ length: 1_000 }, (_, n) => ({
    id: `${n}`,
    attempt: 1,
    redelivered: false,
    replayed: false,
  }))
  await handle([], { deliveries })
  await database.run(`DELETE FROM written; INSERT INTO written SELECT id FROM fleethook_once WHERE id = 'old'`)
  expect(await database.rows()).toEqual([])
  await database.end()
})

test.skipIf(!hasPostgres)(
  'takes a pool: its transactions commit, roll back, and survive a connection that is cut',
  async () => {
    await using server = await startPostgres()
    const pool = new pg.Pool({ host: '127.0.0.1', port: server.port, user: 'test', database: 'postgres', max: 4 })
    await vi.waitFor(() => pool.query('SELECT 1'), { timeout: 60_000, interval: 100 })
    // It has a connection before anybody listens.
    const once = createOnce({ pool })
    for (const sql of once.schema) await pool.query(sql)
    await pool.query('CREATE TABLE written (vin text, attempt int)')
    const receiver = createReceiver({
      secret: false,
      log: silent,
      ack: 'handled',
      retry: { attempts: 9, minMs: 1, maxMs: 1 },
    })
    receiver.on(
      'data',
      once('written', async ({ vin }, { delivery: { attempt } }, tx) => {
        await tx.query('INSERT INTO written VALUES ($1, $2)', [vin, attempt])
        if (attempt === 1) throw new Error('It fails after its write.')
        if (attempt === 2) await tx.query('SELECT no_such_column').catch(() => {})
        if (attempt === 3) await tx.query('SELECT pg_terminate_backend(pg_backend_pid())').catch(() => {})
      }),
    )
    const body = { vin: 'V1', createdAt: '2026-05-01T00:00:00Z', data: { Odometer: 1 } }
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
    expect((await pool.query('SELECT * FROM written')).rows).toEqual([{ vin: 'V1', attempt: 4 }])
    await pool.end()
  },
)

test('a name belongs to one handler', () => {
  const { once } = inSqlite()
  once('readings', () => {})
  expect(() => once('readings', () => {})).toThrow(expect.objectContaining({ code: 'handler_invalid' }))
  expect(() => createOnce({ database: 'oracle' } as never)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
})

test('what is kept can be kept for longer than a timer can wait', () => {
  const keepForMs = 365 * 86_400_000
  const db = { connect() {}, query() {}, on() {}, totalCount: 0, waitingCount: 0 }
  expect(() => createOnce({ pool: db as never, keepForMs })).not.toThrow()
  expect(() => postgresInbox({ db: db as never, keepForMs, retention: { dead: { forMs: keepForMs } } })).not.toThrow()
})
