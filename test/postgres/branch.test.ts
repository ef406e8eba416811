import { createReceiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import { handleWaiting, postgresInbox } from 'fleethook/inbox/postgres'
import { is, starts } from 'fleethook/when'
import { expect, test, vi } from 'vitest'
import { logInto } from '../dispatch/scene.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, receiverOn, sceneOfFile, vinOf } from './scene.ts'

const scene = sceneOfFile()

test.skipIf(!hasPostgres)(
  'a branch in a schema of its own on the same pool gets each message once, in order, over two processes and a takeover',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('front')
    await prepare('crm')
    await pool.query(
      'CREATE TABLE written (at bigint GENERATED ALWAYS AS IDENTITY, vin text, odometer int, delivery uuid)',
    )
    let isDown = true
    const start = () => {
      const db = newPool(6)
      const { receiver } = receiverOn({ db, schema: 'front' })
      receiver.on('data', () => {})
      const inbox = postgresInbox({ db, schema: 'crm', leaseMs: 3_000 })
      const exactly = inbox.exactlyOnce(newPool(8))
      const crm = branch(receiver, { name: 'crm', inbox, retry: { minMs: 20, maxMs: 200 } }).on(
        'data',
        exactly('write', async ({ vin, data }, { delivery }, tx) => {
          if (isDown) throw new Error('the CRM is down')
          await tx.query('INSERT INTO written (vin, odometer, delivery) VALUES ($1, $2, $3)', [
            ...[vin, data.Odometer, delivery.id],
          ])
        }),
      )
      return { receiver, crm }
    }
    const [first, second] = [start(), start()]
    for (const { receiver } of [first, second]) await receiver.open()
    for (let at = 0; at < 10; at += 1)
      for (let vehicle = 0; vehicle < 8; vehicle += 1)
        expect(await post((at + vehicle) % 2 === 0 ? first.receiver : second.receiver, vehicle, at)).toBe(200)
    await vi.waitFor(
      async () => {
        const { rows } = await pool.query('SELECT count(*)::int AS waiting FROM front.waiting')
        expect(rows[0].waiting).toBe(0)
      },
      { timeout: 60_000 },
    )
    const { rows: waits } = await pool.query('SELECT count(*)::int AS waiting FROM crm.waiting')
    expect(waits[0].waiting).toBe(80)
    const { branches } = await first.receiver.drain()
    expect(branches).toHaveProperty('crm')
    isDown = false
    await vi.waitFor(
      async () => {
        const { rows } = await pool.query('SELECT count(*)::int AS written FROM written')
        expect(rows[0].written).toBe(80)
      },
      { timeout: 60_000 },
    )
    const { rows } = await pool.query('SELECT vin, odometer FROM written ORDER BY at')
    for (let vehicle = 0; vehicle < 8; vehicle += 1)
      expect(rows.flatMap(({ vin, odometer }) => (vin === vinOf(vehicle) ? [odometer] : []))).toEqual(
        Array.from({ length: 10 }, (_one, at) => at),
      )
    const { rows: same } = await pool.query(
      'SELECT count(*)::int AS n FROM written w JOIN front.message m ON m.id = w.delivery',
    )
    expect(same[0].n).toBe(80)
    await second.receiver.drain()
  },
)

test.skipIf(!hasPostgres)(
  'a message is not settled before a branch that is slow has it, and no newer one overtakes one that a crash left',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('front_slow')
    await prepare('crm_slow')
    const lines: string[] = []
    const db = newPool(6)
    const receiver = createReceiver({
      secret: false,
      inbox: postgresInbox({ db, schema: 'front_slow', leaseMs: 30_000 }),
      log: logInto(lines),
    })
    const seen: string[] = []
    receiver.on('data', () => {})
    branch(receiver, { name: 'crm', inbox: postgresInbox({ db, schema: 'crm_slow', leaseMs: 30_000 }) }).on(
      'data',
      ({ vin, data }) => void seen.push(`${vin} ${String(data.Odometer)}`),
    )
    const waiting = async (): Promise<number | null> =>
      (await pool.query('SELECT FROM front_slow.waiting WHERE NOT replayed')).rowCount
    await receiver.open()
    expect(await post(receiver, 0, 0)).toBe(200)
    await expect.poll(() => seen).toHaveLength(1)
    await expect.poll(waiting).toBe(0)
    // As a process that was killed leaves them: handed out once.
    await pool.query(`CREATE FUNCTION front_slow.crashed() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN NEW.deliveries := 1; RETURN NEW; END $$`)
    await pool.query(`CREATE TRIGGER crashed BEFORE INSERT ON front_slow.waiting
      FOR EACH ROW EXECUTE FUNCTION front_slow.crashed()`)
    const locker = await pool.connect()
    try {
      await locker.query('BEGIN')
      await locker.query('LOCK TABLE crm_slow.message IN ACCESS EXCLUSIVE MODE')
      for (const n of [1, 2]) expect(await post(receiver, 0, n)).toBe(200)
      await pool.query('DROP TRIGGER crashed ON front_slow.waiting')
      for (const n of [3, 4]) expect(await post(receiver, 0, n)).toBe(200)
      await expect
        .poll(() => lines.join('\n'))
        .toContain('the inbox of the branch is slow, and the receiver waits until it has a message')
      expect(await waiting()).toBe(4)
      expect(seen).toHaveLength(1)
    } finally {
      await locker.query('COMMIT')
      locker.release()
    }
    await expect.poll(() => seen).toHaveLength(5)
    expect(seen).toEqual([0, 1, 2, 3, 4].map((n) => `${vinOf(0)} ${n}`))
    await expect.poll(waiting).toBe(0)
    await receiver.drain()
  },
)

test.skipIf(!hasPostgres)(
  'a timer of a branch waits behind messages that its receiver has and the branch does not, over two processes',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('front_time')
    await prepare('crm_time')
    const held = Promise.withResolvers<void>()
    const told: string[] = []
    const start = () => {
      const db = newPool(6)
      const { receiver } = receiverOn({ db, schema: 'front_time' })
      receiver.on('data', { vins: [vinOf(1)] }, () => held.promise)
      const inbox = postgresInbox({ db, schema: 'crm_time', leaseMs: 3_000 })
      branch(receiver, { name: 'crm', inbox, parts: [vehicles({ fields: ['Gear'] })] }).when(
        starts(is('Gear', 'P'), { first: true }).after({ seconds: 1 }),
        ({ vin }) => void told.push(vin),
      )
      return receiver
    }
    const receivers = [start(), start()]
    for (const receiver of receivers) await receiver.open()
    // By the vehicles' time the second gear comes long before the timer is due, however slow this machine is.
    const startMs = Date.now()
    const says = async (vehicle: number, gear: string, afterMs = 0): Promise<void> => {
      const createdAt = new Date(startMs + afterMs).toISOString()
      const body = { vin: vinOf(vehicle), createdAt, data: { Gear: gear } }
      const { status } = (await receivers[vehicle % 2]?.accept({ authorization: undefined, body })) ?? {}
      expect(status).toBe(200)
    }
    for (const vehicle of [1, 2, 3]) await says(vehicle, 'P')
    // The receiver is busy with the message before it.
    await says(1, 'D', 1)
    const timers = async (): Promise<unknown> =>
      (await pool.query(`SELECT FROM front_time.message WHERE kind = 'timer' AND lane LIKE '%' || $1`, [vinOf(1)]))
        .rowCount
    await vi.waitFor(async () => expect((await timers()) === 1 || told.includes(vinOf(1))).toBe(true), 60_000)
    held.resolve()
    await vi.waitFor(
      async () => {
        const { rows } = await pool.query(
          'SELECT (SELECT count(*) FROM front_time.waiting)::int + (SELECT count(*) FROM crm_time.waiting)::int AS waiting',
        )
        expect([rows[0].waiting, told.toSorted()]).toEqual([0, [vinOf(2), vinOf(3)]])
      },
      { timeout: 60_000 },
    )
    await Promise.all(receivers.map((receiver) => receiver.drain()))
  },
)

test.skipIf(!hasPostgres)('handleWaiting returns when nothing waits on a branch either', async () => {
  const { newPool, prepare } = scene
  await prepare('front_cron')
  await prepare('crm_cron')
  const { receiver } = receiverOn({ db: newPool(), schema: 'front_cron', role: 'receive' })
  await receiver.open()
  for (let n = 0; n < 30; n += 1) await post(receiver, n % 6, n)
  await receiver.drain()
  const handled: number[] = []
  const inbox = postgresInbox({ db: newPool(), schema: 'front_cron', role: 'handle' })
  const worker = createReceiver({ secret: false, log: quiet, inbox }).on('data', () => {})
  branch(worker, { name: 'crm', inbox: postgresInbox({ db: newPool(), schema: 'crm_cron' }) }).on(
    'data',
    async (event) => {
      await new Promise((resolve) => setTimeout(resolve, 20))
      handled.push(Number(event.data.Odometer))
    },
  )
  await handleWaiting(worker, { forMs: 20_000 })
  expect(handled).toHaveLength(30)
})
