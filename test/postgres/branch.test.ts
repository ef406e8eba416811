/* Branches that read the inbox of their receiver, in tables that several processes share. */
import { createReceiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import { handleWaiting, postgresInbox } from 'fleethook/inbox/postgres'
import { is, starts } from 'fleethook/when'
import { expect, test, vi } from 'vitest'
import { command } from '../cli/command.ts'
import { logInto } from '../dispatch/scene.ts'
import { hasPostgres } from '../once/servers.ts'
import { createLedger } from './ledger.ts'
import { quiet } from './quiet.ts'
import { bodyOf, post, receiverOn, sceneOfFile, vinOf } from './scene.ts'

const scene = sceneOfFile()
const patience = { timeout: 60_000 }

/** How many rows each table of a schema has. */
const rowsOf = async (schema: string, ...tables: readonly string[]): Promise<readonly number[]> =>
  Promise.all(tables.map((table) => scene.count(`${schema}.${table}`)))

test.skipIf(!hasPostgres)(
  'a branch gets each message once, in order, over two processes and a takeover, and a message is stored once',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('shared')
    await pool.query(
      'CREATE TABLE written (at bigint GENERATED ALWAYS AS IDENTITY, vin text, odometer int, delivery uuid)',
    )
    let isDown = true
    const seen: string[] = []
    const start = () => {
      const { receiver, inbox } = receiverOn({ db: newPool(6), schema: 'shared' })
      const exactly = inbox.exactlyOnce(newPool(8))
      // The mark of the receiver's handler is none for the branch, which has the same message.
      receiver.on(
        'data',
        exactly('see', async ({ vin, data }) => void seen.push(`${vin} ${data.Odometer}`)),
      )
      branch(receiver, { name: 'crm', retry: { minMs: 20, maxMs: 200 } }).on(
        'data',
        exactly('write', async ({ vin, data }, { delivery }, tx) => {
          if (isDown) throw new Error('the CRM is down')
          await tx.query('INSERT INTO written (vin, odometer, delivery) VALUES ($1, $2, $3)', [
            ...[vin, data.Odometer, delivery.id],
          ])
        }),
      )
      return receiver
    }
    const [first, second] = [start(), start()]
    for (const receiver of [first, second]) await receiver.open()
    for (let at = 0; at < 10; at += 1)
      for (let vehicle = 0; vehicle < 8; vehicle += 1)
        expect(await post((at + vehicle) % 2 === 0 ? first : second, vehicle, at)).toBe(200)
    await vi.waitFor(async () => expect(await rowsOf('shared', 'waiting')).toEqual([0]), patience)
    expect(await rowsOf('shared', 'branch_1_waiting', 'message')).toEqual([80, 80])
    expect(seen).toHaveLength(80)
    const { branches } = await first.drain()
    expect(branches).toHaveProperty('crm')
    isDown = false
    await vi.waitFor(async () => expect(await rowsOf('public', 'written')).toEqual([80]), patience)
    const { rows } = await pool.query('SELECT vin, odometer FROM written ORDER BY at')
    for (let vehicle = 0; vehicle < 8; vehicle += 1)
      expect(rows.flatMap(({ vin, odometer }) => (vin === vinOf(vehicle) ? [odometer] : []))).toEqual(
        Array.from({ length: 10 }, (_one, at) => at),
      )
    const { rows: same } = await pool.query(
      'SELECT count(*)::int AS n FROM written w JOIN shared.message m ON m.id = w.delivery',
    )
    expect(same[0].n).toBe(80)
    await vi.waitFor(async () => expect(await rowsOf('shared', 'branch_1_waiting')).toEqual([0]), patience)
    await second.drain()
  },
)

test.skipIf(!hasPostgres)(
  'processes are killed under load: a branch writes each message once, in order per vehicle, also of a receiver that does not have it',
  async () => {
    const schema = 'killed'
    await scene.prepare(schema)
    const { pool, server } = scene
    await using ledger = await createLedger({ pool, schema, port: server.port, leaseMs: 1_500 })
    const handling = await ledger.begin('branch')
    await ledger.begin('branch')
    const receiving = await ledger.begin('receive')
    const over = new AbortController()
    let posted = 0
    const load = (async () => {
      while (!over.signal.aborted) {
        const body = JSON.stringify(bodyOf(posted % 20, posted))
        expect((await fetch(receiving.url, { method: 'POST', body })).status).toBe(200)
        posted += 1
      }
    })()
    await ledger.grows(100)
    await handling.stop('SIGKILL')
    await ledger.begin('branch')
    await ledger.grows(100)
    over.abort()
    await load
    await vi.waitFor(async () => expect(await rowsOf(schema, 'waiting', 'branch_1_waiting')).toEqual([0, 0]), patience)
    const rows = await ledger.rows()
    expect(rows).toHaveLength(posted)
    for (let vehicle = 0; vehicle < 20; vehicle += 1) {
      const own = rows.flatMap(({ vin, n }) => (vin === vinOf(vehicle) ? [n] : []))
      expect(own).toEqual([...own].toSorted((one, other) => one - other))
    }
    await Promise.all([...ledger.processes].map((one) => one.stop()))
  },
)

test.skipIf(!hasPostgres)(
  'dead letters and replays are of one reader, and a message stays as long as one of them needs it',
  async () => {
    const { newPool, prepare } = scene
    await prepare('letters')
    const { receiver } = receiverOn({ db: newPool(), schema: 'letters', keepForMs: 0 })
    const seen: string[] = []
    let isDown = true
    receiver.on('data', ({ data }) => void seen.push(`receiver ${data.Odometer}`))
    const crm = branch(receiver, { name: 'crm', retry: { attempts: 1 } }).on('data', ({ data }) => {
      if (isDown) throw new Error('the CRM is down')
      seen.push(`crm ${data.Odometer}`)
    })
    await receiver.open()
    expect(await post(receiver, 1, 1)).toBe(200)
    await vi.waitFor(
      async () => expect(await rowsOf('letters', 'branch_1_dead', 'dead', 'waiting')).toEqual([1, 0, 0]),
      patience,
    )
    isDown = false
    expect(await crm.deadLetters.replay({})).toBe(1)
    await vi.waitFor(() => expect(seen).toEqual(['receiver 1', 'crm 1']), patience)
    expect(await rowsOf('letters', 'message', 'branch_1_dead')).toEqual([1, 0])
    await receiver.drain()
  },
)

test.skipIf(!hasPostgres)('a timer of a branch sees what its vehicle sent before, over two processes', async () => {
  const { newPool, prepare } = scene
  await prepare('timed')
  const told: string[] = []
  const start = () => {
    const { receiver } = receiverOn({ db: newPool(6), schema: 'timed' })
    branch(receiver, { name: 'crm', parts: [vehicles({ fields: ['Gear'] })] }).when(
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
  await says(1, 'D', 1)
  await vi.waitFor(async () => {
    expect(await rowsOf('timed', 'waiting', 'branch_1_waiting')).toEqual([0, 0])
    expect(told.toSorted()).toEqual([vinOf(2), vinOf(3)])
  }, patience)
  expect(await rowsOf('timed', 'branch_1_vehicle', 'vehicle')).toEqual([3, 0])
  await Promise.all(receivers.map((receiver) => receiver.drain()))
})

test.skipIf(!hasPostgres)(
  'a branch that was removed is told at each start, gets nothing new, and a gap says so when it is back',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('removed')
    const seen: string[] = []
    const deploy = async (branches: readonly string[], isDown = false) => {
      const lines: string[] = []
      const inbox = postgresInbox({ db: newPool(), schema: 'removed', leaseMs: 1_000 })
      const receiver = createReceiver({ secret: false, inbox, log: logInto(lines) }).on('data', () => {})
      for (const name of branches)
        branch(receiver, { name })
          .on('data', ({ data }) => {
            if (isDown) throw new Error('it is down')
            seen.push(`${name} ${data.Odometer}`)
          })
          .on('gap', ({ reason }) => void seen.push(`${name} ${reason}`))
      await receiver.open()
      return { receiver, lines }
    }
    const before = await deploy(['crm'], true)
    expect(await post(before.receiver, 1, 1)).toBe(200)
    await vi.waitFor(async () => expect(await rowsOf('removed', 'branch_1_waiting')).toEqual([1]), patience)
    await before.receiver.drain({ handlerGraceMs: 0 })
    // As some minutes later.
    await pool.query('UPDATE removed.branch SET used_at = used_at - 600000')
    const without = await deploy([])
    expect(without.lines.join('\n')).toContain('1 messages and 0 dead letters wait for the branch crm')
    expect(without.receiver.stats().inbox.unopened).toMatchObject([{ branch: 'crm', messages: 1, deadLetters: 0 }])
    await vi.waitFor(() => expect(without.lines.join('\n')).toContain('no process has this branch any more'), patience)
    expect(await post(without.receiver, 1, 2)).toBe(200)
    await without.receiver.drain()
    const back = await deploy(['crm'])
    expect(await post(back.receiver, 1, 3)).toBe(200)
    await vi.waitFor(
      () => expect(seen.toSorted()).toEqual(expect.arrayContaining(['crm 1', 'crm 3', 'crm stopped'])),
      patience,
    )
    expect(seen).not.toContain('crm 2')
    await vi.waitFor(
      async () => expect((await pool.query('SELECT FROM removed.branch WHERE gone_at IS NOT NULL')).rowCount).toBe(0),
      patience,
    )
    await back.receiver.drain()
  },
)

test.skipIf(!hasPostgres)(
  'beside processes of the version before, a branch waits, and none of them starts once it has begun',
  async () => {
    const { pool, newPool, prepare } = scene
    await prepare('older')
    await pool.query(
      `INSERT INTO older.process (id, until) VALUES (gen_random_uuid(), clock_timestamp() + interval '1 hour')`,
    )
    const { receiver } = receiverOn({ db: newPool(), schema: 'older' })
    const seen: unknown[] = []
    receiver.on('data', () => {})
    branch(receiver, { name: 'crm' }).on('data', ({ data }) => void seen.push(data.Odometer))
    await receiver.open()
    expect(await post(receiver, 1, 1)).toBe(200)
    expect(await rowsOf('older', 'branch')).toEqual([0])
    await pool.query('DELETE FROM older.process WHERE version IS NULL')
    await vi.waitFor(async () => expect(await rowsOf('older', 'branch')).toEqual([1]), patience)
    expect(await post(receiver, 1, 2)).toBe(200)
    await vi.waitFor(() => expect(seen).toEqual([2]), patience)
    const { rows } = await pool.query('SELECT version, oldest FROM older.meta')
    expect(rows).toEqual([{ version: 5, oldest: 5 }])
    await receiver.drain()
  },
)

test.skipIf(!hasPostgres)('a schema has at most seven branches', async () => {
  const { newPool, prepare } = scene
  await prepare('crowded')
  const { receiver } = receiverOn({ db: newPool(), schema: 'crowded' })
  for (let n = 1; n <= 7; n += 1) branch(receiver, { name: `branch-${n}` })
  await receiver.open()
  await vi.waitFor(async () => expect(await rowsOf('crowded', 'branch')).toEqual([7]), patience)
  await receiver.drain()
  const other = receiverOn({ db: newPool(), schema: 'crowded' }).receiver
  branch(other, { name: 'one-more' })
  await expect(other.open()).rejects.toThrow('has no room for the branch one-more')
  await other.drain()
})

test.skipIf(!hasPostgres)('handleWaiting returns when nothing waits on a branch either', async () => {
  const { newPool, prepare } = scene
  await prepare('cron')
  const handled: number[] = []
  const worker = (): ReturnType<typeof createReceiver> => {
    const inbox = postgresInbox({ db: newPool(), schema: 'cron', role: 'handle' })
    const made = createReceiver({ secret: false, log: quiet, inbox }).on('data', () => {})
    branch(made, { name: 'crm' }).on('data', async (event) => {
      await new Promise((resolve) => setTimeout(resolve, 20))
      handled.push(Number(event.data.Odometer))
    })
    return made
  }
  // The first run makes the branch known.
  await handleWaiting(worker(), { forMs: 20_000 })
  const { receiver } = receiverOn({ db: newPool(), schema: 'cron', role: 'receive' })
  await receiver.open()
  for (let n = 0; n < 30; n += 1) await post(receiver, n % 6, n)
  await receiver.drain()
  await handleWaiting(worker(), { forMs: 20_000 })
  expect(handled).toHaveLength(30)
})

test.skipIf(!hasPostgres)(
  'commands give what waits to the new name of a branch, list its dead letters, and delete it, once nobody uses the tables',
  async () => {
    const { newPool, prepare, server } = scene
    await prepare('commands')
    const database = `postgres://test@127.0.0.1:${server.port}/postgres`
    const { receiver } = receiverOn({ db: newPool(), schema: 'commands' })
    receiver.on('data', () => {})
    branch(receiver, { name: 'crm', retry: { attempts: 1 } }).on('data', () => {
      throw new Error('the CRM is down')
    })
    await receiver.open()
    expect(await post(receiver, 1, 1)).toBe(200)
    await vi.waitFor(async () => expect(await rowsOf('commands', 'branch_1_dead')).toEqual([1]), patience)
    const to = ['--schema', 'commands', '--database', database]
    expect((await command(['branch', 'drop', 'crm', '--yes', ...to])).stderr).toContain('A process uses the tables')
    await receiver.drain()
    expect((await command(['branch', 'rename', 'crm', 'sales', ...to])).stdout).toContain(
      'The branch `crm` is `sales` now',
    )
    const env = { DATABASE_URL: database }
    const listed = await command(['dead', 'list', '--branch', 'sales', '--schema', 'commands', '--json'], env)
    expect(listed.stdout).toContain('the CRM is down')
    const dropped = await command(['branch', 'drop', 'sales', '--yes', ...to])
    expect(dropped.stdout).toBe('Dropped the branch `sales`: 0 messages waited for it, and it had 1 dead letter.\n')
    expect(await rowsOf('commands', 'branch', 'branch_1_dead')).toEqual([0, 0])
  },
)
