import { createReceiver, type Receiver } from 'fleethook'
import { afterEach, describe, expect, test } from 'vitest'
import { DeadTopic } from '../../adapters/inbox/kafka/dead-topic.ts'
import { Reader } from '../../adapters/inbox/kafka/reader.ts'
import { fromDeadRecord, toRecord } from '../../adapters/inbox/kafka/records.ts'
import { inboxBehind } from '../../adapters/inbox/two-halves.ts'
import type { InboxGap, InboxMessage } from '../../src/inbox/inbox.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { id, message } from '../../src/testing/kept-message.ts'
import { gates } from '../dispatch/scene.ts'
import { FakeCluster, type FakeConsumer, type PartitionLog } from './kafka-cluster.ts'

const dayMs = 86_400_000

interface Scene {
  readonly cluster: FakeCluster
  readonly clock: FakeClock
  readonly reader: Reader
  readonly log: PartitionLog
  /** The ids that the reader handed to the scheduler, in order. */
  readonly waiting: string[]
  readonly gaps: InboxGap[]
  readonly logged: string[]
  readonly member: () => FakeConsumer
}

const writer = Buffer.from('w1')
const readers: Reader[] = []

/** A message in the topic. Its number also orders its id. */
function post(cluster: FakeCluster, n: number, changes: Partial<InboxMessage> = {}, partition = 0): void {
  cluster.append(
    toRecord({ ...message(n), receivedAt: cluster.clock.now(), ...changes }, { topic: 'fleethook', partition, writer }),
  )
}

async function setup(prepare: (cluster: FakeCluster, log: PartitionLog) => void = () => {}): Promise<Scene> {
  const clock = fakeClock()
  const cluster = new FakeCluster(clock)
  const log = cluster.logOf('fleethook')
  prepare(cluster, log)
  const waiting: string[] = []
  const gaps: InboxGap[] = []
  const logged: string[] = []
  const note = (level: string) => (line: string) => void logged.push(`${level}: ${line}`)
  const { connector, settings } = cluster
  const shared = { connector, settings, clock, writer: cluster.writer(), writerId: Buffer.from('w2') }
  const reader = new Reader({
    ...{ connector, settings, dead: new DeadTopic(shared), retentionMs: 7 * dayMs },
    put: async () => {},
    inbox: {
      ...{ pendingMessages: undefined, pendingBytes: undefined, clock },
      log: { debug: () => {}, info: () => {}, warn: note('warn'), error: note('error') },
      ...{ onFailure: () => {}, onCapacity: () => {} },
      onWaiting: (page) => void waiting.push(...page.map((one) => one.id)),
      onGap: (gap) => void gaps.push(gap),
    },
  })
  readers.push(reader)
  await reader.open()
  await clock.advance(100)
  return { cluster, clock, reader, log, waiting, gaps, logged, member: () => memberOf(cluster) }
}

function memberOf(cluster: FakeCluster): FakeConsumer {
  const first = cluster.consumers.find((one) => one.listenerCount('consumer:group:join') > 0)
  if (first === undefined) throw new Error('No consumer has joined.')
  return first
}

afterEach(async () => {
  for (const reader of readers.splice(0)) void reader.close()
})

describe('the reader of the topic', () => {
  test.each([
    ['a few', 100],
    ['many', 5_000],
  ])(
    'when all brokers lost %s records below the position of the group, messages after that are handled',
    async (_, at) => {
      const { cluster, clock, reader, waiting, gaps } = await setup(({ committed }, log) => {
        committed.set(0, at)
        log.end = 90
        log.start = 90
      })
      for (const n of [1, 2, 3]) post(cluster, n)
      await clock.advance(1_000)
      expect(waiting).toEqual([id(1), id(2), id(3)])
      expect(gaps).toEqual([expect.objectContaining({ reason: 'inbox_expired', missed: 0 })])
      await reader.claim(id(1))
      void reader.settle(id(1))
      await clock.advance(1_500)
      // The next owner of the partition begins here.
      expect(cluster.committed.get(0)).toBe(91)
    },
  )

  test('when all brokers lose records that were read, these and new ones are handled, and no position skips them', async () => {
    const { cluster, clock, reader, log, waiting } = await setup((fresh) => {
      for (let n = 0; n < 10; n += 1) post(fresh, n)
    })
    for (let n = 0; n < 8; n += 1) void reader.settle(id(n))
    await clock.advance(1_500)
    expect(cluster.committed.get(0)).toBe(8)
    cluster.loseFrom(log, 5)
    await clock.advance(1_500)
    for (let n = 20; n < 24; n += 1) post(cluster, n)
    await clock.advance(1_500)
    expect(waiting.slice(10)).toEqual([20, 21, 22, 23].map(id))
    // The lost messages are only in this process, and are not settled.
    expect(cluster.committed.get(0)).toBe(5)
    for (const n of [20, 21, 22]) void reader.settle(id(n))
    await clock.advance(1_500)
    expect(cluster.committed.get(0)).toBe(5)
    for (const n of [8, 9]) expect((await reader.claim(id(n)))?.message.id).toBe(id(n))
    for (const n of [8, 9]) void reader.settle(id(n))
    await clock.advance(1_500)
    expect(cluster.committed.get(0)).toBe(8)
  })

  test('when other records have already taken the place of those that all brokers lost, none of them is skipped', async () => {
    const { cluster, clock, log, waiting, gaps } = await setup((fresh) => {
      for (let n = 0; n < 10; n += 1) post(fresh, n)
    })
    cluster.loseFrom(log, 5)
    for (let n = 20; n < 32; n += 1) post(cluster, n)
    await clock.advance(1_500)
    expect(waiting.slice(10)).toEqual(Array.from({ length: 12 }, (_, n) => id(20 + n)))
    expect(gaps.map(({ reason }) => reason)).toEqual(['inbox_expired'])
  })

  test('brokers that no longer know who wrote the records stop no partition', async () => {
    const { cluster, clock, waiting, gaps } = await setup((fresh) => post(fresh, 1))
    cluster.forgetsEpochs = true
    post(cluster, 2)
    await clock.advance(2_000)
    expect({ waiting, gaps }).toEqual({ waiting: [id(1), id(2)], gaps: [] })
  })

  test('a group that has lost its position reports a gap for messages that are gone, once', async () => {
    const { cluster, clock, waiting, gaps, member } = await setup((fresh, log) => {
      fresh.deleteBefore(log, 40)
      post(fresh, 1)
    })
    await clock.advance(1_500)
    expect(waiting).toEqual([id(1)])
    expect(gaps.map(({ reason, missed }) => ({ reason, missed }))).toEqual([{ reason: 'inbox_expired', missed: 0 }])
    expect(cluster.committed.get(0)).toBe(40)
    // Another process had the partition meanwhile.
    member().joined([])
    member().joined([0])
    await clock.advance(1_500)
    expect(gaps.length).toBe(1)
  })

  test('a process that loses the partition before it has read on leaves the gap to the next owner', async () => {
    const { cluster, clock, waiting, gaps, reader, member } = await setup((fresh) => post(fresh, 0))
    void reader.settle(id(0))
    await clock.advance(1_000)
    cluster.deleteBefore(cluster.logOf('fleethook'), 15)
    // This process asks where the log begins, and then the group rebalances.
    cluster.asked = (one) =>
      one === member() ? undefined : new Promise<void>((resolve) => void clock.after(400, resolve))
    await clock.advance(1_200)
    const joining = member().beforeJoin()
    await clock.advance(200)
    await joining
    member().joined([])
    cluster.asked = () => {}
    post(cluster, 1)
    member().joined([0])
    await clock.advance(2_000)
    expect(waiting).toEqual([id(0), id(1)])
    expect(gaps.map(({ reason, missed }) => ({ reason, missed }))).toEqual([{ reason: 'inbox_expired', missed: 14 }])
  })

  test('a new group at the beginning of a topic has no gap', async () => {
    const { clock, waiting, gaps } = await setup((fresh) => post(fresh, 1))
    await clock.advance(1_500)
    expect({ waiting, gaps }).toEqual({ waiting: [id(1)], gaps: [] })
  })

  test('the gap of messages that retention deleted ends with the first message that is left', async () => {
    const { cluster, clock, reader, log, gaps, waiting } = await setup((fresh) => post(fresh, 0))
    const readAt = clock.now() - 100
    void reader.settle(id(0))
    cluster.asked = () => Promise.reject(new Error('Connection closed'))
    for (let n = 1; n < 20; n += 1) {
      post(cluster, n)
      await clock.advance(1_000)
    }
    const leftAt = log.records.find(({ offset }) => offset === 15)?.timestampMs
    cluster.deleteBefore(log, 15)
    cluster.asked = () => {}
    await clock.advance(2_000)
    expect(waiting).toEqual([id(0), ...[15, 16, 17, 18, 19].map(id)])
    expect(gaps).toEqual([{ reason: 'inbox_expired', fromMs: readAt, toMs: leftAt, missed: 14 }])
  })

  test('between the last commit before a join and the next assignment no message starts', async () => {
    const { cluster, clock, reader, member } = await setup((fresh) => {
      for (let n = 0; n < 4; n += 1) post(fresh, n)
    })
    await reader.claim(id(3))
    void reader.settle(id(3))
    const before = member().beforeJoin()
    // One that was handed out is behind it, so it may still start, and the join waits for it.
    expect((await reader.claim(id(0)))?.message.id).toBe(id(0))
    void reader.settle(id(0))
    await clock.advance(200)
    await before
    expect(cluster.committed.get(0)).toBe(1)
    let isStarted = false
    const claimed = reader.claim(id(1)).then((claim) => {
      isStarted = true
      return claim
    })
    await clock.advance(500)
    expect(isStarted).toBe(false)
    member().joined([0])
    expect((await claimed)?.message.id).toBe(id(1))
  })

  test('an assignment counts although an earlier join still waits for handlers', async () => {
    const { clock, reader, member } = await setup((fresh) => {
      for (let n = 0; n < 2; n += 1) post(fresh, n)
    })
    await reader.claim(id(0))
    const before = member().beforeJoin()
    await clock.advance(50)
    // Another client of this process has joined meanwhile.
    member().joined([0])
    void reader.settle(id(0))
    await clock.advance(500)
    await before
    const claimed = reader.claim(id(1))
    await clock.advance(500)
    await expect(Promise.race([claimed, Promise.resolve()])).resolves.toMatchObject({ message: { id: id(1) } })
  })

  test('messages that wait while the group cannot be reached take no more memory the longer that lasts', async () => {
    const { cluster, clock, reader } = await setup((fresh) => post(fresh, 1))
    for (const one of cluster.consumers) one.isClosed = true
    cluster.asked = () => Promise.reject(new Error('Connection closed'))
    await clock.advance(8_000)
    let cancelled = 0
    const after = clock.after.bind(clock)
    clock.after = (ms, run) => {
      const timer = after(ms, run)
      return { ...timer, cancel: () => (cancelled++, timer.cancel()) }
    }
    void reader.claim(id(1))
    await clock.advance(5_000)
    const before = cancelled
    reader.stop()
    expect(cancelled - before).toBe(1)
  })

  test('a foreign record of bytes that are no text becomes a dead letter that the brokers accept', async () => {
    const { cluster, clock } = await setup((fresh) => {
      const key = Buffer.from('V')
      fresh.append({ topic: 'fleethook', partition: 0, key, value: Buffer.alloc(900_000, 0xff), headers: new Map() })
      post(fresh, 1)
    })
    await clock.advance(1_500)
    const dead = cluster.logsOf('fleethook-dead').flatMap(({ records }) => records)
    const letters = dead.map(({ key, value, headers }) =>
      fromDeadRecord({ key, value, headers: headers.map(([name, content]): [Buffer, Buffer] => [name, content]) }),
    )
    expect(letters.map((letter) => letter?.error)).toEqual([
      'The record at offset 0 of partition 0 is not a message of fleethook.',
    ])
    expect(cluster.committed.get(0)).toBe(1)
  })

  test('a message that waits for half of the retention is a warning, and at four fifths an error', async () => {
    const { cluster, clock, reader, logged } = await setup()
    const aged = (days: number): Partial<InboxMessage> => ({ receivedAt: clock.now() - days * dayMs })
    post(cluster, 1, aged(3))
    await clock.advance(10_500)
    expect(logged).toEqual([])
    post(cluster, 2, aged(4))
    void reader.settle(id(1))
    await clock.advance(21_000)
    expect(logged).toEqual(['warn: the oldest message has waited for half of the time that the topic keeps it'])
    post(cluster, 3, aged(6))
    await clock.advance(1_000)
    void reader.settle(id(2))
    await clock.advance(21_000)
    expect(logged.slice(1)).toEqual(['error: the topic deletes the oldest message soon, and it is not handled yet'])
  })

  test('positions that cannot be committed for a while are a warning', async () => {
    const { cluster, clock, reader, logged, member } = await setup((fresh) => post(fresh, 1))
    cluster.asked = (one) => (one === member() ? Promise.reject(new Error('Connection closed')) : undefined)
    void reader.settle(id(1))
    await clock.advance(5_000)
    expect(logged).toEqual([])
    await clock.advance(7_000)
    expect(logged).toEqual(['warn: positions could not be committed'])
  })

  test.each([
    ['fails', () => Promise.reject(new Error('Connection closed'))],
    ['never answers', () => new Promise<void>(() => {})],
  ])('a client that %s is replaced by the watchdog', async (_, fault) => {
    const { cluster, clock, waiting, member } = await setup()
    const broken = cluster.consumers.filter((one) => one !== member())
    cluster.asked = (one) => (broken.includes(one) ? fault() : undefined)
    post(cluster, 1)
    await clock.advance(45_000)
    expect(waiting).toEqual([id(1)])
  })

  test('an outage costs no more the longer it lasts', async () => {
    const { cluster, clock, member } = await setup((fresh) => post(fresh, 1))
    let asked = 0
    cluster.asked = (one) => {
      if (one !== member()) asked += 1
      throw new Error('Connection closed')
    }
    const inTwoSeconds = async (): Promise<number> => {
      const before = asked
      await clock.advance(2_000)
      return asked - before
    }
    await clock.advance(12_000)
    const early = await inTwoSeconds()
    await clock.advance(60_000)
    expect(await inTwoSeconds()).toBeLessThanOrEqual(early)
  })

  test('after the watchdog has opened the reader again, each broker gets one fetch at a time', async () => {
    const { cluster, clock, member } = await setup()
    const first = cluster.consumers.filter((one) => one !== member())
    const answers: (() => void)[] = []
    cluster.asked = (one) => (first.includes(one) ? new Promise<void>((resolve) => answers.push(resolve)) : undefined)
    await clock.advance(45_000)
    let fetches = 0
    const again = cluster.consumers.at(-1)
    if (again === undefined) throw new Error('The reader was not opened again.')
    const fetch = again.fetch.bind(again)
    again.fetch = async (asked) => {
      fetches += 1
      return fetch(asked)
    }
    cluster.asked = () => {}
    for (const answer of answers) answer()
    await clock.advance(5_000)
    expect(fetches).toBeLessThanOrEqual(11)
  })

  test('a partition without a leader keeps no other one waiting', async () => {
    const { cluster, clock, waiting, logged } = await setup((fresh) => {
      fresh.assigned = [0, 1]
      fresh.logOf('fleethook', 1).leader = -1
      post(fresh, 1)
    })
    await clock.advance(1_000)
    expect(waiting).toEqual([id(1)])
    await clock.advance(20_000)
    expect(new Set(logged)).toEqual(new Set(['warn: the leaders of partitions could not be found']))
    cluster.append(toRecord(message(2), { topic: 'fleethook', partition: 1, writer }))
    cluster.logOf('fleethook', 1).leader = 2
    await clock.advance(2_500)
    expect(waiting).toEqual([id(1), id(2)])
  })
})

/** A receiver that handles one message at a time. */
async function receiving(
  assigned: readonly number[],
  handle: (n: number, signal: AbortSignal) => Promise<void> | void,
): Promise<Pick<Scene, 'cluster' | 'clock' | 'member'> & { readonly receiver: Receiver }> {
  const clock = fakeClock()
  const cluster = new FakeCluster(clock)
  cluster.assigned = assigned
  const { connector, settings } = cluster
  const shared = { connector, settings, clock, writer: cluster.writer(), writerId: Buffer.from('w2') }
  const receiver = createReceiver({
    ...{ secret: false, clock, concurrency: 1 },
    inbox: (inbox) => {
      const dead = new DeadTopic(shared)
      const reader = new Reader({ connector, settings, dead, inbox, put: async () => {}, retentionMs: 7 * dayMs })
      readers.push(reader)
      return inboxBehind('replicated', undefined, async () => reader)
    },
  }).on('state', ({ raw }, { signal }) => handle(Number(Object(raw).n), signal))
  await receiver.open()
  return { cluster, clock, member: () => memberOf(cluster), receiver }
}

describe('a partition that leaves a process and comes back', () => {
  test('has its messages handled in order, also those that waited behind one that could not start', async () => {
    const gate = gates()
    const seen: number[] = []
    const { cluster, clock, member } = await receiving([0, 1], (n) => {
      seen.push(n)
      return n >= 10 ? gate.wait(String(n)) : undefined
    })
    post(cluster, 10, { lane: 'B' }, 1)
    await clock.advance(1_000)
    for (const n of [1, 2, 3]) post(cluster, n)
    await clock.advance(1_000)
    post(cluster, 11, { lane: 'C' }, 1)
    await clock.advance(1_000)
    const joining = member().beforeJoin()
    await clock.advance(100)
    // The claim of the first message now waits for the end of the join, and the partition leaves.
    gate.open('10')
    await clock.advance(100)
    await joining
    member().joined([1])
    await clock.advance(100)
    expect(gate.waiting).toEqual(['11'])
    member().joined([0, 1])
    await clock.advance(1_000)
    gate.open('11')
    await clock.advance(1_000)
    expect(seen).toEqual([10, 11, 1, 2, 3])
  })

  test('has the messages of running handlers handled again, and counted once', async () => {
    const gate = gates()
    const seen: number[] = []
    const { cluster, clock, member, receiver } = await receiving([0], async (n, signal) => {
      seen.push(n)
      signal.addEventListener('abort', () => seen.push(-n))
      if (seen.length === 1) await gate.wait('first')
    })
    for (const n of [1, 2, 3]) post(cluster, n)
    await clock.advance(1_000)
    expect(seen).toEqual([1])
    // The group has not heard from this process for too long.
    member().joined([])
    member().joined([0])
    await clock.advance(1_000)
    gate.open('first')
    await clock.advance(2_000)
    expect(seen).toEqual([1, -1, 1, 2, 3])
    expect(receiver.stats()).toMatchObject({ recovered: 6, handedOver: 3, handled: 3, lanes: 0, running: 0 })
    expect(cluster.committed.get(0)).toBe(3)
  })
})
