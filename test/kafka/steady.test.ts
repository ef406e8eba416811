/* What goes on for a while under load and kills nobody: partitions that are added, and half an hour that passes. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { median } from '../../bench/median.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { weigh } from '../faults/process/start.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import {
  broken,
  createFleet,
  handled,
  type Member,
  nothingBroken,
  pause,
  rowOf,
  unaccounted,
  underLoad,
} from './fleet.ts'
import { addPartitions, endsOf } from './topics.ts'

let brokers: Brokers
const partitions = 12
const loadRows: Row[] = []
const memoryRows: Row[] = []

beforeAll(async () => {
  brokers = await startBrokers()
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  console.log(loadRows, memoryRows)
  const tables = [
    { title: 'Under load', rows: loadRows },
    { title: 'Memory and sockets', rows: memoryRows },
  ]
  await writeFigures({
    piece: 'kafka-steady',
    title: 'Kafka: more partitions, and time',
    file: 'test/kafka/steady.test.ts',
    about:
      'Three brokers with replication 3 and `min.insync.replicas` 2. Vehicles send through a TCP balancer. The sender counts answers, and the handlers write a journal. Longest wait: from the acknowledgment to the start of the handler. Memory: what is alive on the heap and beside it after a full collection, the median of the first and of the last third of the samples.',
    tables: tables.filter(({ rows }) => rows.length > 0),
  })
})

const minutes = (count: number): number => count * 60_000

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
    await expect.poll(() => unaccounted(found, fleet), { timeout: 60_000, interval: 500 }).toEqual([])
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
