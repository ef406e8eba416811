/* All brokers are away for as long as an update takes, again and again, and a receiver is killed meanwhile. */
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { freePort } from '../conformance/spawn.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { createTraffic, type Traffic } from '../faults/process/traffic.ts'
import { inForm } from '../form.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { createFleet, type Found, handled, judge, type Member, pause } from './fleet.ts'
import { inSync } from './topics.ts'

const awayMs = inForm({ full: 6_000, long: 60_000 })
const times = inForm({ full: 1, long: 3 })
const calmMs = inForm({ full: 3_000, long: 20_000 })
const ratePerSecond = 200
/** Each vehicle sends every four seconds, to one of two receivers. */
const vins = Array.from({ length: 800 }, (_, n) => `V${n}`)

let brokers: Brokers
const rows: Row[] = []

beforeAll(async () => {
  brokers = await startBrokers({})
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await writeFigures({
    piece: 'kafka-away',
    title: 'Kafka: all brokers are away, and nothing is refused',
    file: 'test/kafka/meanwhile.test.ts',
    about: `Three brokers, two receivers, two processes with handlers, ${ratePerSecond} messages a second from ${vins.length} vehicles that do not wait for answers, each vehicle at one receiver. All brokers are killed for ${awayMs / 1_000} s, and a receiver is killed and started again while they are away. Handled again: with \`redelivered\`, because the brokers had lost the position of the group.`,
    tables: [{ title: 'What came of the messages', rows }],
  })
})

interface Outcome extends Found {
  readonly p99Before: number
  readonly p99Away: number
  readonly p99After: number
}

/** Kills all brokers, and brings them back. */
async function away(meanwhile: () => Promise<unknown>): Promise<void> {
  await Promise.all([1, 2, 3].map((id) => brokers.get(id).kill('SIGKILL')))
  await pause(awayMs / 2)
  await meanwhile()
  await pause(awayMs / 2)
  await Promise.all([1, 2, 3].map((id) => brokers.get(id).start()))
  await inSync(brokers.addresses)
}

async function outages(hasFile: boolean): Promise<Outcome> {
  await inSync(brokers.addresses)
  await using fleet = await createFleet({ brokers })
  const ports = [await freePort(), await freePort()]
  const begin = (place: number): Promise<Member> =>
    fleet.start('receive', {
      settings: {
        serve: { port: ports[place] ?? 0, delayBeforeCloseMs: 0 },
        ...(hasFile && { path: join(fleet.folder, `${place}.db`) }),
      },
    })
  const receivers = await Promise.all([0, 1].map(begin))
  await Promise.all([fleet.start('handle'), fleet.start('handle')])
  const traffics = [0, 1].map((place) =>
    createTraffic({
      ...{ vins: vins.filter((_, n) => n % 2 === place), ratePerSecond: ratePerSecond / 2, timeoutMs: 15_000 },
      ...{ neverWaits: true, goesOn: true },
    }),
  )
  let isOver = false
  const load = traffics.map((traffic, place) => traffic.pour(receivers[place]?.url ?? '', () => isOver))
  const acknowledged = (): Pick<Traffic, 'acknowledged'> => ({
    acknowledged: new Set(traffics.flatMap((traffic) => [...traffic.acknowledged])),
  })
  await pause(calmMs)
  const awayFrom = performance.now()
  for (let round = 0; round < times; round += 1) {
    await away(async () => {
      // Without a file, one that starts now would end.
      if (!hasFile) return
      await receivers[round % 2]?.stop('SIGKILL')
      receivers[round % 2] = await begin(round % 2)
    })
    await handled(fleet, acknowledged(), 180_000)
  }
  const awayTo = performance.now()
  await pause(calmMs)
  isOver = true
  await Promise.all(load)
  await handled(fleet, acknowledged(), 180_000)
  const p99 = (from: number, to: number): number => {
    const acks = traffics.flatMap(({ ackMs }) => ackMs.filter((each) => each.sentAtMs >= from && each.sentAtMs < to))
    const sorted = acks.map(({ ms }) => ms).toSorted((one, other) => one - other)
    return Math.round(sorted[Math.floor(sorted.length * 0.99)] ?? 0)
  }
  const found = judge(
    traffics.flatMap(({ sent }) => sent),
    fleet.journal(),
  )
  return { ...found, p99Before: p99(0, awayFrom), p99Away: p99(awayFrom, awayTo), p99After: p99(awayTo, Infinity) }
}

function note(what: string, found: Outcome): void {
  const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0)
  rows.push({
    ...{ what, sent: found.sent, acknowledged: found.acknowledged, refused: sum(found.refused) },
    ...{
      'no answer (killed)': sum(found.unanswered),
      lost: found.lost.length,
      'twice, unmarked': found.unmarked.length,
    },
    ...{ 'handled again': found.again, 'out of order': found.outOfOrder.length },
    ...{ 'ack p99 before, ms': found.p99Before, 'in outages': found.p99Away, after: found.p99After },
  })
  console.info(rows.at(-1))
}

test('with the option `meanwhile`, nothing is refused, lost, doubled or out of order while all brokers are down', async () => {
  const found = await outages(true)
  note(`with \`meanwhile\`, ${times} outages`, found)
  expect(found).toMatchObject({ refused: {}, lost: [], unmarked: [], outOfOrder: [] })
})

test('control: without the file, messages are refused', async () => {
  const found = await outages(false)
  note(`control: without it, ${times} outages`, found)
  expect(Object.values(found.refused).concat(Object.values(found.unanswered)).length).toBeGreaterThan(0)
  expect(found.lost).toEqual([])
})
