import { randomInt } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePort, type Target } from '../../conformance/spawn.ts'
import type { ServerRuntime } from '../../runtimes/targets.ts'
import { account, type Account, type Evidence, type Incident, refusalsIn } from '../accounting.ts'
import { native } from '../disk/native.ts'
import type { Settings } from '../process/program.ts'
import { createSite } from '../process/start.ts'
import { createTraffic } from '../process/traffic.ts'

/** A receiver under load, while a sender sends. */
interface Stage {
  readonly target: Target
  /** Writes down what happens, for the stories of unaccounted messages. */
  readonly note: (what: string) => void
  /** Ends the process by this signal, waits, and starts the next one. */
  readonly replace: (signal: NodeJS.Signals, downMs: number, changed?: Partial<Settings>) => Promise<void>
  /** The disk fails as long as this file exists. */
  readonly diskFault: string
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const upTo = (ms: number): number => randomInt(0, ms + 1)

/** How far a clock is set back. */
const setBackMs = -3_600_000

/** A receiver whose inbox is full in no time: eight handlers that take 200 ms, and room for twenty messages. */
const small: Partial<Settings> = { handlerMs: 200, options: { concurrency: 8, limits: { pendingMessages: 20 } } }

/** Causes one fault and ends with a receiver that works. A process is frozen for at most `frozenMs`. */
type Cause = (stage: Stage, frozenMs: number) => Promise<void>

export type Fault =
  | `SIGTERM, ${Restart}`
  | `kill -9, ${Restart}`
  | 'kill -9, after a sign of life'
  | `frozen${'' | ', then kill -9'}`
  | `inbox full, then ${'SIGTERM' | 'kill -9'}`
  | `clock set back ${'while down' | 'while it runs'}`
  | `disk fails, then ${'recovers' | 'kill -9'}`
type Restart = 'restarted at once' | 'down for a while'

const faults: Readonly<Record<Fault, Cause>> = {
  'SIGTERM, restarted at once': (stage) => stage.replace('SIGTERM', 0),
  'SIGTERM, down for a while': (stage) => stage.replace('SIGTERM', upTo(1_500)),
  'kill -9, restarted at once': (stage) => stage.replace('SIGKILL', 0),
  'kill -9, down for a while': (stage) => stage.replace('SIGKILL', upTo(1_500)),
  // The file gets a sign of life, and the log a line about refused requests, every ten seconds.
  async 'kill -9, after a sign of life'({ replace }) {
    await pause(10_000 + upTo(3_000))
    await replace('SIGKILL', 0)
  },
  async frozen({ target, note }, frozenMs) {
    const ms = Math.min(3_000, frozenMs) + upTo(Math.max(0, frozenMs - 3_000))
    note(`SIGSTOP for ${ms} ms`)
    target.kill('SIGSTOP')
    await pause(ms)
    target.kill('SIGCONT')
    note('SIGCONT')
  },
  async 'frozen, then kill -9'({ target, note, replace }) {
    note('SIGSTOP')
    target.kill('SIGSTOP')
    await pause(500 + upTo(1_000))
    await replace('SIGKILL', 0)
  },
  async 'inbox full, then SIGTERM'({ replace }) {
    await replace('SIGTERM', 0, small)
    await pause(500 + upTo(500))
    await replace('SIGTERM', 0)
  },
  async 'inbox full, then kill -9'({ replace }) {
    await replace('SIGTERM', 0, small)
    await pause(500 + upTo(500))
    await replace('SIGKILL', 0)
  },
  async 'clock set back while down'({ replace }) {
    await replace('SIGKILL', upTo(1_000), { clockOffset: { ms: setBackMs } })
    await pause(300)
    await replace('SIGTERM', upTo(500))
  },
  async 'clock set back while it runs'({ replace }) {
    await replace('SIGTERM', 0, { ...small, clockOffset: { ms: 0, thenMs: setBackMs, afterMs: 400 } })
    await pause(800)
    await replace('SIGTERM', upTo(500))
  },
  'disk fails, then recovers': breakDisk,
  async 'disk fails, then kill -9'(stage) {
    await breakDisk(stage)
    await stage.replace('SIGKILL', 0)
  },
}

async function breakDisk({ diskFault, note }: Stage): Promise<void> {
  note('the disk fails with EIO')
  writeFileSync(diskFault, 'fail')
  await pause(200 + upTo(500))
  rmSync(diskFault)
  note('the disk works')
}

/** The faults that this machine can cause. */
export const possible: readonly Fault[] = (Object.keys(faults) as Fault[]).filter(
  (name) => !name.startsWith('disk') || typeof native !== 'string',
)

export interface RoundsOptions {
  readonly runtime: ServerRuntime
  readonly faults: readonly Fault[]
  /** The longest time that a process is frozen, in milliseconds. */
  readonly frozenMs: number
  readonly thread?: boolean
}

/** Takes one receiver and its successors through faults under load, and accounts for every message. */
export async function goThrough({ runtime, faults: names, frozenMs, thread = false }: RoundsOptions): Promise<{
  readonly account: Account
  readonly evidence: Evidence
}> {
  const base: Omit<Settings, 'path' | 'journal'> = {
    handlerMs: 2,
    port: await freePort(),
    inbox: { thread },
    // Handlers of the vehicle `fails-1` always fail.
    options: { concurrency: 8, retry: { attempts: 3, minMs: 1, maxMs: 50 } },
  }
  const site = createSite(runtime, base)
  const diskFault = join(site.path, '..', 'fault')
  const env = typeof native === 'string' ? {} : { LD_PRELOAD: native.faultyDisk, FAULTY_DISK: diskFault }
  const incidents: Incident[] = []
  const outputs: (readonly string[])[] = []
  const note = (what: string): void => void incidents.push({ atMs: Date.now(), what })

  async function start(changed: Partial<Settings> = {}): Promise<Target> {
    const target = await site.start(changed, env)
    outputs.push(target.output)
    note(`${target.pid} listens`)
    return target
  }

  const traffic = createTraffic({
    vins: [...Array.from({ length: 39 }, (_, n) => `V${n}`), 'fails-1'],
    ratePerSecond: 200,
    goesOn: true,
    // A busy receiver can take a second for an answer, and what its sender gave up then, nobody has told it of.
    timeoutMs: 5_000,
    opensConnections: 'half',
    wrongEvery: 10,
  })
  let target = await start()
  try {
    let over = false
    const pouring = traffic.pour(target.url, () => over)
    for (const name of names) {
      await pause(100 + upTo(300))
      note(name)
      const stage = (): Stage => ({
        target,
        note,
        diskFault,
        async replace(signal, downMs, changed) {
          note(`${signal} to ${target.pid}`)
          target.kill(signal)
          await target.exited
          note(`${target.pid} ended`)
          await pause(downMs)
          target = await start(changed)
        },
      })
      await faults[name](stage(), frozenMs)
      // Requests that waited for the process are answered before the next fault.
      await pause(200)
    }
    // On a busy machine, the faults can be over before these vehicles have had an answer.
    const answered = (vin: string): boolean => [...traffic.acknowledged].some((name) => name.startsWith(`${vin} `))
    while (!answered('V1') || !answered('fails-1')) await pause(50)
    over = true
    await pouring
    await target.stop()
    target = await start({ listsDead: true })
    // It lists them when nothing waits and every gap was emitted.
    await target.line(/^dead letters listed/)
    await target.stop()
  } finally {
    await target[Symbol.asyncDispose]()
  }
  const evidence: Evidence = {
    sent: traffic.sent,
    journal: site.journal(),
    refusals: refusalsIn(outputs),
    clockOffsetsMs: names.some((name) => name.startsWith('clock')) ? [0, setBackMs] : [0],
    incidents,
  }
  return { account: account(evidence), evidence }
}
