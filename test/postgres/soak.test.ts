/* Everything ends, stands still and gets cut off at random, under load, with an own ledger. */
import { randomInt } from 'node:crypto'
import { Agent, request } from 'node:http'
import { afterAll, describe, expect, test } from 'vitest'
import type { Target } from '../conformance/spawn.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { form } from '../form.ts'
import { hasBaseBackup, hasPostgres, type PostgresServer } from '../once/servers.ts'
import { type Account, clean, createLedger, load, type Mode } from './ledger.ts'
import { startProxy } from './proxy.ts'
import { bodyOf, type Scene, setSetting, startScene } from './scene.ts'

/** The duration, an hour by default: `POSTGRES_SOAK_MINUTES=10 npm run test:faults -- test/postgres/soak.test.ts`. */
const minutes = Number(process.env['POSTGRES_SOAK_MINUTES'] ?? 60)
const vehicles = 60
const leaseMs = 3_000
const rows: Row[] = []
let version = ''

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'postgres-soak',
    title: 'Postgres: everything is killed, frozen and cut off at random',
    file: 'test/postgres/soak.test.ts',
    about: `One server, two receivers, three processes with handlers in \`exactlyOnce\` (one with batches), ${vehicles} vehicles that send one message after the other, a lease of ${leaseMs / 1_000} s. Every half to three seconds something happens to one of them. Frozen: longer than the lease. The network: two proxies in front of the server; one ends its connections and takes no more, or forwards nothing, for up to 2.5 leases. The primary is lost: for good, and its synchronous standby takes over. 15 % of the commits come up to 80 ms late. Refused: a message without a 200, for whatever reason. Two controls must fail: handlers without the mark, which is also the fence, and a reader by number.`,
    tables: [{ title: 'Faults and the ledger', rows }],
    versions: { Postgres: version },
  })
})

describe.skipIf(form !== 'long' || !hasPostgres)('the inbox in Postgres', () => {
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

  interface Plan {
    readonly schema: string
    readonly modes: readonly Mode[]
    readonly minutes: number
    readonly faults: readonly Fault[]
  }
  type Fault =
    'kill' | 'freeze' | 'stop server' | 'kill server' | 'freeze server' | 'cut network' | 'stop network' | 'promote'

  async function run(
    scene: Scene,
    plan: Plan,
  ): Promise<Account & { readonly acked: number; readonly refused: number }> {
    const { schema, modes } = plan
    await scene.prepare(schema)
    await scene.pool.query(`CREATE FUNCTION ${schema}.late() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN IF random() < 0.15 THEN PERFORM pg_sleep(random() * 0.08); END IF; RETURN NULL; END $$`)
    await scene.pool.query(
      `CREATE TRIGGER late AFTER INSERT ON ${schema}.waiting FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.late()`,
    )
    let { server } = scene
    const servers: PostgresServer[] = []
    const proxies = [await startProxy(server.port), await startProxy(server.port)]
    // What looks at the ledger always reaches the server that is the primary.
    const watching = await startProxy(server.port)
    const pool = scene.newPool(3, watching.port)
    await using ledger = await createLedger({ pool, schema, port: server.port, leaseMs })
    let isOver = false
    let receivers: Target[] = []
    /** It starts when the server answers. */
    async function begin(mode: Mode): Promise<void> {
      while (!isOver) {
        const port = proxies[randomInt(proxies.length)]?.port ?? 0
        const begun = await ledger.begin(mode, { port }).catch(() => undefined)
        if (begun === undefined) {
          await pause(200)
          continue
        }
        modeOf.set(begun, mode)
        if (mode === 'receive') receivers.push(begun)
        void begun.exited.then(() => {
          receivers = receivers.filter((one) => one !== begun)
          return isOver ? undefined : begin(mode)
        })
        return
      }
    }
    const modeOf = new Map<Target, Mode>()
    await Promise.all((['receive', 'receive', ...modes] as const).map(begin))

    const agent = new Agent({ keepAlive: true, maxSockets: 200 })
    const send = (vehicle: number, n: number): Promise<number> =>
      new Promise((resolve) => {
        const receiver = receivers[randomInt(Math.max(1, receivers.length))]
        if (receiver === undefined) {
          resolve(0)
          return
        }
        const asking = request(receiver.url, { method: 'POST', agent, timeout: 15_000 }, (answer) => {
          answer.resume()
          answer.once('close', () => resolve(answer.statusCode ?? 0))
        })
        asking.once('timeout', () => asking.destroy())
        asking.once('error', () => resolve(0))
        asking.end(JSON.stringify(bodyOf(vehicle, n)))
      })
    const running = load(vehicles, send, 100)
    const counts = new Map<string, number>()
    const faults: Readonly<Record<Fault, () => Promise<string>>> = {
      async kill() {
        const target = chosen()
        await target.stop('SIGKILL')
        return `${roleOf(target)} killed`
      },
      async freeze() {
        const target = chosen()
        target.kill('SIGSTOP')
        await pause(leaseMs * (1.2 + Math.random() * 1.5))
        target.kill('SIGCONT')
        return `${roleOf(target)} frozen`
      },
      async 'stop server'() {
        await server.crash('SIGQUIT')
        return 'server stopped at once'
      },
      async 'kill server'() {
        await server.crash('SIGKILL')
        return 'server killed'
      },
      async 'freeze server'() {
        const thaw = server.freeze()
        await pause(randomInt(500, 2 * leaseMs))
        thaw()
        return 'server frozen'
      },
      async 'cut network'() {
        const proxy = proxies[randomInt(proxies.length)]
        proxy?.cut()
        await pause(randomInt(200, 2.5 * leaseMs))
        proxy?.heal()
        return 'network cut'
      },
      async 'stop network'() {
        const proxy = proxies[randomInt(proxies.length)]
        proxy?.freeze()
        await pause(randomInt(200, 2.5 * leaseMs))
        if (Math.random() < 0.5) proxy?.forget()
        else proxy?.heal()
        return 'network without forwarding'
      },
      promote,
    }
    let isPromoting = false
    /** The primary is lost for good, and its synchronous standby takes over. */
    async function promote(): Promise<string> {
      isPromoting = true
      const old = server
      const standby = await old.standby('standby')
      servers.push(standby)
      const isIn = async (state: string): Promise<void> => {
        const read = async (): Promise<string | undefined> =>
          (await pool.query<{ state: string }>('SELECT sync_state AS state FROM pg_stat_replication')).rows[0]?.state
        await expect.poll(() => read().catch(() => undefined), { timeout: 60_000 }).toBe(state)
      }
      await isIn('async')
      await setSetting(pool, 'synchronous_standby_names', 'standby')
      await isIn('sync')
      await pause(randomInt(500, leaseMs))
      await old.kill()
      const promoted = scene.newPool(1, standby.port)
      await promoted.query('SELECT pg_promote()')
      server = standby
      for (const proxy of [...proxies, watching]) proxy.aim(standby.port)
      isPromoting = false
      return 'standby promoted'
    }
    const roleOf = (target: Target): string => (modeOf.get(target) === 'receive' ? 'receiver' : 'handlers')
    const chosen = (): Target => {
      const all = [...ledger.processes]
      return all[randomInt(all.length)] ?? expect.fail('No process runs.')
    }
    const under: Promise<void>[] = []
    for (const endMs = performance.now() + plan.minutes * 60_000; performance.now() < endMs;) {
      await pause(randomInt(500, 3_000))
      const name = plan.faults[randomInt(Math.max(1, plan.faults.length))]
      if (name === undefined || ledger.processes.size < 3 || (name === 'promote' && isPromoting)) continue
      const fault = faults[name]().then((what) => {
        counts.set(what, (counts.get(what) ?? 0) + 1)
        console.log(`${new Date().toISOString()} ${what}; ${running.counts.acked} acknowledged`)
      })
      under.push(fault)
      // Some come together.
      if (Math.random() < 0.7) await fault
    }
    await Promise.all(under)
    const acked = await running.stop()
    const standing = await settledOrStanding(ledger)
    const found = await ledger.account(acked)
    isOver = true
    agent.destroy()
    for (const each of [...proxies, watching, ...servers]) await each[Symbol.asyncDispose]()
    rows.push({
      run: schema,
      minutes: plan.minutes,
      ...Object.fromEntries(faultNames.map((name) => [name, counts.get(name) ?? 0])),
      acknowledged: running.counts.acked,
      refused: running.counts.refused,
      'waiting at the end': standing,
      lost: found.lost,
      'written twice': found.doubled,
      'out of order': found.outOfOrder,
    })
    console.log(JSON.stringify(rows.at(-1)))
    return { ...found, ...running.counts }
  }

  const faultNames = [
    ...['receiver killed', 'handlers killed', 'receiver frozen', 'handlers frozen', 'server stopped at once'],
    'server killed',
    ...['server frozen', 'network cut', 'network without forwarding', 'standby promoted'],
  ]

  /** Resolves to what waits when nothing does, or when the ledger has stood still for 15 seconds. */
  async function settledOrStanding(ledger: Awaited<ReturnType<typeof createLedger>>): Promise<number> {
    let before = -1
    let sinceMs = performance.now()
    for (;;) {
      const waiting = await ledger.waiting().catch(() => -1)
      if (waiting === 0) return 0
      const now = await ledger.handled().catch(() => before)
      if (now !== before) sinceMs = performance.now()
      before = now
      if (waiting > 0 && performance.now() - sinceMs > 15_000) return waiting
      await pause(500)
    }
  }

  const all: readonly Fault[] = [
    ...(['kill', 'kill', 'freeze', 'stop server', 'kill server'] as const),
    ...(['freeze server', 'cut network', 'stop network'] as const),
  ]

  async function withScene<Result>(use: (scene: Scene) => Promise<Result>): Promise<Result> {
    await using scene = await startScene(['max_connections=200', 'idle_in_transaction_session_timeout=6s'])
    version = String(
      (await scene.pool.query<{ server_version: string }>('SHOW server_version')).rows[0]?.server_version,
    )
    return await use(scene)
  }

  // What waits at the end is handled before the ledger is read.
  const timeout = (minutes + 60) * 60_000

  test('loses nothing, writes nothing twice and keeps the order of each vehicle', { timeout }, async () => {
    const plan: Plan = { schema: 'everything', modes: ['single', 'single', 'batch'], minutes, faults: all }
    const { acked, refused: _, ...found } = await withScene((scene) => run(scene, plan))
    expect(found).toEqual(clean)
    expect(acked).toBeGreaterThan(500 * minutes)
  })

  test.skipIf(!hasBaseBackup)('a synchronous standby takes over, again and again, and nothing is lost', async () => {
    const plan: Plan = {
      ...{ schema: 'promotions', modes: ['single', 'single', 'batch'], minutes: Math.min(10, minutes) },
      faults: ['kill', 'freeze', 'cut network', 'stop network', 'promote'],
    }
    const { acked: _, refused: __, ...found } = await withScene((scene) => run(scene, plan))
    expect(found).toEqual(clean)
  })

  test('control: without the mark, which fences too, messages are written twice', async () => {
    const plan: Plan = {
      ...{ schema: 'no_mark', modes: ['unmarked', 'unmarked', 'unmarked'] },
      ...{ minutes: Math.min(2, minutes), faults: ['kill', 'freeze'] },
    }
    expect((await withScene((scene) => run(scene, plan))).doubled).toBeGreaterThan(0)
  })

  test('control: a reader by number misses messages, and nothing has to fail for that', async () => {
    const plan: Plan = { schema: 'by_number', modes: ['by-number'], minutes: Math.min(1, minutes), faults: [] }
    expect((await withScene((scene) => run(scene, plan))).lost).toBeGreaterThan(0)
  })
})
