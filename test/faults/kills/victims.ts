/* What can be ended under load: receivers on SQLite, Workers with Durable Objects, and processes on a Postgres. */
import { randomInt } from 'node:crypto'
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect } from 'vitest'
import { spawnTarget, type Target } from '../../conformance/spawn.ts'
import { newFolder } from '../../folder.ts'
import { inForm } from '../../form.ts'
import { createLedger, type Ledger, type LedgerOptions, type Mode } from '../../postgres/ledger.ts'
import type { ServerRuntime } from '../../runtimes/targets.ts'
import { kill, type Platform, storedWorker } from '../../workers/command.ts'
import { startLog } from '../../workers/log.ts'
import { type RunLine, runsOf } from '../process/journal.ts'
import { createSite, idle } from '../process/start.ts'
import type { Victim } from './kills.ts'

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const aWhile = (mostMs: number): Promise<void> => pause(randomInt(0, mostMs))

/** A hundred ends can leave more than a hundred thousand messages. */
const backlogMs = inForm({ full: 120_000, long: 300_000 })

export interface SqliteOptions {
  readonly runtime: ServerRuntime
  readonly thread?: boolean
  /** Of the first round, of the second, and so on. Default `SIGKILL`. */
  readonly signals?: readonly NodeJS.Signals[]
  readonly edges?: boolean
  /** The clock keeps jumping forward and back by this many milliseconds. */
  readonly clockJumpMs?: number
  /** Handlers write a row for each message, with or without a mark of `fleethook/once`. Those are the runs. */
  readonly rows?: 'marked' | 'unmarked'
}

/** One process after the other on a file. States of vehicles are written in rounds that begin after five seconds. */
export async function onSqlite(given: SqliteOptions): Promise<Victim> {
  const { runtime, thread, signals = ['SIGKILL'], edges = false, clockJumpMs, rows } = given
  const inbox = thread === undefined ? {} : { thread }
  const jumps = clockJumpMs === undefined ? {} : { clockJumpMs }
  const ledger = rows && { path: join(newFolder('ledger'), 'ledger.db'), isMarked: rows === 'marked' }
  const site = createSite(runtime, {
    ...{ handlerMs: 2, inbox, edges, ...jumps, options: { concurrency: 8 } },
    ...(ledger && { ledger }),
  })
  let target: Target | undefined
  let round = 0
  return {
    async begin() {
      target = await site.start()
      return target.url
    },
    async strike() {
      await aWhile(edges ? 6_000 : 400)
      target?.kill(signals[round++ % signals.length] ?? 'SIGKILL')
      await target?.exited
    },
    async finish() {
      target = await site.start()
      await idle(target, backlogMs)
      expect(await target.stop()).toEqual({ status: 0, signal: null })
    },
    runs() {
      if (ledger === undefined) return site.journal().runs
      using db = new DatabaseSync(ledger.path, { readOnly: true })
      return runsOf(db.prepare('SELECT vin, number FROM ledger ORDER BY rowid').all())
    },
    dead: () => site.dead(),
    ...(edges ? { changes: () => site.journal().edges } : {}),
    async [Symbol.asyncDispose]() {
      await target?.stop('SIGKILL')
    },
  }
}

export interface WorkerOptions {
  readonly platform: Platform
  /** The module of the Worker. */
  readonly source: string
  /** `evicted`: the platform ends single objects without notice, and the Worker goes on. */
  readonly how?: 'killed' | 'evicted'
  readonly edges?: boolean
  /** How long nothing may be handled at the end, in milliseconds. */
  readonly patienceMs?: number
}

/** The dead letters in the files of all objects. */
function deadIn(folder: string): ReadonlySet<string> {
  const found = globSync(join(folder, 'storage/**/*.sqlite')).flatMap((path) => {
    using db = new DatabaseSync(path, { readOnly: true })
    const table = db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'fleethook_messages'").all()
    const text = "text ->> 'vin' AS vin, text ->> '$.data.BatteryLevel' AS number"
    return table.length === 0 ? [] : db.prepare(`SELECT ${text} FROM fleethook_messages WHERE state = 1`).all()
  })
  return new Set(found.map(({ vin, number }) => `${String(vin)} ${String(number)}`))
}

/** A Worker on the storage of its objects. */
export async function onObjects(options: WorkerOptions): Promise<Victim> {
  const { platform, source, how = 'killed', edges = false, patienceMs = 20_000 } = options
  const log = await startLog()
  const worker = await storedWorker(source, log.port)
  let target: Target | undefined
  let before: ReadonlySet<string> = new Set()
  const runs = (): readonly RunLine[] =>
    log.entries.flatMap((entry, at) =>
      entry.happened === undefined && typeof entry.number === 'number'
        ? [{ ...entry, kind: 'run' as const, pid: at, startedAtMs: at, atMs: at }]
        : [],
    )
  const missing = (names: ReadonlySet<string>): readonly string[] => {
    const handled = new Set(runs().map(({ vin, number }) => `${vin} ${number}`))
    return [...names].filter((name) => !handled.has(name))
  }
  async function end(): Promise<void> {
    if (target !== undefined) await kill(target)
    target = undefined
  }
  async function begin(): Promise<string> {
    target ??= await spawnTarget(worker.commands[platform])
    return target.url
  }
  return {
    begin,
    async strike(acknowledged) {
      await aWhile(200)
      if (edges) {
        // A message in hand at three ends is a dead letter. So each is handled before: one without an answer is before the next of its vehicle.
        await expect.poll(() => missing(before), { timeout: backlogMs }).toEqual([])
        before = new Set(acknowledged)
      }
      if (how === 'killed') return end()
      for (const shard of [0, 1, 2, 3]) {
        await fetch(`${target?.url}/evict?shard=${shard}`)
        await aWhile(100)
      }
    },
    /** Nobody sends anything any more: the alarms of the objects have to bring it back. */
    async finish(acknowledged) {
      await begin()
      let count = log.entries.length
      for (let until = Date.now() + patienceMs; Date.now() < until && missing(acknowledged).length > 0;) {
        await pause(100)
        if (log.entries.length > count) until = Date.now() + patienceMs
        count = log.entries.length
      }
    },
    runs,
    dead: () => deadIn(worker.folder),
    ...(edges
      ? {
          changes: () =>
            log.entries.flatMap(({ vin, happened }) => {
              if (happened === undefined) return []
              const { id, from, to } = happened
              // The first message of a vehicle changes nothing.
              return from === null ? [] : [{ vin, id, from, to }]
            }),
        }
      : {}),
    async [Symbol.asyncDispose]() {
      await end()
      worker[Symbol.dispose]()
      await log[Symbol.asyncDispose]()
    },
  }
}

export interface PostgresOptions extends LedgerOptions {
  /** Of the processes with handlers. */
  readonly modes: readonly Mode[]
  readonly runtime?: ServerRuntime
  /** What happens in a round. `end` kills a process with handlers, or the one that receives, and starts another one. */
  readonly fault: (
    handlers: readonly Target[],
    end: (role?: 'handles' | 'receives') => Promise<void>,
    round: number,
  ) => Promise<void>
}

/** A process that receives and some that handle, with a row of their own for each message, which no part of the product reads. */
export async function onPostgres({ modes, runtime, fault, ...options }: PostgresOptions): Promise<Victim> {
  const ledger: Ledger = await createLedger(options)
  const changed = runtime === undefined ? {} : { runtime }
  let receiver = await ledger.begin('receive', changed)
  const handlers = await Promise.all(modes.map(async (mode) => ({ mode, target: await ledger.begin(mode, changed) })))
  async function end(role: 'handles' | 'receives' = 'handles'): Promise<void> {
    if (role === 'receives') {
      await receiver.stop('SIGKILL')
      receiver = await ledger.begin('receive', changed)
      return
    }
    const place = randomInt(handlers.length)
    const one = handlers[place] ?? expect.fail('No process runs.')
    await one.target.stop('SIGKILL')
    handlers[place] = { mode: one.mode, target: await ledger.begin(one.mode, changed) }
  }
  let round = 0
  return {
    async begin() {
      // Nobody posts between two rounds. On a busy machine, a backlog that grew with each of them would measure the machine.
      await expect.poll(() => ledger.waiting().catch(() => Infinity), { timeout: 120_000 }).toBeLessThan(500)
      return receiver.url
    },
    async strike() {
      await ledger.grows(50)
      await fault(
        handlers.map(({ target }) => target),
        end,
        round++,
      )
    },
    async finish() {
      await ledger.isDone()
      for (const one of [...ledger.processes]) expect(await one.stop()).toEqual({ status: 0, signal: null })
    },
    runs: async () => runsOf((await ledger.rows()).map(({ vin, n }) => ({ vin, number: n }))),
    dead: ledger.dead,
    [Symbol.asyncDispose]: ledger[Symbol.asyncDispose],
  }
}
