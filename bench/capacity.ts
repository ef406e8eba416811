/**
 * What one message costs a process, a SQLite file, a Postgres and a Kafka partition: CPU, bytes written, bytes kept. Simulates one partition's
 * share of a million vehicles, and checks the figures of bench/README.md against it. `npm run bench -- capacity [--only sqlite]`, about two
 * minutes. Exits with 1 when a figure of the page is too small by more than half.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { cpus, loadavg, release, tmpdir, type } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { kafkaInbox } from '../adapters/inbox/kafka.ts'
import { postgresInbox } from '../adapters/inbox/postgres.ts'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { createReceiver, memoryInbox, type ReceiverOptions, vehicles } from '../src/index.ts'
import { startBrokers } from '../test/kafka/brokers.ts'
import { createTopics } from '../test/kafka/topics.ts'
import { quiet } from '../test/postgres/quiet.ts'
import { corpus, tenFields } from './corpus.ts'
import { startDatabase } from './postgres/database.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    partitions: { type: 'string', default: '64' },
    count: { type: 'string', default: '60000' },
  },
})
/** One partition's share of a million vehicles. */
const share = Math.round(1_000_000 / Number(values.partitions))
const count = Number(values.count)
/** The messages that wait for their answer at a time, as from so many connections. */
const atOnce = 256
const bodies = corpus({ messages: count, vins: share, format: 'service' })

interface Store {
  readonly inbox: NonNullable<ReceiverOptions['inbox']>
  readonly parts: NonNullable<ReceiverOptions['parts']>
  /** The bytes that it has written since it began, and those that it keeps now. */
  bytes(): Promise<{ readonly written: number; readonly kept: number }>
  end(): Promise<void>
}

interface Cost {
  readonly cpuUs: number
  readonly written: number
  readonly kept: number
  readonly perSecond: number
}

const folderBytes = (folder: string): number =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0)

/** What this process gave to the disk, from /proc: Linux only. */
const written = (): number => Number(/^write_bytes: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? 0)

const states = [vehicles({ fields: [...tenFields] })]
const stores: Readonly<Record<string, () => Promise<Store>>> = {
  memory: async () => ({
    inbox: memoryInbox(),
    parts: states,
    bytes: async () => ({ written: 0, kept: 0 }),
    end: async () => {},
  }),
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), 'fleethook-capacity-'))
    return {
      inbox: sqliteInbox({ path: join(folder, 'inbox.db') }),
      parts: states,
      bytes: async () => ({ written: written(), kept: folderBytes(folder) }),
      end: async () => rmSync(folder, { recursive: true }),
    }
  },
  async postgres() {
    const { pool, newPool, prepare, end } = await startDatabase()
    await prepare('fleethook')
    const sums = `SELECT pg_current_wal_lsn() - '0/0' AS written,
      (SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = 'fleethook') AS kept`
    return {
      inbox: postgresInbox({ db: newPool(3) }),
      parts: states,
      async bytes() {
        const { rows } = await pool.query<{ written: string; kept: string }>(sums)
        return { written: Number(rows[0]?.written), kept: Number(rows[0]?.kept) }
      },
      end,
    }
  },
  async kafka() {
    const folder = mkdtempSync(join(tmpdir(), 'fleethook-capacity-'))
    const brokers = await startBrokers({ folder: (id) => join(folder, String(id)) })
    await createTopics(brokers.addresses, 'fleet', 1)
    const logs = (): number =>
      [1, 2, 3].reduce(
        (sum, id) => sum + statSync(join(folder, String(id), 'fleet-0/00000000000000000000.log')).size,
        0,
      )
    return {
      inbox: kafkaInbox({ brokers: brokers.addresses, topic: 'fleet', partitions: 1 }),
      parts: [],
      bytes: async () => ({ written: logs(), kept: logs() }),
      async end() {
        await brokers[Symbol.asyncDispose]()
        rmSync(folder, { recursive: true, force: true })
      },
    }
  },
}

async function costOf({ inbox, parts, bytes }: Store): Promise<Cost> {
  const receiver = createReceiver({ secret: false, log: quiet, inbox, parts }).on('data', () => {})
  await receiver.open()
  const before = await bytes()
  const [startedMs, cpu] = [performance.now(), process.cpuUsage()]
  let next = 0
  const senders = Array.from({ length: atOnce }, async () => {
    for (let body = bodies[next++]; body !== undefined; body = bodies[next++]) {
      const { status } = await receiver.accept({ headers: null, body })
      if (status !== 200) throw new Error(`A message was answered ${status}.`)
      // An inbox refuses messages when too many wait.
      while (next % atOnce === 0 && next - receiver.stats().handled > 5_000)
        await new Promise((resolve) => setTimeout(resolve, 1))
    }
  })
  await Promise.all(senders)
  while (receiver.stats().handled < count) await new Promise((resolve) => setTimeout(resolve, 5))
  const [seconds, used] = [(performance.now() - startedMs) / 1_000, process.cpuUsage(cpu)]
  await receiver.drain()
  const after = await bytes()
  return {
    cpuUs: (used.user + used.system) / count,
    written: (after.written - before.written) / count,
    kept: (after.kept - before.kept) / count,
    perSecond: count / seconds,
  }
}

/** The row of a store on the page: CPU in µs, bytes written, bytes kept. */
function onPage(name: string): readonly number[] {
  const page = readFileSync(new URL('README.md', import.meta.url), 'utf8')
  const capacity = page.slice(page.indexOf('\n## Capacity\n'))
  const cells = new RegExp(`^\\| ${name} .*$`, 'im').exec(capacity)?.[0].split('|').slice(2, 5) ?? []
  return cells.map((cell) => Number(cell.replaceAll(',', '').trim()))
}

const machine = `${cpus().length} × ${cpus()[0]?.model.trim()}, ${type()} ${release()}, load ${loadavg()[0]?.toFixed(0)}`
console.log(`Node ${process.versions.node}, ${machine}. ${count} messages of ${share} vehicles.\n`)
const rows: string[][] = []
for (const [name, open] of Object.entries(stores)) {
  if (values.only !== undefined && values.only !== name) continue
  const store = await open()
  const { cpuUs, written, kept, perSecond } = await costOf(store).finally(() => store.end())
  const measured = [cpuUs, written, kept]
  const isTooSmall = onPage(name).some((figure, at) => (measured[at] ?? 0) > 1.5 * figure)
  if (isTooSmall) process.exitCode = 1
  rows.push([name, ...measured.map((figure) => figure.toFixed(0)), perSecond.toFixed(0), isTooSmall ? 'more' : 'yes'])
}
console.log(table(['inbox', 'CPU µs', 'bytes written', 'bytes kept', 'messages/s', 'as on the page'], rows))
process.exit()
