/* States and edges of vehicles while handling processes are killed and frozen, with a ledger in the transactions of handlers. */
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, test } from 'vitest'
import { few, inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { createLedger } from './ledger.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile, vinOf } from './scene.ts'

const count = 30
const leaseMs = 1_500
const mostWaiting = 200

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Vehicles that drive and park in turn. */
function fleetOf(front: Receiver, waitingNow: () => Promise<number>) {
  let isOver = false
  // On a busy machine, a test that posts faster than it handles measures the machine: it waits for a backlog, while driving.
  let waiting = 0
  const counted = (async () => {
    for (; !isOver; await pause(100)) waiting = await waitingNow()
  })()
  const loops = Array.from({ length: count }, async (_, vehicle) => {
    for (let n = 0; ; n += 1) {
      const body = {
        vin: vinOf(vehicle),
        createdAt: new Date().toISOString(),
        data: { Gear: n % 2 === 0 ? 'D' : 'P', Odometer: n },
      }
      expect((await front.accept({ authorization: undefined, body })).status).toBe(200)
      do await pause(30)
      while (waiting > mostWaiting && !isOver && n % 2 === 0)
      if (isOver && n % 2 === 1) return n
    }
  })
  return {
    /** Resolves to the last number of each vehicle. */
    async park(): Promise<readonly number[]> {
      isOver = true
      const last = await Promise.all(loops)
      await counted
      return last
    },
  }
}

describe.skipIf(!hasPostgres)('states of vehicles in processes that end at any moment', () => {
  const scene = sceneOfFile()

  test.each(few(['killed', 'frozen'] as const, 2))(
    '%s: each edge and each timer has one row, and each vehicle its newest state',
    async (fault) => {
      const schema = `edges_${fault}`
      await scene.prepare(schema)
      await scene.pool.query(
        `CREATE TABLE ${schema}.edges (at bigint GENERATED ALWAYS AS IDENTITY, vin text NOT NULL, edge text NOT NULL, n int, edge_id text)`,
      )
      const rowsOf = async (edge: string): Promise<readonly { vin: string; n: number; edge_id: string }[]> =>
        (await scene.pool.query(`SELECT vin, n, edge_id FROM ${schema}.edges WHERE edge = $1 ORDER BY at`, [edge])).rows
      const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs, role: 'receive' })
      const parts = [vehicles({ fields: ['Gear', 'Odometer'] })] as const
      const front = createReceiver({ secret: false, log: quiet, inbox, parts })
      await front.open()
      await using ledger = await createLedger({ pool: scene.pool, schema, port: scene.server.port, leaseMs })
      const children = [await ledger.begin('edges'), await ledger.begin('edges')]
      const driving = fleetOf(front, () => ledger.waiting())
      const strike = async (): Promise<void> => {
        const at = Math.floor(Math.random() * 2)
        const child = children[at] ?? expect.fail('Two processes run.')
        if (fault === 'killed') {
          await child.stop('SIGKILL')
          children[at] = await ledger.begin('edges')
        } else {
          child.kill('SIGSTOP')
          await pause(1.5 * leaseMs)
          child.kill('SIGCONT')
        }
      }
      for (let round = 0; round < inForm({ short: 2, full: 4, long: 15 }); round += 1) {
        const before = (await rowsOf('parks')).length
        await expect.poll(async () => (await rowsOf('parks')).length, { timeout: 60_000 }).toBeGreaterThan(before + 50)
        await strike()
      }
      const last = await driving.park()
      // The timers of all vehicles run, and half of them get another owner.
      await strike()
      // A process has more in hand than what ends it. What was in hand at three ends is a dead letter, which somebody replays.
      const late = new Set<string>()
      const left = async (): Promise<unknown> => {
        for await (const { event } of front.deadLetters.list())
          if (event.topic === 'data') late.add(`${event.vin} ${String(event.data.Odometer)}`)
        await front.deadLetters.replay({})
        const sql = `SELECT (SELECT count(*) FROM ${schema}.waiting)::int AS waiting, (SELECT count(*) FROM ${schema}.dead)::int AS dead`
        const { rows } = await scene.pool.query<object>(sql)
        return { ...rows[0], parked: new Set((await rowsOf('parked')).map(({ vin }) => vin)).size }
      }
      await expect.poll(left, { timeout: 60_000 }).toEqual({ waiting: 0, dead: 0, parked: count })
      const views = await Array.fromAsync(front.vehicles.list())
      await front.drain()
      await Promise.all(children.map((child) => child.stop('SIGKILL')))
      const parks = await rowsOf('parks')
      const numbers = (rows: typeof parks, vehicle: number): readonly number[] =>
        rows.filter(({ vin }) => vin === vinOf(vehicle)).map(({ n }) => n)
      for (const [vehicle, n] of last.entries()) {
        const odd = Array.from({ length: (n + 1) / 2 }, (_, at) => 2 * at + 1)
        const isInTime = (one: number): boolean => !late.has(`${vinOf(vehicle)} ${one}`)
        expect(numbers(parks, vehicle).filter(isInTime)).toEqual(odd.filter(isInTime))
        expect(numbers(parks, vehicle).toSorted((one, other) => one - other)).toEqual(odd)
        expect(numbers(await rowsOf('parked'), vehicle)).toEqual([n])
        expect(views.find(({ vin }) => vin === vinOf(vehicle))?.value('Odometer')).toBe(n)
      }
      expect(new Set(parks.map(({ edge_id: id }) => id)).size).toBe(parks.length)
    },
  )
})
