// A receiver as a business runs it, on the runtime that the first argument names. What its handlers do depends on the vehicle,
// and what they did is written to a file that outlives the process: `SETTINGS` says where.
import { appendFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { sqliteInbox, type SqliteInboxOptions } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver, type HandlerContext, type ReceiverOptions } from '../../../src/index.ts'
import { behaviours, type BehaviourName, isBehaviour } from './behaviours.ts'
import type { JournalLine } from './journal.ts'

/** What the test says to the program. */
export interface Settings {
  /** The inbox's file. */
  readonly path: string
  /** Where every run of a handler is noted. */
  readonly journal: string
  /** How long the handler of a vehicle takes that has no behaviour in its name, in milliseconds; up to twice as long. */
  readonly handlerMs: number
  /** No handler ever comes to its end: what is acknowledged waits. */
  readonly holds?: boolean
  /** Milliseconds by which the clock jumps, there and back, all the time. */
  readonly clockJumpMs?: number
  readonly options?: Pick<ReceiverOptions, 'concurrency' | 'timeoutMs' | 'retry'>
  /** Options of the inbox, beside its path. */
  readonly inbox?: Omit<SqliteInboxOptions, 'path'>
}

const settings: Settings = JSON.parse(process.env['SETTINGS'] ?? '{}')
const adapter: typeof import('../../../adapters/node.ts') = await import(`../../../adapters/${process.argv[2]}.ts`)

if (settings.clockJumpMs !== undefined) {
  const real = Date.now.bind(Date)
  const jump = settings.clockJumpMs
  Date.now = () => real() + (Math.floor(real() / 70) % 3) * jump - jump
}

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

function note(line: JournalLine): void {
  appendFileSync(settings.journal, `${JSON.stringify(line)}\n`)
}

/** `fails-12` misbehaves as its name says; `V12` does its work. */
function behaviourOf(vin: string): BehaviourName | undefined {
  const [name = ''] = vin.split('-')
  return isBehaviour(name) ? name : undefined
}

async function work(vin: string, number: number, { delivery }: HandlerContext): Promise<void> {
  if (settings.holds === true) await new Promise(() => {})
  const behaviour = behaviourOf(vin)
  if (behaviour !== undefined) await behaviours[behaviour]()
  else if (settings.handlerMs > 0) await wait(settings.handlerMs * (1 + Math.random()))
  note({
    pid: process.pid,
    vin,
    number,
    redelivered: delivery.redelivered,
    atMs: performance.timeOrigin + performance.now(),
  })
}

const receiver = createReceiver({
  secret: process.env['WEBHOOK_SECRET'],
  inbox: sqliteInbox({ ...settings.inbox, path: settings.path }),
  ...settings.options,
})
  .on('data', (event, context) => work(event.vin, event.data.Odometer ?? -1, context))
  .on('gap', ({ reason, from, to }) => console.log(`gap ${reason} ${to.getTime() - from.getTime()}`))

const server = await adapter.serve(receiver, { port: 0, hostname: '127.0.0.1' })
setInterval(() => {
  const { pending, deadLettered } = receiver.stats()
  console.log(`pending ${pending.messages} dead ${deadLettered} rss ${process.memoryUsage().rss}`)
}, 50).unref()
// What is alive, not what the collector has not got round to: the resident memory tells more of the machine than of the program.
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
