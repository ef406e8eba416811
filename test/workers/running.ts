import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { kill, storedWorker } from './command.ts'
import { type Entry, startLog } from './log.ts'
import { type DurableSettings, durableSource } from './programs/durable.ts'

/** A running Worker, and what its handlers saw. */
export interface Running extends AsyncDisposable {
  readonly target: Target
  readonly url: string
  readonly entries: readonly Entry[]
  /** The numbers of the messages of a vehicle, in the order in which they were handled. */
  readonly numbersOf: (vin: string) => readonly unknown[]
  /** What handlers of edges received of a vehicle, in order. */
  readonly told: (vin: string) => readonly unknown[]
  readonly json: (path: string) => Promise<unknown>
  /** Kills the Worker and starts it again on the same storage. */
  readonly again: () => Promise<void>
}

/** `released`: no handler ends before it. */
export async function started(settings: DurableSettings, released?: Promise<unknown>): Promise<Running> {
  const log = await startLog(released)
  const { entries } = log
  const worker = await storedWorker(durableSource(settings), log.port)
  let target = await spawnTarget(worker.commands.workerd)
  return {
    entries,
    get target() {
      return target
    },
    get url() {
      return target.url
    },
    numbersOf: (of) => entries.flatMap(({ vin, number }) => (vin === of ? [number] : [])),
    told: (of) =>
      entries.flatMap(({ vin, happened }) =>
        vin === of && happened !== undefined ? [[happened.from, happened.to]] : [],
      ),
    json: async (path) => (await fetch(target.url + path)).json(),
    async again() {
      await kill(target)
      target = await spawnTarget(worker.commands.workerd)
    },
    async [Symbol.asyncDispose]() {
      await target.stop('SIGKILL')
      worker[Symbol.dispose]()
      await log[Symbol.asyncDispose]()
    },
  }
}
