import { afterEach, describe, expect, test } from 'vitest'
import { Membership } from '../../adapters/inbox/kafka/membership.ts'
import { silent } from '../vehicles/scene.ts'
import { FakeConsumer, newCluster } from './kafka-cluster.ts'

const members: Membership[] = []

async function setup(join: (consumer: FakeConsumer, made: number) => void) {
  const cluster = newCluster()
  const { clock, connector, settings, consumers } = cluster
  cluster.join = (consumer) => join(consumer, consumers.length)
  const assigned: unknown[] = []
  const steps: string[] = []
  const membership = new Membership({
    ...{ connector, settings, clock },
    log: silent,
    quiesce: async () => void steps.push('quiesced'),
    assigned: (partitions, isContinued) => {
      steps.push('assigned')
      assigned.push([...partitions, isContinued])
    },
  })
  members.push(membership)
  membership.start()
  await clock.advance(10)
  return { membership, clock, assigned, steps, cluster, consumer: () => consumers.at(-1) ?? new FakeConsumer(cluster) }
}

afterEach(async () => {
  for (const membership of members.splice(0)) await membership.leave()
})

describe('the member of the group', () => {
  test('finishes its work before each join, and keeps what nobody else can have had', async () => {
    const { assigned, steps, consumer } = await setup((one) => one.joined([0, 1], 'm1', 1))
    expect(steps).toEqual(['quiesced', 'assigned'])
    consumer().joined([0], 'm1', 2)
    // A generation that it missed: another process may have had its partitions.
    consumer().joined([0, 1], 'm1', 4)
    // The group took it for dead.
    consumer().joined([0, 1], 'm2', 5)
    expect(assigned).toEqual([
      [0, 1, false],
      [0, true],
      [0, 1, false],
      [0, 1, false],
    ])
  })

  test('starts nothing when the group has not heard it for most of a session', async () => {
    const { membership, clock, consumer } = await setup((one) => one.joined([0], 'm1', 1))
    expect(membership.isFresh).toBe(true)
    await clock.advance(6_500)
    expect(membership.isFresh).toBe(true)
    await clock.advance(1_000)
    expect(membership.isFresh).toBe(false)
    consumer().heartbeat()
    expect(membership.isFresh).toBe(true)
  })

  test('commits only as a member', async () => {
    const { membership, consumer, cluster } = await setup((one, made) => {
      if (made > 1) throw new Error('Connection closed')
      one.joined([0], 'm1', 1)
    })
    await membership.commit([{ partition: 0, offset: 7, metadata: '' }])
    expect(cluster.committed).toEqual(new Map([[0, 7]]))
    consumer().emit('error', new Error('joinGroup failed'))
    await expect(membership.commit([{ partition: 0, offset: 8, metadata: '' }])).rejects.toThrow('not a member')
  })

  test('commits nothing when the group has not heard it for a session', async () => {
    const { membership, clock, cluster } = await setup((one) => one.joined([0], 'm1', 1))
    await clock.advance(10_000)
    await expect(membership.commit([{ partition: 0, offset: 8, metadata: '' }])).rejects.toThrow('not a member')
    expect(cluster.committed).toEqual(new Map())
  })

  test('a client that fails again and again is replaced by a new one', async () => {
    const { clock, assigned, cluster } = await setup((one, made) => {
      if (made === 1) throw new Error('The broker is not available in the current cluster metadata.')
      one.joined([0], 'm1', 1)
    })
    expect(assigned).toEqual([])
    await clock.advance(10_000)
    expect(cluster.consumers.map(({ isClosed }) => isClosed)).toEqual([true, false])
    expect(assigned).toEqual([[0, false]])
  })

  test('a member whose heartbeats fail is replaced, and what an old client still says counts no more', async () => {
    const { assigned, consumer, clock, cluster } = await setup((one, made) => one.joined([0], `m${made}`, made))
    const first = consumer()
    for (let n = 0; n < 6; n += 1) first.emit('consumer:heartbeat:error', { error: new Error('Connection closed') })
    await clock.advance(10)
    expect(cluster.consumers).toHaveLength(2)
    first.joined([0, 1, 2], 'm1', 2)
    expect(assigned).toEqual([
      [0, false],
      [0, false],
    ])
  })

  test('a client that was replaced while it waited for a broker does not stop the work of the new one', async () => {
    const { membership, steps, consumer } = await setup((one, made) => one.joined([0], `m${made}`, 1))
    const first = consumer()
    membership.restart()
    await expect.poll(() => steps).toEqual(['quiesced', 'assigned', 'quiesced', 'assigned'])
    // The broker answers, and the client goes on with its join.
    await expect(first.beforeJoin()).rejects.toThrow('replaced')
    expect(steps.length).toBe(4)
  })

  test('a member that the group never lets in joins again', async () => {
    const { clock, cluster } = await setup(() => {})
    await clock.advance(21_000)
    expect(cluster.consumers).toHaveLength(2)
  })
})
