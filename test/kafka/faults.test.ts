/*
 * Receivers, handlers, brokers and networks that are killed, stand still, move or fail under load. Whatever happens, no acknowledged message
 * is lost, out of order, or handled again without a mark.
 */
import { randomInt } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Row, versionsOf, writeFigures } from '../faults/figures.ts'
import { form, inForm } from '../form.ts'
import type { ServerRuntime } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import {
  broken,
  createFleet,
  type Fleet,
  type FleetOptions,
  type Load,
  type Loaded,
  nothingBroken,
  pause,
  type Role,
  rowOf,
  unaccounted,
  underLoad,
} from './fleet.ts'
import { createProxy, errorCodes, type ProduceFault } from './proxy.ts'
import { inSync, moveLeaders } from './topics.ts'

const proxy = createProxy()
let brokers: Brokers
/** Members go to the brokers directly. Those with the `other` addresses have the proxy in between. */
const direct = (): FleetOptions['brokers'] => ({ addresses: brokers.otherAddresses, otherAddresses: brokers.addresses })
const all = (): readonly string[] => direct().addresses

/** Which page of figures a row is in. */
type Piece = 'kafka-kills' | 'kafka-network' | 'kafka-moves' | 'kafka-soak'

interface Fault {
  readonly piece: Piece
  readonly what: string
  readonly runtime?: ServerRuntime
  readonly inbox?: FleetOptions['inbox']
  readonly roles: readonly Role[]
  /** The members that have the proxy in between. Default: none. */
  readonly behindProxy?: Role
  readonly hasFile?: boolean
  readonly load?: Load
  readonly happens: (fleet: Fleet) => Promise<void>
  /** What does not happen to a single message. Default: refused. */
  readonly never?: readonly ('refused' | 'unanswered' | 'again')[]
  readonly promises?: (found: Loaded, fleet: Fleet) => Promise<void> | void
}

const usual = { ratePerSecond: inForm({ full: 200, long: 500 }), vehicles: inForm({ full: 100, long: 200 }) }
const two = ['receive', 'receive', 'handle', 'handle'] as const
const one = ['receive', 'handle', 'handle'] as const
const short = { sessionMs: 6_000, quiesceMs: 2_000 }

function anyOf<T>(items: Iterable<T>): T {
  const list = [...items]
  return list[randomInt(0, list.length)] ?? expect.fail('There is nothing to choose from.')
}

async function killMember(fleet: Fleet, role: Role): Promise<void> {
  await anyOf([...fleet.members].filter((member) => member.role === role)).stop('SIGKILL')
  await fleet.start(role)
}

/** Resolves when every replica is back, because the promise needs two brokers: then the next one may go. */
async function killBroker(id: number, signal: NodeJS.Signals, mostMs: number): Promise<void> {
  await brokers.get(id).kill(signal)
  await pause(randomInt(0, mostMs))
  await brokers.get(id).start()
  await inSync(all())
}

const down = async (count: number, downMs: number, laterMs: number): Promise<void> => {
  const some = brokers.all.slice(0, count)
  await Promise.all(some.map((broker) => broker.kill('SIGKILL')))
  await pause(downMs)
  await Promise.all(some.map((broker) => broker.start()))
  await pause(laterMs)
}

const kills: readonly Fault[] = [
  ...inForm<readonly { readonly runtime: ServerRuntime; readonly receivers: number; readonly handlers: number }[]>({
    full: [{ runtime: 'node24', receivers: 3, handlers: 1 }],
    long: (['node24', 'bun', 'deno'] as const).map((runtime) => ({ runtime, receivers: 20, handlers: 20 })),
  }).map(({ runtime, receivers, handlers }): Fault => ({
    ...{ piece: 'kafka-kills', runtime, roles: two },
    what: `${receivers} receivers and ${handlers} handler processes killed, ${runtime}`,
    async happens(fleet) {
      for (let round = 0; round < Math.max(receivers, handlers); round++) {
        await pause(randomInt(200, 1_000))
        if (round < receivers) await killMember(fleet, 'receive')
        await pause(randomInt(200, 1_000))
        if (round < handlers) await killMember(fleet, 'handle')
      }
    },
    // Messages that a killed process handled after its last commit, at most a second earlier, come again.
    promises: ({ again }) => expect(again).toBeLessThanOrEqual(handlers * usual.ratePerSecond * 2),
  })),
  {
    ...{ piece: 'kafka-kills', roles: two, never: ['refused', 'unanswered'] },
    what: 'one of three brokers after the other killed and started again',
    async happens() {
      for (let kill = 0; kill < inForm({ full: 1, long: 30 }); kill++) {
        await killBroker(1 + (kill % 3), 'SIGKILL', 3_000)
        await pause(1_000)
      }
    },
  },
]

const outages: readonly Fault[] = [
  {
    // Only one receiver: between messages that one receiver kept in its file and those of others there is no order.
    ...{ piece: 'kafka-kills', roles: one, hasFile: true, load: { handledWithinMs: 120_000 } },
    what: 'all brokers killed, down for 30 s, with a file',
    happens: () => down(3, 30_000, 8_000),
  },
  {
    ...{ piece: 'kafka-kills', roles: one, inbox: { confirmMs: 3_000 }, load: { handledWithinMs: 120_000 }, never: [] },
    what: 'all brokers killed, down for 30 s, without a file: what is refused is in a gap',
    happens: () => down(3, 30_000, 8_000),
    async promises(found, fleet) {
      expect(found.refused[503]).toBeGreaterThan(0)
      await expect.poll(() => unaccounted(found, fleet), { timeout: 60_000, interval: 500 }).toEqual([])
    },
  },
  {
    ...{ piece: 'kafka-kills', roles: ['receive', 'handle'], inbox: { confirmMs: 60_000 } },
    what: 'two of three brokers killed: messages wait for the confirmation of two',
    load: { handledWithinMs: 120_000 },
    happens: () => down(2, 30_000, 3_000),
  },
]

const deploys = inForm<readonly ServerRuntime[]>({ full: ['node24'], long: ['node24', 'bun', 'deno'] }).map(
  (runtime): Fault => ({
    ...{ piece: 'kafka-network', runtime, roles: [...two, 'both'], never: ['refused', 'unanswered', 'again'] },
    what: `rolling deploys of five processes, ${runtime}`,
    // As behind examples/kafka/haproxy.cfg. An idle connection may get a message at the moment in which a receiver closes it.
    load: { opensConnections: true },
    async happens(fleet) {
      // Wait until the group of five has settled.
      await pause(3_000)
      for (let time = 0; time < inForm({ full: 1, long: 10 }); time++)
        for (const old of [...fleet.members]) {
          await fleet.start(old.role)
          // Wait until the balancer notices it.
          await pause(300)
          expect(await old.stop()).toEqual({ status: 0, signal: null })
        }
    },
    promises({ longestWaitMs }) {
      if (form === 'long') expect(longestWaitMs).toBeLessThanOrEqual(3_000)
    },
  }),
)

const network: readonly Fault[] = [
  {
    ...{ piece: 'kafka-network', roles: one, inbox: short },
    what: 'one of two handler processes stands still for two sessions',
    async happens({ members }) {
      await pause(3_000)
      const frozen = anyOf([...members].filter(({ role }) => role === 'handle'))
      frozen.kill('SIGSTOP')
      await pause(12_000)
      frozen.kill('SIGCONT')
      await pause(3_000)
    },
    promises: ({ again }) => expect(again).toBeLessThanOrEqual(usual.ratePerSecond * 3),
  },
  ...(['receive', 'handle'] as const).flatMap((behindProxy) =>
    (['cut', 'freeze'] as const).map((how): Fault => ({
      ...{ piece: 'kafka-network', roles: one, inbox: short, behindProxy },
      what: `the network fails between ${behindProxy === 'receive' ? 'receivers' : 'handlers'} and brokers (${how})`,
      async happens() {
        await pause(2_000)
        proxy[how]()
        await pause(behindProxy === 'receive' ? 5_000 : 15_000)
        proxy.heal()
        await pause(3_000)
      },
    })),
  ),
]

const produceFaults: readonly ProduceFault[] = [
  { kind: 'refused', error: errorCodes.notLeader },
  { kind: 'refused', error: errorCodes.notEnoughReplicas },
  { kind: 'appended', error: errorCodes.requestTimedOut },
  { kind: 'appended', error: errorCodes.notEnoughReplicasAfterAppend },
  { kind: 'lost' },
  { kind: 'answer lost' },
]

const wire = inForm<readonly (readonly [ServerRuntime, number])[]>({
  full: [['node24', 200]],
  long: [
    ['node24', 400],
    ['node24', 3_000],
    ['bun', 1_000],
    ['deno', 1_000],
  ],
}).map(([runtime, ratePerSecond]): Fault => ({
  ...{ piece: 'kafka-network', runtime, roles: ['receive', 'handle'], behindProxy: 'receive' },
  what: `errors, lost requests, lost answers and moving leaders, ${ratePerSecond}/s, ${runtime}`,
  ...{ load: { ratePerSecond, vehicles: Math.min(ratePerSecond, 400) }, never: ['refused', 'unanswered'] },
  async happens({ topic }) {
    for (let round = 0; round < inForm({ full: 4, long: 12 }); round++) {
      for (const fault of produceFaults) {
        proxy.failProduce(fault)
        await pause(randomInt(100, 400))
      }
      await moveLeaders(all(), topic)
    }
  },
  // Every request on the wire asked for all in-sync replicas.
  promises: () => expect([...proxy.acks.keys()]).toEqual([-1]),
}))

/** `KAFKA_MOVES=20` makes fewer. */
const moves = Number(process.env['KAFKA_MOVES'] ?? 100)
/** `KAFKA_SOAK_MINUTES=10`: an hour by default. */
const soakMinutes = Number(process.env['KAFKA_SOAK_MINUTES'] ?? 60)

const random: readonly Fault[] = [
  ...(['node24', 'bun', 'deno'] as const).map((runtime): Fault => ({
    ...{ piece: 'kafka-moves', runtime, roles: one },
    what: `${moves} moves of leaders, of coordinators, or of a broker that is killed or stopped, ${runtime}`,
    load: { ratePerSecond: 100, vehicles: 50, handledWithinMs: 30_000 },
    async happens({ topic }) {
      for (let count = 0; count < moves; count++) {
        const kind = randomInt(0, 5)
        if (kind <= 2) await moveLeaders(all(), topic)
        else if (kind === 3) await moveLeaders(all(), '__consumer_offsets')
        else await killBroker(randomInt(1, 4), anyOf(['SIGKILL', 'SIGTERM'] as const), 5_000)
        await pause(randomInt(2_000, 12_000))
      }
    },
  })),
  {
    ...{ piece: 'kafka-soak', roles: [...two, 'handle'] },
    what: `three brokers, two receivers and three handler processes killed at random for ${soakMinutes} min`,
    load: { ratePerSecond: 200, vehicles: 100, handledWithinMs: 180_000 },
    async happens(fleet) {
      for (const endsAt = performance.now() + soakMinutes * 60_000; performance.now() < endsAt;) {
        await pause(randomInt(2_000, 8_000))
        const choice = randomInt(0, 8)
        if (choice < 3) await killBroker(choice + 1, 'SIGKILL', 5_000)
        else await killMember(fleet, choice < 5 ? 'receive' : 'handle')
      }
    },
  },
]

const rows: Record<Piece, Row[]> = { 'kafka-kills': [], 'kafka-network': [], 'kafka-moves': [], 'kafka-soak': [] }

/** A session of 9 seconds, Kafka's default, and an election take longer than `confirmMs`. The long form has what docs/several-machines.md advises. */
const properties = inForm({
  full: { 'broker.session.timeout.ms': 3_000, 'broker.heartbeat.interval.ms': 500 },
  long: { 'broker.session.timeout.ms': 4_000, 'broker.heartbeat.interval.ms': 1_000 },
})

beforeAll(async () => {
  const proxied = (port: number, at: string): Promise<number> =>
    at === 'first' ? proxy.before(port) : Promise.resolve(port)
  brokers = await startBrokers({ properties, proxied })
})

test.each([...kills, ...deploys, ...wire, ...(form === 'long' ? [...outages, ...network, ...random] : [])])(
  '$what',
  async ({ piece, what, runtime = 'node24', inbox = {}, roles, hasFile = false, behindProxy, ...fault }) => {
    await inSync(all())
    await using fleet = await createFleet({ brokers: direct(), runtime, inbox })
    const settings = hasFile ? { path: `${fleet.folder}/meanwhile.db` } : {}
    const start = (role: Role): Promise<unknown> =>
      fleet.start(role, { other: role === behindProxy, ...(role === 'receive' ? { settings } : {}) })
    await Promise.all(roles.map(start))
    const { load, happens, never = ['refused'], promises } = fault
    const found = await underLoad(fleet, { ...usual, ...load }, () => happens(fleet))
    rows[piece].push(rowOf(what, found))
    console.log(rows[piece].at(-1))
    expect(broken(found)).toEqual(nothingBroken)
    for (const name of never) expect({ [name]: found[name] }).toEqual({ [name]: name === 'again' ? 0 : {} })
    await promises?.(found, fleet)
  },
  inForm({ full: 180_000, long: 7_200_000 }),
)

const setting =
  'Three brokers with replication 3 and `min.insync.replicas` 2, receivers behind a TCP balancer, and processes with handlers. Each vehicle sends its next message when the last one was answered. The sender counts answers, and the handlers write a journal. Connection ended: the request was under way when its receiver was killed, so nobody promised anything. Out of order: its first start was before an earlier message of its vehicle had ended. Longest wait: from the acknowledgment to the start of the handler.'
const titles: Readonly<Record<Piece, string>> = {
  'kafka-kills': 'receivers, handlers and brokers that are killed under load',
  'kafka-network': 'deploys, processes that stand still, and networks that fail',
  'kafka-moves': 'leaders, coordinators and brokers move',
  'kafka-soak': 'everything is killed at random',
}

afterAll(async () => {
  await brokers?.[Symbol.asyncDispose]()
  await proxy[Symbol.asyncDispose]()
  for (const piece of ['kafka-kills', 'kafka-network', 'kafka-moves', 'kafka-soak'] as const)
    if (rows[piece].length > 0)
      await writeFigures({
        ...{ piece, title: `Kafka: ${titles[piece]}`, about: setting, file: 'test/kafka/faults.test.ts' },
        ...{ tables: [{ title: 'Rounds', rows: rows[piece] }], versions: versionsOf(['bun', 'deno']) },
      })
})
