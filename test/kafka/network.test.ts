import { randomInt } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { createReceiver, type Receiver } from '../../src/index.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { messageOf } from '../faults/process/traffic.ts'
import { form, inForm } from '../form.ts'
import type { ServerRuntime } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { broken, createFleet, type Found, nothingBroken, pause, rowOf, underLoad } from './fleet.ts'
import { createProxy, errorCodes, type ProduceFault, type Proxy } from './proxy.ts'
import { createTopics, moveLeaders } from './topics.ts'

let brokers: Brokers
/** Between receivers and brokers, and between handlers and brokers. */
const [receiverSide, handlerSide]: readonly [Proxy, Proxy] = [createProxy(), createProxy()]
const rows: Row[] = []
function note(what: string, found: Found): void {
  rows.push(rowOf(what, found))
  console.log(rows.at(-1))
}
const longMs = inForm({ full: 180_000, long: 3_600_000 })
const load = { ratePerSecond: inForm({ full: 200, long: 300 }), vehicles: 100 }

beforeAll(async () => {
  brokers = await startBrokers({
    proxied: (port, listener) => (listener === 'first' ? receiverSide : handlerSide).before(port),
  })
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await Promise.all([receiverSide[Symbol.asyncDispose](), handlerSide[Symbol.asyncDispose]()])
  await writeFigures({
    piece: 'kafka-network',
    title: 'Kafka: deploys, processes that stand still, and networks that fail',
    file: 'test/kafka/network.test.ts',
    about:
      'Three brokers with replication 3 and `min.insync.replicas` 2. 100 vehicles send together 300 messages a second through a TCP balancer. A proxy stands before each broker. Connection ended: the request was under way when its receiver was killed. Longest wait: from the acknowledgment to the start of the handler.',
    tables: [{ title: 'Rounds', rows }],
  })
})

const runtimes = inForm<readonly ServerRuntime[]>({ full: ['node24'], long: ['node24', 'bun', 'deno'] })

test.each(runtimes)(
  '%s: a rolling deploy of every process refuses nothing, loses nothing, and handles nothing twice',
  async (runtime) => {
    await using fleet = await createFleet({ brokers, runtime })
    const roles = ['receive', 'receive', 'handle', 'handle', 'both'] as const
    await Promise.all(roles.map((role) => fleet.start(role)))
    const times = inForm({ full: 1, long: 10 })
    // As behind examples/kafka/haproxy.cfg. An idle connection may get a message at the moment in which a receiver closes it.
    const found = await underLoad(fleet, { ...load, opensConnections: true }, async () => {
      // Wait until the group of five has settled.
      await pause(3_000)
      for (let time = 0; time < times; time++) {
        for (const old of [...fleet.members]) {
          await fleet.start(old.role)
          // Wait until the balancer notices it.
          await pause(300)
          expect(await old.stop()).toEqual({ status: 0, signal: null })
        }
      }
    })
    note(`${times} rolling deploys of five processes, ${runtime}`, found)
    expect(broken(found)).toEqual(nothingBroken)
    const { refused, unanswered, again } = found
    expect({ refused, unanswered, again }).toEqual({ refused: {}, unanswered: {}, again: 0 })
    if (times > 1) expect(found.longestWaitMs).toBeLessThanOrEqual(3_000)
  },
  longMs,
)

test.skipIf(form !== 'long')(
  'handlers that stand still for two sessions lose their vehicles to another process, and no first start is out of order',
  async () => {
    await using fleet = await createFleet({ brokers, inbox: { sessionMs: 6_000, quiesceMs: 2_000 } })
    const [frozen] = await Promise.all([fleet.start('handle'), fleet.start('handle'), fleet.start('receive')])
    const found = await underLoad(fleet, load, async () => {
      await pause(3_000)
      frozen.kill('SIGSTOP')
      await pause(12_000)
      frozen.kill('SIGCONT')
      await pause(3_000)
    })
    note('SIGSTOP of one of two handler processes for two sessions', found)
    expect(broken(found)).toEqual(nothingBroken)
    expect(found.refused).toEqual({})
    expect(found.again).toBeLessThanOrEqual(load.ratePerSecond * 3)
  },
  longMs,
)

const cuts = [
  { side: 'receivers', how: 'cut', ms: 5_000 },
  { side: 'receivers', how: 'freeze', ms: 5_000 },
  { side: 'handlers', how: 'cut', ms: 15_000 },
  { side: 'handlers', how: 'freeze', ms: 15_000 },
] as const

test.skipIf(form !== 'long').each(cuts)(
  'a network that fails between $side and brokers ($how) for $ms ms: nothing is refused or lost, and the order stays',
  async ({ side, how, ms }) => {
    await using fleet = await createFleet({ brokers, inbox: { sessionMs: 6_000, quiesceMs: 2_000 } })
    await Promise.all([
      fleet.start('receive'),
      fleet.start('handle', { other: true }),
      fleet.start('handle', { other: true }),
    ])
    const proxy = side === 'receivers' ? receiverSide : handlerSide
    const found = await underLoad(fleet, load, async () => {
      await pause(2_000)
      proxy[how]()
      await pause(ms)
      proxy.heal()
      await pause(3_000)
    })
    note(`network between ${side} and brokers fails for ${ms / 1_000} s (${how})`, found)
    expect(broken(found)).toEqual(nothingBroken)
    expect(found.refused).toEqual({})
  },
  longMs,
)

const faults: readonly ProduceFault[] = [
  { kind: 'refused', error: errorCodes.notLeader },
  { kind: 'refused', error: errorCodes.notEnoughReplicas },
  { kind: 'appended', error: errorCodes.requestTimedOut },
  { kind: 'appended', error: errorCodes.notEnoughReplicasAfterAppend },
  { kind: 'lost' },
  { kind: 'answer lost' },
]

test.each(
  inForm<readonly { readonly runtime: ServerRuntime; readonly rate: number }[]>({
    full: [{ runtime: 'node24', rate: 200 }],
    long: [
      { runtime: 'node24', rate: 400 },
      { runtime: 'node24', rate: 3_000 },
      { runtime: 'bun', rate: 1_000 },
      { runtime: 'deno', rate: 1_000 },
    ],
  }),
)(
  '$runtime, $rate/s: errors, lost requests, lost answers and moving leaders lose nothing and keep the order',
  async ({ runtime, rate }) => {
    await using fleet = await createFleet({ brokers, runtime })
    await Promise.all([fleet.start('receive'), fleet.start('handle', { other: true })])
    const acksBefore = new Map(receiverSide.acks)
    const found = await underLoad(fleet, { ratePerSecond: rate, vehicles: Math.min(rate, 400) }, async () => {
      for (let round = 0; round < inForm({ full: 4, long: 12 }); round++) {
        for (const fault of faults) {
          receiverSide.failProduce(fault)
          await pause(randomInt(100, 400))
        }
        await moveLeaders(brokers.addresses, fleet.topic)
      }
    })
    note(`faults of the wire, ${rate}/s, ${runtime}`, found)
    expect(broken(found)).toEqual(nothingBroken)
    expect({ refused: found.refused, unanswered: found.unanswered }).toEqual({ refused: {}, unanswered: {} })
    // Every request on the wire asked for all in-sync replicas.
    expect([...receiverSide.acks.keys()].filter((acks) => acks !== -1)).toEqual([])
    expect(receiverSide.acks.get(-1) ?? 0).toBeGreaterThan(acksBefore.get(-1) ?? 0)
  },
  longMs,
)

test(
  'moving from SQLite: with the old inbox file as spool, unhandled messages go to the topic before new ones',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'fleethook-moving-'))
    const path = join(folder, 'inbox.db')
    const topic = `moving-${folder.slice(-6).toLowerCase()}`
    await createTopics(brokers.addresses, topic, 6)
    const vins = Array.from({ length: 20 }, (_, n) => `V${n}`)
    async function post(receiver: Receiver, from: number, to: number): Promise<void> {
      for (let number = from; number <= to; number++) {
        const posts = vins.map((vin) =>
          receiver.accept({ authorization: undefined, body: JSON.parse(messageOf(vin, number)) }),
        )
        expect((await Promise.all(posts)).map(({ status }) => status)).toEqual(vins.map(() => 200))
      }
    }
    const seen = new Map(vins.map((vin) => [vin, new Array<number>()]))
    const old = createReceiver({ secret: false, inbox: sqliteInbox({ path }), concurrency: 4 }).on(
      'data',
      async (event) => {
        await pause(20)
        seen.get(event.vin)?.push(Number(event.data.Odometer))
      },
    )
    await old.open()
    await post(old, 1, 30)
    const { left } = await old.drain({ deadlineMs: 2_000, handlerGraceMs: 1_000 })
    expect(left).toBeGreaterThan(100)

    const next = createReceiver({
      secret: false,
      inbox: kafkaInbox({ brokers: brokers.addresses, topic, partitions: 6, spool: sqliteInbox({ path }) }),
    }).on('data', (event) => void seen.get(event.vin)?.push(Number(event.data.Odometer)))
    await next.open()
    await post(next, 31, 40)
    const all = Array.from({ length: 40 }, (_, n) => n + 1)
    await expect.poll(() => [...seen.values()], { timeout: 60_000, interval: 200 }).toEqual(vins.map(() => all))
    await next.drain()
    rmSync(folder, { recursive: true, force: true })
  },
  longMs,
)
