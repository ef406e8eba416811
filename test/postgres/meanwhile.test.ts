/* Postgres is away for as long as an update or a failover takes, again and again, and receivers are killed meanwhile. */
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { freePort, type Target } from '../conformance/spawn.ts'
import { type Verdict, judge } from '../faults/accounting.ts'
import { writeFigures } from '../faults/figures.ts'
import { runsOf } from '../faults/process/journal.ts'
import { createTraffic, type Traffic } from '../faults/process/traffic.ts'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'
import { hasBaseBackup, hasPostgres, type PostgresServer } from '../once/servers.ts'
import { createLedger } from './ledger.ts'
import { startProxy } from './proxy.ts'
import { sceneOfFile, setSetting, startScene, tablesOf } from './scene.ts'

const awayMs = inForm({ full: 6_000, long: 60_000 })
const rounds = inForm({ full: 3, long: 5 })
/** How long the load runs before the first outage and after the last one, in milliseconds. */
const calmMs = inForm({ full: 3_000, long: 20_000 })
const ratePerSecond = 200
/** Each vehicle sends every four seconds, to one of two receivers. */
const vins = Array.from({ length: 800 }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Takes the server away. Resolves to what brings it back. */
type Fault = (round: number) => Promise<() => unknown>

interface Outages {
  readonly pool: pg.Pool
  readonly port: number
  readonly fault: Fault
  readonly times: number
  readonly hasFile?: boolean
}

/** An update, a crash, and a machine that stands still: no connection ends then. */
const goesAway =
  (server: PostgresServer): Fault =>
  async (round) => {
    if (round % 3 === 2) return server.freeze()
    return server.stop(round % 3 === 0 ? 'SIGINT' : 'SIGQUIT')
  }

/** What came of the messages of all rounds. */
interface Found extends Pick<Verdict, 'duplicates' | 'outOfOrder'> {
  readonly sent: number
  readonly acknowledged: number
  readonly refused: number
  /** The connection ended with its process. */
  readonly unanswered: number
  readonly lost: number
  readonly ackBefore: readonly number[]
  readonly ackAway: readonly number[]
  readonly ackAfter: readonly number[]
}

function p99(ms: readonly number[]): number {
  const sorted = ms.toSorted((one, other) => one - other)
  return Math.round((sorted[Math.floor(sorted.length * 0.99)] ?? 0) * 10) / 10
}

describe.skipIf(!hasPostgres)('a Postgres that is away', () => {
  const scene = sceneOfFile()
  const rows: Record<string, string | number>[] = []
  let number = 0

  /** Two receivers that also handle, and a load that never waits. */
  async function outages({ pool, port, fault, times, hasFile = true }: Outages): Promise<Found> {
    const schema = `away${++number}`
    await pool.query(tablesOf(schema))
    await using ledger = await createLedger({ pool, schema, port, leaseMs: 3_000 })
    const folder = newFolder('meanwhile')
    const places = await Promise.all(
      [0, 1].map(async (place) => ({
        receivesAt: await freePort(),
        ...(hasFile && { meanwhile: join(folder, `${place}.db`) }),
      })),
    )
    const begin = async (place: number): Promise<Target> => ledger.begin('batch', places[place])
    const receivers = await Promise.all([0, 1].map(begin))
    const traffics = [0, 1].map((place) =>
      createTraffic({
        ...{ vins: vins.filter((_, n) => n % 2 === place), ratePerSecond: ratePerSecond / 2, timeoutMs: 15_000 },
        ...{ neverWaits: true, goesOn: true },
      }),
    )
    let isOver = false
    const load = traffics.map((traffic, place) => traffic.pour(receivers[place]?.url ?? '', () => isOver))
    const acknowledged = (): ReadonlySet<string> => new Set(traffics.flatMap((traffic) => [...traffic.acknowledged]))
    const isHandled = async (): Promise<void> => {
      const left = async (): Promise<number> => acknowledged().size - (await ledger.handled().catch(() => 0))
      await expect.poll(left, { timeout: 180_000 }).toBeLessThan(ratePerSecond)
    }
    async function kill(place: number): Promise<void> {
      await receivers[place]?.stop('SIGKILL')
      // Without a file, one that starts now would end at once.
      if (hasFile) receivers[place] = await begin(place)
    }
    await pause(calmMs)
    const awayFrom = performance.now()
    for (let round = 0; round < times; round += 1) {
      const comesBack = await fault(round)
      await pause(awayMs / 3)
      if (hasFile) await kill(round % 2)
      await pause(awayMs / 3)
      if (hasFile && round % 2 === 1) await kill(0)
      await pause(awayMs / 3)
      await comesBack()
      await expect.poll(() => pool.query('SELECT 1').then(() => true, () => false)).toBe(true) // prettier-ignore
      await isHandled()
      await pause(2_000)
    }
    const awayTo = performance.now()
    await pause(calmMs)
    isOver = true
    await Promise.all(load)
    await ledger.isDone()
    const all = traffics.flatMap(({ sent }) => sent)
    const runs = runsOf((await ledger.rows()).map(({ vin, n }) => ({ vin, number: n })))
    const acked = acknowledged()
    const { duplicates, lost } = judge(acked, runs)
    const { outOfOrder } = judge(acked, runs.filter(({ vin, number: n }) => acked.has(`${vin} ${n}`))) // prettier-ignore
    for (const one of receivers) expect(await one.stop()).toEqual({ status: 0, signal: null })
    const acks = (from: number, to: number): readonly number[] =>
      traffics.flatMap(({ ackMs }: Traffic) =>
        ackMs.filter(({ sentAtMs }) => sentAtMs >= from && sentAtMs < to).map(({ ms }) => ms),
      )
    return {
      sent: all.length,
      acknowledged: acked.size,
      refused: all.filter(({ status }) => status >= 400).length,
      unanswered: all.filter(({ status }) => status === 0).length,
      lost: lost.length,
      duplicates,
      outOfOrder,
      ackBefore: acks(0, awayFrom),
      ackAway: acks(awayFrom, awayTo),
      ackAfter: acks(awayTo, Infinity),
    }
  }

  function note(what: string, found: Found): void {
    rows.push({
      ...{ what, sent: found.sent, acknowledged: found.acknowledged, refused: found.refused },
      ...{ 'no answer (killed)': found.unanswered, lost: found.lost, twice: found.duplicates.length },
      ...{ 'out of order': found.outOfOrder.length, 'ack p99 before, ms': p99(found.ackBefore) },
      ...{ 'ack p99 in outages, ms': p99(found.ackAway), 'ack p99 after, ms': p99(found.ackAfter) },
    })
    console.info(rows.at(-1))
  }

  afterAll(async () => {
    await writeFigures({
      piece: 'postgres-away',
      title: 'Postgres is away, and nothing is refused',
      file: 'test/postgres/meanwhile.test.ts',
      about: `One Postgres, two receivers that also handle (exactly once), ${ratePerSecond} messages a second from ${vins.length} vehicles that do not wait for answers, each vehicle at one receiver. Postgres is stopped, killed or frozen for ${awayMs / 1_000} s each time, and a receiver is killed and started again while it is away.`,
      tables: [{ title: 'What came of the messages', rows }],
    })
  })

  test('refuses nothing, loses nothing, doubles nothing and keeps the order, also when receivers are killed', async () => {
    const { pool, server } = scene
    const found = await outages({ pool, port: server.port, fault: goesAway(server), times: rounds })
    note(`with \`meanwhile\`, ${rounds} outages of ${awayMs / 1_000} s`, found)
    expectClean(found)
    expect(found.acknowledged).toBeGreaterThan((rounds * ratePerSecond * awayMs) / 1_100)
  })

  test.skipIf(!hasBaseBackup)('the same over failovers to a synchronous standby', async () => {
    await using other = await startScene()
    let primary = other.server
    const standby = await primary.standby('standby')
    await setSetting(other.pool, 'synchronous_standby_names', 'standby')
    const isSync = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
    await vi.waitFor(async () => expect((await other.pool.query(isSync)).rowCount).toBe(1), { timeout: 60_000 })
    await using proxy = await startProxy(primary.port)
    const fault: Fault = async () => {
      await primary.kill()
      return async () => {
        primary = standby
        await other.newPool(1, standby.port).query('SELECT pg_promote()')
        proxy.aim(standby.port)
      }
    }
    const found = await outages({ pool: other.newPool(3, proxy.port), port: proxy.port, fault, times: 1 })
    await standby[Symbol.asyncDispose]()
    note('with `meanwhile`, a failover', found)
    expectClean(found)
  })

  function expectClean(found: Found): void {
    expect(found).toMatchObject({ refused: 0, lost: 0, duplicates: [], outOfOrder: [] })
    // Those of the connections that ended with their process.
    expect(found.unanswered).toBeLessThan(0.1 * found.sent)
  }

  test('control: without the file, messages are refused', async () => {
    const { pool, server } = scene
    const times = inForm({ full: 1, long: 2 })
    const found = await outages({ pool, port: server.port, fault: goesAway(server), times, hasFile: false })
    note(`control: without it, ${times} outages`, found)
    expect(found.refused + found.unanswered).toBeGreaterThan(awayMs / 10)
    expect(found).toMatchObject({ lost: 0, duplicates: [], outOfOrder: [] })
  })
})
