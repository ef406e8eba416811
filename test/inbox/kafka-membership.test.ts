import { EventEmitter } from 'node:events'
import { afterEach, describe, expect, test } from 'vitest'
import { type Client, Connector } from '../../adapters/inbox/kafka/client.ts'
import { Membership } from '../../adapters/inbox/kafka/membership.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'

/** The part of the client's consumer that a member uses. A test plays the group. */
class Consumer extends EventEmitter {
  static made: Consumer[] = []
  static join: (consumer: Consumer) => void = () => {}
  readonly topics = { track: (): boolean => true }
  readonly connections = { close: async (): Promise<void> => {} }
  readonly committed: unknown[] = []
  isClosed = false
  /** What the client calls before it joins. */
  beforeJoin = async (): Promise<unknown> => undefined

  constructor() {
    super()
    Consumer.made.push(this)
  }

  async joinGroup({ protocolsMetadata }: { readonly protocolsMetadata: () => Promise<Buffer> }): Promise<void> {
    this.beforeJoin = protocolsMetadata
    await protocolsMetadata()
    Consumer.join(this)
  }

  /** The group has let it in. */
  joined(memberId: string, generationId: number, partitions: readonly number[]): void {
    this.emit('consumer:group:join', { memberId, generationId, assignments: [{ topic: 'fleethook', partitions }] })
  }

  heartbeat(): void {
    this.emit('consumer:heartbeat:start')
    this.emit('consumer:heartbeat:end')
  }

  async commit({ offsets }: { readonly offsets: readonly unknown[] }): Promise<void> {
    this.committed.push(...offsets)
  }

  leaveGroup(_force: boolean, left: () => void): void {
    left()
  }

  async close(): Promise<void> {
    this.isClosed = true
  }
}

interface Scene {
  readonly membership: Membership
  readonly clock: FakeClock
  readonly assigned: unknown[]
  /** What happened, in order. */
  readonly steps: string[]
  readonly consumer: () => Consumer
}

const members: Membership[] = []

async function setup(join: (consumer: Consumer) => void): Promise<Scene> {
  Consumer.made = []
  Consumer.join = join
  const clock = fakeClock()
  const settings = readKafkaOptions({ brokers: ['b1:9092', 'b2:9092'] })
  const client = { Consumer, FetchIsolationLevels: { READ_UNCOMMITTED: 0 } } as unknown as Client // oxlint-disable-line no-unsafe-type-assertion -- a stand-in with what a member uses
  const assigned: unknown[] = []
  const steps: string[] = []
  const silent = (): void => {}
  const membership = new Membership({
    ...{ connector: new Connector(client, settings), settings, clock },
    log: { debug: silent, info: silent, warn: silent, error: silent },
    quiesce: async () => void steps.push('quiesced'),
    assigned: (partitions, isContinued) => {
      steps.push('assigned')
      assigned.push([...partitions, isContinued])
    },
  })
  members.push(membership)
  membership.start()
  await clock.advance(10)
  return { membership, clock, assigned, steps, consumer: () => Consumer.made.at(-1) ?? new Consumer() }
}

afterEach(async () => {
  for (const membership of members.splice(0)) await membership.leave()
})

describe('the member of the group', () => {
  test('finishes its work before each join, and keeps what nobody else can have had', async () => {
    const { assigned, steps, consumer } = await setup((one) => one.joined('m1', 1, [0, 1]))
    expect(steps).toEqual(['quiesced', 'assigned'])
    consumer().joined('m1', 2, [0])
    // A generation that it missed: another process may have had its partitions.
    consumer().joined('m1', 4, [0, 1])
    // The group took it for dead.
    consumer().joined('m2', 5, [0, 1])
    expect(assigned).toEqual([
      [0, 1, false],
      [0, true],
      [0, 1, false],
      [0, 1, false],
    ])
  })

  test('starts nothing when the group has not heard it for most of a session', async () => {
    const { membership, clock, consumer } = await setup((one) => one.joined('m1', 1, [0]))
    expect(membership.isFresh).toBe(true)
    await clock.advance(6_500)
    expect(membership.isFresh).toBe(true)
    await clock.advance(1_000)
    expect(membership.isFresh).toBe(false)
    consumer().heartbeat()
    expect(membership.isFresh).toBe(true)
  })

  test('commits only as a member', async () => {
    const { membership, consumer } = await setup((one) => {
      if (Consumer.made.length > 1) throw new Error('Connection closed')
      one.joined('m1', 1, [0])
    })
    await membership.commit([{ partition: 0, offset: 7, metadata: '' }])
    expect(consumer().committed).toEqual([{ topic: 'fleethook', partition: 0, offset: 7n, leaderEpoch: -1 }])
    consumer().emit('error', new Error('joinGroup failed'))
    await expect(membership.commit([{ partition: 0, offset: 8, metadata: '' }])).rejects.toThrow('not a member')
  })

  test('commits nothing when the group has not heard it for a session', async () => {
    const { membership, clock, consumer } = await setup((one) => one.joined('m1', 1, [0]))
    await clock.advance(10_000)
    await expect(membership.commit([{ partition: 0, offset: 8, metadata: '' }])).rejects.toThrow('not a member')
    expect(consumer().committed).toEqual([])
  })

  test('a client that fails again and again is replaced by a new one', async () => {
    const { clock, assigned } = await setup((one) => {
      if (Consumer.made.length === 1) throw new Error('The broker is not available in the current cluster metadata.')
      one.joined('m1', 1, [0])
    })
    expect(assigned).toEqual([])
    await clock.advance(10_000)
    expect(Consumer.made.length).toBe(2)
    expect(Consumer.made[0]?.isClosed).toBe(true)
    expect(assigned).toEqual([[0, false]])
  })

  test('a member whose heartbeats fail is replaced, and what an old client still says counts no more', async () => {
    const { assigned, consumer, clock } = await setup((one) =>
      one.joined(`m${Consumer.made.length}`, Consumer.made.length, [0]),
    )
    const first = consumer()
    for (let n = 0; n < 6; n += 1) first.emit('consumer:heartbeat:error', { error: new Error('Connection closed') })
    await clock.advance(10)
    expect(Consumer.made.length).toBe(2)
    first.joined('m1', 2, [0, 1, 2])
    expect(assigned).toEqual([
      [0, false],
      [0, false],
    ])
  })

  test('a client that was replaced while it waited for a broker does not stop the work of the new one', async () => {
    const { membership, steps, consumer } = await setup((one) => one.joined(`m${Consumer.made.length}`, 1, [0]))
    const first = consumer()
    membership.restart()
    await expect.poll(() => steps).toEqual(['quiesced', 'assigned', 'quiesced', 'assigned'])
    // The broker answers, and the client goes on with its join.
    await expect(first.beforeJoin()).rejects.toThrow('replaced')
    expect(steps.length).toBe(4)
  })

  test('a member that the group never lets in joins again', async () => {
    const { clock } = await setup(() => {})
    await clock.advance(21_000)
    expect(Consumer.made.length).toBe(2)
  })
})
