/* What an ended process had in hand is redelivered, and counts that end, through whatever processes it comes to its next handler. */
import { createReceiver, type Handler, type Receiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { post, sceneOfFile } from './scene.ts'

const vehicles = Array.from({ length: 40 }, (_, vehicle) => vehicle)

describe.skipIf(!hasPostgres)('processes of one schema, of which one ended', () => {
  const scene = sceneOfFile()

  interface Told {
    readonly reader: string
    readonly vehicle: number
    readonly redelivered: boolean
  }

  interface Process {
    readonly receiver: Receiver
    /** What the receiver and its branch were told. */
    readonly told: Told[]
    /** Reads no messages until then. */
    see(): void
    end(): Promise<void>
  }

  /** Its handlers never end. `isBlind`: it has leases, and does not see its messages yet. */
  function processOn(schema: string, isBlind = false): Process {
    const pool = scene.newPool()
    const sees = Promise.withResolvers<void>()
    if (!isBlind) sees.resolve()
    let isOver = false
    const db = {
      async query(text: string, values?: unknown[]) {
        if (text.includes('pg_current_snapshot()')) await sees.promise
        if (isOver) throw new Error('The process is gone.')
        return pool.query(text, values)
      },
    }
    const told: Told[] = []
    const handlerOf =
      (reader: string): Handler<'data'> =>
      async ({ data: { Odometer } }, { delivery: { redelivered } }) => {
        told.push({ reader, vehicle: Number(Odometer), redelivered })
        await new Promise(() => {})
      }
    const concurrency = vehicles.length
    const receiver = createReceiver({
      ...{ secret: false, log: quiet, concurrency },
      inbox: postgresInbox({ db, schema, leaseMs: 20_000 }),
    }).on('data', handlerOf('receiver'))
    branch(receiver, { name: 'crm', concurrency }).on('data', handlerOf('crm'))
    return {
      ...{ receiver, told, see: () => sees.resolve() },
      async end() {
        isOver = true
        // Nobody waits for the end of its lease.
        await scene.pool.query(`UPDATE ${schema}.process SET until = clock_timestamp() - interval '1 s'`)
      },
    }
  }

  const parts = (schema: string): Promise<readonly number[]> =>
    scene.pool
      .query<{ count: number }>(
        `SELECT count(*)::int AS count FROM ${schema}.part p JOIN ${schema}.process q ON q.id = p.owner
  WHERE q.until > clock_timestamp() GROUP BY owner`,
      )
      .then(({ rows }) => rows.map(({ count }) => count))

  /** All messages are in the hand of a process that has ended, and a second one has its partitions without having seen them. */
  async function ended(schema: string): Promise<Process> {
    await scene.prepare(schema)
    const first = processOn(schema)
    await first.receiver.open()
    await Promise.all(vehicles.map((vehicle) => post(first.receiver, vehicle, vehicle)))
    await expect.poll(() => first.told.length).toBe(2 * vehicles.length)
    await first.end()
    const second = processOn(schema, true)
    await second.receiver.open()
    await expect.poll(() => parts(schema)).toEqual([64])
    return second
  }

  /** Each message is told in these, as redelivered. */
  async function expectMarked(...processes: readonly Process[]): Promise<void> {
    const told = (): Process['told'] => processes.flatMap((process) => process.told)
    await expect.poll(() => told().length).toBe(2 * vehicles.length)
    expect(told().filter(({ redelivered }) => !redelivered)).toEqual([])
    expect(new Set(told().map(({ reader, vehicle }) => `${reader} ${vehicle}`)).size).toBe(2 * vehicles.length)
  }

  test('a message that a crash left is marked as redelivered, also when another process gives its vehicle on before it sees it', async () => {
    const schema = 'given_on'
    const second = await ended(schema)
    const third = processOn(schema)
    await third.receiver.open()
    await expect.poll(() => parts(schema)).toEqual([32, 32])
    second.see()
    await expectMarked(second, third)
    expect(third.told.length).toBeGreaterThan(0)
    await Promise.all([second, third].map(({ receiver }) => receiver.drain()))
  })

  test('a message that a crash left is marked as redelivered, also after a clean stop in between', async () => {
    const schema = 'stopped'
    const second = await ended(schema)
    const stopped = second.receiver.drain()
    second.see()
    await stopped
    const third = processOn(schema)
    await third.receiver.open()
    await expectMarked(third)
    await third.receiver.drain()
  })
})
