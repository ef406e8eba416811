/* The newest state of vehicles and rules about them, over several processes. */
import { createReceiver, type Receiver, type Vehicles, vehicles } from 'fleethook'
import { type PostgresInboxOptions, postgresInbox } from 'fleethook/inbox/postgres'
import { becomes, is, silent, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { expected } from '../vehicles/everywhere-expected.ts'
import { fields, gapNow, lineOf, rules, script, vins } from '../vehicles/everywhere.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile } from './scene.ts'

const vin = '0FLEETV14T0000001'

describe.skipIf(!hasPostgres)('the part vehicles on postgresInbox', () => {
  const scene = sceneOfFile()
  let number = 0

  async function newSchema(): Promise<string> {
    const schema = `vehicles${++number}`
    await scene.prepare(schema)
    return schema
  }

  function keeping(
    schema: string,
    options: Partial<PostgresInboxOptions> = {},
  ): Receiver & { readonly vehicles: Vehicles } {
    // A busy machine can stand still for more than a second. After a lease, what its process has in hand is told again.
    const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 6_000, ...options })
    const retry = { attempts: 2, minMs: 20, maxMs: 50 }
    return createReceiver({ secret: false, inbox, log: quiet, retry, parts: [vehicles({ fields })] })
  }

  const send = async (receiver: Receiver, body: object): Promise<void> => {
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  const gear = (value: string, of: string = vin): object => ({
    vin: of,
    createdAt: new Date().toISOString(),
    data: { Gear: value },
  })
  /** Nothing waits. */
  const settled = async (schema: string): Promise<void> => {
    await expect
      .poll(async () => (await scene.pool.query(`SELECT FROM ${schema}.waiting LIMIT 1`)).rowCount, {
        timeout: 60_000,
        interval: 5,
      })
      .toBe(0)
  }
  const parts = async (schema: string): Promise<readonly number[]> =>
    (
      await scene.pool.query<{ count: string }>(
        `SELECT count(*) FROM ${schema}.part p JOIN ${schema}.process q ON q.id = p.owner WHERE q.until > clock_timestamp() GROUP BY owner ORDER BY 1`,
      )
    ).rows.map(({ count }) => Number(count))

  test('two receivers find the same edges as one, in every message and across gaps', async () => {
    const lines = script(inForm({ short: 150, full: 800 }), 7)
    const schema = await newSchema()
    const found: Record<string, string[]> = Object.fromEntries(vins.map((each) => [each, []]))
    const ids = new Set<string>()
    const both = [keeping(schema), keeping(schema)]
    for (const receiver of both)
      for (const rule of rules)
        receiver.when(rule, (happening) => {
          found[happening.vin]?.push(lineOf(happening))
          ids.add(happening.id)
        })
    await Promise.all(both.map((receiver) => receiver.open()))
    await expect.poll(() => parts(schema)).toEqual([32, 32])
    for (const [at, line] of lines.entries()) {
      const receiver = both[at % 2] ?? expect.fail('There are two.')
      if (!('gap' in line)) await send(receiver, line.body)
      else {
        await settled(schema)
        await receiver.from({ feed: async ({ tell }) => void (await tell(gapNow(line.gap))) })
        await settled(schema)
      }
    }
    await settled(schema)
    await Promise.all(both.map((receiver) => receiver.drain()))
    expect(found).toEqual(expected(lines))
    expect(ids.size).toBe(Object.values(found).flat().length)
  })

  test('a message that is committed behind a newer one of its vehicle is in the state that the next owner finds', async () => {
    const schema = await newSchema()
    // Its row has its number, and is committed when nobody holds the lock any more.
    await scene.pool.query(`CREATE FUNCTION ${schema}.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (SELECT FROM ${schema}.message m WHERE m.id = NEW.id AND m.text LIKE '%"P"%') THEN PERFORM pg_advisory_xact_lock_shared(33); END IF;
  RETURN NEW; END $$`)
    await scene.pool.query(
      `CREATE TRIGGER late AFTER INSERT ON ${schema}.waiting FOR EACH ROW EXECUTE FUNCTION ${schema}.late()`,
    )
    const told: string[] = []
    const start = async (name: string): Promise<Receiver & { readonly vehicles: Vehicles }> => {
      const receiver = keeping(schema).when(
        starts(is('Gear', 'P')).after({ seconds: 6 }),
        ({ vehicle }) => void told.push(`${name} ${String(vehicle.value('Odometer'))}`),
      )
      await receiver.open()
      return receiver
    }
    const [first, second] = [await start('first'), keeping(schema, { role: 'receive' })]
    await send(first, gear('D'))
    await settled(schema)
    const held = await scene.pool.connect()
    await held.query('SELECT pg_advisory_lock(33)')
    const late = send(second, gear('P'))
    await expect
      .poll(
        async () =>
          (await scene.pool.query(`SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`)).rowCount,
      )
      .toBe(1)
    await send(first, { vin, createdAt: new Date().toISOString(), data: { Odometer: 5 } })
    await settled(schema)
    await held.query('SELECT pg_advisory_unlock(33)')
    held.release()
    await late
    await settled(schema)
    // In the tables, which are all that another process knows.
    expect((await second.vehicles.get(vin))?.value('Gear')).toBe('P')
    expect((await second.vehicles.get(vin))?.timers).toHaveLength(1)
    await first.drain()
    const third = await start('third')
    await expect.poll(() => told).toEqual(['third 5'])
    await Promise.all([second.drain(), third.drain()])
  })

  test('rules that are new count from the stored states, once, whichever process has the vehicle', async () => {
    const schema = await newSchema()
    // By id: a process that is too slow to keep its lease hands over what it has told.
    const told = new Map<string, string>()
    const parked = starts(is('Gear', 'P'), { first: true }).after({ seconds: 1 })
    const start = async (withRules: boolean): Promise<Receiver> => {
      const receiver = keeping(schema)
      if (withRules)
        receiver
          .when(parked, ({ vin: of, id, change }) => void told.set(id, `${of} parked, late: ${change.late}`))
          .when(
            silent({ seconds: 2 }),
            ({ vin: of, id, change }) => void told.set(id, `${of} silent, late: ${change.late}`),
          )
      await receiver.open()
      return receiver
    }
    // More than a page of them.
    const all = Array.from({ length: 520 }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)
    const before = await start(false)
    await Promise.all(all.map((of, n) => send(before, gear(n < 3 ? 'D' : 'P', of))))
    await settled(schema)
    await before.drain()
    await new Promise((resolve) => setTimeout(resolve, 3_100))
    const expected = all.flatMap((of, n) => [
      ...(n < 3 ? [] : [`${of} parked, late: true`]),
      `${of} silent, late: true`,
    ])
    const both = await Promise.all([start(true), start(true)])
    await expect.poll(() => told.size, { timeout: 60_000 }).toBeGreaterThanOrEqual(expected.length)
    await settled(schema)
    await Promise.all(both.map((receiver) => receiver.drain()))
    expect([...told.values()].toSorted()).toEqual(expected.toSorted())
    // Nor does a process without them, or the next one with them, tell anything again.
    for (const withRules of [false, true]) {
      const next = await start(withRules)
      await new Promise((resolve) => setTimeout(resolve, 7_000))
      await settled(schema)
      await next.drain()
    }
    expect(told.size).toBe(expected.length)
  })

  test('a list is refused while Postgres is down', async () => {
    const schema = await newSchema()
    const pool = scene.newPool()
    let isDown = false
    const receiver = keeping(schema, {
      db: {
        query: async (text, values) => {
          if (isDown) throw new Error('Postgres is down.')
          return pool.query(text, values)
        },
      },
    }).on('data', () => void (isDown = true))
    await receiver.open()
    await send(receiver, gear('D'))
    await expect.poll(() => isDown).toBe(true)
    await expect(Array.fromAsync(receiver.vehicles.list())).rejects.toMatchObject({ code: 'inbox_unavailable' })
    isDown = false
    expect(await Array.fromAsync(receiver.vehicles.list())).toHaveLength(1)
    await receiver.drain()
  })

  test('a process that only receives lists vehicles and forgets them where they are handled', async () => {
    const schema = await newSchema()
    const front = keeping(schema, { role: 'receive' })
    const back = keeping(schema, { role: 'handle' }).on('data', () => {})
    await Promise.all([front.open(), back.open()])
    for (const of of ['B', 'A', 'C']) await send(front, gear('D', of))
    await settled(schema)
    expect((await Array.fromAsync(front.vehicles.list())).map((each) => each.vin)).toEqual(['A', 'B', 'C'])
    expect((await Array.fromAsync(front.vehicles.list({ after: 'B' }))).map((each) => each.vin)).toEqual(['C'])
    expect((await front.vehicles.get('A'))?.value('Gear')).toBe('D')
    expect(await front.vehicles.get('no')).toBe(undefined)
    expect(await front.vehicles.stats()).toMatchObject({ vehicles: 3 })
    expect(await front.vehicles.forget('A')).toBe(true)
    expect(await front.vehicles.forget('no')).toBe(false)
    expect(await front.vehicles.get('A')).toBe(undefined)
    // The one that has it knew it in memory.
    await expect.poll(async () => (await back.vehicles.get('A')) === undefined).toBe(true)
    await send(front, { ...gear('D', 'A'), data: { BatteryLevel: 50 } })
    await settled(schema)
    expect((await front.vehicles.get('A'))?.fields).toEqual(['BatteryLevel'])
    await Promise.all([front.drain(), back.drain()])
  })

  test('a message that follows a refused one is across a gap, even at another receiver', async () => {
    const schema = await newSchema()
    const told: string[] = []
    let isDown = false
    const pool = scene.newPool()
    const db = {
      query: (text: string, values?: unknown[]) =>
        isDown ? Promise.reject(new Error('out of reach')) : pool.query(text, values),
    }
    const front = keeping(schema, { role: 'receive', db, confirmMs: 3_000 })
    const other = keeping(schema, { role: 'receive' })
    const back = keeping(schema, { role: 'handle' }).on('data', (event, { changes }) => {
      for (const { acrossGap, to } of changes) told.push(`${event.vin} ${String(to)} ${acrossGap}`)
    })
    await Promise.all([front.open(), other.open(), back.open()])
    for (const of of ['A', 'B']) await send(front, gear('D', of))
    await settled(schema)
    isDown = true
    expect((await front.accept({ authorization: undefined, body: gear('R', 'A') })).status).toBe(503)
    isDown = false
    await send(front, gear('P', 'B'))
    await send(other, gear('P', 'A'))
    await settled(schema)
    // Two vehicles have no order.
    expect(told.toSorted()).toEqual(['A P true', 'B P false'])
    await Promise.all([front, other, back].map((receiver) => receiver.drain()))
  })

  test('a dead letter keeps its state, and its replay reports its edge again', async () => {
    const schema = await newSchema()
    let fails = true
    const ids: string[] = []
    const one = keeping(schema).when(becomes('Gear', 'P'), ({ id }) => {
      ids.push(id)
      if (fails) throw new Error('not now')
    })
    await one.open()
    await send(one, gear('D'))
    await send(one, gear('P'))
    await settled(schema)
    await expect.poll(async () => (await one.vehicles.get(vin))?.value('Gear')).toBe('P')
    await one.drain()
    fails = false
    const two = keeping(schema).when(becomes('Gear', 'P'), ({ id }) => void ids.push(id))
    await two.open()
    expect((await two.vehicles.get(vin))?.value('Gear')).toBe('P')
    const [letter] = await Array.fromAsync(two.deadLetters.list())
    expect(await two.deadLetters.replay(letter?.id ?? '')).toBe(1)
    await expect.poll(() => ids.length).toBe(3)
    expect(new Set(ids).size).toBe(1)
    await two.drain()
  })

  test('an edge of a message in a batch is found again after its process ended, whatever came after it', async () => {
    const schema = await newSchema()
    const pool = scene.newPool()
    let isCut = false
    const one = keeping(schema, {
      db: { query: (text, values) => (isCut ? Promise.reject(new Error('out of reach')) : pool.query(text, values)) },
    }).batch('data', { size: 10, withinMs: 60_000 }, () => {})
    await one.open()
    await send(one, gear('D'))
    await send(one, gear('P'))
    await send(one, { vin, createdAt: new Date().toISOString(), state: 'online' })
    await expect.poll(() => one.vehicles.get(vin).then((car) => car?.online)).toBe(true)
    // Writes what may be written.
    await Array.fromAsync(one.vehicles.list())
    isCut = true
    const found: unknown[] = []
    const two = keeping(schema).when(becomes('Gear', 'P'), ({ change }) => void found.push(change.from))
    await two.open()
    await settled(schema)
    expect(found).toEqual(['D'])
    expect((await two.vehicles.get(vin))?.online).toBe(true)
    await Promise.all([one.drain({ handlerGraceMs: 0, deadlineMs: 100 }), two.drain()])
  })

  test.each([
    ['it may end the process', 'UPDATE $.waiting SET deliveries = 4 WHERE id = $1'],
    ['nobody can read it', "UPDATE $.message SET text = '?' WHERE id = $1"],
  ])('a message that is given up because %s leaves its vehicle uncertain', { timeout: 180_000 }, async (_, sql) => {
    const schema = await newSchema()
    const front = keeping(schema, { role: 'receive' })
    await front.open()
    const rule = starts(is('Gear', 'D'))
    const begin = async (): Promise<readonly [Receiver & { readonly vehicles: Vehicles }, boolean[]]> => {
      const found: boolean[] = []
      const back = keeping(schema, { role: 'handle' }).when(rule, ({ change }) => void found.push(change.acrossGap))
      await back.open()
      return [back, found]
    }
    const [first, before] = await begin()
    await send(front, { vin, createdAt: new Date().toISOString(), data: { Gear: 'P', Odometer: 1_000 } })
    await settled(schema)
    expect((await first.vehicles.get(vin))?.isCertain('Odometer')).toBe(true)
    await first.drain()
    await send(front, { vin, createdAt: new Date().toISOString(), data: { Odometer: 1_001 } })
    const { rows } = await scene.pool.query<{ id: string }>(`SELECT id FROM ${schema}.waiting`)
    expect(rows).toHaveLength(1)
    await scene.pool.query(sql.replace('$.', `${schema}.`), [rows[0]?.id])
    const [second, after] = await begin()
    await settled(schema)
    const shown = async (): Promise<readonly unknown[]> => {
      const seen = await second.vehicles.get(vin)
      return [seen?.value('Odometer'), seen?.isCertain('Odometer'), seen?.isCertain('Gear')]
    }
    await expect.poll(shown).toEqual([1_000, false, false])
    expect((await Array.fromAsync(front.deadLetters.list({}))).map(({ id }) => id)).toEqual([rows[0]?.id])
    await send(front, gear('D'))
    await settled(schema)
    expect([before, after]).toEqual([[], [true]])
    await send(front, { vin, createdAt: new Date().toISOString(), data: { Odometer: 1_002 } })
    await settled(schema)
    expect((await second.vehicles.get(vin))?.isCertain('Odometer')).toBe(true)
    await Promise.all([front.drain(), second.drain()])
  })
})
