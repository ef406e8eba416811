import { randomInt } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { account } from '../faults/accounting.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { form, inForm } from '../form.ts'
import type { ServerRuntime } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { broken, createFleet, type Fleet, type Found, nothingBroken, pause, rowOf, underLoad } from './fleet.ts'
import { inSync } from './topics.ts'

let brokers: Brokers
const rows: Row[] = []
function note(what: string, found: Found): void {
  rows.push(rowOf(what, found))
  console.log(rows.at(-1))
}

/** Kafka's default is 9 seconds. The long form has what docs/several-machines.md advises. */
const properties = inForm({
  full: { 'broker.session.timeout.ms': 3_000, 'broker.heartbeat.interval.ms': 500 },
  long: { 'broker.session.timeout.ms': 4_000, 'broker.heartbeat.interval.ms': 1_000 },
})
const load = { ratePerSecond: inForm({ full: 200, long: 500 }), vehicles: inForm({ full: 100, long: 200 }) }

beforeAll(async () => {
  brokers = await startBrokers({ properties })
})
afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await writeFigures({
    piece: 'kafka-kills',
    title: 'Kafka: receivers, handlers and brokers that are killed under load',
    file: 'test/kafka/kill.test.ts',
    about:
      'Three brokers with replication 3 and `min.insync.replicas` 2, two receivers behind a TCP balancer, two processes with handlers. 200 vehicles send together 500 messages a second. Each sends its next message when the last one was answered. The sender counts answers, and the handlers write a journal. Connection ended: the request was under way when its receiver was killed, so nobody promised anything. Out of order: its first start was before an earlier message of its vehicle had ended. Longest wait: from the acknowledgment to the start of the handler.',
    tables: [{ title: 'Rounds', rows }],
  })
})

async function fleetOf(runtime: ServerRuntime, inbox: Parameters<typeof createFleet>[0]['inbox'] = {}): Promise<Fleet> {
  const fleet = await createFleet({ brokers, runtime, inbox })
  await Promise.all([fleet.start('receive'), fleet.start('receive'), fleet.start('handle'), fleet.start('handle')])
  return fleet
}

function anyOf<T>(items: Iterable<T>): T {
  const list = [...items]
  const found = list[randomInt(0, list.length)]
  if (found === undefined) throw new Error('There is nothing to choose from.')
  return found
}

interface Round {
  readonly runtime: ServerRuntime
  readonly receivers: number
  readonly handlers: number
}

/** Each handler process that is killed takes a session. */
const rounds = inForm<readonly Round[]>({
  full: [{ runtime: 'node24', receivers: 3, handlers: 1 }],
  long: [
    { runtime: 'node24', receivers: 20, handlers: 20 },
    { runtime: 'bun', receivers: 20, handlers: 20 },
    { runtime: 'deno', receivers: 20, handlers: 20 },
  ],
})

test.each(rounds)(
  '$runtime: receivers and handlers that are killed lose no acknowledged message and keep the order',
  async ({ runtime, receivers, handlers }) => {
    await using fleet = await fleetOf(runtime)
    const found = await underLoad(fleet, load, async () => {
      for (let round = 0; round < Math.max(receivers, handlers); round++) {
        for (const [role, count] of [
          ['receive', receivers],
          ['handle', handlers],
        ] as const) {
          if (round >= count) continue
          await pause(randomInt(200, 1_000))
          const victim = anyOf([...fleet.members].filter((member) => member.role === role))
          await victim.stop('SIGKILL')
          await fleet.start(role)
        }
      }
    })
    note(`${receivers} receivers and ${handlers} handler processes killed, ${runtime}`, found)
    expect(broken(found)).toEqual(nothingBroken)
    expect(found.refused).toEqual({})
    // Messages that a killed process handled after its last commit, at most a second earlier, come again.
    expect(found.again).toBeLessThanOrEqual(handlers * load.ratePerSecond * 2)
  },
  inForm({ full: 180_000, long: 3_600_000 }),
)

test(
  'brokers that are killed one after the other and come back: nothing is refused or lost, and the order stays',
  async () => {
    await using fleet = await fleetOf('node24')
    const count = inForm({ full: 1, long: 30 })
    const found = await underLoad(fleet, load, async () => {
      for (let kill = 0; kill < count; kill++) {
        const broker = brokers.get(1 + (kill % 3))
        await broker.kill('SIGKILL')
        await pause(randomInt(0, 3_000))
        await broker.start()
        // The promise needs two brokers, so the next one may go when every replica is back.
        await inSync(brokers.addresses)
        await pause(1_000)
      }
    })
    note(`${count} times one of three brokers killed and started again`, found)
    expect(broken(found)).toEqual(nothingBroken)
    expect({ refused: found.refused, unanswered: found.unanswered }).toEqual({ refused: {}, unanswered: {} })
  },
  inForm({ full: 180_000, long: 3_600_000 }),
)

describe.runIf(form === 'long').each([{ spool: false }, { spool: true }])(
  'all brokers are killed, spool $spool',
  ({ spool }) => {
    test(
      spool
        ? 'nothing is refused, and the order of each vehicle stays'
        : 'what is refused is in a gap, and nothing else is missing',
      async () => {
        const downMs = inForm({ full: 4_000, long: 30_000 })
        await using fleet = await createFleet({ brokers, inbox: spool ? {} : { confirmMs: 3_000 } })
        const file = `${fleet.folder}/spool.db`
        // Only one receiver: between messages that one receiver spooled and those of others there is no order.
        await Promise.all([
          fleet.start('receive', spool ? { settings: { spool: file } } : {}),
          fleet.start('handle'),
          fleet.start('handle'),
        ])
        const found = await underLoad(fleet, { ...load, handledWithinMs: 120_000 }, async () => {
          await Promise.all(brokers.all.map((broker) => broker.kill('SIGKILL')))
          await pause(downMs)
          await Promise.all(brokers.all.map((broker) => broker.start()))
          await pause(inForm({ full: 2_000, long: 8_000 }))
        })
        note(`all brokers killed, down for ${downMs / 1000} s, ${spool ? 'with' : 'without'} a spool`, found)
        expect(broken(found)).toEqual(nothingBroken)
        if (spool) {
          expect(found.refused).toEqual({})
          return
        }
        expect(found.refused[503]).toBeGreaterThan(0)
        const unaccounted = (): readonly string[] =>
          account({
            sent: found.all,
            journal: { ...fleet.journal(), dead: [], edges: [] },
            refusals: new Map(),
          }).violations.unaccounted
        await expect.poll(unaccounted, { timeout: 30_000, interval: 500 }).toEqual([])
      },
      inForm({ full: 180_000, long: 3_600_000 }),
    )
  },
)

test.skipIf(form !== 'long')(
  'two of three brokers are killed: messages wait for the confirmation of two',
  async () => {
    await using fleet = await createFleet({ brokers, inbox: { confirmMs: 60_000 } })
    await Promise.all([fleet.start('receive'), fleet.start('handle')])
    const found = await underLoad(fleet, { ...load, handledWithinMs: 120_000 }, async () => {
      const [first, second] = brokers.all
      await Promise.all([first?.kill('SIGKILL'), second?.kill('SIGKILL')])
      await pause(30_000)
      await Promise.all([first?.start(), second?.start()])
      await pause(3_000)
    })
    note('two brokers killed and started again, 60 s to confirm', found)
    expect(broken(found)).toEqual(nothingBroken)
    expect(found.refused).toEqual({})
  },
  inForm({ full: 180_000, long: 3_600_000 }),
)
