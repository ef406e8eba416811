/* What operators see: replays, gaps, the file over a restart, clear errors, and the topics that the command line makes. */
import { spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../src/index.ts'
import { ofFile } from '../of-file.ts'
import { startBrokers } from './brokers.ts'
import { createProxy, type Proxy } from './proxy.ts'
import { count, numbersOf, receiversOn, type Way } from './receivers.ts'
import { addPartitions, createAdmin, ledBy, placeReplicas } from './topics.ts'
import { newFolder } from '../folder.ts'

const proxy: Proxy = createProxy()
const folder = newFolder('operations')
const brokers = ofFile(() =>
  startBrokers({
    proxied: (port, listener) => (listener === 'first' ? proxy.before(port) : Promise.resolve(port)),
  }),
)
afterAll(() => proxy[Symbol.asyncDispose]())

const partitions = 6
const patience = { timeout: 60_000, interval: 50 }
const { create, run, newTopic } = receiversOn(() => brokers, partitions)

describe('replays', () => {
  test('handled messages of a time range run again, each once and in order, with the same ids', async () => {
    const topic = await newTopic()
    await using one = await run({ topic })
    const from = new Date()
    for (const n of count(60)) expect(await one.post(`V${n % 6}`, n)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(60)
    // Positions are committed every second, and only committed messages count as handled.
    const counted = (): Promise<number> => one.receiver.replay({ from, to: new Date(), dryRun: true })
    await expect.poll(counted, patience).toBe(60)
    const to = new Date()
    const ids = new Set(one.runs.map(({ id }) => id))
    expect(await one.receiver.replay({ from, to, dryRun: true })).toBe(60)
    expect(await one.receiver.replay({ from, to, vin: 'V3' })).toBe(10)
    await expect.poll(() => one.runs.length, patience).toBe(70)
    expect(await one.receiver.replay({ from, to })).toBe(60)
    await expect.poll(() => one.runs.length, patience).toBe(130)
    const again = one.runs.filter(({ replayed }) => replayed)
    expect(again.length).toBe(70)
    expect(again.every(({ id }) => ids.has(id))).toBe(true)
    const numbers = again
      .slice(10)
      .filter(({ vin }) => vin === 'V2')
      .map(({ number }) => number)
    expect(numbers).toEqual(count(60).filter((n) => n % 6 === 2))
    expect(await one.receiver.replay({ from: to, to: new Date() })).toBe(0)
  })

  test('dead letters of one process are listed and replayed by another one, which has no handlers', async () => {
    const topic = await newTopic()
    let isBroken = true
    // Not for every vehicle, because then the whole handler would rest.
    const handle = (vin: string): void => {
      if (isBroken && (vin === 'V1' || vin === 'V2')) throw new Error('It is broken.')
    }
    await using back = await run({ topic, role: 'handle', handle })
    await using front = await run({ topic, role: 'receive' })
    for (const n of count(30)) expect(await front.post(`V${n % 5}`, n)).toBe(200)
    const { deadLetters } = front.receiver
    await expect.poll(async () => (await Array.fromAsync(deadLetters.list())).length, patience).toBe(12)
    isBroken = false
    expect(await deadLetters.replay({})).toBe(12)
    await expect.poll(() => back.runs.filter(({ replayed }) => replayed).length, patience).toBe(12)
    const replayed = back.runs.filter(({ replayed, vin }) => replayed && vin === 'V1').map(({ number }) => number)
    expect(replayed).toEqual(count(30).filter((n) => n % 5 === 1))
    expect(await Array.fromAsync(deadLetters.list())).toEqual([])
  })

  test('messages that die again while they are replayed stay dead letters', async () => {
    const topic = await newTopic()
    let isBroken = true
    const handle = (): void => {
      if (isBroken) throw new Error('It is broken.')
    }
    await using one = await run({ topic, handle })
    const { deadLetters } = one.receiver
    const ids = async (): Promise<ReadonlySet<string>> =>
      new Set((await Array.fromAsync(deadLetters.list())).map(({ id }) => id))
    for (const n of count(200)) expect(await one.post(`V${n % 4}`, n)).toBe(200)
    await expect.poll(async () => (await ids()).size, patience).toBe(200)
    for (const round of count(5)) {
      expect(await deadLetters.replay({})).toBe(200)
      await expect.poll(() => one.runs.length, patience).toBe(200 * (round + 2))
      await expect.poll(async () => (await ids()).size, patience).toBe(200)
    }
    isBroken = false
    expect(await deadLetters.replay({})).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(1_400)
    expect(await ids()).toEqual(new Set())
  })

  test('dead letters from before the topics got more partitions are discarded and replayed once', async () => {
    const topic = await newTopic()
    const broken = (): void => {
      throw new Error('It is broken.')
    }
    {
      await using one = await run({ topic, handle: broken })
      for (const n of count(40)) expect(await one.post(`V${n % 4}`, n)).toBe(200)
      await expect.poll(async () => (await Array.fromAsync(one.receiver.deadLetters.list())).length, patience).toBe(40)
    }
    const more = 4 * partitions
    for (const name of [topic, `${topic}-dead`]) await addPartitions(brokers.addresses, name, more)
    {
      await using one = await run({ topic, partitions: more })
      expect(await one.receiver.deadLetters.discard({ vin: 'V0' })).toBe(10)
      expect(await one.receiver.deadLetters.replay({})).toBe(30)
      await expect.poll(() => one.runs.length, patience).toBe(30)
      expect(numbersOf(one, 'V1')).toEqual(count(40).filter((n) => n % 4 === 1))
    }
    // A process that reads the topic for the first time finds none of them.
    await using other = await run({ topic, partitions: more, role: 'receive' })
    expect(await Array.fromAsync(other.receiver.deadLetters.list())).toEqual([])
  })
})

test('a receiver reports the lag of the whole group, and whether anybody handles', async () => {
  const topic = await newTopic()
  const groupId = `group-${topic}`
  await using receiving = await run({ topic, groupId, role: 'receive' })
  for (const n of count(12)) expect(await receiving.post(`V${n % 6}`, n)).toBe(200)
  const backlog = (): unknown => receiving.receiver.stats().backlog
  await expect.poll(backlog, patience).toEqual({ messages: 12, processes: 0 })
  await using handling = await run({ topic, groupId, role: 'handle' })
  await expect.poll(backlog, patience).toEqual({ messages: 0, processes: 1 })
  await expect.poll(() => handling.receiver.stats().backlog, patience).toMatchObject({ processes: 1 })
  await expect(receiving.receiver.forget('V1')).rejects.toMatchObject({ code: 'inbox_unsupported' })
  await expect(receiving.receiver.failing()).rejects.toMatchObject({ code: 'inbox_unsupported' })
}, 120_000)

describe('gaps', () => {
  test('messages that retention deleted before they were handled are a gap, and the rest is handled', async () => {
    const topic = await newTopic()
    await using front = await run({ topic, role: 'receive' })
    {
      await using first = await run({ topic, role: 'handle' })
      expect(await front.post('V1', 0)).toBe(200)
      await expect.poll(() => first.runs.length, patience).toBe(1)
    }
    for (const n of count(20)) expect(await front.post('V1', 1 + n)).toBe(200)
    const admin = createAdmin(brokers.addresses)
    try {
      const ends = await admin.listOffsets({
        topics: [
          { name: topic, partitions: count(partitions).map((partitionIndex) => ({ partitionIndex, timestamp: -1n })) },
        ],
      })
      const cut = ends[0]?.partitions.flatMap(({ partitionIndex, offset }) =>
        offset < 20n ? [] : [{ partition: partitionIndex, offset: offset - 5n }],
      )
      await admin.deleteRecords({ topics: [{ name: topic, partitions: cut ?? [] }] })
    } finally {
      await admin.close()
    }
    await using second = await run({ topic, role: 'handle' })
    await expect.poll(() => numbersOf(second, 'V1'), patience).toEqual([16, 17, 18, 19, 20])
    await expect
      .poll(() => second.gaps.map(({ reason, missed }) => [reason, missed]), patience)
      .toEqual([['inbox_expired', 15]])
  })

  test('a message that is posted to a process with the role handle is refused, and in a gap', async () => {
    const topic = await newTopic()
    await using front = await run({ topic, role: 'receive' })
    await using back = await run({ topic, role: 'handle' })
    expect(await back.post('V1', 1)).toBe(503)
    expect(await front.post('V2', 2)).toBe(200)
    await expect.poll(() => back.runs.length, patience).toBe(1)
    await expect
      .poll(() => back.gaps.map(({ reason, vin, missed }) => [reason, vin, missed]), patience)
      .toEqual([['inbox_unavailable', 'V1', 1]])
  })

  test('the time between a receiver with SQLite and the first receiver on Kafka is a gap', async () => {
    const topic = await newTopic()
    const path = join(folder, `${topic}.db`)
    const old = createReceiver({ secret: false, inbox: sqliteInbox({ path }) })
    await old.open()
    await old.drain({ deadlineMs: 1_000 })
    const stoppedAt = Date.now()
    await new Promise((resolve) => setTimeout(resolve, 500))
    const restartedAt = Date.now()
    await using one = await run({ topic, meanwhile: sqliteInbox({ path }) })
    await expect.poll(() => one.gaps.map(({ reason }) => reason), patience).toEqual(['stopped'])
    const [gap] = one.gaps
    expect(gap?.from.getTime()).toBeLessThanOrEqual(stoppedAt)
    expect(gap?.to.getTime()).toBeGreaterThanOrEqual(restartedAt)
  })

  test('the time in which no receiver listened is a gap', async () => {
    const topic = await newTopic()
    await using back = await run({ topic, role: 'handle' })
    const startedAt = Date.now()
    {
      await using first = await run({ topic, role: 'receive' })
      expect(await first.post('V1', 1)).toBe(200)
      await new Promise((resolve) => setTimeout(resolve, 1_000))
    }
    const stoppedAt = Date.now()
    await new Promise((resolve) => setTimeout(resolve, 2_000))
    {
      // It counts what a replay would handle, and does not listen.
      await using operator = create({ topic, role: 'receive' })
      const range = { from: new Date(startedAt), to: new Date(stoppedAt) }
      // The position may not be committed yet.
      await expect.poll(() => operator.receiver.replay({ ...range, dryRun: true }), patience).toBe(1)
    }
    const restartedAt = Date.now()
    await using second = await run({ topic, role: 'receive' })
    expect(await second.post('V1', 2)).toBe(200)
    await expect.poll(() => back.gaps.map(({ reason }) => reason), patience).toEqual(['stopped'])
    const [gap] = back.gaps
    expect(gap?.from.getTime()).toBeGreaterThan(startedAt)
    expect(gap?.from.getTime()).toBeLessThanOrEqual(stoppedAt)
    expect(gap?.to.getTime()).toBeGreaterThanOrEqual(restartedAt)
  })
})

describe('the file in front of the brokers', () => {
  test('the file of an inbox in SQLite stands in front of the topic: what it had not handled comes before new messages', async () => {
    const topic = await newTopic()
    const inbox = (): ReturnType<typeof sqliteInbox> => sqliteInbox({ path: join(folder, `${topic}.db`) })
    const handle = (_vin: string, n: number): unknown => (n < 100 ? undefined : new Promise(() => {}))
    const old = await run({ topic, handle, options: { inbox: inbox(), concurrency: 10 } })
    for (const n of count(300)) expect(await old.post(`V${n % 10}`, n)).toBe(200)
    await expect.poll(() => old.receiver.stats().handled, patience).toBe(100)
    expect((await old.receiver.drain({ deadlineMs: 500, handlerGraceMs: 200 })).left).toBe(200)
    await using next = await run({ topic, meanwhile: inbox() })
    for (const n of count(50)) expect(await next.post(`V${n % 10}`, 300 + n)).toBe(200)
    const seen = (vin: string): readonly number[] => [...new Set([old, next].flatMap((one) => numbersOf(one, vin)))]
    const expected = count(10).map((vehicle) => count(350).filter((n) => n % 10 === vehicle))
    await expect.poll(() => count(10).map((vehicle) => seen(`V${vehicle}`)), patience).toEqual(expected)
  })

  test('messages go to the disk while no broker answers, and to the topic from the next process, in order', async () => {
    const topic = await newTopic()
    const file = { meanwhile: sqliteInbox({ path: join(folder, `${topic}.db`) }) }
    await using back = await run({ topic, role: 'handle', brokers: brokers.otherAddresses })
    const first = await run({ topic, role: 'receive', ...file })
    try {
      for (const n of count(10)) expect(await first.post(`V${n % 3}`, n)).toBe(200)
      proxy.cut()
      for (const n of count(20)) expect(await first.post(`V${n % 3}`, 10 + n)).toBe(200)
      expect(first.receiver.stats().inbox.meanwhile?.messages).toBeGreaterThan(0)
      expect(first.receiver.readiness()).toEqual({ ready: true })
    } finally {
      await first[Symbol.asyncDispose]()
    }
    // The cluster still cannot be reached when the next process starts.
    const other = { meanwhile: sqliteInbox({ path: join(folder, `${topic}.db`) }) }
    await using second = await run({ topic, role: 'receive', ...other })
    for (const n of count(10)) expect(await second.post(`V${n % 3}`, 30 + n)).toBe(200)
    proxy.heal()
    await expect.poll(() => new Set(back.runs.map(({ number }) => number)).size, patience).toBe(40)
    for (const vehicle of count(3)) {
      const firsts = [...new Set(numbersOf(back, `V${vehicle}`))]
      expect(firsts).toEqual(
        count(40).filter((n) => (n < 10 ? n % 3 : n < 30 ? (n - 10) % 3 : (n - 30) % 3) === vehicle),
      )
    }
    await expect.poll(() => second.receiver.stats().inbox.meanwhile?.messages, patience).toBe(0)
  })

  test('`fleethook move` takes the file of a process that does not come back to the topic, and what is there stays in order', async () => {
    const topic = await newTopic()
    const path = join(folder, `${topic}.db`)
    await using back = await run({ topic, role: 'handle', brokers: brokers.otherAddresses })
    const gone = await run({ topic, role: 'receive', meanwhile: sqliteInbox({ path }) })
    try {
      for (const n of count(6)) expect(await gone.post(`V${n % 3}`, n)).toBe(200)
      proxy.cut()
      for (const n of count(24)) expect(await gone.post(`V${n % 3}`, 6 + n)).toBe(200)
    } finally {
      await gone[Symbol.asyncDispose]()
      proxy.heal()
    }
    const main = join(import.meta.dirname, '../../adapters/cli/main.ts')
    const given = ['--brokers', brokers.otherAddresses.join(','), '--topic', topic, '--partitions', String(partitions)]
    const move = (): { readonly status: number | null; readonly said: unknown } => {
      const { status, stdout } = spawnSync(process.execPath, [main, 'move', path, ...given, '--json'], {
        encoding: 'utf8',
      })
      return { status, said: JSON.parse(stdout) }
    }
    const first = move()
    expect(first).toMatchObject({ status: 0, said: { topic } })
    expect(move()).toEqual({ status: 0, said: { topic, messages: 0 } })
    await expect.poll(() => new Set(back.runs.map(({ number }) => number)).size, patience).toBe(30)
    for (const vehicle of count(3))
      expect([...new Set(numbersOf(back, `V${vehicle}`))]).toEqual(count(30).filter((n) => n % 3 === vehicle))
    expect(back.runs.length).toBe(30)
  })

  test('when the topic refuses a message because of its size, those behind it do not overtake those before it', async () => {
    const topic = await newTopic({ 'max.message.bytes': '200000' })
    await using back = await run({ topic, role: 'handle', brokers: brokers.otherAddresses })
    proxy.cut()
    // It starts without the cluster, so it does not know the limit of the topic.
    const file = { meanwhile: sqliteInbox({ path: join(folder, `${topic}.db`) }) }
    await using front = await run({ topic, role: 'receive', ...file })
    // The first two go into one request, and the others into the next.
    const posts = [0, 700_000, 150_000, 0].map((padding, number) => front.post('V1', number, padding))
    expect(await Promise.all(posts)).toEqual([200, 200, 200, 200])
    proxy.heal()
    await expect.poll(() => front.receiver.stats().inbox.meanwhile?.messages, patience).toBe(0)
    await expect.poll(() => numbersOf(back, 'V1'), patience).toEqual([0, 2, 3])
    expect(front.logged).toContain('the server refused an acknowledged message: it is a dead letter in the file')
  })
})

describe('what is wrong is one clear sentence', () => {
  const opened = (way: Partial<Way>): Promise<void> =>
    create({ topic: 'nowhere', confirmMs: 2_000, ...way }).receiver.open()

  test.each<readonly [what: string, way: () => Partial<Way>, said: object]>([
    [
      'a wrong address',
      () => ({ brokers: ['127.0.0.1:1'] }),
      { message: 'The broker 127.0.0.1:1 could not be reached: ECONNREFUSED.' },
    ],
    [
      'a missing topic',
      () => ({}),
      {
        message: expect.stringMatching(/^There is no topic nowhere/),
        hint: 'Create the topics: fleethook kafka topics --apply.',
      },
    ],
    ['TLS to brokers without TLS', () => ({ tls: true }), { message: expect.stringContaining('TLS') }],
    [
      'no login to brokers that require one',
      () => ({ brokers: brokers.addressesWithPassword }),
      { hint: 'They may want `tls` or `sasl`.' },
    ],
  ])('%s', async (_, way, said) => {
    await expect(opened(way())).rejects.toMatchObject({ code: 'inbox_unavailable', ...said })
  })

  test('a topic with too few replicas', async () => {
    const topic = await newTopic()
    const each = <Value>(value: Value): readonly Value[] => count(partitions).map(() => value)
    await placeReplicas(brokers.otherAddresses, topic, each([1, 2]))
    await ledBy(brokers.otherAddresses, topic, each(1))
    await expect(opened({ topic })).rejects.toMatchObject({
      code: 'option_invalid',
      message: `The topic ${topic} has 2 of the 3 replicas that keep a message safe.`,
    })
  })

  test('a topic that one broker alone may confirm, without `allowWeak`', async () => {
    const topic = await newTopic({ 'min.insync.replicas': '1' })
    await expect(opened({ topic })).rejects.toMatchObject({
      code: 'option_invalid',
      message: `The topic ${topic} has min.insync.replicas=1: one broker alone may confirm a message, and lose it.`,
    })
    await using weak = await run({ topic, allowWeak: true })
    expect(await weak.post('V1', 1)).toBe(200)
  })
})

describe('fleethook kafka topics', () => {
  const command = (
    ...args: readonly string[]
  ): { readonly status: number | null; readonly out: string; readonly error: string } => {
    const main = join(import.meta.dirname, '../../adapters/cli/main.ts')
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, 'kafka', 'topics', ...args], {
      encoding: 'utf8',
    })
    return { status, out: stdout, error: stderr }
  }

  test('creates topics that the inbox accepts, and leaves existing ones unchanged', async () => {
    const topic = `ops-${randomUUID().slice(0, 8)}`
    const given = ['--brokers', brokers.otherAddresses.join(','), '--topic', topic, '--partitions', String(partitions)]
    expect(command(...given)).toMatchObject({ status: 0, out: expect.stringContaining('min.insync.replicas') })
    const first = command(...given, '--apply')
    expect(first).toMatchObject({ status: 0, error: '' })
    expect(first.out).toContain(`${topic}-dead: created`)
    // The settings of its plan need not be its own.
    expect(
      command(...given, '--apply')
        .out.split('\n')
        .at(-2),
    ).toBe(`${topic}-life: exists, with the settings that it has`)
    await using one = await run({ topic })
    expect(await one.post('V1', 1)).toBe(200)
    await expect.poll(() => one.runs.length, patience).toBe(1)
  })

  test('says what is wrong', () => {
    expect(command('--apply', '--brokers', '127.0.0.1:1')).toMatchObject({
      status: 1,
      error: expect.stringContaining('The broker 127.0.0.1:1 could not be reached: ECONNREFUSED.'),
    })
    expect(command('--brokers', 'nonsense').error).toContain('must be a list of addresses such as b1:9092')
  })
})
