import { Retry } from 'fleethook'
import { afterEach, describe, expect, test } from 'vitest'
import { gates } from '../dispatch/scene.ts'
import {
  endProcesses,
  type FakeCluster,
  gapsIn,
  newCluster,
  own,
  type PartitionLog,
  post,
  startProcess,
} from './kafka-cluster.ts'

const dayMs = 86_400_000

async function setup(prepare: (cluster: FakeCluster, log: PartitionLog) => void = () => {}) {
  const cluster = newCluster()
  const { clock } = cluster
  const log = cluster.logOf('fleethook', own)
  prepare(cluster, log)
  /** The messages whose handlers have begun, in order. */
  const seen: number[] = []
  const gate = gates()
  const handle = (n: number): Promise<void> => {
    seen.push(n)
    return gate.wait(String(n))
  }
  const process = await startProcess(cluster, handle, { concurrency: 100 })
  await clock.advance(100)
  /** Ends the handlers of these messages. They run until then. */
  const finish = (...numbers: readonly number[]): void => numbers.forEach((n) => gate.open(String(n)))
  return { ...process, cluster, clock, log, seen, finish }
}

afterEach(endProcesses)

describe('the reader of the topic', () => {
  test.each([
    ['a few', 100],
    ['many', 5_000],
  ])(
    'when all brokers lost %s records below the position of the group, messages after that are handled',
    async (_, at) => {
      const { cluster, clock, seen, finish } = await setup(({ committed }, log) => {
        committed.set(own, at)
        log.end = 90
        log.start = 90
      })
      for (const n of [1, 2, 3]) post(cluster, n)
      await clock.advance(1_000)
      expect(seen).toEqual([1, 2, 3])
      expect(gapsIn(cluster)).toEqual([expect.objectContaining({ reason: 'inbox_expired', missed: 0 })])
      finish(1)
      await clock.advance(1_500)
      // The next owner of the partition begins here.
      expect(cluster.committed.get(own)).toBe(91)
    },
  )

  test('when all brokers lose records that were read, these and new ones are handled, and no position skips them', async () => {
    const { cluster, clock, log, seen, finish } = await setup((fresh) => {
      for (let n = 0; n < 10; n += 1) post(fresh, n)
    })
    finish(0, 1, 2, 3, 4, 5, 6, 7)
    await clock.advance(1_500)
    expect(cluster.committed.get(own)).toBe(8)
    cluster.loseFrom(log, 5)
    await clock.advance(1_500)
    for (let n = 20; n < 24; n += 1) post(cluster, n)
    await clock.advance(1_500)
    expect(seen.slice(10)).toEqual([20, 21, 22, 23])
    // The lost messages are only in this process, and are not settled.
    expect(cluster.committed.get(own)).toBe(5)
    finish(20, 21, 22)
    await clock.advance(1_500)
    expect(cluster.committed.get(own)).toBe(5)
    finish(8, 9)
    await clock.advance(1_500)
    expect(cluster.committed.get(own)).toBe(8)
  })

  test('when other records have already taken the place of those that all brokers lost, none of them is skipped', async () => {
    const { cluster, clock, log, seen } = await setup((fresh) => {
      for (let n = 0; n < 10; n += 1) post(fresh, n)
    })
    cluster.loseFrom(log, 5)
    for (let n = 20; n < 32; n += 1) post(cluster, n)
    await clock.advance(1_500)
    expect(seen.slice(10)).toEqual(Array.from({ length: 12 }, (_, n) => 20 + n))
    expect(gapsIn(cluster)).toMatchObject([{ reason: 'inbox_expired' }])
  })

  test('brokers that no longer know who wrote the records stop no partition', async () => {
    const { cluster, clock, seen } = await setup((fresh) => post(fresh, 1))
    cluster.forgetsEpochs = true
    post(cluster, 2)
    await clock.advance(2_000)
    expect({ seen, gaps: gapsIn(cluster) }).toEqual({ seen: [1, 2], gaps: [] })
  })

  test('a group that has lost its position reports a gap for messages that are gone, once', async () => {
    const { cluster, clock, seen, member } = await setup((fresh, log) => {
      fresh.deleteBefore(log, 40)
      post(fresh, 1)
    })
    await clock.advance(1_500)
    expect(seen).toEqual([1])
    expect(gapsIn(cluster)).toMatchObject([{ reason: 'inbox_expired', missed: 0 }])
    expect(cluster.committed.get(own)).toBe(40)
    // Another process had the partition meanwhile.
    member().joined([])
    member().joined([own])
    await clock.advance(1_500)
    expect(gapsIn(cluster)).toHaveLength(1)
  })

  test('a process that loses the partition before it has read on leaves the gap to the next owner', async () => {
    const { cluster, clock, seen, finish, member } = await setup((fresh) => post(fresh, 0))
    finish(0)
    await clock.advance(1_000)
    cluster.deleteBefore(cluster.logOf('fleethook', own), 15)
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
    member().joined([own])
    await clock.advance(2_000)
    expect(seen).toEqual([0, 1])
    expect(gapsIn(cluster)).toMatchObject([{ reason: 'inbox_expired', missed: 14 }])
  })

  test('a new group at the beginning of a topic has no gap', async () => {
    const { cluster, clock, seen } = await setup((fresh) => post(fresh, 1))
    await clock.advance(1_500)
    expect({ seen, gaps: gapsIn(cluster) }).toEqual({ seen: [1], gaps: [] })
  })

  test('the gap of messages that retention deleted ends with the first message that is left', async () => {
    const { cluster, clock, log, seen, finish } = await setup((fresh) => post(fresh, 0))
    const readAt = clock.now() - 100
    finish(0)
    cluster.asked = () => Promise.reject(new Error('Connection closed'))
    for (let n = 1; n < 20; n += 1) {
      post(cluster, n)
      await clock.advance(1_000)
    }
    const leftAt = log.records.find(({ offset }) => offset === 15)?.timestampMs
    cluster.deleteBefore(log, 15)
    cluster.asked = () => {}
    await clock.advance(2_000)
    expect(seen).toEqual([0, 15, 16, 17, 18, 19])
    expect(gapsIn(cluster)).toEqual([{ reason: 'inbox_expired', fromMs: readAt, toMs: leftAt, missed: 14 }])
  })

  test('from a join to the next assignment only messages start that are behind others that have started', async () => {
    const cluster = newCluster()
    const { clock } = cluster
    for (const [n, lane] of ['A', 'B', 'A'].entries()) post(cluster, n, { lane })
    const seen: number[] = []
    let triedAt = 0
    const { member } = await startProcess(cluster, (n) => {
      seen.push(n)
      if (seen.length > 1) return
      triedAt = clock.now()
      throw new Retry(1_000)
    })
    await clock.advance(500)
    await clock.advance(triedAt + 1_000 - clock.now() - 5)
    expect(seen).toEqual([0, 1])
    const joining = member().beforeJoin()
    await clock.advance(400)
    await joining
    // Others would begin with it, and not with the last one.
    expect(seen).toEqual([0, 1, 0])
    expect(cluster.committed.get(own)).toBe(2)
    await clock.advance(500)
    expect(seen).toEqual([0, 1, 0])
    member().joined([own])
    await clock.advance(100)
    expect(seen).toEqual([0, 1, 0, 2])
  })

  test('an assignment counts although an earlier join still waits for handlers', async () => {
    const { cluster, clock, seen, finish, member } = await setup((fresh) => post(fresh, 0))
    const joining = member().beforeJoin()
    await clock.advance(50)
    // Another client of this process has joined meanwhile.
    member().joined([own])
    finish(0)
    await clock.advance(500)
    await joining
    post(cluster, 1)
    await clock.advance(1_000)
    expect(seen).toEqual([0, 1])
  })

  test('messages that wait while the group cannot be reached take no more memory the longer that lasts', async () => {
    /** The timers that a drain after an outage cancels: each of them keeps something. */
    async function cancelledAfter(outageMs: number): Promise<number> {
      const cluster = newCluster()
      const { clock } = cluster
      let cancelled = 0
      const after = clock.after.bind(clock)
      clock.after = (ms, run) => {
        const timer = after(ms, run)
        return { ...timer, cancel: () => (cancelled++, timer.cancel()) }
      }
      post(cluster, 0, { lane: 'A' })
      post(cluster, 1, { lane: 'A' })
      const { receiver } = await startProcess(cluster, (n) => {
        if (n === 0) throw new Retry(8_000)
      })
      await clock.advance(100)
      for (const one of cluster.consumers) one.isClosed = true
      cluster.asked = () => Promise.reject(new Error('Connection closed'))
      await clock.advance(10_000 + outageMs)
      const before = cancelled
      void receiver.drain({ deadlineMs: 1_000, handlerGraceMs: 0 })
      await clock.advance(5_000)
      return cancelled - before
    }
    expect(await cancelledAfter(20_000)).toBeLessThan((await cancelledAfter(5_000)) + 20)
  })

  test('a foreign record of bytes that are no text becomes a dead letter that the brokers accept', async () => {
    const { cluster, clock, receiver } = await setup((fresh) => {
      const key = Buffer.from('V')
      fresh.append({ topic: 'fleethook', partition: own, key, value: Buffer.alloc(900_000, 0xff), headers: new Map() })
      post(fresh, 1)
    })
    await clock.advance(1_500)
    let errors: readonly string[] | undefined
    void Array.fromAsync(receiver.deadLetters.list()).then((all) => (errors = all.map(({ error }) => error)))
    await clock.advance(2_000)
    expect(errors).toEqual(['The record at offset 0 of partition 1 is not a message of fleethook.'])
    expect(cluster.committed.get(own)).toBe(1)
  })

  test('a message that waits for half of the retention is a warning, and at four fifths an error', async () => {
    const { cluster, clock, logged, finish } = await setup()
    const ofRetention = (): readonly string[] => logged.filter((line) => line.includes('the oldest message'))
    const aged = (days: number): { receivedAt: number } => ({ receivedAt: clock.now() - days * dayMs })
    post(cluster, 1, aged(3))
    await clock.advance(10_500)
    expect(ofRetention()).toEqual([])
    post(cluster, 2, aged(4))
    finish(1)
    await clock.advance(21_000)
    expect(ofRetention()).toEqual(['warn: the oldest message has waited for half of the time that the topic keeps it'])
    post(cluster, 3, aged(6))
    await clock.advance(1_000)
    finish(2)
    await clock.advance(21_000)
    expect(ofRetention().slice(1)).toEqual([
      'error: the topic deletes the oldest message soon, and it is not handled yet',
    ])
  })

  test('positions that cannot be committed for a while are a warning', async () => {
    const { cluster, clock, logged, finish, member } = await setup((fresh) => post(fresh, 1))
    cluster.asked = (one) => (one === member() ? Promise.reject(new Error('Connection closed')) : undefined)
    finish(1)
    await clock.advance(5_000)
    expect(logged).toEqual([])
    await clock.advance(7_000)
    expect(logged).toEqual(['warn: positions could not be committed'])
  })

  test.each([
    ['fails', () => Promise.reject(new Error('Connection closed'))],
    ['never answers', () => new Promise<void>(() => {})],
  ])('a client that %s is replaced by the watchdog', async (_, fault) => {
    const { cluster, clock, seen, member } = await setup()
    const broken = cluster.consumers.filter((one) => one !== member())
    cluster.asked = (one) => (broken.includes(one) ? fault() : undefined)
    post(cluster, 1)
    await clock.advance(45_000)
    expect(seen).toEqual([1])
  })

  test('an outage costs no more the longer it lasts', async () => {
    const { cluster, clock, member } = await setup((fresh) => post(fresh, 1))
    let asked = 0
    cluster.asked = (one) => {
      if (one !== member()) asked += 1
      throw new Error('Connection closed')
    }
    const inTwentySeconds = async (): Promise<number> => {
      const before = asked
      await clock.advance(20_000)
      return asked - before
    }
    await clock.advance(12_000)
    const early = await inTwentySeconds()
    await clock.advance(60_000)
    expect(await inTwentySeconds()).toBeLessThanOrEqual(early + 2)
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
    const { cluster, clock, seen, logged } = await setup((fresh) => {
      fresh.assigned = [0, 1]
      fresh.logOf('fleethook', 0).leader = -1
      post(fresh, 1)
    })
    await clock.advance(1_000)
    expect(seen).toEqual([1])
    await clock.advance(20_000)
    expect(new Set(logged)).toEqual(new Set(['warn: the leaders of partitions could not be found']))
    post(cluster, 2, {}, 0)
    cluster.logOf('fleethook', 0).leader = 2
    await clock.advance(2_500)
    expect(seen).toEqual([1, 2])
  })
})

describe('a partition that leaves a process and comes back', () => {
  /** A receiver that handles one message at a time. */
  async function receiving(
    assigned: readonly number[],
    handle: (n: number, signal: AbortSignal) => Promise<void> | void,
  ) {
    const cluster = newCluster()
    cluster.assigned = assigned
    const process = await startProcess(cluster, handle, { concurrency: 1 })
    return { ...process, cluster, clock: cluster.clock }
  }

  test('has its messages handled in order, also those that waited behind one that could not start', async () => {
    const gate = gates()
    const seen: number[] = []
    const { cluster, clock, member } = await receiving([0, 1], (n) => {
      seen.push(n)
      return n >= 10 ? gate.wait(String(n)) : undefined
    })
    post(cluster, 10, { lane: 'B' }, 0)
    await clock.advance(1_000)
    for (const n of [1, 2, 3]) post(cluster, n, { lane: 'A' })
    await clock.advance(1_000)
    post(cluster, 11, { lane: 'C' }, 0)
    await clock.advance(1_000)
    const joining = member().beforeJoin()
    await clock.advance(100)
    // The claim of the first message now waits for the end of the join, and the partition leaves.
    gate.open('10')
    await clock.advance(100)
    await joining
    member().joined([0])
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
    const { cluster, clock, member, receiver } = await receiving([own], async (n, signal) => {
      seen.push(n)
      signal.addEventListener('abort', () => seen.push(-n))
      if (seen.length === 1) await gate.wait('first')
    })
    for (const n of [1, 2, 3]) post(cluster, n, { lane: 'A' })
    await clock.advance(1_000)
    expect(seen).toEqual([1])
    // The group has not heard from this process for too long.
    member().joined([])
    member().joined([own])
    await clock.advance(1_000)
    gate.open('first')
    await clock.advance(2_000)
    expect(seen).toEqual([1, -1, 1, 2, 3])
    expect(receiver.stats()).toMatchObject({ recovered: 6, handedOver: 3, handled: 3, lanes: 0, running: 0 })
    expect(cluster.committed.get(own)).toBe(3)
  })
})

test('a gap does not wait for the next message when the brokers confirm again', async () => {
  const { cluster, clock, receiver } = await setup()
  cluster.isAway = true
  const body = { vin: 'A', createdAt: '2024-02-24T04:58:44Z', state: 'online' }
  const answered = receiver.accept({ authorization: undefined, body })
  await clock.advance(12_000)
  expect((await answered).status).toBe(503)
  expect(gapsIn(cluster)).toEqual([])
  cluster.isAway = false
  await clock.advance(10_000)
  expect(gapsIn(cluster)).toMatchObject([{ reason: 'inbox_unavailable', missed: 1 }])
  expect(receiver.stats().openGaps).toBe(0)
  // Nothing is left to report.
  await clock.advance(10_000)
  expect(gapsIn(cluster)).toHaveLength(1)
})
