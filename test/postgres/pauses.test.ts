/* A time in which no receiver listened is no gap for a vehicle that goes on as before, over several processes. */
import { createReceiver, type Receiver, type Vehicles, vehicles } from 'fleethook'
import { type PostgresInboxOptions, postgresInbox } from 'fleethook/inbox/postgres'
import { episode, is, span } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile, vinOf } from './scene.ts'

const trip = episode('trip', {
  ...{ during: is('Gear', 'D'), joins: { seconds: 1 }, waits: { seconds: 1 } },
  measures: { miles: span('Odometer') },
})
const [regular, early, parked] = [vinOf(1), vinOf(2), vinOf(3)] as const

describe.skipIf(!hasPostgres)('a restart of the only receiver on Postgres', () => {
  const scene = sceneOfFile()
  /** `vin field acrossGap`, of each change. */
  const told: string[] = []
  /** `vin acrossGap`, of each trip. */
  const trips: string[] = []

  function keeping(schema: string, options: Partial<PostgresInboxOptions> = {}) {
    return createReceiver({
      ...{ secret: false, log: quiet, parts: [vehicles({ fields: ['Gear', 'Odometer'] })] },
      inbox: postgresInbox({ db: scene.newPool(), schema, leaseMs: 10_000, ...options }),
    })
      .on('data', ({ vin }, { changes }) => {
        for (const { field, acrossGap } of changes) told.push(`${vin} ${field} ${acrossGap}`)
      })
      .when(trip, ({ vin, change }) => void trips.push(`${vin} ${change.acrossGap}`))
  }
  const send = async (receiver: Receiver, vin: string, data: object): Promise<void> => {
    const body = { vin, createdAt: new Date().toISOString(), data }
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  const rows = async (sql: string): Promise<readonly unknown[]> => (await scene.pool.query(sql)).rows
  const settled = async (schema: string): Promise<void> => {
    await expect.poll(() => rows(`SELECT id FROM ${schema}.waiting`)).toEqual([])
  }

  /** Each vehicle is on a trip, and the first two are usually heard each minute. */
  async function stopped(schema: string): Promise<void> {
    await scene.prepare(schema)
    const receiver = keeping(schema)
    await receiver.open()
    await expect.poll(() => rows(`SELECT id FROM ${schema}.receiver WHERE accounted`)).toHaveLength(1)
    for (const vin of [regular, early, parked])
      for (const Gear of ['P', 'D']) await send(receiver, vin, { Gear, Odometer: 1 })
    await settled(schema)
    await receiver.drain()
    await scene.pool.query(
      `UPDATE ${schema}.vehicle SET text = (text::jsonb || '{"pace":60000}')::text WHERE vin <> '${parked}'`,
    )
    for (const each of [told, trips]) each.length = 0
  }

  /** The next receiver, whose signs of life wait. */
  async function next(schema: string): Promise<{
    readonly receiver: Receiver & { readonly vehicles: Vehicles }
    /** Resolves when the event of its gap is handled, the `nth` of all. */
    sign(nth?: number): Promise<void>
  }> {
    const pool = scene.newPool()
    const signs = Promise.withResolvers<void>()
    const query = async (text: string, values?: unknown[]): Promise<unknown> => {
      if (text.startsWith(`INSERT INTO ${schema}.receiver`)) await signs.promise
      return pool.query(text, values)
    }
    const receiver = keeping(schema, { db: { query: query as typeof pool.query } })
    await receiver.open()
    return {
      receiver,
      async sign(nth = 1) {
        signs.resolve()
        await expect.poll(() => rows(`SELECT kind FROM ${schema}.notice`)).toHaveLength(nth)
        await settled(schema)
      },
    }
  }

  test('marks no change and no trip of a vehicle that goes on as before, and what is known of it is certain in each process', async () => {
    const schema = 'pauses'
    await stopped(schema)
    const { receiver, sign } = await next(schema)
    const front = keeping(schema, { role: 'receive' })
    await sign()
    expect(await rows(`SELECT kind FROM ${schema}.notice`)).toEqual([{ kind: expect.stringMatching(/^pause \d+$/) }])
    await front.open()
    const certain = async (vin: string): Promise<unknown> =>
      Promise.all([receiver, front].map(async (one) => (await one.vehicles.get(vin))?.isCertain('Odometer')))
    // Until it is heard.
    expect(await certain(regular)).toEqual([false, false])
    for (const vin of [regular, parked]) await send(front, vin, { Gear: 'P' })
    await settled(schema)
    expect(told.toSorted()).toEqual([`${regular} Gear false`, `${parked} Gear true`])
    expect([await certain(regular), await certain(parked)]).toEqual([
      [true, true],
      [false, false],
    ])
    // Its end has waited for values.
    await expect.poll(() => trips.toSorted()).toEqual([`${regular} false`, `${parked} true`])
    await Promise.all([receiver, front].map((one) => one.drain()))
  })

  test.each([
    ['', 'early'],
    [', also after one more restart', 'again'],
  ])(
    'marks changes of a vehicle that was heard before the event of the gap%s: nobody knows how long it was silent',
    async (_, schema) => {
      await stopped(schema)
      let { receiver, sign } = await next(schema)
      await send(receiver, early, { Odometer: 2 })
      await settled(schema)
      await sign()
      if (schema === 'again') {
        await receiver.drain()
        ;({ receiver, sign } = await next(schema))
        await sign(2)
      }
      await send(receiver, early, { Gear: 'P' })
      await settled(schema)
      expect(told).toEqual([`${early} Odometer false`, `${early} Gear true`])
      await send(receiver, early, { Gear: 'R' })
      await settled(schema)
      expect(told.at(-1)).toBe(`${early} Gear false`)
      await receiver.drain()
    },
  )
})
