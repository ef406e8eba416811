/* A file in front of a server that several processes share: it keeps messages while the server does not take them. */
import { createReceiver, FleethookError, memoryInbox } from 'fleethook'
import { type InboxFactory, type InboxMessage, type Inbox, Window } from 'fleethook/extend'
import { kafkaInbox } from 'fleethook/inbox/kafka'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { partitionOf } from '../../adapters/inbox/kafka/records.ts'
import { Meanwhile } from '../../adapters/inbox/meanwhile.ts'
import type { Moved, Server } from '../../adapters/inbox/meanwhile/way.ts'
import { fakeClock } from '../../src/testing.ts'
import { archiveOf, id, lettersIn, message } from '../../src/testing/kept-message.ts'
import { data } from '../dispatch/scene.ts'
import { silent } from '../vehicles/scene.ts'
import { clientOf, FakeCluster } from './kafka-cluster.ts'
import { settingsOf } from './sqlite-settings.ts'
import { type Disk, disk, type Faults, storedInbox } from './stored-inbox.ts'

/** An inbox in a file, as far as the option looks. */
function fileOn(on: Disk, faults: Faults = {}): InboxFactory {
  const create = storedInbox(on, faults)
  const factory: InboxFactory = (settings) => {
    const inbox = create(settings)
    const { waiting } = inbox as Inbox & {
      waiting: (after?: string) => ReturnType<Window<InboxMessage>['put']> & never
    }
    return Object.assign(inbox, { window: ((host) => new Window(host, waiting)) satisfies Inbox['window'] })
  }
  return Object.assign(factory, { file: '/data/meanwhile.db' })
}

/** What the server does with what it is given. */
type Fate = 'takes' | 'hangs' | 'takes, and the answer is lost' | FleethookError

const away = new FleethookError('inbox_unavailable', 'Nothing listens.')

/** A server whose answers the test chooses, and a file in front of it. */
async function scene({ on = disk(), faults = {}, tookMs = 0 }: { on?: Disk; faults?: Faults; tookMs?: number } = {}) {
  const clock = fakeClock()
  const { settings, reported } = settingsOf({ clock })
  /** The ids of each request that the server took, with those that it had already. */
  const requests: (readonly string[])[] = []
  const kept = new Map<string, InboxMessage>()
  const replayed: string[] = []
  const made = { fate: 'takes' as Fate | ((messages: readonly InboxMessage[]) => Fate), tookMs }
  let waiting: (() => void)[] = []
  const server: Server = {
    name: 'Postgres',
    wayOf: (lane) => (lane === 'OTHER' ? 1 : 0),
    async put(messages, moved?: Moved) {
      const fate = typeof made.fate === 'function' ? made.fate(messages) : made.fate
      if (made.tookMs > 0) await new Promise<void>((resolve) => void clock.after(made.tookMs, resolve))
      if (fate instanceof FleethookError) throw fate
      if (fate !== 'hangs') {
        requests.push(messages.map((one) => one.id))
        for (const one of messages) if (!kept.has(one.id)) kept.set(one.id, one)
        if (moved?.isReplayed === true) replayed.push(...messages.map((one) => one.id))
      }
      if (fate === 'takes') return
      await new Promise<void>((_, reject) => {
        const give = (): void => reject(away)
        waiting.push(give)
        clock.after(4_000, give)
      })
    },
    takeBack() {
      for (const give of waiting) give()
      waiting = []
    },
  }
  const meanwhile = new Meanwhile(fileOn(on, faults), settings, server)
  await meanwhile.open()
  const begun = meanwhile.begin()
  await clock.advance(0)
  await begun
  return {
    meanwhile,
    clock,
    made,
    requests,
    reported,
    on,
    replayed,
    kept: () => [...kept.keys()],
    put: (...numbers: readonly number[]) => meanwhile.put(numbers.map((n) => message(n))),
  }
}

const ids = (from: number, to: number): readonly string[] => Array.from({ length: to - from }, (_, n) => id(from + n))

describe('while the server takes messages', () => {
  test('the file keeps none, and no line is logged', async () => {
    const { put, clock, kept, on, reported, meanwhile } = await scene()
    for (let n = 0; n < 10; n += 1) await put(n)
    await clock.advance(120_000)
    expect(kept()).toEqual(ids(0, 10))
    expect([on.lastId, reported.log, meanwhile.stats().awayMs]).toEqual([undefined, [], undefined])
  })

  test('what it refuses for what it contains is refused, and nothing else goes to the file', async () => {
    const { put, made, on } = await scene()
    made.fate = new FleethookError('body_too_large', 'Too large.')
    await expect(put(0)).rejects.toMatchObject({ code: 'body_too_large' })
    made.fate = 'takes'
    await put(1)
    expect(on.lastId).toBeUndefined()
  })
})

describe('while the server does not take a message within a second', () => {
  test.each(['hangs', 'takes, and the answer is lost'] as const)(
    'the file keeps it and those behind it, and they move on in order, each once (%s)',
    async (fate) => {
      const { put, made, clock, kept, on, meanwhile, reported } = await scene()
      await put(0)
      made.fate = fate
      const answers = [put(1), put(2)]
      await clock.advance(900)
      expect(on.messages.size).toBe(0)
      await clock.advance(200)
      await Promise.all(answers)
      await put(3)
      expect([...on.messages.keys()]).toEqual(ids(1, 4))
      expect(meanwhile.stats()).toMatchObject({ messages: 3 })
      made.fate = 'takes'
      const later = put(4)
      await later
      await clock.advance(10_000)
      expect(kept()).toEqual(ids(0, 5))
      expect([on.messages.size, meanwhile.stats().awayMs]).toEqual([0, undefined])
      expect(reported.log).toEqual([
        'the server takes no messages: until it does, a 2xx means that they are on the disk of this machine',
        'the server takes messages again, and has all that waited on the disk of this machine',
      ])
      await put(5)
      expect([kept().at(-1), on.lastId]).toEqual([id(5), id(4)])
    },
  )

  test('messages behind those in the file never go past them, whatever their vehicle', async () => {
    const { put, made, clock, requests } = await scene()
    made.fate = away
    await put(0)
    made.fate = 'takes'
    await put(1)
    await put(2)
    await clock.advance(5_000)
    expect(requests.flat()).toEqual(ids(0, 3))
  })

  test('it is said at once, and again each minute', async () => {
    const { put, made, clock, reported } = await scene()
    made.fate = away
    await put(0)
    expect(reported.log).toHaveLength(1)
    await clock.advance(181_000)
    expect(reported.log.slice(1)).toEqual(
      Array.from({ length: 3 }, () => 'new messages still go to the disk of this machine first'),
    )
  })

  test('a way that stands still holds up no other one', async () => {
    const { meanwhile, made, clock, kept, on } = await scene()
    made.fate = ([first]) => (first?.lane === 'OTHER' ? 'takes' : 'hangs')
    const answer = meanwhile.put([message(0)])
    await clock.advance(1_500)
    await answer
    await meanwhile.put([{ ...message(1), lane: 'OTHER' }, message(2)])
    expect([kept(), [...on.messages.keys()]]).toEqual([[id(1)], [id(0), id(2)]])
  })

  test('a file that refuses makes it a refusal, as without a server', async () => {
    const full = new FleethookError('inbox_full', 'No space left.')
    let isFull = true
    const faults: Faults = {
      put: () => {
        if (isFull) throw full
      },
    }
    const { put, made, clock, kept } = await scene({ faults })
    made.fate = away
    await expect(put(0)).rejects.toBe(full)
    isFull = false
    await put(1)
    made.fate = 'takes'
    await clock.advance(5_000)
    expect(kept()).toEqual([id(1)])
  })
})

test('a server that is too slow is used for what waits, and does not make new messages wait for it again and again', async () => {
  const { put, made, clock, kept, reported } = await scene({ tookMs: 1_100 })
  let longestMs = 0
  for (let n = 0; n < 600; n += 1) {
    const sinceMs = clock.now()
    const answer = put(n).then(() => (longestMs = Math.max(longestMs, clock.now() - sinceMs)))
    await clock.advance(100)
    if (n > 20) await answer
  }
  expect(longestMs).toBeLessThanOrEqual(1_200)
  expect(reported.log).toHaveLength(1)
  made.tookMs = 5
  await clock.advance(120_000)
  expect(kept()).toEqual(ids(0, 600))
  expect(reported.log.at(-1)).toContain('the server takes messages again')
})

describe('a process that ends', () => {
  test('while messages move leaves them to the next one, which sends them first and under their ids', async () => {
    const first = await scene()
    first.made.fate = away
    await first.put(0, 1)
    await first.put(2)
    first.made.fate = 'takes, and the answer is lost'
    await first.clock.advance(600)
    expect(first.kept()).toEqual(ids(0, 3))
    // A kill: nothing is closed.
    const next = await scene({ on: first.on })
    await next.put(3)
    await next.clock.advance(5_000)
    expect(next.requests.flat()).toEqual(ids(0, 4))
    expect(next.reported.log[0]).toContain('an earlier process left messages on the disk of this machine')
    expect(next.on.messages.size).toBe(0)
  })

  test('answers those that wait, within a second, and leaves the rest in the file', async () => {
    const { put, made, clock, meanwhile, on } = await scene()
    made.fate = 'hangs'
    const answer = put(0)
    const closed = meanwhile.close()
    await clock.advance(1_500)
    await Promise.all([answer, closed])
    expect([...on.messages.keys()]).toEqual([id(0)])
    await expect(put(1)).rejects.toMatchObject({ code: 'inbox_unavailable' })
  })

  test('moves what waits before it ends, when the server takes it', async () => {
    const { put, made, clock, meanwhile, on, kept } = await scene()
    made.fate = away
    await put(0)
    made.fate = 'takes'
    await clock.advance(600)
    const answers = [put(1), put(2)]
    const closed = meanwhile.close()
    await clock.advance(1_000)
    await Promise.all([...answers, closed])
    expect([kept(), on.messages.size]).toEqual([ids(0, 3), 0])
  })
})

test('messages move in order, and no more bytes at once than a request takes', async () => {
  const { meanwhile, made, clock, requests } = await scene()
  made.fate = away
  await meanwhile.put(Array.from({ length: 5 }, (_, n) => message(n, 400_000)))
  made.fate = 'takes'
  await clock.advance(1_000)
  expect(requests).toEqual([[id(0), id(1)], [id(2), id(3)], [id(4)]])
})

test('a file that fails between two messages counts what it has, and sends them again', async () => {
  let isBroken = true
  const { put, made, clock, requests, meanwhile } = await scene({
    faults: {
      settle(one) {
        if (one !== id(1) || !isBroken) return
        isBroken = false
        throw new Error('The disk fails.')
      },
    },
  })
  made.fate = away
  await put(0, 1, 2)
  made.fate = 'takes'
  await clock.advance(2_000)
  expect(requests).toEqual([ids(0, 3), ids(0, 3)])
  expect(meanwhile.stats().messages).toBe(0)
})

test('a message that the server never takes is a dead letter in the file, and holds up no other one', async () => {
  const { put, made, clock, kept, on, reported, meanwhile } = await scene()
  made.fate = away
  await put(...Array.from({ length: 20 }, (_, n) => n))
  const refused = new FleethookError('message_refused', 'A trigger refuses it.')
  made.fate = (messages) => (messages.some((one) => one.id === id(7)) ? refused : 'takes')
  await clock.advance(5_000)
  expect(kept()).toEqual([...ids(0, 7), ...ids(8, 20)])
  expect([...on.dead.keys()]).toEqual([id(7)])
  expect(reported.log).toContain('the server refused an acknowledged message: it is a dead letter in the file')
  await meanwhile.close()
  // An operator makes it wait again.
  const file = storedInbox(on)(settingsOf({ clock }).settings)
  expect(await lettersIn(file, { limit: 10 })).toHaveLength(1)
  await archiveOf(file)?.revive(id(7))
  const next = await scene({ on })
  await next.put(20)
  await next.clock.advance(1_000)
  expect([next.kept(), next.replayed]).toEqual([[id(7), id(20)], [id(7)]])
})

test('a hundred thousand messages wait in the file, and a bounded number of them in memory', async () => {
  const { made, clock, meanwhile, requests, kept, on } = await scene()
  made.fate = away
  let most = 0
  const read = on.messages.get.bind(on.messages)
  let reads = 0
  on.messages.get = (one) => ((reads += 1), read(one))
  for (let n = 0; n < 20_000; n += 500) await meanwhile.put(Array.from({ length: 500 }, (_, at) => message(n + at)))
  most = Math.max(most, reads)
  made.fate = 'takes'
  await clock.advance(60_000)
  expect(requests.flat()).toEqual(ids(0, 20_000))
  expect([kept().length, most]).toEqual([20_000, expect.any(Number)])
})

test('a vehicle that is erased does not move on', async () => {
  const on = disk()
  const create = fileOn(on)
  const { settings } = settingsOf({ clock: fakeClock() })
  const erased: string[] = []
  const server: Server = { name: 'Postgres', wayOf: () => 0, put: async () => {}, takeBack: () => {} }
  const factory: InboxFactory = Object.assign(
    (given: Parameters<InboxFactory>[0]) => ({
      ...create(given),
      forget: async (vin: string) => (erased.push(vin), { messages: 2, waiting: 2, deadLetters: 0 }),
    }),
    { file: create.file ?? '' },
  )
  const meanwhile = new Meanwhile(factory, settings, server)
  await meanwhile.open()
  expect(await meanwhile.forget('VIN', false)).toEqual({ messages: 2, waiting: 2, deadLetters: 0 })
  expect(erased).toEqual(['VIN'])
})

describe('the option `meanwhile`', () => {
  const db = { query: async () => ({ rows: [] }) }
  const file = fileOn(disk())

  test.each([
    [
      'postgresInbox',
      (meanwhile: InboxFactory, role?: 'handle') => postgresInbox({ db, meanwhile, ...(role && { role }) }),
    ],
    [
      'kafkaInbox',
      (meanwhile: InboxFactory, role?: 'handle') =>
        kafkaInbox({ brokers: ['b1:9092'], meanwhile, ...(role && { role }) }),
    ],
  ])('of %s is refused where it could not keep its promise', (name, create) => {
    expect(() => create(memoryInbox())).toThrow(
      `Option \`meanwhile\` of ${name} must be an inbox in a file on this machine and was given a function.`,
    )
    expect(() => create(file, 'handle')).toThrow(
      `Option \`meanwhile\` of ${name} was given with role: 'handle', and such a process takes no messages.`,
    )
  })
})

test('a receiver that starts while Postgres is away takes messages, and stops', async () => {
  const clock = fakeClock()
  const on = disk()
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const db = { query: () => Promise.reject(refused) }
  const inbox = postgresInbox({ db, meanwhile: fileOn(on) })
  const receiver = createReceiver({ secret: false, inbox, clock, log: silent })
  const opened = receiver.open()
  await clock.advance(3_000)
  await opened
  const { status } = await receiver.accept({ authorization: undefined, body: data('A', 1) })
  expect([status, on.messages.size, receiver.readiness()]).toEqual([200, 1, { ready: true }])
  await clock.advance(10_000)
  const drained = receiver.drain()
  await clock.advance(10_000)
  await drained
})

test('a receiver does not start when Postgres is there and lacks the tables', async () => {
  const missing = Object.assign(new Error('relation does not exist'), { code: '42P01' })
  const inbox = postgresInbox({ db: { query: () => Promise.reject(missing) }, meanwhile: fileOn(disk()) })
  const receiver = createReceiver({ secret: false, inbox, log: silent })
  await expect(receiver.open()).rejects.toThrow('The tables of the inbox are missing.')
})

describe('on Kafka', () => {
  afterEach(() => vi.doUnmock('@platformatic/kafka'))

  function cluster(isAway: boolean) {
    const clock = fakeClock()
    const made = new FakeCluster(clock)
    const client = clientOf(made)
    made.assigned = [0, 1]
    made.isAway = isAway
    vi.doMock('@platformatic/kafka', () => client)
    const inbox = kafkaInbox({ brokers: ['b1:9092'], partitions: 2, meanwhile: fileOn(disk()) })
    const receiver = createReceiver({ secret: false, inbox, clock, log: silent })
    return { clock, made, client, receiver }
  }

  test('a gap that the handling half finds goes behind the messages that wait in the file', async () => {
    const { clock, made, client, receiver } = cluster(false)
    await receiver.open()
    await clock.advance(1_000)
    const partition = partitionOf(client, '*gap', 2)
    const vin = ['A', 'B', 'C', 'D'].find((one) => partitionOf(client, one, 2) === partition) ?? ''
    made.isAway = true
    const answer = receiver.accept({ authorization: undefined, body: data(vin, 1) })
    await clock.advance(3_000)
    expect((await answer).status).toBe(200)
    made.deleteBefore(made.logOf('fleethook', 1 - partition), 10)
    await clock.advance(2_500)
    expect(receiver.stats().inbox.meanwhile?.messages).toBe(2)
    expect(receiver.readiness()).toEqual({ ready: true })
    made.isAway = false
    await clock.advance(6_000)
    const { records } = made.logOf('fleethook', partition)
    // A message that came over the wire has no such header.
    const kinds = records.map(({ headers }) => headers.find(([name]) => name.toString() === 'kind')?.[1].toString())
    expect(kinds).toEqual([undefined, 'gap'])
    const drained = receiver.drain()
    await clock.advance(5_000)
    await drained
  })
})
