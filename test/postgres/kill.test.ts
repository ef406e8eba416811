/* Handling processes that are killed and frozen, and a server that crashes, under load: with an own ledger that no part of the product reads. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Receiver } from 'fleethook'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { few, inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import type { ProgramSettings } from './program.ts'
import { bodyOf, post, receiverOn, type Scene, startScene } from './scene.ts'

const vehicles = 40
const leaseMs = 1_500

/** What the ledger shows. */
interface Account {
  /** Messages that were acknowledged, have no row, and are no dead letters: those in hand at three ends of a process are. */
  readonly lost: number
  /** Rows beyond the first of a message. */
  readonly doubled: number
  /** Rows that stand behind one with a higher number of the same vehicle. */
  readonly outOfOrder: number
}

const clean: Account = { lost: 0, doubled: 0, outOfOrder: 0 }

describe.skipIf(!hasPostgres)('handling processes that end at any moment', () => {
  let scene: Scene
  let schema = ''
  let number = 0
  let processes: ChildProcess[] = []

  beforeAll(async () => {
    scene = await startScene()
  }, 120_000)
  afterAll(() => scene?.[Symbol.asyncDispose]())
  beforeEach(async () => {
    schema = `kill${++number}`
    await scene.prepare(schema)
    await scene.pool.query(
      `CREATE TABLE ${schema}.ledger (at bigint GENERATED ALWAYS AS IDENTITY, vin text NOT NULL, n int NOT NULL)`,
    )
    processes = []
  })

  async function begin(mode: ProgramSettings['mode']): Promise<ChildProcess> {
    const settings: ProgramSettings = { port: scene.server.port, schema, leaseMs, mode }
    const { command, args, env } = programCommand('node24', join(import.meta.dirname, 'program.ts'), {
      SETTINGS: JSON.stringify(settings),
    })
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] })
    processes.push(child)
    await new Promise<void>((resolve) => child.stdout?.once('data', () => resolve()))
    return child
  }

  const ended = (child: ChildProcess): Promise<unknown> =>
    child.exitCode !== null || child.signalCode !== null
      ? Promise.resolve()
      : new Promise((resolve) => child.once('exit', resolve))

  const handled = async (): Promise<number> =>
    Number((await scene.pool.query<{ count: string }>(`SELECT count(*) FROM ${schema}.ledger`)).rows[0]?.count)

  /** Posts messages of each vehicle one after the other, until it is stopped. Resolves to the numbers that were acknowledged. */
  function load(receiver: Receiver): { stop(): Promise<ReadonlyMap<number, readonly number[]>> } {
    let isOver = false
    const acked = new Map<number, number[]>()
    const loops = Array.from({ length: vehicles }, async (_, vehicle) => {
      const numbers: number[] = []
      acked.set(vehicle, numbers)
      for (let n = 0; !isOver; n += 1) {
        if ((await post(receiver, vehicle, n)) === 200) numbers.push(n)
        // The pace of a vehicle, so that faults meet load and not a backlog.
        await new Promise((resolve) => setTimeout(resolve, 30))
      }
    })
    return {
      async stop() {
        isOver = true
        await Promise.all(loops)
        return acked
      },
    }
  }

  async function account(acked: ReadonlyMap<number, readonly number[]>): Promise<Account> {
    const { rows } = await scene.pool.query<{ vin: string; n: number }>(
      `SELECT vin, n FROM ${schema}.ledger ORDER BY at`,
    )
    const byVin = new Map<string, number[]>()
    for (const { vin, n } of rows) byVin.set(vin, [...(byVin.get(vin) ?? []), n])
    const seen = [...byVin.values()]
    const dead = await scene.pool.query<{ text: string }>(
      `SELECT m.text FROM ${schema}.dead JOIN ${schema}.message m USING (id)`,
    )
    const isDead = (vehicle: number, n: number): boolean =>
      dead.rows.some(({ text }) => text === JSON.stringify(bodyOf(vehicle, n)))
    let lost = 0
    for (const [vehicle, numbers] of acked) {
      const own = new Set([...byVin].find(([vin]) => Number(vin.slice(-7)) === vehicle)?.[1] ?? [])
      lost += numbers.filter((n) => !own.has(n) && !isDead(vehicle, n)).length
    }
    const doubled = seen.reduce((sum, numbers) => sum + numbers.length - new Set(numbers).size, 0)
    const outOfOrder = seen.reduce(
      (sum, numbers) => sum + numbers.filter((n, at) => numbers.slice(0, at).some((before) => before > n)).length,
      0,
    )
    return { lost, doubled, outOfOrder }
  }

  /** Runs faults under load with two handling processes, and returns what the ledger shows when all is handled. */
  async function underLoad(
    mode: ProgramSettings['mode'],
    rounds: number,
    fault: (choose: () => ChildProcess) => Promise<void>,
  ): Promise<Account> {
    const { receiver } = receiverOn({ db: scene.newPool(), schema, role: 'receive' })
    await receiver.open()
    await begin(mode)
    await begin(mode)
    const running = load(receiver)
    for (let round = 0; round < rounds; round += 1) {
      const before = await handled().catch(() => 0)
      await expect.poll(() => handled().catch(() => 0), { timeout: 60_000 }).toBeGreaterThan(before + 50)
      await fault(() => processes[Math.floor(Math.random() * processes.length)] ?? expect.fail('No process runs.'))
    }
    const acked = await running.stop()
    await expect
      .poll(
        async () =>
          (await scene.pool.query(`SELECT FROM ${schema}.waiting LIMIT 1`).catch(() => ({ rowCount: 1 }))).rowCount,
        { timeout: 60_000 },
      )
      .toBe(0)
    await receiver.drain()
    for (const child of processes) child.kill('SIGKILL')
    await Promise.all(processes.map(ended))
    return account(acked)
  }

  const kill =
    (mode: ProgramSettings['mode']) =>
    async (choose: () => ChildProcess): Promise<void> => {
      const child = choose()
      child.kill('SIGKILL')
      await ended(child)
      processes = processes.filter((one) => one !== child)
      await begin(mode)
    }

  test.each(few(['single', 'batch'] as const, 1))(
    '%s: `kill -9` loses nothing, doubles nothing and keeps the order of each vehicle',
    { timeout: 180_000 },
    async (mode) => {
      expect(await underLoad(mode, inForm({ short: 2, full: 6, long: 20 }), kill(mode))).toEqual(clean)
    },
  )

  test('processes that are frozen for longer than their lease commit nothing twice', { timeout: 180_000 }, async () => {
    const freeze = async (choose: () => ChildProcess): Promise<void> => {
      const child = choose()
      child.kill('SIGSTOP')
      await new Promise((resolve) => setTimeout(resolve, 1.5 * leaseMs))
      child.kill('SIGCONT')
    }
    expect(await underLoad('single', inForm({ short: 1, full: 4, long: 12 }), freeze)).toEqual(clean)
  })

  test('a server that crashes loses nothing that was acknowledged', { timeout: 180_000 }, async () => {
    expect(await underLoad('single', inForm({ short: 1, full: 4, long: 8 }), () => scene.server.crash())).toEqual(clean)
  })

  test('control: without the mark, some messages are written twice', { timeout: 180_000 }, async () => {
    const { lost, doubled } = await underLoad('unmarked', inForm({ short: 2, full: 6 }), kill('unmarked'))
    expect({ lost, isDoubled: doubled > 0 }).toEqual({ lost: 0, isDoubled: true })
  })
})
