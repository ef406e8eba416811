/*
 * What goes on for a while under load and kills nobody: a vehicle whose handler fails, a replay, partitions that are added, and
 * half an hour that passes.
 */
import { readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { Connector, loadClient } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import { fromRecord, partitionOf } from '../../adapters/inbox/kafka/records.ts'
import { TopicReader } from '../../adapters/inbox/kafka/topic-reader.ts'
import { median } from '../../bench/median.ts'
import { createReceiver } from '../../src/index.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { weigh } from '../faults/process/start.ts'
import { createTraffic } from '../faults/process/traffic.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import {
  broken,
  createFleet,
  handled,
  judge,
  type Member,
  nameOf,
  nothingBroken,
  overlapping,
  p99Ms,
  pause,
  rowOf,
  type TimedRun,
  unaccounted,
  underLoad,
} from './fleet.ts'
import { addPartitions, createAdmin, endsOf } from './topics.ts'

let brokers: Brokers
const partitions = 12
const loadRows: Row[] = []
const waitRows: Row[] = []
const memoryRows: Row[] = []

beforeAll(async () => {
  brokers = await startBrokers()
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  console.log(loadRows, waitRows, memoryRows)
  const tables = [
    { title: 'Under load', rows: loadRows },
    { title: 'How long the other messages waited', rows: waitRows },
    { title: 'Memory and sockets', rows: memoryRows },
  ]
  await writeFigures({
    piece: 'kafka-steady',
    title: 'Kafka: failing handlers, replays, more partitions, and time',
    file: 'test/kafka/steady.test.ts',
    about:
      'Three brokers with replication 3 and `min.insync.replicas` 2. Vehicles send through a TCP balancer. The sender counts answers, and the handlers write a journal. Longest wait: from the acknowledgment to the start of the handler. p99: of 100 messages, 99 took less from sending to the start of the handler. Memory: what is alive on the heap and beside it after a full collection, the median of the first and of the last third of the samples.',
    tables: tables.filter(({ rows }) => rows.length > 0),
  })
})

const minutes = (count: number): number => count * 60_000

/** Times below this one only show what else runs on the machine, in milliseconds. */
const noiseMs = 250

/** Messages may wait for twice the usual time. */
function expectNoDelay(what: string, usualMs: number, meanwhileMs: number): void {
  waitRows.push({ what, 'p99 before, ms': usualMs, 'p99 meanwhile, ms': meanwhileMs })
  expect(meanwhileMs).toBeLessThanOrEqual(2 * Math.max(usualMs, noiseMs))
}

/** The message at the position that the group has committed for a partition, as `vin number`. */
async function atPosition(topic: string, partition: number): Promise<string> {
  const connector = new Connector(
    await loadClient(),
    readKafkaOptions({ brokers: brokers.addresses, topic, partitions }),
  )
  const reader = new TopicReader(connector, topic)
  await using admin = createAdmin(brokers.addresses)
  try {
    const [group] = await admin.listConsumerGroupOffsets({ groups: [`${topic}-handlers`] })
    const positions = group?.topics.find(({ name }) => name === topic)?.partitions
    const position = positions?.find(({ partitionIndex }) => partitionIndex === partition)
    const offset = Number(position?.committedOffset ?? -1)
    const leaders = await reader.leaders(true)
    const [fetched] = await reader.fetch(leaders[partition] ?? -1, [{ partition, offset }])
    const [placed] = fetched?.records ?? []
    const text = placed === undefined ? undefined : fromRecord(placed.record)?.message.text
    if (text === undefined || placed?.offset !== offset) return `nothing at ${offset}`
    const { vin, data }: { readonly vin: string; readonly data: { readonly Odometer: number } } = JSON.parse(text)
    return nameOf({ vin, number: data.Odometer })
  } finally {
    await reader.close()
  }
}

test(
  'a vehicle whose handler fails delays none of a thousand others, and after a restart only what lies behind it runs again',
  async () => {
    const failsMs = minutes(2)
    await using fleet = await createFleet({ brokers, partitions })
    const failing = join(fleet.folder, 'failing')
    const settings = { failing }
    await Promise.all([
      fleet.start('receive'),
      fleet.start('handle', { settings }),
      fleet.start('handle', { settings }),
    ])
    const sick = createTraffic({ vins: ['fails'], ratePerSecond: 10, goesOn: true })
    /** The last message of the vehicle before its handler failed. */
    const lastNumber = (): number =>
      Math.max(0, ...fleet.journal().runs.flatMap(({ vin, number }) => (vin === 'fails' ? [number] : [])))
    const partition = partitionOf(await loadClient(), 'fails', partitions)
    let oldest = ''
    let owner: Member | undefined
    const usual = { fromMs: 0, toMs: 0 }
    const meanwhile = { fromMs: 0, toMs: 0 }

    const load = { ratePerSecond: 500, vehicles: 1_000, handledWithinMs: minutes(3) }
    const found = await underLoad(fleet, load, async () => {
      let isOver = false
      const pouring = sick.pour(fleet.url, () => isOver)
      try {
        // The group settles first.
        await pause(2_000)
        usual.fromMs = Date.now()
        await pause(failsMs / 2)
        writeFileSync(failing, '')
        usual.toMs = meanwhile.fromMs = Date.now()
        await pause(failsMs / 2)
        meanwhile.toMs = Date.now()
        oldest = nameOf({ vin: 'fails', number: lastNumber() + 1 })
        expect(await atPosition(fleet.topic, partition)).toBe(oldest)
        const pid = fleet.journal().runs.findLast(({ vin }) => vin === 'fails')?.pid
        owner = [...fleet.members].find((member) => member.pid === pid)
        expect(await owner?.stop()).toEqual({ status: 0, signal: null })
        await fleet.start('handle', { settings })
        await pause(failsMs / 2)
        expect(await atPosition(fleet.topic, partition)).toBe(oldest)
      } finally {
        rmSync(failing, { force: true })
        isOver = true
        await pouring
      }
      await handled(fleet, sick, minutes(3))
    })

    const journal = fleet.journal()
    const result = judge([...found.all, ...sick.sent], journal)
    loadRows.push(rowOf(`the handler of one vehicle failed for ${(1.5 * failsMs) / 1_000} s`, result))
    expect(broken(result)).toEqual(nothingBroken)
    expect({ refused: result.refused, unanswered: result.unanswered }).toEqual({ refused: {}, unanswered: {} })
    expectNoDelay(
      'a handler fails for one of 1,001 vehicles',
      p99Ms(found.all, journal, usual),
      p99Ms(found.all, journal, meanwhile),
    )

    // What the stopped process had handled behind the oldest message runs again elsewhere, and nothing else does.
    const first = sick.sent.find((message) => nameOf(message) === oldest)
    const runs = Map.groupBy(journal.runs, nameOf)
    const client = await loadClient()
    const beside = found.all.filter(({ vin }) => partitionOf(client, vin, partitions) === partition)
    const again = [...runs].flatMap(([name, some]) => (some.length > 1 ? [name] : []))
    const must = beside
      .filter(({ sentAtMs }) => sentAtMs > (first?.endedAtMs ?? Infinity))
      .map(nameOf)
      .filter((name) => runs.get(name)?.some(({ pid }) => pid === owner?.pid))
    const may = new Set(beside.filter(({ endedAtMs }) => endedAtMs >= (first?.sentAtMs ?? Infinity)).map(nameOf))
    expect(must.length).toBeGreaterThan(0)
    expect(must.filter((name) => !again.includes(name))).toEqual([])
    expect(again.filter((name) => !may.has(name))).toEqual([])
  },
  minutes(20),
)

test(
  'a replay under load: each message of its time runs once more, with its id and a mark, in order, and others do not wait',
  async () => {
    const count = 50_000
    await using fleet = await createFleet({ brokers, partitions })
    await Promise.all([fleet.start('receive'), fleet.start('handle'), fleet.start('handle')])
    const silent = (): void => {}
    const operator = createReceiver({
      secret: false,
      inbox: kafkaInbox({ brokers: brokers.addresses, topic: fleet.topic, partitions, role: 'receive' }),
      log: { debug: silent, info: silent, warn: silent, error: silent },
    })
    const from = new Date()
    let to = from
    let replayed = 0
    let tookMs = 0
    const usual = { fromMs: 0, toMs: 0 }
    const meanwhile = { fromMs: 0, toMs: 0 }
    const replays = (): readonly TimedRun[] => fleet.journal().runs.filter((run) => run.replayed)

    const load = { ratePerSecond: 300, vehicles: 100, handledWithinMs: minutes(2) }
    const found = await underLoad(fleet, load, async ({ sent, acknowledged }) => {
      // The group settles first.
      await pause(2_000)
      usual.fromMs = Date.now()
      await expect.poll(() => sent.length, { timeout: minutes(10), interval: 100 }).toBeGreaterThanOrEqual(count)
      to = new Date()
      // Positions are committed every second, and what lies behind them is not replayed.
      await handled(fleet, { acknowledged: new Set(acknowledged) }, minutes(1))
      await pause(3_000)
      usual.toMs = meanwhile.fromMs = Date.now()
      const startedAt = performance.now()
      replayed = await operator.replay({ from, to })
      tookMs = performance.now() - startedAt
      await expect.poll(() => replays().length, { timeout: minutes(2), interval: 1_000 }).toBe(replayed)
      meanwhile.toMs = Date.now()
    }).finally(() => operator.drain())

    const journal = fleet.journal()
    loadRows.push(rowOf(`a replay of ${replayed} messages in ${Math.round(tookMs / 1_000)} s`, found))
    expect(broken(found)).toEqual(nothingBroken)
    const { refused, unanswered, again } = found
    expect({ refused, unanswered, again }).toEqual({ refused: {}, unanswered: {}, again: 0 })
    expectNoDelay(
      `a replay of ${replayed} messages`,
      p99Ms(found.all, journal, usual),
      p99Ms(found.all, journal, meanwhile),
    )
    // At most 500 a second. A timer may be a little early.
    expect(tookMs).toBeGreaterThanOrEqual(0.98 * 2 * replayed)

    const runs = replays().toSorted((a, b) => a.startedAtMs - b.startedAtMs)
    const names = new Set(runs.map(nameOf))
    expect([runs.length, names.size]).toEqual([replayed, replayed])
    const inside = found.all.filter(({ status, endedAtMs }) => status === 200 && endedAtMs < to.getTime())
    const outside = found.all.filter(({ sentAtMs }) => sentAtMs > to.getTime())
    expect(inside.length).toBeGreaterThanOrEqual(count - load.vehicles)
    expect(inside.map(nameOf).filter((name) => !names.has(name))).toEqual([])
    expect(outside.map(nameOf).filter((name) => names.has(name))).toEqual([])
    const ids = new Map(journal.runs.flatMap((run) => (run.replayed ? [] : [[nameOf(run), run.delivery] as const])))
    expect(runs.filter((run) => run.delivery !== ids.get(nameOf(run))).map(nameOf)).toEqual([])
    const numbers = Map.groupBy(runs, ({ vin }) => vin)
    const behind = [...numbers.values()].flatMap((some) =>
      some.filter(({ number }, place) => number < (some[place - 1]?.number ?? 0)),
    )
    expect(behind.map(nameOf)).toEqual([])
    expect(overlapping(journal)).toEqual([])
  },
  minutes(30),
)

test(
  'partitions that are added under load move no vehicle, and the steps that put them to use lose nothing and keep the order',
  async () => {
    const more = 2 * partitions
    await using fleet = await createFleet({ brokers, partitions })
    await Promise.all((['receive', 'receive', 'handle', 'handle'] as const).map((role) => fleet.start(role)))
    const ofRole = (role: Member['role']): readonly Member[] => [...fleet.members].filter((one) => one.role === role)
    const stop = (members: readonly Member[]): Promise<unknown> =>
      Promise.all(members.map(async (member) => expect(await member.stop()).toEqual({ status: 0, signal: null })))
    let refusedBefore = -1
    let endsBefore: readonly number[] = []

    // An idle connection may get a message at the moment in which one of the two receivers closes it, before the other one stops.
    const load = { ratePerSecond: 300, vehicles: 100, opensConnections: true }
    const found = await underLoad(fleet, load, async ({ sent, acknowledged }) => {
      await pause(2_000)
      for (const topic of [fleet.topic, `${fleet.topic}-dead`]) await addPartitions(brokers.addresses, topic, more)
      // The group gets the new ones at the next rebalance.
      const [old] = ofRole('handle')
      await fleet.start('handle')
      await stop(old === undefined ? [] : [old])
      await pause(20_000)
      endsBefore = await endsOf(brokers.addresses, fleet.topic)
      refusedBefore = sent.filter(({ status }) => status !== 200).length

      await stop(ofRole('receive'))
      await handled(fleet, { acknowledged }, 60_000)
      await stop(ofRole('handle'))
      const changed = { inbox: { partitions: more } }
      await Promise.all((['handle', 'handle', 'receive', 'receive'] as const).map((role) => fleet.start(role, changed)))
      await pause(20_000)
    })
    loadRows.push(rowOf(`${partitions} partitions added, then used`, found))
    expect(broken(found)).toEqual(nothingBroken)
    expect({ refusedBefore, again: found.again }).toEqual({ refusedBefore: 0, again: 0 })
    expect(endsBefore.slice(partitions)).toEqual(Array.from({ length: partitions }, () => 0))
    const ends = await endsOf(brokers.addresses, fleet.topic)
    expect(ends.slice(partitions).filter((end) => end === 0)).toEqual([])
    // While no receiver listened, messages may be missing, and a gap says so.
    await expect.poll(() => unaccounted(found, fleet), { timeout: 40_000, interval: 500 }).toEqual([])
    expect(fleet.journal().gaps.map(({ reason }) => reason)).toContain('stopped')
  },
  minutes(10),
)

/** `KAFKA_STEADY_MINUTES=5 npm run test:faults -- test/kafka/steady.test.ts`: half an hour by default. */
const steadyMinutes = Number(process.env['KAFKA_STEADY_MINUTES'] ?? 30)

/** The sockets of a process, without those of its clients: the number of these follows the load. */
function socketsOf({ pid, url }: Member): number {
  const port = `:${Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0')}`
  const ofClients = new Set(
    ['tcp', 'tcp6'].flatMap((table) =>
      readFileSync(`/proc/${pid}/net/${table}`, 'utf8')
        .split('\n')
        .map((line) => line.trim().split(/\s+/))
        .flatMap(([, local, , , , , , , , inode]) => (local?.endsWith(port) === true ? [`socket:[${inode}]`] : [])),
    ),
  )
  return readdirSync(`/proc/${pid}/fd`).filter((fd) => {
    try {
      const link = readlinkSync(`/proc/${pid}/fd/${fd}`)
      return link.startsWith('socket:') && !ofClients.has(link)
    } catch {
      // It was closed meanwhile.
      return false
    }
  }).length
}

test.skipIf(process.platform !== 'linux')(
  'memory and sockets of a receiver and of handlers do not grow',
  async () => {
    const samples = 6 * steadyMinutes
    const leakBytes = 400
    await using fleet = await createFleet({ brokers, partitions })
    const members = new Map([
      ['receiver', await fleet.start('receive')],
      ['handlers', await fleet.start('handle')],
      ['handlers that leak (control)', await fleet.start('handle', { settings: { leakBytes } })],
    ])
    const seen = new Map(
      [...members.keys()].map((what) => [what, { bytes: new Array<number>(), sockets: new Array<number>() }]),
    )
    const load = { ratePerSecond: 1_000, vehicles: 100, handledWithinMs: minutes(3) }
    const found = await underLoad(fleet, load, async () => {
      await pause(120_000)
      for (let sample = 0; sample < samples; sample++) {
        await pause(10_000)
        for (const [what, member] of members) {
          seen.get(what)?.bytes.push(await weigh(member))
          seen.get(what)?.sockets.push(socketsOf(member))
        }
      }
    })
    const seconds = Math.round((120_000 + samples * 10_000) / 1_000)
    loadRows.push(rowOf(`${seconds} s at ${load.ratePerSecond} messages a second`, found))
    const third = Math.floor(samples / 3)
    const grown = [...seen].map(([process, { bytes, sockets }]) => {
      const ends = (list: readonly number[]): readonly [number, number] => [
        median(list.slice(0, third)),
        median(list.slice(-third)),
      ]
      const [first, last] = ends(bytes)
      const [firstSockets, lastSockets] = ends(sockets)
      memoryRows.push({
        process,
        'memory at first, MB': (first / 1e6).toFixed(1),
        'memory at last, MB': (last / 1e6).toFixed(1),
        'sockets at first': firstSockets,
        'sockets at last': lastSockets,
      })
      return { process, memory: last > first * 1.05, sockets: lastSockets > firstSockets * 1.05 }
    })
    expect(broken(found)).toEqual(nothingBroken)
    expect({ refused: found.refused, unanswered: found.unanswered }).toEqual({ refused: {}, unanswered: {} })
    expect(grown).toEqual([
      { process: 'receiver', memory: false, sockets: false },
      { process: 'handlers', memory: false, sockets: false },
      { process: 'handlers that leak (control)', memory: true, sockets: false },
    ])
  },
  minutes(2 * steadyMinutes + 10),
)
