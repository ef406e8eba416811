/* A customer is erased: no table has the VIN. */
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, onTestFinished, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile } from './scene.ts'

const gone = '0FLEETV14T0000GON'
const stays = '0FLEETV14T0000STY'

describe.skipIf(!hasPostgres)('receiver.forget on Postgres', () => {
  const scene = sceneOfFile()

  const made = (schema: string, role: 'both' | 'receive' | 'handle') => {
    const receiver = createReceiver({
      ...{ secret: false, log: quiet, retry: { minMs: 600_000, maxMs: 600_000 } },
      parts: [vehicles({ fields: ['Odometer', 'VehicleName'] })],
      inbox: postgresInbox({ db: scene.newPool(), schema, role, leaseMs: 3_000 }),
    })
    onTestFinished(async () => void (await receiver.drain()))
    return receiver.on('data', (event) => {
      if (event.data.VehicleName === 'fails') throw new Error(`not yet ${event.vin}`)
    })
  }

  /** Every row of every table, as text. */
  const everything = async (schema: string): Promise<string> => {
    const { rows } = await scene.pool.query<{ name: string }>(
      `SELECT table_name AS name FROM information_schema.tables WHERE table_schema = '${schema}'`,
    )
    let all = ''
    for (const { name } of rows) {
      const found = await scene.pool.query<{ row: string }>(`SELECT t::text AS row FROM ${schema}.${name} t`)
      all += found.rows.map(({ row }) => `${name} ${row}\n`).join('')
    }
    return all
  }

  const post = async (receiver: Receiver, body: unknown): Promise<void> => {
    await receiver.accept({ authorization: undefined, body })
  }

  test('leaves the VIN in no table, with messages that are handled, that fail, that are dead, and in gaps', async () => {
    await scene.prepare('erase')
    const receiver = made('erase', 'both')
    await receiver.open()
    for (const vin of [gone, stays]) {
      await post(receiver, { vin, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
      await post(receiver, `{"vin":"${vin.toLowerCase()}","broken`)
      await post(receiver, { source: vin.toLowerCase() })
    }
    await expect.poll(() => receiver.stats().handled).toBeGreaterThanOrEqual(4)
    for (const vin of [gone, stays])
      for (const Odometer of [2, 3])
        await post(receiver, { vin, createdAt: '2026-01-01T00:01:00Z', data: { VehicleName: 'fails', Odometer } })
    await expect.poll(() => everything('erase')).toMatch(/^failing .*GON/m)
    await scene.pool.query(`INSERT INTO erase.dead SELECT id, 'Error ${gone}', 1, 1, NULL FROM erase.message m
  WHERE lane = '${gone}' AND NOT EXISTS (SELECT FROM erase.waiting w WHERE w.id = m.id)`)
    await scene.pool.query(
      `UPDATE erase.receiver SET gaps = '[{"vin":"${gone}","reason":"inbox_full","fromMs":1,"toMs":2,"missed":1}]'`,
    )
    const before = { messages: 5, waiting: 2, deadLetters: 1 }
    expect(await receiver.forget(gone, { dryRun: true })).toEqual(before)
    expect(await everything('erase')).toContain(gone)
    expect(await receiver.forget(gone)).toEqual(before)
    expect((await everything('erase')).toUpperCase()).not.toContain(gone)
    expect(await everything('erase')).toContain(stays)
    expect(receiver.stats().pending.messages).toBe(2)
    await expect.poll(() => receiver.stats().failing?.messages).toBe(1)
    expect((await everything('erase')).toUpperCase()).not.toContain(gone)
  })

  test('another process that has a failing message in hand lets go of it', async () => {
    await scene.prepare('elsewhere')
    const receiver = made('elsewhere', 'receive')
    await receiver.open()
    let tries = 0
    const handling = createReceiver({
      ...{ secret: false, log: quiet, retry: { minMs: 50, maxMs: 50, attempts: 100_000 } },
      inbox: postgresInbox({ db: scene.newPool(), schema: 'elsewhere', role: 'handle', leaseMs: 3_000 }),
    }).on('data', () => {
      tries += 1
      throw new Error('not yet')
    })
    onTestFinished(async () => void (await handling.drain()))
    await handling.open()
    await post(receiver, { vin: gone, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
    await expect.poll(() => tries).toBeGreaterThan(2)
    expect(await receiver.forget(gone)).toMatchObject({ messages: 1, waiting: 1 })
    await expect.poll(() => handling.stats()).toMatchObject({ pending: { messages: 0 }, running: 0 })
    expect(handling.stats()).toMatchObject({ handled: 0, deadLettered: 0 })
  })

  test('the process that has the vehicle forgets it too, and no row says which one it was', async () => {
    await scene.prepare('told')
    const [front, handling] = [made('told', 'receive'), made('told', 'handle')]
    await Promise.all([front.open(), handling.open()])
    for (const vin of [gone, stays])
      await post(front, { vin, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
    await expect.poll(() => handling.stats().handled).toBeGreaterThanOrEqual(2)
    await expect.poll(() => everything('told')).toMatch(/^vehicle .*GON/m)
    expect(await handling.vehicles.get(gone)).toBeDefined()
    expect(await front.forget(gone)).toMatchObject({ messages: 1 })
    expect((await everything('told')).toUpperCase()).not.toContain(gone)
    expect(await handling.vehicles.get(gone)).toBeUndefined()
    expect(await handling.vehicles.get(stays)).toBeDefined()
    // A message that comes later is a new vehicle.
    await post(front, { vin: gone, createdAt: '2026-01-01T00:02:00Z', data: { VehicleName: 'new' } })
    await expect.poll(async () => (await handling.vehicles.get(gone))?.fields).toEqual(['VehicleName'])
  })

  test.each(['none', 'without states', 'frozen'] as const)('with a process that has the vehicle: %s', async (owner) => {
    const schema = `owner_${owner.replace(' ', '_')}`
    await scene.prepare(schema)
    const front = made(schema, 'receive')
    await front.open()
    await post(front, { vin: gone, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
    if (owner === 'without states') {
      const handling = createReceiver({
        ...{ secret: false, log: quiet, inbox: postgresInbox({ db: scene.newPool(), schema, role: 'handle' }) },
      }).on('data', () => {})
      onTestFinished(async () => void (await handling.drain()))
      await handling.open()
      await expect.poll(() => handling.stats().handled).toBeGreaterThanOrEqual(1)
    }
    if (owner === 'frozen') {
      // Its lease ends while the erasure waits.
      await scene.pool.query(`INSERT INTO ${schema}.process SELECT gen_random_uuid(), now() + interval '3 seconds'`)
      await scene.pool.query(`UPDATE ${schema}.part SET owner = (SELECT id FROM ${schema}.process)`)
    }
    expect(await front.forget(gone)).toMatchObject({ messages: 1 })
    expect((await everything(schema)).toUpperCase()).not.toContain(gone)
  })

  test('a row that a transaction holds makes it say so, and holds nothing up', async () => {
    await scene.prepare('held')
    const receiver = made('held', 'receive')
    await receiver.open()
    await post(receiver, { vin: gone, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
    const holder = await scene.pool.connect()
    await holder.query('BEGIN; UPDATE held.waiting SET deliveries = 1')
    await expect(receiver.forget(gone)).rejects.toMatchObject({ code: 'inbox_unavailable' })
    await holder.query('ROLLBACK')
    holder.release()
    expect(await receiver.forget(gone)).toMatchObject({ messages: 1, waiting: 1 })
  })
})
