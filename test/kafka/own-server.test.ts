/*
 * The template own-server behind topics as the maker's own server writes them: a process that is killed over and over has each row once, in
 * order, and a rule that reports each time once.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { Producer, stringSerializers } from '@platformatic/kafka'
import { expect, test } from 'vitest'
import { endWithFile } from '../conformance/spawn.ts'
import { ofFile } from '../of-file.ts'
import { onSources } from '../templates/running.ts'
import { startBrokers } from './brokers.ts'
import { createAdmin } from './topics.ts'
import { newFolder } from '../folder.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const kinds = ['V', 'alerts', 'errors', 'connectivity']
const vins = Array.from({ length: 20 }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)
const brokers = ofFile(async () => {
  const alone = [
    'offsets.topic.replication.factor',
    'transaction.state.log.replication.factor',
    'transaction.state.log.min.isr',
  ]
  const started = await startBrokers({ count: 1, properties: Object.fromEntries(alone.map((name) => [name, 1])) })
  await using admin = createAdmin(started.addresses)
  await admin.createTopics({ topics: kinds.map((kind) => `fleet_${kind}`), partitions: 4, replicas: 1 })
  return started
})

/** A record as the server writes it with decoded records on: the JSON of its message, by the VIN. */
const record = (
  kind: string,
  vin: string,
  n: number,
  content: object,
): { topic: string; key: string; value: string } => ({
  topic: `fleet_${kind}`,
  key: vin,
  value: JSON.stringify({ ...content, createdAt: new Date(Date.UTC(2026, 5, 1) + n * 1_000).toISOString(), vin }),
})

/** Each vehicle counts, and parks after every fifth message. */
const reading = (vin: string, n: number): ReturnType<typeof record> =>
  record('V', vin, n, {
    data: [
      { key: 'Odometer', value: { doubleValue: n } },
      { key: 'Gear', value: { shiftStateValue: n % 5 === 4 ? 'ShiftStateP' : 'ShiftStateD' } },
    ],
    isResend: false,
  })

async function produce(messages: readonly ReturnType<typeof record>[]): Promise<void> {
  const producer = new Producer({
    clientId: 'server',
    idempotent: true,
    bootstrapBrokers: [...brokers.addresses],
    serializers: stringSerializers,
  })
  await producer.send({ messages: [...messages], acks: -1 })
  await producer.close()
}

interface Process {
  readonly output: readonly string[]
  /** Resolves when it has ended. */
  readonly ended: Promise<unknown>
  /** Resolves to its exit status. */
  stop(signal: NodeJS.Signals): Promise<number | null>
}

interface Scene {
  /** `preload`: JavaScript that runs first. */
  start(preload?: string): Process
  /** Starts it again whenever it ends, as a service manager does. Resolves to the status of the one that `stop` ends. */
  keep(preload?: string): { stop(): Promise<number | null> }
  rows(sql: string): readonly Record<string, unknown>[]
  committed(): Promise<bigint>
}

function scene(): Scene {
  const folder = newFolder('own-server')
  const database = join(folder, 'readings.db')
  return {
    keep(preload) {
      let running = this.start(preload)
      let isOver = false
      const restarted = (async () => {
        for (let starts = 0; !isOver && starts < 30; starts += 1) {
          await running.ended
          if (!isOver) running = this.start(preload)
        }
      })()
      return {
        async stop() {
          isOver = true
          const status = await running.stop('SIGTERM')
          await restarted
          return status
        },
      }
    },
    start(preload = '') {
      const output: string[] = []
      const flags = [...onSources, '--import', `data:text/javascript,${encodeURIComponent(preload)}`]
      const child = spawn(process.execPath, [...flags, join(root, 'examples/own-server/server.ts')], {
        env: {
          ...process.env,
          KAFKA_BROKERS: brokers.addresses.join(','),
          KAFKA_TOPICS: kinds.map((kind) => `fleet_${kind}`).join(','),
          DATABASE: database,
          FLEETHOOK_INBOX: join(folder, 'inbox.db'),
        },
      })
      endWithFile(child)
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => output.push(String(text)))
      const ended = once(child, 'exit')
      return {
        output,
        ended,
        async stop(signal) {
          child.kill(signal)
          const [status] = await ended
          return status
        },
      }
    },
    rows(sql) {
      if (!existsSync(database)) return []
      using db = new DatabaseSync(database, { readOnly: true, timeout: 5_000 })
      return db.prepare(sql).all()
    },
    async committed() {
      await using admin = createAdmin(brokers.addresses)
      const groups = await admin.listConsumerGroupOffsets({ groups: ['fleethook'] })
      return groups
        .flatMap(({ topics }) => topics.flatMap(({ partitions }) => partitions))
        .reduce((sum, { committedOffset }) => sum + (committedOffset > 0n ? committedOffset : 0n), 0n)
    },
  }
}

test('has each row once and in order, and each rule reports once, through kills', { timeout: 300_000 }, async () => {
  const { start, rows, committed } = scene()
  const total = 80
  const count = (): number => Number(rows("SELECT count(*) AS n FROM readings WHERE field = 'Odometer'")[0]?.['n'] ?? 0)
  let running = start()
  for (let from = 0; from < total; from += 16) {
    await produce(Array.from({ length: 16 }, (_, n) => vins.map((vin) => reading(vin, from + n))).flat())
    await expect.poll(count, { timeout: 120_000, interval: 20 }).toBeGreaterThan(from * vins.length)
    await running.stop('SIGKILL')
    running = start()
  }
  await produce([
    record('alerts', vins[0] ?? '', total, {
      alerts: [{ name: 'A', startedAt: null, endedAt: null, audiences: ['Customer'] }],
    }),
    record('errors', vins[0] ?? '', total, { errors: [{ name: 'E', tags: {}, body: 'b', createdAt: null }] }),
    record('connectivity', vins[0] ?? '', total, { connectionId: 'c', networkInterface: 'wifi', status: 'CONNECTED' }),
    // As the server writes it with decoded records off.
    { topic: 'fleet_V', key: vins[0] ?? '', value: '\n\u0011\u0008\u0001\u0012' },
  ])
  const all = vins.length * total
  await expect.poll(count, { timeout: 120_000 }).toBe(all)
  await expect.poll(committed, { timeout: 60_000 }).toBe(BigInt(all + 4))
  const readings = rows("SELECT vin, value FROM readings WHERE field = 'Odometer' ORDER BY rowid")
  for (const vin of vins) {
    const values = readings.filter((row) => row['vin'] === vin).map(({ value }) => Number(value))
    expect(values).toEqual(Array.from({ length: total }, (_, n) => n))
  }
  const parked = rows('SELECT vin, count(*) AS n, count(DISTINCT at) AS times FROM parked GROUP BY vin')
  expect(parked).toHaveLength(vins.length)
  expect(new Set(parked.map(({ n, times }) => `${String(n)} ${String(times)}`))).toEqual(
    new Set([`${total / 5} ${total / 5}`]),
  )
  expect(running.output.join('')).toMatch(/1 request refused: body_not_json/)

  // A stop on purpose commits what was handled, so the next process handles nothing again.
  expect(await running.stop('SIGTERM')).toBe(0)
  running = start()
  await produce([reading(vins[0] ?? '', total)])
  await expect.poll(count, { timeout: 60_000 }).toBe(all + 1)
  // The next test begins with its group.
  expect(await running.stop('SIGTERM')).toBe(0)
})

/** The write of a certain value ends the process. */
const deadly = `import { DatabaseSync } from 'node:sqlite'
const { prepare } = DatabaseSync.prototype
DatabaseSync.prototype.prepare = function (sql) {
  const statement = prepare.call(this, sql)
  const run = statement.run.bind(statement)
  statement.run = (...values) => {
    if (sql.includes('INTO readings') && values.join().includes('"Odometer":666')) process.kill(process.pid, 'SIGKILL')
    return run(...values)
  }
  return statement
}`

test('a record that ends each process is a dead letter, and those behind it go on', { timeout: 300_000 }, async () => {
  const own = scene()
  const { rows, committed } = own
  const before = await committed()
  const vin = '0FLEETV14T0000666'
  const kept = own.keep(deadly)
  await produce([664, 665, 666, 667, 668].map((n) => reading(vin, n)))
  await expect.poll(committed, { timeout: 240_000, interval: 500 }).toBe(before + 5n)
  const readings = rows(`SELECT value FROM readings WHERE vin = '${vin}' AND field = 'Odometer' ORDER BY rowid`)
  expect(readings.map(({ value }) => value)).toEqual([664, 665, 667, 668])
  expect(await kept.stop()).toBe(0)
})

test(
  'goes on when its broker was killed and has started again, and each row is there once',
  { timeout: 300_000 },
  async () => {
    const own = scene()
    const { rows, committed } = own
    const before = await committed()
    const vin = '0FLEETV14T0000777'
    const kept = own.keep()
    const values = (): unknown[] =>
      rows(`SELECT value FROM readings WHERE vin = '${vin}' AND field = 'Odometer' ORDER BY rowid`).map(
        ({ value }) => value,
      )
    const numbers = Array.from({ length: 40 }, (_, n) => n)
    for (const from of [0, 20]) {
      await produce(numbers.slice(from, from + 20).map((n) => reading(vin, n)))
      await expect.poll(values, { timeout: 120_000, interval: 200 }).toEqual(numbers.slice(0, from + 20))
      if (from > 0) continue
      await brokers.get(1).kill('SIGKILL')
      await brokers.get(1).start()
    }
    await expect.poll(committed, { timeout: 60_000 }).toBe(before + 40n)
    expect(await kept.stop()).toBe(0)
  },
)
