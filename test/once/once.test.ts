/* Writes that happen once, in three real databases. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type Delivery, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { createOnce, type Once } from 'fleethook/once'
import { createPool } from 'mysql2/promise'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { silent } from '../vehicles/scene.ts'
import { bodiesOf, twice } from './repeated.ts'
import { hasMysql, hasPostgres, startMysql, startPostgres } from './servers.ts'

/** A database with a table of its user. */
interface Database {
  readonly once: Once<Write>
  /** Runs a statement outside of transactions. */
  readonly run: (sql: string) => Promise<unknown>
  readonly rows: () => Promise<readonly string[]>
  readonly end: () => Promise<void>
}

/** Writes in the transaction of a handler. */
type Write = (sql: string) => Promise<number>

function inSqlite(): Database {
  const db = new DatabaseSync(':memory:')
  let last: Promise<unknown> = Promise.resolve()
  return {
    once: createOnce<Write>({
      database: 'sqlite',
      run: async (_, sql, values) => Number(db.prepare(sql).run(...values).changes),
      transaction(work) {
        const done = last.then(async () => {
          db.exec('BEGIN IMMEDIATE')
          try {
            await work(async (sql) => Number(db.prepare(sql).run().changes))
            db.exec('COMMIT')
          } finally {
            if (db.isTransaction) db.exec('ROLLBACK')
          }
        })
        last = done.catch(() => {})
        return done
      },
    }),
    run: async (sql) => db.exec(sql),
    rows: async () =>
      db
        .prepare('SELECT text FROM written ORDER BY text')
        .all()
        .map(({ text }) => String(text)),
    end: async () => db.close(),
  }
}

async function inPostgres(): Promise<Database> {
  const server = await startPostgres()
  const pool = new pg.Pool({ host: '127.0.0.1', port: server.port, user: 'test', database: 'postgres', max: 8 })
  // The pool ends before its connections do, and the server ends those.
  pool.on('error', () => {})
  pool.on('connect', (client) => void client.on('error', () => {}))
  await vi.waitFor(() => pool.query('SELECT 1'), { timeout: 30_000, interval: 100 })
  const writers = new WeakMap<Write, pg.PoolClient>()
  return {
    once: createOnce<Write>({
      database: 'postgres',
      run: async (write, sql, values) => (await writers.get(write)?.query(sql, values))?.rowCount ?? 0,
      async transaction(work) {
        const client = await pool.connect()
        const write: Write = async (sql) => (await client.query(sql)).rowCount ?? 0
        writers.set(write, client)
        try {
          await client.query('BEGIN')
          await work(write)
          await client.query('COMMIT')
        } catch (error) {
          await client.query('ROLLBACK')
          throw error
        } finally {
          client.release()
        }
      },
    }),
    run: (sql) => pool.query(sql),
    rows: async () =>
      (await pool.query<{ text: string }>('SELECT text FROM written ORDER BY text')).rows.map(({ text }) => text),
    async end() {
      await pool.end()
      await server[Symbol.asyncDispose]()
    },
  }
}

async function inMysql(): Promise<Database> {
  const server = await startMysql()
  const pool = createPool({ host: '127.0.0.1', port: server.port, user: 'root', connectionLimit: 8 })
  await vi.waitFor(() => pool.query('CREATE DATABASE IF NOT EXISTS test'), { timeout: 30_000, interval: 100 })
  type Connection = Awaited<ReturnType<typeof pool.getConnection>>
  const writers = new WeakMap<Write, Connection>()
  const changed = ([result]: readonly unknown[]): number => Number(Reflect.get(Object(result), 'affectedRows'))
  return {
    once: createOnce<Write>({
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
    }),
    async run(sql) {
      const connection = await pool.getConnection()
      await connection.query('USE test')
      await connection.query(sql).finally(() => connection.release())
    },
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

const databases: readonly (readonly [string, boolean, () => Database | Promise<Database>])[] = [
  ['SQLite', true, inSqlite],
  ['Postgres', hasPostgres, inPostgres],
  ['MySQL', hasMysql, inMysql],
]

for (const [name, isThere, open] of databases)
  describe.skipIf(!isThere)(`in ${name}`, () => {
    let database: Database
    let names = 0
    beforeAll(async () => {
      database = await open()
    }, 120_000)
    afterAll(() => database?.end())
    beforeEach(async () => {
      for (const sql of database.once.schema) await database.run(sql)
      await database.run('CREATE TABLE IF NOT EXISTS written (text VARCHAR(100))')
      await database.run('DELETE FROM written')
      names += 1
    })

    const send = (receiver: Receiver, ...numbers: readonly number[]): Promise<unknown> =>
      receiver.accept({
        authorization: undefined,
        body: numbers.map((number) => ({
          vin: `V${number}`,
          createdAt: '2026-05-01T00:00:00Z',
          data: { Odometer: number },
        })),
      })
    const receiverWith = (attempts = 3): Receiver =>
      createReceiver({ secret: false, log: silent, ack: 'handled', retry: { attempts, minMs: 1, maxMs: 1 } })

    test('a message that is handed out again writes nothing more, and each handler has its own mark', async () => {
      const receiver = receiverWith()
      let runs = 0
      receiver.on(
        'data',
        database.once(
          `one ${names}`,
          async ({ vin }, _context, write) => void (await write(`INSERT INTO written VALUES ('one ${vin}')`)),
        ),
      )
      receiver.on(
        'data',
        database.once(
          `two ${names}`,
          async ({ vin }, _context, write) => void (await write(`INSERT INTO written VALUES ('two ${vin}')`)),
        ),
      )
      // The process ends after both have written: the message is handed out again.
      const again = database.once(
        `three ${names}`,
        async ({ vin }: { vin: string }, _context: unknown, write) =>
          void (await write(`INSERT INTO written VALUES ('three ${vin}')`)),
      )
      receiver.on('data', async (event, context) => {
        await again(event, context)
        await again(event, context)
        runs += 1
        if (runs === 1) throw new Error('once more')
      })
      await send(receiver, 1)
      expect(runs).toBe(2)
      expect(await database.rows()).toEqual(['one V1', 'three V1', 'two V1'])
    })

    test('a handler that runs twice for one message writes twice: for two times of an edge, and for two subjects', async () => {
      const receiver = createReceiver({
        ...{ secret: false, log: silent, ack: 'handled' },
        parts: [vehicles({ fields: ['Gear'] })],
      })
      const insert = async (text: string, write: Write): Promise<void> =>
        void (await write(`INSERT INTO written VALUES ('${text}')`))
      receiver.when(
        twice,
        database.once(`edge ${names}`, ({ change }, _context, write) =>
          insert(`${Math.round((Date.now() - change.at.getTime()) / 60_000)} minutes ago`, write),
        ),
      )
      const both = database.once(`both ${names}`, (_what: unknown, _context: { delivery: Delivery }, write) => insert('both', write)) // prettier-ignore
      receiver.on('data', both).on('data', { fields: ['Odometer'] }, both)
      for (const body of bodiesOf('V1')) await receiver.accept({ authorization: undefined, body })
      expect(await database.rows()).toEqual(['18 minutes ago', '19 minutes ago', 'both', 'both', 'both', 'both'])
    })

    test('a handler that fails has written nothing, and its retry writes once', async () => {
      const receiver = receiverWith()
      const handle = database.once(
        `fails ${names}`,
        async ({ vin }: { vin: string }, { delivery }: { delivery: Delivery }, write) => {
          await write(`INSERT INTO written VALUES ('${vin} ${delivery.attempt}')`)
          if (delivery.attempt < 3) throw new Error('no')
        },
      )
      await send(receiver.on('data', handle), 1, 2)
      expect(await database.rows()).toEqual(['V1 3', 'V2 3'])
    })

    test('a handler that swallows an error of the database does not lose its writes in silence', async () => {
      const receiver = receiverWith()
      const handle = database.once(
        `swallows ${names}`,
        async ({ vin }: { vin: string }, { delivery }: { delivery: Delivery }, write) => {
          await write(`INSERT INTO written VALUES ('${vin} ${delivery.attempt}')`)
          if (delivery.attempt === 1) await write('INSERT INTO nowhere VALUES (1)').catch(() => {})
        },
      )
      await send(receiver.on('data', handle), 1)
      // Only in Postgres an error ends the transaction.
      expect(await database.rows()).toEqual([name === 'Postgres' ? 'V1 2' : 'V1 1'])
    })

    test('a batch of which some messages were handled before is tried message by message', async () => {
      const receiver = receiverWith()
      const sizes: number[] = []
      const handle = database.once.batch(
        `batch ${names}`,
        async (events: readonly { vin: string }[], _context: { deliveries: readonly Delivery[] }, write) => {
          sizes.push(events.length)
          for (const { vin } of events) await write(`INSERT INTO written VALUES ('${vin}')`)
        },
      )
      let first = true
      receiver.batch('data', { size: 3, withinMs: 20 }, async (events, context) => {
        if (first) {
          first = false
          // One of three was written when the process ended.
          await handle(events.slice(0, 1), { ...context, deliveries: context.deliveries.slice(0, 1) })
        }
        await handle(events, context)
      })
      await send(receiver, 1, 2, 3)
      expect(await database.rows()).toEqual(['V1', 'V2', 'V3'])
      expect(sizes).toEqual([1, 1, 1])
    })

    test('a dead letter that is replayed goes on where it failed: what had succeeded does not run again', async () => {
      const receiver = receiverWith(1)
      let fails = true
      const write = (handler: string): ((event: { vin: string }, context: { delivery: Delivery }) => Promise<void>) =>
        database.once(
          `${handler} ${names}`,
          async ({ vin }: { vin: string }, _context, run) =>
            void (await run(`INSERT INTO written VALUES ('${handler} ${vin}')`)),
        )
      const failing = write('failing')
      receiver.on('data', write('succeeds'))
      receiver.on('data', async (event, context) => {
        if (fails) throw new Error('no')
        await failing(event, context)
      })
      await send(receiver, 1)
      fails = false
      await receiver.deadLetters.replay({})
      await expect.poll(() => receiver.stats().handled).toBe(1)
      expect(await database.rows()).toEqual(['failing V1', 'succeeds V1'])
    })

    test('a replay of handled messages is a new run, which writes once however often it is handed out', async () => {
      await using file = await temporaryFile()
      const receiver = createReceiver({
        secret: false,
        log: silent,
        inbox: sqliteInbox({ path: file.path }),
        retry: { minMs: 1, maxMs: 1 },
      })
      const write = database.once(
        `replayed ${names}`,
        async ({ vin }: { vin: string }, _context: { delivery: Delivery }, run) =>
          void (await run(`INSERT INTO written VALUES ('${vin}')`)),
      )
      receiver.on('data', async (event, context) => {
        await write(event, context)
        // As if the process had ended here.
        if (context.delivery.attempt < 3) throw new Error('again')
      })
      await send(receiver, 1)
      const all = { from: new Date(0), to: new Date(Date.now() + 60_000) }
      for (const runs of [1, 2, 3]) {
        await expect.poll(() => receiver.stats().handled).toBe(runs)
        expect(await database.rows()).toEqual(Array.from({ length: runs }, () => 'V1'))
        if (runs < 3) await receiver.replay(all)
      }
      await receiver.drain()
    })

    test('a transaction that is committed after the time limit ends the message, and leaves no dead letter', async () => {
      const receiver = createReceiver({ secret: false, log: silent, timeoutMs: 50, retry: { attempts: 1 } })
      let commit = (): void => {}
      const committing = new Promise<void>((resolve) => {
        commit = resolve
      })
      receiver.on(
        'data',
        database.once(`late ${names}`, async ({ vin }, _context, write) => {
          await write(`INSERT INTO written VALUES ('${vin}')`)
          await committing
        }),
      )
      await send(receiver, 1)
      const dead = async (): Promise<number> => (await Array.fromAsync(receiver.deadLetters.list())).length
      await expect.poll(dead).toBe(1)
      commit()
      await expect.poll(dead).toBe(0)
      expect(await database.rows()).toEqual(['V1'])
      await receiver.drain()
    })
  })

interface TemporaryFile extends AsyncDisposable {
  readonly path: string
}

async function temporaryFile(): Promise<TemporaryFile> {
  const folder = await mkdtemp(join(tmpdir(), 'fleethook-once-'))
  return { path: join(folder, 'inbox.db'), [Symbol.asyncDispose]: () => rm(folder, { recursive: true }) }
}

test('old marks are deleted', async () => {
  const database = inSqlite()
  for (const sql of database.once.schema) await database.run(sql)
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
    await vi.waitFor(() => pool.query('SELECT 1'), { timeout: 30_000, interval: 100 })
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
