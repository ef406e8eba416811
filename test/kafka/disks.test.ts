/*
 * Disks of brokers: full ones, and power cuts. `kill -9` leaves what a broker wrote in the memory of the kernel. A power cut takes
 * it, and Kafka acknowledges a message before it syncs it. So each broker has a file system of its own, which the test ends.
 */
import { randomInt } from 'node:crypto'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { createVolume, noVolumes, type Volume } from '../faults/disk/volume.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { form, inForm } from '../form.ts'
import { type Broker, type Brokers, startBrokers } from './brokers.ts'
import { broken, createFleet, type Found, nothingBroken, pause, rowOf, unaccounted, underLoad } from './fleet.ts'
import { inSync } from './topics.ts'

const rows: Row[] = []
function note(what: string, found: Found): void {
  rows.push(rowOf(what, found))
  console.log(rows.at(-1))
}
const load = { ratePerSecond: 300, vehicles: 100, handledWithinMs: 120_000 }

afterAll(() =>
  writeFigures({
    piece: 'kafka-disks',
    title: 'Kafka: full disks and power cuts of brokers',
    file: 'test/kafka/disks.test.ts',
    about:
      'Three brokers with replication 3 and `min.insync.replicas` 2, each with an ext4 file system of its own on a loop device. 100 vehicles send together 300 messages a second. Full: a file takes all the room that is left, until it is deleted and the broker starts again. Power cut: the file system writes nothing more, not even its own log, the broker gets SIGKILL, and both start again. The sender counts answers, and the handlers write a journal. Before the last power cut no handler runs. Longest wait: from the acknowledgment to the start of the handler.',
    tables: [{ title: 'Disks', rows }],
  }),
)

/** Brokers with a disk for each. */
interface Cluster extends AsyncDisposable {
  readonly brokers: Brokers
  readonly diskOf: (broker: Broker) => Volume
}

/** As docs/several-machines.md says: the default of 9 seconds and an election take longer than `confirmMs`. */
const properties = { 'broker.session.timeout.ms': 4_000, 'broker.heartbeat.interval.ms': 1_000 }

async function startCluster(): Promise<Cluster> {
  await using stack = new AsyncDisposableStack()
  const disks = new Map([1, 2, 3].map((id) => [id, stack.use(createVolume(256))]))
  const diskOf = ({ id }: Pick<Broker, 'id'>): Volume => {
    const disk = disks.get(id)
    if (disk === undefined) throw new Error(`Broker ${id} has no disk.`)
    return disk
  }
  const folder = (id: number): string => join(diskOf({ id }).folder, 'log')
  const brokers = stack.use(await startBrokers({ properties, folder }))
  const all = stack.move()
  return { brokers, diskOf, [Symbol.asyncDispose]: () => all.disposeAsync() }
}

const timeout = inForm({ full: 180_000, long: 1_800_000 })

describe.skipIf(noVolumes !== undefined)('disks of brokers', { timeout }, () => {
  test.each(inForm({ full: [{ count: 1 }], long: [{ count: 1 }, { count: 2 }] }))(
    '$count of three disks are full: no acknowledged message is lost, refused ones are in a gap, and all flows again with room',
    async ({ count }) => {
      await using cluster = await startCluster()
      const { brokers, diskOf } = cluster
      await using fleet = await createFleet({ brokers, inbox: count === 1 ? {} : { confirmMs: 3_000 } })
      await Promise.all([fleet.start('receive'), fleet.start('handle'), fleet.start('handle')])
      const full = brokers.all.slice(0, count)
      const found = await underLoad(fleet, load, async () => {
        const fillers = full.map((broker) => diskOf(broker).fill())
        await pause(inForm({ full: 5_000, long: 30_000 }))
        // A broker that cannot write its only log ends by itself.
        await expect
          .poll(() => full.map(({ pid }) => pid), { timeout: 60_000, interval: 200 })
          .toEqual(full.map(() => undefined))
        for (const filler of fillers) rmSync(filler)
        await Promise.all(full.map((broker) => broker.start()))
        await inSync(brokers.addresses)
      })
      note(`${count} of three disks full`, found)
      expect(broken(found)).toEqual(nothingBroken)
      expect(Object.keys(found.refused)).toEqual(count === 1 ? [] : ['503'])
      await expect.poll(() => unaccounted(found, fleet), { timeout: 60_000, interval: 500 }).toEqual([])
    },
  )

  interface Cut {
    readonly what: string
    /** Brokers that end at the same moment. The first `disks` of them lose what they did not sync. */
    readonly ended: number
    readonly disks: number
    readonly rounds: number
    readonly topic?: Readonly<Record<string, string>>
    /** Kafka does not promise it. */
    readonly mayLose?: boolean
  }
  const cuts: readonly Cut[] = [
    { what: 'one broker loses power', ended: 1, disks: 1, rounds: 6 },
    {
      what: 'all brokers are killed, and one of them loses power',
      ended: 3,
      disks: 1,
      rounds: 3,
    },
    {
      what: 'all brokers lose power, with flush.messages=1',
      ended: 3,
      disks: 3,
      rounds: 3,
      topic: { 'flush.messages': '1' },
    },
    { what: 'all brokers lose power: outside the promise', ended: 3, disks: 3, rounds: 3, mayLose: true },
  ]

  test.skipIf(form !== 'long').each(cuts)(
    '$what',
    async ({ what, ended, disks, rounds, topic = {}, mayLose = false }) => {
      await using cluster = await startCluster()
      const { brokers, diskOf } = cluster
      await using fleet = await createFleet({ brokers, topic, inbox: ended === 1 ? {} : { confirmMs: 60_000 } })
      await fleet.start('receive')
      const found = await underLoad(fleet, { ...load, mayLose }, async () => {
        // What a cluster wrote long ago is on its disks.
        for (const broker of brokers.all) diskOf(broker).sync()
        for (let round = 0; round < rounds; round++) {
          await pause(randomInt(1_000, 3_000))
          // Each broker has its turn.
          const turn = brokers.all.map((_, place) => brokers.get(1 + ((place + round) % 3))).slice(0, ended)
          await Promise.all(turn.map((broker) => broker.kill('SIGSTOP')))
          for (const broker of turn.slice(0, disks)) diskOf(broker).cutPower()
          await Promise.all(turn.map((broker) => broker.kill('SIGKILL')))
          await pause(randomInt(0, 3_000))
          for (const broker of turn.slice(0, disks)) await diskOf(broker).mountAgain()
          await Promise.all(turn.map((broker) => broker.start()))
          await inSync(brokers.addresses)
        }
        // Not before: messages that were handled at once would not show what the topic has lost.
        await fleet.start('handle')
      })
      note(`${what}, ${rounds} times`, found)
      // Else the cuts take nothing, and the other tests see nothing.
      if (mayLose) expect(found.lost.length).toBeGreaterThan(0)
      else expect(broken(found)).toEqual(nothingBroken)
      expect({ refused: found.refused, unanswered: found.unanswered }).toEqual({ refused: {}, unanswered: {} })
    },
  )
})
