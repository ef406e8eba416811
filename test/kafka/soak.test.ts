import { randomInt } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { type Row, writeFigures } from '../faults/figures.ts'
import { startBrokers } from './brokers.ts'
import { broken, createFleet, nothingBroken, pause, rowOf, underLoad } from './fleet.ts'
import { inSync } from './topics.ts'

/** The duration, an hour by default: `KAFKA_SOAK_MINUTES=10 npm run test:faults -- test/kafka/soak.test.ts`. */
const minutes = Number(process.env['KAFKA_SOAK_MINUTES'] ?? 60)
const ratePerSecond = Number(process.env['KAFKA_SOAK_RATE'] ?? 200)
const rows: Row[] = []

/** As docs/several-machines.md says: the default of 9 seconds and an election take longer than `confirmMs`. */
const properties = { 'broker.session.timeout.ms': 4_000, 'broker.heartbeat.interval.ms': 1_000 }

const tell = (what: string): void => console.log(`${new Date().toISOString()} ${what}`)

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'kafka-soak',
    title: 'Kafka: everything is killed at random',
    file: 'test/kafka/soak.test.ts',
    about:
      'Three brokers, two receivers, three processes with handlers, 100 vehicles. Every 2 to 8 seconds `kill -9` ends one of the eight, and it starts again. One broker at most is down at a time, because the promise needs two. Connection ended: the request was under way when its receiver was killed. Longest wait: from the acknowledgment to the start of the handler.',
    tables: [{ title: 'Kills', rows }],
  })
})

test('three brokers, two receivers and three handler processes survive random kills of any of them under load', async () => {
  await using brokers = await startBrokers({ properties })
  await using fleet = await createFleet({ brokers, partitions: 24 })
  const roles = ['receive', 'receive', 'handle', 'handle', 'handle'] as const
  const members = await Promise.all(roles.map((role) => fleet.start(role)))
  const kills = { broker: 0, receive: 0, handle: 0 }
  const found = await underLoad(fleet, { ratePerSecond, vehicles: 100, handledWithinMs: 180_000 }, async ({ sent }) => {
    let seen = 0
    for (const endsAt = performance.now() + minutes * 60_000; performance.now() < endsAt;) {
      await pause(randomInt(2_000, 8_000))
      for (const { status, error, sentAtMs, endedAtMs } of sent.slice(seen).filter((each) => each.status !== 200))
        tell(`a message of ${new Date(sentAtMs).toISOString()}: ${status} ${error} after ${endedAtMs - sentAtMs} ms`)
      seen = sent.length
      const choice = randomInt(0, 8)
      const broker = brokers.all[choice]
      if (broker !== undefined) {
        kills.broker += 1
        tell(`broker ${broker.id} killed`)
        await broker.kill('SIGKILL')
        await pause(randomInt(0, 5_000))
        await broker.start()
        tell(`broker ${broker.id} started`)
        // The promise needs two brokers, so the next one may go when every replica is back.
        await inSync(brokers.addresses)
        tell('all in sync')
        continue
      }
      const member = [...fleet.members][choice - 3]
      // The last receiver stays, because without a receiver nothing is acknowledged.
      if (member === undefined) continue
      kills[member.role === 'receive' ? 'receive' : 'handle'] += 1
      tell(`${member.role} ${member.pid} killed`)
      await member.stop('SIGKILL')
      members.push(await fleet.start(member.role))
    }
  })
  for (const { role, pid, output } of members)
    for (const line of output) if (!line.includes('istening on')) tell(`${role} ${pid} printed: ${line}`)
  const what = `${minutes} min at ${ratePerSecond}/s: ${kills.broker} brokers, ${kills.receive} receivers, ${kills.handle} handler processes killed`
  rows.push(rowOf(what, found))
  console.log(rows.at(-1), found.unanswered)
  expect(broken(found)).toEqual(nothingBroken)
  expect(found.refused).toEqual({})
}, 7_200_000)
