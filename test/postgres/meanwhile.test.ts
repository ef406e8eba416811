/* Postgres is away for as long as an update or a failover takes, again and again, and receivers are killed meanwhile. */
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type Receiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import type pg from 'pg'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { freePort, type Target } from '../conformance/spawn.ts'
import { type Verdict, judge } from '../faults/accounting.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { runsOf } from '../faults/process/journal.ts'
import { type OpenLoad, pourOpenly, runsEmpty, unansweredInTime } from '../faults/process/open-load.ts'
import { newFolder } from '../folder.ts'
import { form, inForm } from '../form.ts'
import { hasBaseBackup, hasPgBouncer, hasPostgres, type PostgresServer, startPgBouncer } from '../once/servers.ts'
import { createLedger, type Ledger } from './ledger.ts'
import { startProxy } from './proxy.ts'
import { quiet } from './quiet.ts'
import { post, sceneOfFile, setSetting, startScene, tablesOf } from './scene.ts'

const rounds = inForm({ full: 3, long: Number(process.env['AWAY_ROUNDS'] ?? 5) })
/** How long the server is away at least, in milliseconds, beside the time in which each receiver acknowledges messages. */
const awayMs = inForm({ full: 0, long: Number(process.env['AWAY_SECONDS'] ?? 60) * 1_000 })
/** How long the load runs before the first outage and after the last one, in milliseconds. The figures compare them. */
const calmMs = inForm({ full: 0, long: 20_000 })
const ratePerSecond = inForm({ full: 60, long: 200 })
/** Each vehicle sends every four seconds, to one of two receivers. */
const vins = Array.from({ length: 4 * ratePerSecond }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)
/** A test gives up after this time, in milliseconds. What it waits for are conditions. */
const longestMs = inForm({ full: 600_000, long: 3_600_000 })
/** What each receiver acknowledges in each part of an outage. */
const some = inForm({ full: 50, long: 200 })

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Takes the server away. Resolves to what brings it back. */
type Fault = (round: number) => Promise<() => unknown>

interface Outages {
  readonly pool: pg.Pool
  readonly port: number
  readonly fault: Fault
  readonly times: number
  /** What the processes have of their own. */
  readonly changed?: Parameters<Ledger['begin']>[1]
}

/** An update, a crash, and a machine that stands still: no connection ends then. */
const goesAway =
  (server: PostgresServer): Fault =>
  async (round) => {
    if (round % 3 === 2) return server.freeze()
    return server.stop(round % 3 === 0 ? 'SIGINT' : 'SIGQUIT')
  }

/** What came of the messages of all rounds. */
interface Found extends Pick<Verdict, 'duplicates' | 'lost' | 'outOfOrder'> {
  readonly sent: number
  readonly acknowledged: number
  readonly refused: number
  /** The receiver was there, and did not answer in time. */
  readonly late: number
  /** The connection ended with its process. */
  readonly unanswered: number
}

/** Two receivers that also handle. */
interface Site extends AsyncDisposable {
  readonly ledger: Ledger
  readonly urls: readonly string[]
  /** Kills a receiver, and starts it again. */
  restart(place: number): Promise<void>
  /** Stops both as an update does. */
  stop(): Promise<void>
}

describe.skipIf(!hasPostgres)('a Postgres that is away', () => {
  const scene = sceneOfFile()
  const rows: Row[] = []
  let number = 0

  async function startSite({ pool, port, changed = {} }: Outages, hasFile: boolean): Promise<Site> {
    const schema = `away${++number}`
    await pool.query(tablesOf(schema))
    const ledger = await createLedger({ pool, schema, port, leaseMs: 3_000 })
    const folder = newFolder('meanwhile')
    const places = await Promise.all(
      [0, 1].map(async (place) => ({
        ...changed,
        receivesAt: await freePort(),
        ...(hasFile && { meanwhile: join(folder, `${place}.db`) }),
      })),
    )
    const begin = async (place: number): Promise<Target> => ledger.begin('batch', places[place])
    const receivers = await Promise.all([0, 1].map(begin))
    return {
      ledger,
      urls: receivers.map(({ url }) => url),
      async restart(place) {
        await receivers[place]?.stop('SIGKILL')
        receivers[place] = await begin(place)
      },
      async stop() {
        for (const one of receivers) expect(await one.stop()).toEqual({ status: 0, signal: null })
      },
      [Symbol.asyncDispose]: () => ledger[Symbol.asyncDispose](),
    }
  }

  /** A load that stops by itself, also when no receiver ever answers. */
  const pour = ({ urls }: Site, timeoutMs: number): OpenLoad =>
    pourOpenly(urls, { vins, ratePerSecond, timeoutMs, mostMessages: inForm({ full: 30_000, long: 200_000 }) })

  /** Resolves when handlers have done all that was acknowledged until now. */
  async function isHandled({ ledger }: Site, load: OpenLoad): Promise<void> {
    const target = load.acknowledged().size
    await runsEmpty('acknowledged and not handled', async () =>
      Math.max(0, target - (await ledger.handled().catch(() => 0))),
    )
  }

  /** Waits for what was acknowledged to the last message, stops the receivers, and judges. */
  async function verdict(site: Site, load: OpenLoad): Promise<Found> {
    await load.stop()
    const [sent, acknowledged] = [load.sent(), load.acknowledged()]
    const rowsNow = async (): Promise<ReturnType<typeof runsOf>> =>
      runsOf((await site.ledger.rows()).map(({ vin, n }) => ({ vin, number: n })))
    await runsEmpty('acknowledged and not handled', async () => {
      const handled = new Set((await rowsNow()).map((run) => `${run.vin} ${run.number}`))
      return [...acknowledged].filter((name) => !handled.has(name)).length
    })
    await runsEmpty('messages that wait', () => site.ledger.waiting())
    await site.stop()
    const runs = await rowsNow()
    const { duplicates, lost } = judge(acknowledged, runs)
    // The order is promised for what was acknowledged.
    const { outOfOrder } = judge(
      acknowledged,
      runs.filter(({ vin, number: n }) => acknowledged.has(`${vin} ${n}`)),
    )
    const late = unansweredInTime(sent)
    return {
      sent: sent.length,
      acknowledged: acknowledged.size,
      refused: sent.filter(({ status }) => status >= 400).length,
      late,
      unanswered: sent.filter(({ status }) => status === 0).length - late,
      lost,
      duplicates,
      outOfOrder,
    }
  }

  /** Receivers that acknowledge while the server is away, and are killed then. */
  async function outages(what: string, setting: Outages): Promise<Found> {
    await using site = await startSite(setting, true)
    await using load = pour(site, inForm({ full: 60_000, long: 15_000 }))
    await Promise.all([load.takesMore(some), pause(calmMs)])
    const awayFrom = performance.now()
    const caughtUp: number[] = []
    for (let round = 0; round < setting.times; round += 1) {
      const comesBack = await setting.fault(round)
      try {
        await Promise.all([load.takesMore(some), pause(awayMs / 3)])
        await site.restart(round % 2)
        await Promise.all([load.takesMore(some), pause(awayMs / 3)])
        if (round % 2 === 1) await site.restart(0)
        await Promise.all([load.takesMore(some), pause(awayMs / 3)])
      } finally {
        await comesBack()
      }
      const backAt = performance.now()
      await isHandled(site, load)
      caughtUp.push(performance.now() - backAt)
    }
    const awayTo = performance.now()
    await Promise.all([load.takesMore(some), pause(calmMs)])
    const found = await verdict(site, load)
    note(what, found, {
      'ack p99 before, ms': load.p99(0, awayFrom),
      'in outages, ms': load.p99(awayFrom, awayTo),
      'after, ms': load.p99(awayTo, Infinity),
      'all handled after, s': Math.round(Math.max(...caughtUp) / 100) / 10,
    })
    return found
  }

  function note(what: string, found: Found, acks: Row): void {
    const { sent, acknowledged, refused, late, unanswered, lost, duplicates, outOfOrder } = found
    rows.push({
      what,
      sent,
      acknowledged,
      refused,
      'no answer in 15 s': late,
      'connection ended': unanswered,
      lost: lost.length,
      twice: duplicates.length,
      'out of order': outOfOrder.length,
      ...acks,
    })
    console.info(rows.at(-1))
  }

  afterAll(async () => {
    if (rows.length === 0) return
    const { rows: versions } = await scene.pool.query<{ server_version: string }>('SHOW server_version')
    await writeFigures({
      piece: 'meanwhile',
      title: 'Postgres is away, and nothing is refused',
      file: 'test/postgres/meanwhile.test.ts',
      about: `One Postgres, two receivers that also handle (exactly once), ${ratePerSecond} messages a second from ${vins.length} vehicles that do not wait for answers, each vehicle at one receiver. Postgres is stopped, killed or frozen for ${awayMs / 1_000} s each time, and a receiver is killed with \`SIGKILL\` and started again while it is away, in every second round two. The load goes on while handlers catch up. A connection ends when its receiver is killed, or is not there yet.`,
      tables: [{ title: 'What came of the messages', rows }],
      versions: {
        'load average at the end': loadavg().map(Math.round).join(', '),
        environment: `\`AWAY_ROUNDS=${rounds} AWAY_SECONDS=${awayMs / 1_000}\``,
        Postgres: versions[0]?.server_version ?? '',
      },
    })
  })

  const clean = { refused: 0, late: 0, lost: [], duplicates: [], outOfOrder: [] }

  test(
    'refuses nothing, loses nothing, doubles nothing and keeps the order, also when receivers are killed',
    { timeout: longestMs },
    async () => {
      const { pool, server } = scene
      const what = `with \`meanwhile\`, ${rounds} outages of ${awayMs / 1_000} s`
      const found = await outages(what, { pool, port: server.port, fault: goesAway(server), times: rounds })
      expect(found).toMatchObject(clean)
    },
  )

  test.skipIf(!hasBaseBackup)('the same over a failover to a synchronous standby', { timeout: longestMs }, async () => {
    await using other = await startScene()
    const primary = other.server
    await using standby = await primary.standby('standby')
    await setSetting(other.pool, 'synchronous_standby_names', 'standby')
    const isSync = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
    await vi.waitFor(async () => expect((await other.pool.query(isSync)).rowCount).toBe(1), { timeout: 60_000 })
    await using proxy = await startProxy(primary.port)
    const fault: Fault = async () => {
      await primary.kill()
      return async () => {
        await other.newPool(1, standby.port).query('SELECT pg_promote()')
        proxy.aim(standby.port)
      }
    }
    const setting = { pool: other.newPool(3, proxy.port), port: proxy.port, fault, times: 1 }
    expect(await outages(`with \`meanwhile\`, a failover after ${awayMs / 1_000} s`, setting)).toMatchObject(clean)
  })

  test.skipIf(form === 'long').each([
    ['on Bun', { runtime: 'bun' }],
    ['on Deno', { runtime: 'deno' }],
    ['with the file in a thread', { thread: true }],
  ] as const)('the same %s', { timeout: longestMs }, async (what, changed) => {
    const { pool, server } = scene
    const found = await outages(what, { pool, port: server.port, fault: goesAway(server), times: 1, changed })
    expect(found).toMatchObject(clean)
  })

  test.skipIf(form === 'long' || !hasPgBouncer).each(['transaction', 'session'] as const)(
    'the same behind PgBouncer in %s mode, which answers while the server is away',
    { timeout: longestMs },
    async (mode) => {
      const { pool, server } = scene
      await using bouncer = await startPgBouncer(server, mode)
      const setting = { pool, port: bouncer.port, fault: goesAway(server), times: 2 }
      expect(await outages(`behind PgBouncer, ${mode}`, setting)).toMatchObject(clean)
    },
  )

  test('a second receiver on the file fails by name, and the first one goes on', { timeout: longestMs }, async () => {
    await scene.prepare('one_file')
    const path = join(newFolder('meanwhile'), 'inbox.db')
    const receiverOn = (): Receiver => {
      const meanwhile = sqliteInbox({ path, waitMs: 100 })
      const inbox = postgresInbox({ db: scene.newPool(), schema: 'one_file', meanwhile })
      return createReceiver({ secret: false, inbox, log: quiet })
    }
    const first = receiverOn()
    await first.open()
    await expect(receiverOn().open()).rejects.toMatchObject({ code: 'inbox_locked' })
    expect(await post(first, 1, 1)).toBe(200)
    await first.drain()
    const next = receiverOn()
    await next.open()
    expect(await post(next, 1, 2)).toBe(200)
    await next.drain()
  })

  test('control: without the file, messages are refused', { timeout: longestMs }, async () => {
    const { pool, server } = scene
    const setting = { pool, port: server.port, fault: goesAway(server), times: 1 }
    await using site = await startSite(setting, false)
    await using load = pour(site, 15_000)
    await Promise.all([load.takesMore(some), pause(calmMs)])
    const awayFrom = performance.now()
    for (let round = 0; round < inForm({ full: 1, long: rounds }); round += 1) {
      const comesBack = await setting.fault(round % 2)
      try {
        await Promise.all([load.refusesMore(some), pause(awayMs)])
      } finally {
        await comesBack()
      }
      await load.takesMore(some)
    }
    const found = await verdict(site, load)
    note('control: without it, as many outages, nobody killed', found, {
      'ack p99 before, ms': load.p99(0, awayFrom),
      'in outages, ms': load.p99(awayFrom, Infinity),
      'after, ms': '',
      'all handled after, s': '',
    })
    expect(found).toMatchObject({ lost: [], duplicates: [], outOfOrder: [] })
  })
})
