import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import { readMark, writeMark } from '../../adapters/inbox/kafka/ends.ts'
import {
  endProcesses,
  type FakeCluster,
  type KafkaProcess,
  newCluster,
  own as ownPartition,
  post,
  startProcess,
} from './kafka-cluster.ts'

const offset = fc.nat(60_000).map((n) => 1_000_000 + n)

describe('the metadata of a position', () => {
  test('says what it was given, from any position', () => {
    const mark = fc.record({
      owner: fc.constantFrom('a', 'b'),
      upTo: fc.constant(1_100_000),
      ends: fc.uniqueArray(fc.tuple(offset, fc.integer({ min: 2, max: 4 })), {
        selector: ([at]) => at,
        maxLength: 60,
      }),
      hand: fc.uniqueArray(offset, { maxLength: 60 }),
    })
    fc.assert(
      fc.property(mark, fc.integer({ min: 900_000, max: 1_000_000 }), ({ ends, hand, ...rest }, position) => {
        const text = writeMark({ ...rest, ends: new Map(ends), hand }, position)
        const { ends: read, ...others } = readMark(text, position)
        const sorted = (list: readonly number[]): number[] => list.toSorted((one, other) => one - other)
        expect({ ...others, hand: sorted(others.hand) }).toEqual({ ...rest, hand: sorted(hand) })
        expect(new Map(read)).toEqual(new Map(ends))
      }),
    )
  })

  test('is never longer than brokers accept, and keeps the messages that ended the most processes', () => {
    const ends = new Map(Array.from({ length: 2_000 }, (_, n) => [n * 7, n === 1_500 ? 3 : 2]))
    const hand = [...ends.keys()]
    const text = writeMark({ owner: 'a', upTo: 20_000, ends, hand }, 0)
    expect(text.length).toBeLessThanOrEqual(1_000)
    const read = readMark(text, 0)
    expect(read.ends.get(1_500 * 7)).toBe(3)
    expect(read.hand).toContain(1_500 * 7)
    expect(read.hand.length).toBeGreaterThan(100)
  })

  test.each(['', 'x', '{}', 'null', '[]', '{"hand":3}'])('that says %j is no mark', (text) => {
    expect(readMark(text, 0)).toEqual({ upTo: -1, ends: new Map(), hand: [] })
  })
})

afterEach(endProcesses)

/** Handlers of messages with these numbers never return. Those that `ends` names end their process at once. */
function createGroup(stuck: (n: number) => boolean, ends: (n: number) => boolean = stuck, concurrency = 4) {
  const cluster = newCluster()
  /** The messages whose handlers began, in each process. */
  const runs: number[][] = []
  return {
    cluster,
    runs,
    async start() {
      const own: number[] = []
      runs.push(own)
      const handle = async (n: number): Promise<void> => {
        own.push(n)
        if (ends(n)) process.crash()
        if (stuck(n)) await new Promise<void>(() => {})
      }
      const process = await startProcess(cluster, handle, { concurrency })
      await cluster.clock.advance(2_500)
      return process
    },
  }
}

/** The dead letters, with the time that reading them takes. */
async function lettersOf({ receiver }: KafkaProcess, { clock }: FakeCluster): Promise<readonly string[]> {
  const letters: string[] = []
  let isRead = false
  void Array.fromAsync(receiver.deadLetters.list()).then((all) => {
    for (const { event, error } of all) letters.push(`${Object(event).raw?.n}: ${error}`)
    isRead = true
  })
  for (let round = 0; round < 100 && !isRead; round += 1) await clock.advance(100)
  return letters
}

describe('a message during which processes end', () => {
  test('runs alone after two, and is a dead letter after three', async () => {
    const group = createGroup((n) => n === 3)
    for (const n of [1, 2, 3, 4, 5]) post(group.cluster, n)
    for (let n = 0; n < 3; n += 1) (await group.start()).crash()
    const last = await group.start()
    await group.cluster.clock.advance(2_000)
    expect(group.runs[0]).toContain(3)
    expect(group.runs[1]).toContain(3)
    expect(group.runs[2]?.at(-1)).toBe(3)
    expect(group.runs[3]).not.toContain(3)
    expect(await lettersOf(last, group.cluster)).toEqual([
      '3: 3 processes ended while they handled it, and it may be the reason.',
    ])
    expect(group.cluster.committed.get(ownPartition)).toBe(5)
  })

  test('is counted although it is far behind a message that never ends and keeps the position', async () => {
    const group = createGroup(
      (n) => n === 0 || n === 250,
      (n) => n === 250,
      1_000,
    )
    for (const n of Array.from({ length: 300 }, (_, n) => n)) post(group.cluster, n)
    for (let n = 0; n < 2; n += 1) (await group.start()).crash()
    // Now 0 and 250 run alone, one after the other.
    const third = await group.start()
    expect(group.runs[2]?.slice(0, 1)).toEqual([0])
    third.crash()
    const fourth = await group.start()
    expect(group.runs[3]).toContain(250)
    fourth.crash()
    const last = await group.start()
    await group.cluster.clock.advance(2_000)
    expect((await lettersOf(last, group.cluster)).map((text) => text.split(':')[0])).toEqual(['0', '250'])
  })

  test('is counted by stops and rebalances neither, nor by the same process', async () => {
    const group = createGroup(
      (n) => n === 1,
      () => false,
    )
    const { clock } = group.cluster
    post(group.cluster, 1)
    for (let n = 0; n < 4; n += 1) {
      const one = await group.start()
      expect(group.runs.at(-1)).toEqual([1])
      // The group hears nothing from it for a while, and it joins as another member.
      one.member().joined([])
      one.member().joined([ownPartition])
      await clock.advance(1_000)
      expect(group.runs.at(-1)).toEqual([1, 1])
      if (n === 0) {
        const draining = one.receiver.drain({ deadlineMs: 500, handlerGraceMs: 100 })
        await clock.advance(3_000)
        await draining
      } else {
        // Another process joins, and this one waits for its handler in vain.
        const joining = one.member().beforeJoin()
        await clock.advance(7_500)
        await joining
      }
      one.crash()
    }
    const last = await group.start()
    await clock.advance(1_000)
    expect(await lettersOf(last, group.cluster)).toEqual([])
    expect(group.runs.at(-1)).toEqual([1])
  })

  test('starts only when the group knows, and in normal work no message costs a commit', async () => {
    const group = createGroup(() => false)
    const { cluster, runs } = group
    let commits = 0
    cluster.asked = (one) => {
      if (one.listenerCount('consumer:group:join') === 0) return
      if (isAway) throw new Error('Connection closed')
      commits += 1
    }
    let isAway = true
    post(group.cluster, 1)
    await group.start()
    expect(runs[0]).toEqual([])
    isAway = false
    await cluster.clock.advance(1_000)
    expect(runs[0]).toEqual([1])
    commits = 0
    for (let n = 2; n < 500; n += 1) post(cluster, n)
    await cluster.clock.advance(2_000)
    expect(runs[0]?.length).toBe(499)
    expect(commits).toBeLessThanOrEqual(3)
  })
})
