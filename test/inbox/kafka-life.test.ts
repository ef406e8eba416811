import type { InboxGap, KeptGap } from 'fleethook/extend'
import { afterEach, describe, expect, test } from 'vitest'
import { TopicSigns } from '../../adapters/inbox/kafka/life.ts'
import { Life, type Sign } from '../../adapters/inbox/signs-of-life.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { FakeCluster } from './kafka-cluster.ts'

interface Way {
  /** Signs of other receivers from before. */
  readonly before?: (sign: LeaveSign, clock: FakeClock) => Promise<void> | void
  readonly openGaps?: readonly KeptGap[]
  readonly earlier?: readonly InboxGap[]
  readonly isExpected?: boolean
  /** For how long it has listened before its first sign, in milliseconds. */
  readonly listenedMs?: number
  readonly prepare?: (cluster: FakeCluster) => void
}

type LeaveSign = (name: string, content?: Partial<Sign>) => void

const lives: Life[] = []
const hourMs = 3_600_000

function signOf(cluster: FakeCluster): LeaveSign {
  return (name, content) =>
    cluster.append({
      ...{ topic: 'fleethook-life', partition: 0, key: Buffer.from(name), headers: new Map() },
      value: Buffer.from(
        JSON.stringify({ isClosed: false, isAccounted: true, agoMs: 0, listeningMs: 0, gaps: [], ...content }),
      ),
    })
}

async function setup({ before, openGaps = [], earlier = [], isExpected = false, listenedMs = 0, prepare }: Way = {}) {
  const clock = fakeClock()
  const cluster = new FakeCluster(clock)
  await before?.(signOf(cluster), clock)
  const gaps: InboxGap[] = []
  const logged: string[] = []
  const note = (line: string): void => void logged.push(line)
  const startedMs = clock.now()
  let notListeningMs = (): number => 0
  const { connector, settings } = cluster
  const signs = new TopicSigns({ connector, settings, writer: cluster.writer(), me: 'own' })
  const life = new Life({
    ...{ clock, signs, earlier, openGaps: () => [...openGaps, ...gaps.map(kept)] },
    log: { debug: note, info: note, warn: note, error: note },
    onGap: (gap) => void gaps.push(gap),
    onSigned: () => note('signed'),
    onAccounted: () => {},
    notListeningMs: () => notListeningMs(),
    listeningMs: () => listenedMs + clock.now() - startedMs,
  })
  lives.push(life)
  prepare?.(cluster)
  life.start(isExpected)
  await clock.advance(100)
  const stopListening = (): void => {
    const closedAt = clock.now()
    notListeningMs = () => clock.now() - closedAt
  }
  return { cluster, clock, gaps, logged, life, stopListening }
}

const kept = (gap: InboxGap): KeptGap => ({ ...gap, toMs: gap.toMs ?? 0, missed: gap.missed ?? 0 })

/** The last signs of all receivers, by name. `undefined`: deleted. */
function signsOf(cluster: FakeCluster): ReadonlyMap<string, Sign | undefined> {
  return new Map(
    cluster
      .logOf('fleethook-life')
      .records.map(({ key, value }) => [key.toString(), value === null ? undefined : JSON.parse(value.toString())]),
  )
}

afterEach(async () => {
  for (const life of lives.splice(0)) void life.close()
})

describe('signs of life', () => {
  test('the first receiver of all reports no gap, and the time in which its old inbox was down', async () => {
    expect((await setup()).gaps).toEqual([])
    const stopped = { reason: 'stopped', fromMs: 1_000 } as const
    const { gaps, clock } = await setup({ earlier: [stopped] })
    expect(gaps).toEqual([{ ...stopped, toMs: clock.now() - 100 }])
    expect((await setup({ earlier: [stopped], isExpected: true })).gaps).toEqual([])
  })

  test('a stop of the old inbox is no gap while others have listened', async () => {
    const earlier: readonly InboxGap[] = [{ reason: 'stopped', fromMs: 1_000 }]
    const { gaps, cluster, clock } = await setup({ earlier, before: (sign) => sign('other') })
    await clock.advance(3_000)
    signOf(cluster)('other')
    await clock.advance(14_000)
    expect(gaps).toEqual([])
  })

  test('the gap after a stop begins when the sockets were closed, which is before the last sign', async () => {
    let untilMs = 0
    const { gaps } = await setup({
      async before(sign, { advance, now }) {
        sign('other')
        untilMs = now() + 500
        await advance(2_000)
        sign('other', { isClosed: true, agoMs: 1_500 })
        await advance(hourMs)
      },
    })
    expect(gaps).toEqual([expect.objectContaining({ reason: 'stopped', fromMs: untilMs })])
  })

  test('a receiver that still drains when the next one starts had stopped listening before: that is a gap', async () => {
    let untilMs = 0
    const { gaps, cluster, clock } = await setup({
      async before(sign, { advance, now }) {
        sign('other')
        untilMs = now() + 500
        await advance(2_000)
      },
    })
    const ago = (): { agoMs: number } => ({ agoMs: clock.now() - untilMs })
    signOf(cluster)('other', ago())
    await clock.advance(1_000)
    signOf(cluster)('other', { isClosed: true, ...ago() })
    await clock.advance(20_000)
    expect(gaps).toEqual([expect.objectContaining({ reason: 'stopped', fromMs: untilMs })])
  })

  test('the signs of a receiver that stops say for how long it has not listened', async () => {
    const { cluster, clock, life, stopListening } = await setup()
    stopListening()
    await clock.advance(5_000)
    expect(signsOf(cluster).get('own')).toMatchObject({ isClosed: false, agoMs: 4_900 })
    await clock.advance(1_000)
    await life.close()
    expect(signsOf(cluster).get('own')).toMatchObject({ isClosed: true, agoMs: 6_000 })
  })

  test('a receiver that crashed before it had reported the gap before it leaves that gap to the next one', async () => {
    let times: readonly number[] = []
    const { gaps, clock } = await setup({
      async before(sign, { advance, now }) {
        sign('first', { isClosed: true })
        const stoppedAt = now()
        await advance(hourMs)
        sign('second', { isAccounted: false })
        times = [stoppedAt, now()]
        await advance(8_000)
      },
    })
    const startedAt = clock.now() - 100
    // It may still live.
    expect(gaps).toEqual([])
    await clock.advance(16_000)
    const [stoppedAt, crashedAt] = times
    expect(gaps).toEqual([
      { reason: 'stopped', fromMs: stoppedAt, toMs: crashedAt },
      { reason: 'restarted', fromMs: crashedAt, toMs: startedAt },
    ])
  })

  test('receivers that replace each other faster than they report leave no gap', async () => {
    const { gaps, cluster, clock } = await setup({
      async before(sign, { advance }) {
        sign('first')
        await advance(500)
        sign('second', { isAccounted: false })
        await advance(500)
        sign('first', { isClosed: true })
        await advance(4_500)
        sign('second', { isAccounted: false })
        await advance(4_500)
      },
    })
    await clock.advance(1_000)
    signOf(cluster)('second', { isClosed: true, isAccounted: false })
    await clock.advance(16_000)
    expect(gaps).toEqual([])
  })

  test('signs that cannot be read are read again, and the gap is reported once', async () => {
    let isBroken = true
    const { gaps, clock, logged } = await setup({
      async before(sign, { advance }) {
        sign('first', { isClosed: true })
        await advance(hourMs)
      },
      prepare(cluster) {
        cluster.asked = () => (isBroken ? Promise.reject(new Error('Connection closed')) : undefined)
      },
    })
    await clock.advance(6_000)
    expect(gaps).toEqual([])
    expect(logged).toContain('signs of life could not be written or read')
    isBroken = false
    await clock.advance(30_000)
    expect(gaps.map(({ reason }) => reason)).toEqual(['stopped'])
  })

  test('gaps of a receiver that ended are in a sign of this one before its own are deleted', async () => {
    const gap: KeptGap = { reason: 'inbox_unavailable', vin: 'V1', fromMs: 1, toMs: 2, missed: 3 }
    const { gaps, cluster } = await setup({
      async before(sign, { advance }) {
        sign('first', { isClosed: true, gaps: [gap] })
        await advance(20_000)
      },
    })
    expect(gaps).toContainEqual(gap)
    expect(signsOf(cluster).get('first')).toBeUndefined()
    const records = cluster.logOf('fleethook-life').records
    const tombstone = records.findIndex(({ value }) => value === null)
    expect(tombstone).toBeGreaterThan(0)
    expect(records[tombstone - 1]?.value?.toString()).toContain('"vin":"V1"')
  })

  test('more gaps than fit in a sign no longer say which vehicles they concern', async () => {
    const openGaps = Array.from({ length: 1_500 }, (_, n): KeptGap => ({
      ...{ reason: 'inbox_unavailable', vin: `V${n}`, fromMs: n, toMs: n + 1, missed: 2 },
    }))
    const { cluster } = await setup({ openGaps })
    const { gaps = [] } = signsOf(cluster).get('own') ?? {}
    expect(gaps.length).toBe(1_001)
    expect(gaps.at(-1)).toEqual({ reason: 'inbox_unavailable', fromMs: 1_000, toMs: 1_500, missed: 1_000 })
  })

  test('a receiver that closes while brokers do not answer does not wait for them', async () => {
    const { clock, life } = await setup({
      prepare(cluster) {
        cluster.asked = () => new Promise(() => {})
      },
    })
    let isClosed = false
    void life.close().then(() => (isClosed = true))
    await clock.advance(2_000)
    expect(isClosed).toBe(true)
  })

  test('says when the brokers have taken a sign, so that open gaps need not wait for a message', async () => {
    const { logged, clock } = await setup()
    await clock.advance(5_100)
    expect(logged).toEqual(['signed', 'signed'])
  })
})
