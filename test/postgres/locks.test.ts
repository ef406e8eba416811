/* Rows that somebody has locked, for instance in a forgotten session of psql: the vehicles of other rows go on. */
import { createReceiver, type Receiver, Retry, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { partitionOf } from '../../adapters/inbox/postgres/schema.ts'
import { logInto } from '../dispatch/scene.ts'
import { post, sceneOfFile, vinOf } from './scene.ts'

const scene = sceneOfFile()
// A lock that a failed test left would keep the server from stopping.
afterAll(async () => {
  await scene.pool.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
})

interface Fleet extends AsyncDisposable {
  readonly receiver: Receiver
  readonly lines: readonly string[]
  /** `vin number`, in the order of handling. */
  readonly handled: string[]
  /** What the handler does with messages of vehicle 0 until it is told otherwise. */
  behave(how: 'wait' | 'fail' | 'again' | 'succeed'): void
}

async function startFleet(schema: string, attempts: number): Promise<Fleet> {
  await scene.prepare(schema)
  const lines: string[] = []
  const handled: string[] = []
  let how: Parameters<Fleet['behave']>[0] = 'succeed'
  const waiting: (() => void)[] = []
  const receiver = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 }),
    log: logInto(lines),
    retry: { attempts },
    parts: [vehicles({ fields: ['Odometer'] })],
  }).on('data', async ({ vin, data: { Odometer } }) => {
    if (vin === vinOf(0)) {
      while (how === 'wait') await new Promise<void>((resolve) => waiting.push(resolve))
      if (how === 'fail') throw new Error('no')
      if (how === 'again') {
        how = 'wait'
        throw new Retry(50)
      }
    }
    handled.push(`${vin} ${String(Odometer)}`)
  })
  await receiver.open()
  return {
    receiver,
    lines,
    handled,
    behave(next) {
      how = next
      for (const go of waiting.splice(0)) go()
    },
    async [Symbol.asyncDispose]() {
      await receiver.drain()
    },
  }
}

const others = Array.from({ length: 20 }, (_, at) => at + 1)
// One of them shares the partition of vehicle 0.
const neighbor = Array.from({ length: 10_000 }, (_, at) => at + 100).find(
  (n) => partitionOf(vinOf(n)) === partitionOf(vinOf(0)),
)

interface Lock extends AsyncDisposable {
  readonly rows: number
  release(): Promise<void>
}

/** Locks rows in a session of their own, until it is released. */
async function lock(sql: string): Promise<Lock> {
  const client: pg.PoolClient = await scene.newPool(1).connect()
  await client.query('BEGIN')
  const { rows } = await client.query(sql)
  let isReleased = false
  const release = async (): Promise<void> => {
    if (isReleased) return
    isReleased = true
    await client.query('ROLLBACK')
    client.release()
  }
  return { rows: rows.length, release, [Symbol.asyncDispose]: release }
}

const rowsOf: Readonly<Record<string, (schema: string) => string>> = {
  message: (schema) => `SELECT 1 FROM ${schema}.message WHERE lane = '${vinOf(0)}' FOR UPDATE`,
  waiting: (schema) =>
    `SELECT 1 FROM ${schema}.waiting w JOIN ${schema}.message m USING (id) WHERE m.lane = '${vinOf(0)}' FOR UPDATE OF w`,
  process: (schema) => `SELECT 1 FROM ${schema}.process FOR UPDATE`,
  handling: (schema) => `SELECT 1 FROM ${schema}.handling FOR UPDATE`,
  part: (schema) => `SELECT 1 FROM ${schema}.part WHERE part = ${partitionOf(vinOf(0))} FOR UPDATE`,
  receiver: (schema) => `SELECT 1 FROM ${schema}.receiver FOR UPDATE`,
  meta: (schema) => `SELECT 1 FROM ${schema}.meta FOR UPDATE`,
  boot: (schema) => `SELECT 1 FROM ${schema}.boot FOR UPDATE`,
  vehicle: (schema) => `SELECT 1 FROM ${schema}.vehicle WHERE vin = '${vinOf(0)}' FOR UPDATE`,
}

describe.each(Object.entries(rowsOf))('while a row of `%s` is locked', (table, sql) => {
  test.each(['succeed', 'fail', 'again'] as const)(
    'a message that will %s waits, other vehicles go on, and it ends when the lock is gone',
    async (how) => {
      const schema = `locks_${table}_${how}`
      await using fleet = await startFleet(schema, how === 'fail' ? 1 : 3)
      const { receiver, handled, lines } = fleet
      // Its vehicle has a state.
      await post(receiver, 0, 1)
      await expect.poll(() => handled).toEqual([`${vinOf(0)} 1`])
      await expect.poll(async () => (await scene.pool.query(`SELECT 1 FROM ${schema}.waiting`)).rowCount).toBe(0)
      handled.length = 0

      fleet.behave('wait')
      await post(receiver, 0, 2)
      await expect
        .poll(async () => (await scene.pool.query(`SELECT 1 FROM ${schema}.waiting`)).rowCount, { interval: 20 })
        .toBe(1)
      await using locked = await lock(sql(schema))
      expect(locked.rows).toBeGreaterThan(0)
      fleet.behave(how)

      for (let round = 1; round <= 4; round += 1) {
        const before = handled.length
        for (const vehicle of table === 'part' ? others : [...others, neighbor ?? 0])
          expect(await post(receiver, vehicle, round)).toBe(200)
        await expect.poll(() => handled.length - before).toBeGreaterThanOrEqual(others.length)
        await new Promise((resolve) => setTimeout(resolve, 1_000))
      }
      // The others are also settled.
      const left = async (): Promise<number> =>
        Number(
          (
            await scene.pool.query(
              `SELECT count(*) FROM ${schema}.waiting w JOIN ${schema}.message m USING (id) WHERE m.lane <> '${vinOf(0)}'`,
            )
          ).rows[0].count,
        )
      await expect.poll(left).toBe(0)
      expect(receiver.readiness().ready).toBe(true)
      if (table === 'waiting' || (table === 'vehicle' && how === 'succeed'))
        await expect.poll(() => lines.join('\n')).toMatch(/nother session has locked/)
      if (table === 'process') await expect.poll(() => lines.join('\n')).toMatch(/locked the row of this process/)
      if (table === 'receiver')
        await expect.poll(() => lines.join('\n')).toMatch(/signs of life could not be written.*has locked a row/)
      // Nothing that the inbox runs stands in a queue behind the lock: it would take one connection more with each try.
      const { rows: queue } = await scene.pool.query(
        `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%${schema}.%' AND xact_start < now() - interval '2 seconds'`,
      )
      expect(queue).toEqual([])

      await locked.release()
      fleet.behave(how === 'again' ? 'succeed' : how)
      await expect.poll(async () => (await scene.pool.query(`SELECT 1 FROM ${schema}.waiting`)).rowCount).toBe(0)
      expect(await Array.fromAsync(receiver.deadLetters.list())).toHaveLength(how === 'fail' ? 1 : 0)
    },
  )
})

test('a lock of a moment, as of the failed transaction of a handler, is no error when its message is given up', async () => {
  const schema = 'locks_short'
  await using fleet = await startFleet(schema, 1)
  fleet.behave('wait')
  await post(fleet.receiver, 0, 1)
  const rows = async (table: string): Promise<number | null> =>
    (await scene.pool.query(`SELECT 1 FROM ${schema}.${table}`)).rowCount
  await expect.poll(() => rows('waiting'), { interval: 20 }).toBe(1)
  await using locked = await lock(`SELECT 1 FROM ${schema}.waiting FOR UPDATE`)
  fleet.behave('fail')
  await scene.pool.query('SELECT pg_sleep(0.2)')
  await locked.release()
  await expect.poll(() => rows('dead')).toBe(1)
  expect(fleet.lines.join('\n')).not.toMatch(/nother session has locked/)
})

test('a message does not end without its state while the next one of its vehicle is locked', async () => {
  const schema = 'locks_next'
  await using fleet = await startFleet(schema, 3)
  const { receiver, handled, lines } = fleet
  await post(receiver, 0, 1)
  const waiting = async (): Promise<readonly number[]> => {
    const sql = `SELECT m.text FROM ${schema}.waiting w JOIN ${schema}.message m USING (id) WHERE m.lane = '${vinOf(0)}' ORDER BY w.seq`
    const { rows } = await scene.pool.query<{ text: string }>(sql)
    return rows.map(({ text }) => Number(JSON.parse(text).data.Odometer))
  }
  const settled = async (n: number): Promise<void> => {
    await expect.poll(async () => [handled.includes(`${vinOf(0)} ${n}`), await waiting()]).toEqual([true, []])
  }
  await settled(1)
  await using vehicle = await lock(rowsOf['vehicle']?.(schema) ?? '')
  for (const n of [2, 3]) await post(receiver, 0, n)
  await expect.poll(() => handled.slice(-2)).toEqual([2, 3].map((n) => `${vinOf(0)} ${n}`))
  await using last = await lock(`SELECT 1 FROM ${schema}.waiting ORDER BY seq DESC LIMIT 1 FOR UPDATE`)
  await vehicle.release()
  await expect.poll(() => lines.join('\n')).toMatch(/locked rows of messages.*"messages":\d/)
  const other = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: scene.newPool(), schema, role: 'receive' }),
    parts: [vehicles({ fields: ['Odometer'] })],
  })
  await other.open()
  const [left, state] = [await waiting(), await other.vehicles.get(vinOf(0))]
  expect([state?.value('Odometer'), ...left]).toEqual([1, 2, 3])
  await last.release()
  await settled(3)
  expect((await other.vehicles.get(vinOf(0)))?.value('Odometer')).toBe(3)
  await other.drain()
})
