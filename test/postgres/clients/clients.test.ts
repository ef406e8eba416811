/* The clients of the docs: for the inbox, and for the transactions of handlers. */
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/node-postgres'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import type { Receiver } from 'fleethook'
import type { PostgresClient, PostgresInbox } from 'fleethook/inbox/postgres'
import { Kysely, PostgresDialect, type Transaction } from 'kysely'
import postgres from 'postgres'
import { beforeEach, describe, expect, test } from 'vitest'
import { form } from '../../form.ts'
import { hasPostgres } from '../../once/servers.ts'
import { type PrismaTransaction, prismaOn } from './prisma.ts'
import { post, receiverOn, sceneOfFile, tablesOf } from '../scene.ts'

describe.skipIf(!hasPostgres)('clients', () => {
  const scene = sceneOfFile(async ({ pool }) => {
    await pool.query('CREATE TABLE readings (schema text NOT NULL, vin text NOT NULL, n int NOT NULL)')
  })
  let schema = ''
  let number = 0
  beforeEach(async () => {
    schema = `client${++number}`
    await scene.prepare(schema)
  })

  const rows = async (): Promise<readonly number[]> =>
    (await scene.pool.query<{ n: number }>('SELECT n FROM readings WHERE schema = $1 ORDER BY n', [schema])).rows.map(
      ({ n }) => n,
    )

  /** Posts three messages to handlers that fail once each after their write. */
  async function writesOnce(
    add: (inbox: PostgresInbox, receiver: Receiver, failOnce: (n: number) => void) => void,
  ): Promise<void> {
    const { inbox, receiver } = receiverOn({ db: scene.newPool(), schema })
    const failed = new Set<number>()
    add(inbox, receiver, (n) => {
      if (failed.has(n)) return
      failed.add(n)
      throw new Error('It fails after its write.')
    })
    await receiver.open()
    for (let n = 0; n < 3; n += 1) expect(await post(receiver, n, n)).toBe(200)
    await expect.poll(() => receiver.stats().handled).toBe(3)
    expect(await rows()).toEqual([0, 1, 2])
    expect(failed.size).toBe(3)
    await receiver.drain()
  }

  test('Drizzle writes in its own transactions', () =>
    writesOnce((inbox, receiver, failOnce) => {
      const db = drizzle({ client: scene.newPool() })
      const readings = pgTable('readings', { schema: text(), vin: text(), n: integer() })
      type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0]
      const exactly = inbox.exactlyOnce<Tx>((work) => db.transaction(work))
      receiver.on(
        'data',
        exactly('readings', async ({ vin, data }, _, tx) => {
          const n = Number(data.Odometer)
          await tx.insert(readings).values({ schema, vin, n })
          failOnce(n)
        }),
      )
    }))

  test('Kysely writes in its own transactions', () =>
    writesOnce((inbox, receiver, failOnce) => {
      interface Tables {
        readonly readings: { readonly schema: string; readonly vin: string; readonly n: number }
      }
      const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: scene.newPool() }) })
      const exactly = inbox.exactlyOnce<Transaction<Tables>>((work) => db.transaction().execute(work))
      receiver.on(
        'data',
        exactly('readings', async ({ vin, data }, _, tx) => {
          const n = Number(data.Odometer)
          await tx.insertInto('readings').values({ schema, vin, n }).execute()
          failOnce(n)
        }),
      )
    }))

  test('Prisma writes in its own transactions', async () => {
    const prisma = prismaOn(scene.server.port)
    await writesOnce((inbox, receiver, failOnce) => {
      const exactly = inbox.exactlyOnce<PrismaTransaction>((work) => prisma.$transaction(work, { timeout: 15_000 }))
      receiver.on(
        'data',
        exactly('readings', async ({ vin, data }, _, tx) => {
          const n = Number(data.Odometer)
          await tx.readings.create({ data: { schema, vin, n } })
          failOnce(n)
        }),
      )
    })
    await prisma.$disconnect()
  })

  test('a client of its own says how to run a statement', () =>
    writesOnce((inbox, receiver, failOnce) => {
      const pool = scene.newPool()
      const exactly = inbox.exactlyOnce<(sql: string) => Promise<readonly unknown[]>>(
        async (work) => {
          const client = await pool.connect()
          let failure: Error | undefined
          try {
            await client.query('BEGIN')
            await work(async (sql) => (await client.query(sql)).rows)
            await client.query('COMMIT')
          } catch (error) {
            failure = error instanceof Error ? error : new Error('unknown')
            throw error
          } finally {
            client.release(failure)
          }
        },
        { run: (tx, sql) => tx(sql) },
      )
      receiver.on(
        'data',
        exactly('readings', async ({ vin, data }, _, tx) => {
          const n = Number(data.Odometer)
          await tx(`INSERT INTO readings VALUES ('${schema}', '${vin}', ${n})`)
          failOnce(n)
        }),
      )
    }))

  test('a transaction of an unknown client is one clear error', async () => {
    const { inbox } = receiverOn({ db: scene.newPool(), schema })
    expect(() => inbox.exactlyOnce(JSON.parse('1'))).toThrow('must be a function that runs work in a transaction')
  })

  /** Posts messages, one of which dies and is replayed, and handles them in order. */
  async function keepsMessages(db: PostgresClient): Promise<void> {
    const { receiver } = receiverOn({ db, schema, allowWeak: true })
    const numbers: number[] = []
    let isBroken = true
    receiver.on('data', ({ data }) => {
      const n = Number(data.Odometer)
      if (n === 1 && isBroken) throw new Error('It is broken.')
      numbers.push(n)
    })
    await receiver.open()
    for (let n = 0; n < 4; n += 1) expect(await post(receiver, 1, n)).toBe(200)
    await expect.poll(() => numbers).toEqual([0, 2, 3])
    await expect
      .poll(async () => (await Array.fromAsync(receiver.messages.list())).map(({ state }) => state))
      .toEqual(['settled', 'settled', 'dead', 'settled'])
    isBroken = false
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await expect.poll(() => numbers).toEqual([0, 2, 3, 1])
    await receiver.drain()
  }

  test('the inbox runs on postgres.js, with one line around it', async () => {
    const sql = postgres({ host: '127.0.0.1', port: scene.server.port, user: 'test', database: 'postgres', max: 3 })
    await keepsMessages({
      query: async (statement, values) => ({ rows: await sql.unsafe(statement, values as never[]) }),
    }) // oxlint-disable-line no-unsafe-type-assertion -- as a user without its types
    await sql.end()
  })

  // It takes seconds to start.
  test.skipIf(form === 'short')('the inbox runs on PGlite', async () => {
    const db = new PGlite()
    await db.exec(tablesOf(schema))
    await keepsMessages(db)
    await db.close()
  })
})
