// A receiver on the runtime of the first argument. The vehicle's name decides what its handler does. Handlers write each run to the
// journal that `SETTINGS` names, which survives the process.
import { appendFileSync, existsSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { kafkaInbox, type KafkaInboxOptions } from '../../../adapters/inbox/kafka.ts'
import { sqliteInbox, type SqliteInboxOptions } from '../../../adapters/inbox/sqlite.ts'
import { branch } from '../../../src/branch.ts'
import {
  createReceiver,
  type Delivery,
  type EventOf,
  type Handler,
  type ReceiverOptions,
  vehicles,
} from '../../../src/index.ts'
import type { Change, Edge } from '../../../src/when.ts'
import { onceIn } from '../../once/in-sqlite.ts'
import { behaviours, type BehaviourName, isBehaviour } from './behaviours.ts'
import { type JournalLine, journalOf } from './journal.ts'

/** The settings from the test. */
export interface Settings {
  /** The inbox's file. With `kafka`, that of its `meanwhile`. Default: it has none. */
  readonly path?: string
  /** The messages are in a topic. */
  readonly kafka?: Omit<KafkaInboxOptions, 'meanwhile'>
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
  /** The handler of the message 2 of a vehicle whose name begins with `kills` ends the process, at once or after a while. */
  readonly kills?: { readonly how: 'exit' | 'kill' | 'oom'; readonly afterMs?: number }
  /**
   * Each message becomes a row `vin, number` of the table `ledger` in this file. `isMarked`: with a mark of `fleethook/once`. Without one there
   * is a time in which the row is written and the inbox does not know it.
   */
  readonly ledger?: { readonly path: string; readonly isMarked: boolean }
  /** No run of a handler frees this number of bytes. */
  readonly leakBytes?: number
  /** Messages are handled in batches of this size. */
  readonly batch?: number
  /** How long a handler keeps the process busy before that. */
  readonly burnMs?: number
  /** Default: any free one. */
  readonly port?: number
  /** Options of the server, beside its port. */
  readonly serve?: object
  /** Branches, each with a journal of its own beside the journal: see `journalOf`. */
  readonly branches?: readonly BranchSettings[]
  /** When nothing is pending, writes all dead letters to the journals, once. */
  readonly listsDead?: boolean
  readonly options?: Pick<ReceiverOptions, 'concurrency' | 'timeoutMs' | 'retry' | 'limits'>
  /** Options of the inbox, beside its path. */
  readonly inbox?: Omit<SqliteInboxOptions, 'path'>
}

export interface BranchSettings {
  readonly name: string
  /** Its handler fails until this file exists: the server that it calls is down. */
  readonly downUntil?: string
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

function note(line: JournalLine, journal: string = settings.journal): void {
  appendFileSync(journal, `${JSON.stringify(line)}\n`)
}

/** The handler of `fails-12` has the behaviour `fails`, and the handler of `V12` works. */
function behaviourOf(vin: string): BehaviourName | undefined {
  const [name = ''] = vin.split('-')
  return isBehaviour(name) ? name : undefined
}

const now = (): number => performance.timeOrigin + performance.now()
const leaked: unknown[] = []

function end(how: 'exit' | 'kill' | 'oom'): void {
  if (how === 'exit') process.exit(7)
  if (how === 'kill') process.kill(process.pid, 'SIGKILL')
  for (const kept: unknown[] = []; ;) kept.push(Array.from({ length: 100_000 }, () => kept.length))
}

async function work(vin: string, number: number, delivery: Delivery): Promise<void> {
  const startedAtMs = now()
  if (settings.kills !== undefined && vin.startsWith('kills') && number === 2) {
    const { how, afterMs = 0 } = settings.kills
    if (afterMs > 0) await wait(afterMs)
    end(how)
  }
  if (settings.holds === true) await new Promise(() => {})
  for (const end = performance.now() + (settings.burnMs ?? 0); performance.now() < end;);
  const behaviour = behaviourOf(vin)
  if (behaviour !== undefined) await behaviours[behaviour]()
  else if (settings.handlerMs > 0) await wait(settings.handlerMs * (1 + Math.random()))
  if (settings.leakBytes !== undefined) leaked.push(Array.from({ length: settings.leakBytes / 8 }, () => 0))
  noteRun({ vin, number, startedAtMs }, delivery)
}

function noteRun(
  run: { readonly vin: string; readonly number: number; readonly startedAtMs: number },
  { id: delivery, attempt, redelivered, replayed }: Delivery,
  journal?: string,
): void {
  note({ kind: 'run', pid: process.pid, ...run, delivery, attempt, redelivered, replayed, atMs: now() }, journal)
}

function noteGap({ vin, reason, from, to, missed }: EventOf<'gap'>, journal?: string): void {
  const times = { fromMs: from.getTime(), toMs: to.getTime() }
  note({ kind: 'gap', pid: process.pid, ...(vin === undefined ? {} : { vin }), reason, ...times, missed }, journal)
}

async function ledger({ path, isMarked }: NonNullable<Settings['ledger']>): Promise<Handler<'data'>> {
  // Bun has none.
  const { DatabaseSync } = await import('node:sqlite')
  const db = new DatabaseSync(path, { timeout: 5_000 })
  db.exec('PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS ledger (vin TEXT, number INTEGER)')
  const write = ({ vin, data }: EventOf<'data'>): unknown =>
    db.prepare('INSERT INTO ledger VALUES (?, ?)').run(vin, Number(data.Odometer))
  if (isMarked) return onceIn(db, db)('ledger', write)
  return async (event) => {
    write(event)
    await wait(50)
  }
}

const file = settings.path === undefined ? undefined : sqliteInbox({ ...settings.inbox, path: settings.path })
const inbox = settings.kafka === undefined ? file : kafkaInbox({ ...settings.kafka, ...(file && { meanwhile: file }) })
if (inbox === undefined) throw new Error('It needs a file or a topic.')
const receiver = createReceiver({
  secret: process.env['WEBHOOK_SECRET'],
  inbox,
  ...(settings.edges === true ? { parts: [vehicles({ fields: ['Odometer'] })] } : {}),
  ...settings.options,
})
// A process that only receives has no handlers.
if (settings.kafka?.role !== 'receive') {
  receiver.on('gap', (gap) => {
    noteGap(gap)
    console.log(`gap ${gap.reason} ${gap.to.getTime() - gap.from.getTime()}`)
  })
  if (settings.ledger !== undefined) receiver.on('data', await ledger(settings.ledger))
  if (settings.batch === undefined)
    receiver.on('data', ({ vin, data }, { delivery }) => work(vin, data.Odometer ?? -1, delivery))
  else
    receiver.batch('data', { size: settings.batch, withinMs: 20 }, async (events, { deliveries }) => {
      for (const [at, { vin, data }] of events.entries()) {
        const delivery = deliveries[at]
        if (delivery !== undefined) await work(vin, data.Odometer ?? -1, delivery)
      }
    })
}

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

const branches = (settings.branches ?? []).map(({ name, downUntil }) => {
  const journal = journalOf(settings.journal, name)
  const behind = branch(receiver, { name })
  behind.on('gap', (gap) => noteGap(gap, journal))
  behind.on('data', ({ vin, data }, { delivery }) => {
    if (downUntil !== undefined && !existsSync(downUntil)) throw new Error('The other server is down.')
    noteRun({ vin, number: data.Odometer ?? -1, startedAtMs: now() }, delivery, journal)
  })
  return { behind, journal }
})

async function noteDeadLetters(): Promise<void> {
  for (const { behind, journal } of [{ behind: receiver, journal: settings.journal }, ...branches])
    for await (const { id: delivery, event, error } of behind.deadLetters.list())
      if (event.topic === 'data')
        note({ kind: 'dead', vin: event.vin, number: event.data.Odometer ?? -1, delivery, error }, journal)
  console.log('dead letters listed')
}

const server = await adapter.serve(receiver, { port: settings.port ?? 0, hostname: '127.0.0.1', ...settings.serve })
let listsDead = settings.listsDead === true
setInterval(() => {
  const all = [receiver, ...branches.map(({ behind }) => behind)].map((each) => each.stats())
  const sum = (figure: (stats: (typeof all)[number]) => number): number =>
    all.reduce((count, stats) => count + figure(stats), 0)
  const pending = sum((stats) => stats.pending.messages)
  const openGaps = sum((stats) => stats.openGaps)
  const dead = sum((stats) => stats.deadLettered)
  console.log(`pending ${pending} dead ${dead} rss ${process.memoryUsage().rss} gaps ${openGaps}`)
  if (!listsDead || pending > 0 || openGaps > 0) return
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
