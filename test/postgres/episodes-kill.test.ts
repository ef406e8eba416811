/* Episodes into a table, exactly once, while the process that handles one is killed: at each telling, before, in and after its transaction. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, test } from 'vitest'
import { endWithFile } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import { charge, fields, fleet, isSame, type Plain, plainOf, trip } from '../when/episodes-model.ts'
import type { EpisodesProgramSettings } from './episodes-program.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile } from './scene.ts'

const leaseMs = 1_500
const hour = 3_600_000

interface Row {
  readonly vin: string
  readonly edge: string
  readonly id: string
  readonly revision: number
  readonly told: string
}

interface Told extends Plain {
  readonly vin: string
  readonly edge: string
  readonly isDeclared: boolean
}

/** The newest telling of each episode, and tellings that are out of order. */
function toldLast(rows: readonly Row[]): {
  readonly last: ReadonlyMap<string, Told>
  readonly wrong: readonly string[]
} {
  const last = new Map<string, Told>()
  const wrong: string[] = []
  const revisions = new Map<string, number>()
  for (const { vin, edge, id, revision, told } of rows) {
    // One that was a dead letter is not told when a newer one was meanwhile.
    if (revision <= (revisions.get(id) ?? 0)) wrong.push(`${id}: ${revision} after ${revisions.get(id)}`)
    revisions.set(id, revision)
    const change = JSON.parse(told, (_, value: unknown) =>
      typeof value === 'string' && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? new Date(value) : value,
    )
    if (change.revoked) last.delete(id)
    else last.set(id, { ...plainOf(change), vin, edge, isDeclared: change.acrossGap || change.missing.length > 0 })
  }
  return { last, wrong }
}

describe.skipIf(!hasPostgres)('episodes of processes that end at each telling', () => {
  const scene = sceneOfFile()

  /** The tables of the inbox, and those of what the processes tell. */
  async function prepare(schema: string): Promise<void> {
    await scene.prepare(schema)
    await scene.pool.query(`CREATE TABLE ${schema}.deaths (id text, revision int, PRIMARY KEY (id, revision))`)
    await scene.pool.query(
      `CREATE TABLE ${schema}.tellings (at bigint GENERATED ALWAYS AS IDENTITY, vin text, edge text, id text, revision int, told text)`,
    )
  }

  /** Three processes that handle. One that ends is followed by another one. */
  function handlers(schema: string): AsyncDisposable & { readonly ended: () => number } {
    let [isOver, ended] = [false, 0]
    const running = new Set<ChildProcess>()
    const begin = (): void => {
      const settings: EpisodesProgramSettings = { port: scene.server.port, schema, leaseMs }
      const { command, args, env } = programCommand('node24', join(import.meta.dirname, 'episodes-program.ts'), {
        SETTINGS: JSON.stringify(settings),
      })
      const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'inherit'] })
      endWithFile(child)
      running.add(child)
      child.once('exit', (_, signal) => {
        running.delete(child)
        if (isOver || signal !== 'SIGKILL') return
        ended += 1
        begin()
      })
    }
    for (let n = 0; n < 3; n += 1) begin()
    return {
      ended: () => ended,
      async [Symbol.asyncDispose]() {
        isOver = true
        const all = [...running].map((child) => new Promise((resolve) => child.once('exit', resolve)))
        for (const child of running) child.kill('SIGTERM')
        await Promise.all(all)
      },
    }
  }

  test('each is told once, and in the end as `in(events)` says', { timeout: 600_000 }, async () => {
    const schema = 'episodes'
    await prepare(schema)
    const receivers = [0, 1].map(() => {
      const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs, role: 'receive' })
      return createReceiver({ secret: false, log: quiet, inbox, parts: [vehicles({ fields })] })
    })
    const [front = expect.fail('There are two.')] = receivers
    await Promise.all(receivers.map((receiver) => receiver.open()))
    const [cars, activities] = inForm({ full: [8, 2], long: [24, 6] } as const)
    const startMs = Date.now() - 48 * hour
    const values = fleet(cars, activities, 3, { shuffledMs: 60_000, lateMs: 600_000, holes: 0 }, startMs)
    await using processes = handlers(schema)
    // A timer that is due gets its message when a process has noticed it, which takes seconds on a busy machine.
    const waits = async (): Promise<boolean> =>
      (
        await scene.pool.query(
          `SELECT FROM ${schema}.waiting UNION ALL SELECT FROM ${schema}.vehicle WHERE due <= $1 LIMIT 1`,
          [Date.now()],
        )
      ).rowCount !== 0
    await Promise.all(
      [...Map.groupBy(values, ({ vin }) => vin)].map(async ([vin, own]) => {
        const lastMs = Math.max(...own.map(({ sentMs }) => sentMs))
        // A day later everything is over.
        const said = [
          ...Map.groupBy(own, ({ message }) => message).values(),
          [{ ...own[0], sentMs: lastMs + 24 * hour, field: 'VehicleSpeed', value: 0 }],
        ]
        for (const [n, some] of said.entries()) {
          const data = Object.fromEntries(some.map(({ field, value }) => [field, value]))
          const body = { vin, createdAt: new Date(some[0]?.sentMs ?? 0).toISOString(), data }
          const answer = await receivers[n % 2]?.accept({ authorization: undefined, body })
          expect(answer?.status).toBe(200)
        }
      }),
    )
    let replayed = 0
    // A process has more in hand than what ends it. What was in hand at three ends is a dead letter, which somebody replays.
    for (let quiet_ = 0; quiet_ < 8; quiet_ = (await waits()) ? 0 : quiet_ + 1) {
      replayed += await front.deadLetters.replay({})
      await new Promise((resolve) => setTimeout(resolve, 1_000))
    }
    await processes[Symbol.asyncDispose]()
    const { rows } = await scene.pool.query<Row>(
      `SELECT vin, edge, id, revision, told FROM ${schema}.tellings ORDER BY at`,
    )
    const { last, wrong } = toldLast(rows)
    expect(wrong).toEqual([])
    const different: unknown[] = []
    let [expected, declared] = [0, 0]
    for (const vin of new Set(values.map((value) => value.vin))) {
      const events = await front.messages.events({
        vin,
        from: new Date(Date.now() - hour),
        to: new Date(Date.now() + hour),
      })
      for (const edge of [trip, charge]) {
        const found = [...last.values()].filter((one) => one.vin === vin && one.edge === edge.name)
        const all = edge.in(events)
        expected += all.length
        for (const one of all.map(plainOf)) {
          const same = found.filter(({ start }) => start === one.start)
          if (same.length === 1 && same[0] !== undefined && isSame(one, same[0])) continue
          if (same.length === 1 && same[0]?.isDeclared === true) declared += 1
          else different.push({ vin, expected: one, told: same })
        }
        if (found.length !== all.length)
          different.push({ vin, edge: edge.name, told: found.length, expected: all.length })
      }
    }
    expect(different).toEqual([])
    expect(expected).toBeGreaterThan(cars)
    // Two that are told at the same time end one process.
    const { rowCount: deaths } = await scene.pool.query(`SELECT FROM ${schema}.deaths`)
    expect(deaths).toBeGreaterThanOrEqual(expected)
    expect(processes.ended()).toBeGreaterThan(expected / 2)
    await Promise.all(receivers.map((receiver) => receiver.drain()))
  })
})
