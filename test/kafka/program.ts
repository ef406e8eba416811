// One process of a fleet: a receiver, handlers, or both, on the runtime that the first argument names. Handlers write each run to the
// journal that `SETTINGS` names.
import { appendFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { kafkaInbox, type KafkaInboxOptions } from '../../adapters/inbox/kafka.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { createReceiver, type ReceiverOptions } from '../../src/index.ts'
import type { GapLine } from '../faults/process/journal.ts'
import type { TimedRun } from './fleet.ts'

/** The settings from the test. */
export interface Settings {
  readonly inbox: Omit<KafkaInboxOptions, 'spool'>
  /** The file of the spool. Default: none. */
  readonly spool?: string
  /** The file to which every run of a handler is written. */
  readonly journal: string
  /** The duration of a handler in milliseconds. A random one takes up to twice as long. */
  readonly handlerMs: number
  /** The handler of the message 2 of a vehicle whose name begins with `kills` ends the process after this time, in milliseconds. */
  readonly killsAfterMs?: number
  /** No run of a handler frees this number of bytes. Default 0. */
  readonly leakBytes?: number
  readonly options?: Pick<ReceiverOptions, 'concurrency' | 'timeoutMs' | 'retry' | 'limits'>
}

const settings: Settings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const adapter: typeof import('../../adapters/node.ts') = await import(`../../adapters/${process.argv[2]}.ts`)

const now = (): number => performance.timeOrigin + performance.now()

function note(line: TimedRun | GapLine): void {
  appendFileSync(settings.journal, `${JSON.stringify(line)}\n`)
}

const inbox = kafkaInbox({
  ...settings.inbox,
  ...(settings.spool === undefined ? {} : { spool: sqliteInbox({ path: settings.spool }) }),
})
const receiver = createReceiver({ secret: process.env['WEBHOOK_SECRET'], inbox, ...settings.options })
const { killsAfterMs, leakBytes = 0 } = settings
const leaked: unknown[] = []
if (settings.inbox.role !== 'receive') {
  receiver
    .on('data', async ({ vin, data }, { delivery }) => {
      const startedAtMs = now()
      if (killsAfterMs !== undefined && vin.startsWith('kills') && data.Odometer === 2) {
        if (killsAfterMs > 0) await new Promise((resolve) => setTimeout(resolve, killsAfterMs))
        process.exit(7)
      }
      const ms = settings.handlerMs * (1 + Math.random())
      if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms))
      if (leakBytes > 0) leaked.push(Array.from({ length: leakBytes / 8 }, () => 0))
      note({
        kind: 'run',
        pid: process.pid,
        vin,
        number: data.Odometer ?? -1,
        delivery: delivery.id,
        attempt: delivery.attempt,
        redelivered: delivery.redelivered,
        replayed: delivery.replayed,
        startedAtMs,
        atMs: now(),
      })
    })
    .on('gap', ({ vin, reason, from, to, missed }) =>
      note({
        kind: 'gap',
        pid: process.pid,
        ...(vin === undefined ? {} : { vin }),
        reason,
        fromMs: from.getTime(),
        toMs: to.getTime(),
        missed,
      }),
    )
}

// The balancer needs time to notice: docs/operating.md.
const server = await adapter.serve(receiver, { port: 0, hostname: '127.0.0.1', delayBeforeCloseMs: 1_500 })
// What is alive, for `weigh`.
if (process.argv[2] === 'node') {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  process.on('SIGUSR2', () => {
    collect()
    const { heapUsed, external } = process.memoryUsage()
    console.log(`weight ${heapUsed + external}`)
  })
}
const { left, lost } = await server.closed
console.log(`left ${left} lost ${lost}`)
