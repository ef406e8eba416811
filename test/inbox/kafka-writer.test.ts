import { describe, expect, test } from 'vitest'
import { type Client, Connector } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import type { Outgoing } from '../../adapters/inbox/kafka/records.ts'
import { type Append, Writer } from '../../adapters/inbox/kafka/writer.ts'
import { fakeClock } from '../../src/testing.ts'

/** What happens to one produce request. */
type Fate =
  | 'kept'
  | 'refused'
  | 'lost'
  | 'kept, answered with an error'
  | 'kept, answer lost'
  | 'too large'
  | 'not allowed'
  | 'hangs'

const codes: Readonly<Record<number, string>> = {
  6: 'NOT_LEADER_OR_FOLLOWER',
  10: 'MESSAGE_TOO_LARGE',
  20: 'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  29: 'TOPIC_AUTHORIZATION_FAILED',
}

/** A cluster of three brokers with the interface of the client that the writer uses. */
class Cluster {
  readonly logs = new Map<number, number[]>()
  readonly acks: unknown[] = []
  readonly batches: number[] = []
  /** Partitions with a request under way, and the number of times that one had two. */
  readonly #underWay = new Set<number>()
  overlaps = 0
  isAway = false
  readonly #fateOf: (numbers: readonly number[]) => Fate

  constructor(fateOf: (numbers: readonly number[]) => Fate = () => 'kept') {
    this.#fateOf = fateOf
  }

  async metadata({ topics }: { readonly topics: readonly string[] }): Promise<unknown> {
    if (this.isAway) throw away()
    const partitions = Array.from({ length: 6 }, (_, partition) => ({ leader: partition % 3 }))
    return { topics: new Map(topics.map((topic) => [topic, { partitions }])) }
  }

  async send({ messages, acks }: { readonly messages: readonly Outgoing[]; readonly acks?: number }): Promise<void> {
    this.acks.push(acks)
    this.batches.push(messages.length)
    const partitions = new Set(messages.map(({ partition }) => partition))
    for (const partition of partitions) {
      if (this.#underWay.has(partition)) this.overlaps += 1
      this.#underWay.add(partition)
    }
    await Promise.resolve()
    try {
      if (this.isAway) throw away()
      const fate = this.#fateOf(messages.map(numberOf))
      if (fate === 'hangs') await new Promise(() => {})
      if (fate.startsWith('kept'))
        for (const message of messages) {
          const log = this.logs.get(message.partition) ?? []
          this.logs.set(message.partition, log)
          log.push(numberOf(message))
        }
      const code = { refused: 6, 'kept, answered with an error': 20, 'too large': 10, 'not allowed': 29 }[
        fate as string
      ]
      if (code !== undefined) throw answered(code, partitions)
      if (fate === 'lost' || fate === 'kept, answer lost') throw away()
    } finally {
      for (const partition of partitions) this.#underWay.delete(partition)
    }
  }
}

const away = (): Error => Object.assign(new Error('Connection closed'), { code: 'PLT_KFK_NETWORK' })

function answered(errorCode: number, partitions: ReadonlySet<number>): Error {
  const partitionResponses = [...partitions].map((index) => ({ index, errorCode }))
  const apiId = codes[errorCode]
  return Object.assign(new AggregateError([Object.assign(new Error(apiId), { apiId })], 'Producing messages failed.'), {
    response: { responses: [{ name: 'fleethook', partitionResponses }] },
  })
}

const numberOf = ({ value }: Outgoing): number => Number(value?.toString())

function setup(cluster: Cluster, divert?: (partition: number, entries: readonly Append[]) => void) {
  class Producer {
    on(): void {}
    metadata = cluster.metadata.bind(cluster)
    send = cluster.send.bind(cluster)
    async close(): Promise<void> {}
  }
  const clock = fakeClock()
  const settings = readKafkaOptions({ brokers: ['b1:9092'], confirmMs: 2_000 })
  // The rest of the package is not used here.
  const client = { Producer, protocolErrorsCodesById: codes } as unknown as Client // oxlint-disable-line no-unsafe-type-assertion -- a stand-in with what the writer uses
  const connector = new Connector(client, settings)
  const writer = new Writer({
    connector,
    settings,
    clock,
    topics: ['fleethook', 'fleethook-life'],
    ...(divert === undefined ? {} : { divert }),
  })
  const append = (partition: number, number: number): Promise<void> => {
    const value = Buffer.from(String(number))
    const record = { topic: 'fleethook', partition, key: Buffer.from('VIN'), value, headers: new Map(), timestamp: 0n }
    return writer.append([record], 100, divert === undefined ? {} : { messages: [message(number)] })
  }
  /** Lets time pass until the promise settles. */
  async function settled<T>(promise: Promise<T>): Promise<PromiseSettledResult<T>> {
    let result: PromiseSettledResult<T> | undefined
    void Promise.allSettled([promise]).then(([one]) => {
      result = one
    })
    for (let round = 0; round < 10_000; round += 1) {
      if (result !== undefined) return result
      await clock.advance(20)
    }
    throw new Error('It does not settle.')
  }
  return { writer, append, clock, settled }
}

const message = (number: number) =>
  ({
    id: String(number),
    lane: 'VIN',
    receivedAt: 0,
    door: 'root',
    kind: 'wire',
    text: String(number),
    bytes: 1,
  }) as const

/** The numbers of a log without those that were there before. */
const firsts = (log: readonly number[] = []): readonly number[] => [...new Set(log)]

describe('the writer', () => {
  test('asks for all in-sync replicas in every request, and sends what came meanwhile together', async () => {
    const cluster = new Cluster()
    const { append, settled } = setup(cluster)
    await settled(Promise.all(Array.from({ length: 1_200 }, (_, n) => append(0, n))))
    expect(new Set(cluster.acks)).toEqual(new Set([-1]))
    expect(cluster.logs.get(0)).toEqual(Array.from({ length: 1_200 }, (_, n) => n))
    expect(Math.max(...cluster.batches)).toBe(500)
    expect(cluster.batches.length).toBeLessThan(6)
  })

  test('keeps the order of each partition through every fault, and loses nothing that it confirmed', async () => {
    const fates: readonly Fate[] = ['kept', 'refused', 'lost', 'kept, answered with an error', 'kept, answer lost']
    let seed = 7
    const cluster = new Cluster(() => fates[(seed = (seed * 48_271) % 2_147_483_647) % fates.length] ?? 'kept')
    const { append, clock, settled } = setup(cluster)
    const appended: Promise<void>[] = []
    for (let n = 0; n < 600; n += 1) {
      appended.push(append(n % 6, n))
      appended.at(-1)?.catch(() => {})
      if (n % 7 === 0) await clock.advance(10)
    }
    const results = await settled(Promise.allSettled(appended))
    const all = results.status === 'fulfilled' ? results.value : []
    expect(all.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(300)
    expect(cluster.overlaps).toBe(0)
    for (let partition = 0; partition < 6; partition += 1) {
      const log = firsts(cluster.logs.get(partition))
      expect(log).toEqual([...log].sort((a, b) => a - b))
      for (const [n, { status }] of all.entries())
        if (n % 6 === partition && status === 'fulfilled') expect(log).toContain(n)
    }
  })

  test('a message that is not confirmed in time is given up, and the writer says when the brokers are back', async () => {
    const cluster = new Cluster()
    const { writer, append, clock, settled } = setup(cluster)
    await settled(append(0, 1))
    cluster.isAway = true
    const result = await settled(append(0, 2))
    expect(result).toMatchObject({ status: 'rejected', reason: { code: 'inbox_unavailable' } })
    expect(writer.failure?.code).toBe('inbox_unavailable')
    cluster.isAway = false
    await clock.advance(2_000)
    expect(writer.failure).toBeUndefined()
    expect(await settled(append(0, 3))).toMatchObject({ status: 'fulfilled' })
    expect(cluster.logs.get(0)).toEqual([1, 3])
  })

  test('a message that is too large is refused alone', async () => {
    const cluster = new Cluster((numbers) => (numbers.includes(2) ? 'too large' : 'kept'))
    const { append, settled } = setup(cluster)
    await settled(append(0, 0))
    const results = await settled(Promise.allSettled([1, 2, 3].map((n) => append(0, n))))
    expect(results.status === 'fulfilled' && results.value.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
    ])
    expect(cluster.logs.get(0)).toEqual([0, 1, 3])
  })

  test('what the user may not write is refused at once, with the reason', async () => {
    const cluster = new Cluster(() => 'not allowed')
    const { append, settled } = setup(cluster)
    expect(await settled(append(0, 1))).toMatchObject({
      status: 'rejected',
      reason: { message: 'The user may not do what this role needs: TOPIC_AUTHORIZATION_FAILED.' },
    })
    expect(cluster.batches).toEqual([1])
  })

  test('with a spool, the batch that is not confirmed and all behind it go there together, in order', async () => {
    const cluster = new Cluster((numbers) => (numbers.includes(1) ? 'hangs' : 'kept'))
    const diverted: string[] = []
    let times = 0
    const { append, settled, clock } = setup(cluster, (partition, entries) => {
      times += 1
      for (const { messages = [], resolve } of entries) {
        for (const { id } of messages) diverted.push(`${partition}: ${id}`)
        resolve()
      }
    })
    await settled(append(0, 0))
    const first = append(0, 1)
    await clock.advance(500)
    const behind = [append(0, 2), append(0, 3)]
    const other = append(1, 4)
    expect(await settled(Promise.all([first, ...behind, other]))).toMatchObject({ status: 'fulfilled' })
    expect(diverted).toEqual(['0: 1', '0: 2', '0: 3'])
    expect(cluster.logs.get(1)).toEqual([4])
    // While their request still hangs, there is nothing left to divert.
    await clock.advance(1_000)
    expect(times).toBe(1)
  })

  test('what may not be written to another topic does not make the receiver unhealthy', async () => {
    const { writer, settled } = setup(new Cluster(() => 'not allowed'))
    const record = { topic: 'fleethook-life', partition: 0, key: Buffer.from('w'), headers: new Map(), timestamp: 0n }
    expect(await settled(writer.append([record], 100))).toMatchObject({ status: 'rejected' })
    expect(writer.failure).toBeUndefined()
  })

  test('closed, it refuses what comes and what waits', async () => {
    const cluster = new Cluster(() => 'hangs')
    const { writer, append, settled } = setup(cluster)
    const waiting = append(0, 1)
    waiting.catch(() => {})
    await writer.close()
    expect(await settled(waiting)).toMatchObject({ status: 'rejected', reason: { code: 'inbox_unavailable' } })
    expect(await settled(append(0, 2))).toMatchObject({ status: 'rejected' })
  })
})
