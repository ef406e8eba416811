import { randomInt } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { type Row, versionsOf, writeFigures } from '../faults/figures.ts'
import type { ServerRuntime } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { broken, createFleet, type Fleet, nothingBroken, pause, rowOf, underLoad } from './fleet.ts'
import { inSync, moveLeaders } from './topics.ts'

const rows: Row[] = []

/** As docs/several-machines.md says: the default of 9 seconds and an election take longer than `confirmMs`. */
const properties = { 'broker.session.timeout.ms': 4_000, 'broker.heartbeat.interval.ms': 1_000 }

const tell = (what: string): void => console.log(`${new Date().toISOString()} ${what}`)

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'kafka-moves',
    title: 'Kafka: leaders, coordinators and brokers move',
    file: 'test/kafka/moves.test.ts',
    about:
      'Three brokers. On each runtime one receiver, two processes with handlers and 50 vehicles, at the same time and with the same brokers. Every 2 to 12 seconds, at random: all partitions of the topics get another leader, all groups get another coordinator, or one broker gets SIGKILL or SIGTERM and starts again. Every message has to be handled within 30 seconds after the last move. Longest wait: from the acknowledgment to the start of the handler.',
    tables: [{ title: 'Moves', rows }],
    versions: versionsOf(['bun', 'deno']),
  })
})

/** The number of moves. `KAFKA_MOVES=20` makes fewer. */
const moves = Number(process.env['KAFKA_MOVES'] ?? 100)
const movesRate = Number(process.env['KAFKA_MOVES_RATE'] ?? 100)
const runtimes: readonly ServerRuntime[] = ['node24', 'bun', 'deno']

/** Moves the leaders of the fleets' topics or the groups' coordinators, or kills or stops a broker. Returns what it did. */
async function move(brokers: Brokers, fleets: readonly Fleet[]): Promise<string> {
  const kind = randomInt(0, 5)
  if (kind <= 2) {
    for (const { topic } of fleets) await moveLeaders(brokers.addresses, topic)
    return 'leaders'
  }
  if (kind === 3) {
    await moveLeaders(brokers.addresses, '__consumer_offsets')
    return 'coordinators'
  }
  const broker = brokers.get(randomInt(1, 4))
  const signal = randomInt(0, 2) === 0 ? 'SIGKILL' : 'SIGTERM'
  await broker.kill(signal)
  await pause(randomInt(0, 5_000))
  await broker.start()
  await inSync(brokers.addresses)
  return `broker ${broker.id} ${signal}`
}

test('Node, Bun and Deno: after many moves of leaders, coordinators and brokers, every message is handled within 30 seconds', async () => {
  await using brokers = await startBrokers({ properties })
  await using stack = new AsyncDisposableStack()
  const fleets = await Promise.all(runtimes.map(async (runtime) => stack.use(await createFleet({ brokers, runtime }))))
  await Promise.all(fleets.flatMap((fleet) => [fleet.start('receive'), fleet.start('handle'), fleet.start('handle')]))
  const done = new Map<string, number>()
  let moving: Promise<void> | undefined
  async function moveAll(): Promise<void> {
    for (let count = 0; count < moves; count++) {
      const what = await move(brokers, fleets)
      done.set(what.replace(/ \d/, ''), (done.get(what.replace(/ \d/, '')) ?? 0) + 1)
      tell(what)
      await pause(randomInt(2_000, 12_000))
    }
  }
  const load = { ratePerSecond: movesRate, vehicles: 50, handledWithinMs: 30_000 }
  const found = await Promise.all(fleets.map((fleet) => underLoad(fleet, load, () => (moving ??= moveAll()))))
  const kinds = [...done].map(([kind, count]) => `${count} ${kind}`).join(', ')
  for (const [place, runtime] of runtimes.entries()) {
    const result = found[place]
    if (result !== undefined) rows.push(rowOf(`${runtime}, ${movesRate}/s: ${kinds}`, result))
  }
  console.log(rows)
  for (const each of found) {
    expect(broken(each)).toEqual(nothingBroken)
    expect(each.refused).toEqual({})
  }
}, 7_200_000)
