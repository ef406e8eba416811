// A receiver on the runtime of the first argument. The vehicle's name decides what its handler does. Handlers write each run to the
// journal that `SETTINGS` names, which survives the process.
import { appendFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { sqliteInbox, type SqliteInboxOptions } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver, type HandlerContext, type ReceiverOptions, vehicles } from '../../../src/index.ts'
import type { Change, Edge } from '../../../src/when.ts'
import { behaviours, type BehaviourName, isBehaviour } from './behaviours.ts'
import type { JournalLine } from './journal.ts'

/** The settings from the test. */
export interface Settings {
  /** The inbox's file. */
  readonly path: string
  /** The file to which every run of a handler is written. */
  readonly journal: string
  /** The duration of a handler without a behaviour, in milliseconds. A random one takes up to twice as long. */
  readonly handlerMs: number
  /** Writes each change of a vehicle's `Odometer` to the journal, as an edge reports it. */
  readonly edges?: boolean
  /** Handlers never end, so every acknowledged message stays pending. */
  readonly holds?: boolean
  /** The clock keeps jumping forward and back by this many milliseconds. */
  readonly clockJumpMs?: number
  /** The clock is wrong by this many milliseconds, at first and after a while. */
  readonly clockOffset?: { readonly ms: number; readonly thenMs?: number; readonly afterMs?: number }
  /** How long a handler keeps the process busy before that. */
  readonly burnMs?: number
  /** Default: any free one. */
  readonly port?: number
  /** Options of the server, beside its port. */
  readonly serve?: object
  /** When nothing is pending, writes all dead letters to the journal, once. */
  readonly listsDead?: boolean
  readonly options?: Pick<ReceiverOptions, 'concurrency' | 'timeoutMs' | 'retry' | 'limits'>
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

if (settings.clockOffset !== undefined) {
  const real = Date.now.bind(Date)
  const { ms, thenMs = ms, afterMs = 0 } = settings.clockOffset
  const startedAt = performance.now()
  Date.now = () => real() + (performance.now() - startedAt < afterMs ? ms : thenMs)
}

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

function note(line: JournalLine): void {
  appendFileSync(settings.journal, `${JSON.stringify(line)}\n`)
}

/** The handler of `fails-12` has the behaviour `fails`, and the handler of `V12` works. */
function behaviourOf(vin: string): BehaviourName | undefined {
  const [name = ''] = vin.split('-')
  return isBehaviour(name) ? name : undefined
}

async function work(vin: string, number: number, { delivery }: HandlerContext): Promise<void> {
  if (settings.holds === true) await new Promise(() => {})
  for (const end = performance.now() + (settings.burnMs ?? 0); performance.now() < end;);
  const behaviour = behaviourOf(vin)
  if (behaviour !== undefined) await behaviours[behaviour]()
  else if (settings.handlerMs > 0) await wait(settings.handlerMs * (1 + Math.random()))
  note({
    kind: 'run',
    pid: process.pid,
    vin,
    number,
    delivery: delivery.id,
    attempt: delivery.attempt,
    redelivered: delivery.redelivered,
    atMs: performance.timeOrigin + performance.now(),
  })
}

const receiver = createReceiver({
  secret: process.env['WEBHOOK_SECRET'],
  inbox: sqliteInbox({ ...settings.inbox, path: settings.path }),
  ...(settings.edges === true ? { parts: [vehicles({ fields: ['Odometer'] })] } : {}),
  ...settings.options,
})
  .on('data', (event, context) => work(event.vin, event.data.Odometer ?? -1, context))
  .on('gap', ({ vin, reason, from, to, missed }) => {
    note({
      kind: 'gap',
      pid: process.pid,
      ...(vin === undefined ? {} : { vin }),
      reason,
      fromMs: from.getTime(),
      toMs: to.getTime(),
      missed,
    })
    console.log(`gap ${reason} ${to.getTime() - from.getTime()}`)
  })

const driven: Edge<Change> = {
  ...{ name: 'driven', fields: ['Odometer'], reads: ['Odometer'], topics: [] },
  detect({ changes: [change] }) {
    return change === undefined || change.first ? undefined : { happened: change }
  },
  where: () => driven,
}

if (settings.edges === true) {
  receiver.when(driven, ({ vin, change, id }) => {
    note({ kind: 'edge', pid: process.pid, vin, from: Number(change.from), to: Number(change.to), id })
  })
}

async function noteDeadLetters(): Promise<void> {
  for await (const { id, event } of receiver.deadLetters.list()) {
    if (event.topic === 'data') note({ kind: 'dead', vin: event.vin, number: event.data.Odometer ?? -1, delivery: id })
  }
  console.log('dead letters listed')
}

const server = await adapter.serve(receiver, { port: settings.port ?? 0, hostname: '127.0.0.1', ...settings.serve })
let listsDead = settings.listsDead === true
setInterval(() => {
  const { pending, deadLettered, openGaps } = receiver.stats()
  console.log(`pending ${pending.messages} dead ${deadLettered} rss ${process.memoryUsage().rss} gaps ${openGaps}`)
  if (!listsDead || pending.messages > 0 || openGaps > 0) return
  listsDead = false
  void noteDeadLetters()
}, 50).unref()
// Live memory only: resident memory also counts garbage that is not collected yet.
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
