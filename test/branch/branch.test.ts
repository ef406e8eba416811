import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import {
  createReceiver,
  dedupe,
  type Delivery,
  type GapEvent,
  memoryInbox,
  type Receiver,
  type ReceiverOptions,
  Retry,
  vehicles,
} from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { durableObjectInbox } from 'fleethook/inbox/durable-object'
import { kafkaInbox } from 'fleethook/inbox/kafka'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { createOnce, type Once } from 'fleethook/once'
import { deliver, fakeClock, message, vehicle } from 'fleethook/testing'
import { is, silent, starts } from 'fleethook/when'
import { silent as silence, unwatched } from '../vehicles/scene.ts'
import { afterEach, describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { soon } from './soon.ts'
import { data, logInto } from '../dispatch/scene.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

const inFolder =
  (folder: string = newFolder('branch')) =>
  (name: string): InboxFactory =>
    sqliteInbox({ path: join(folder, `${name}.db`) })

const pairs = [
  ['in memory', () => (): InboxFactory => memoryInbox()],
  ['in SQLite files', () => inFolder()],
] as const

/** A receiver that ends with its test. */
function newReceiver(options: Partial<ReceiverOptions> = {}, drain: Parameters<Receiver['drain']>[0] = {}): Receiver {
  const receiver = createReceiver({ secret: false, log: silence, ...options })
  stops.push(() => receiver.drain(drain))
  return receiver
}

/** Posts messages one after another: each waits for the answer to the one before it. */
async function send(receiver: Receiver, ...bodies: readonly unknown[]): Promise<void> {
  for (const body of bodies) await receiver.accept({ authorization: undefined, body })
}

const upTo = (count: number, first = 0): number[] => Array.from({ length: count }, (_one, at) => first + at)
const of = (vin: string, ...numbers: readonly number[]): readonly object[] => numbers.map((at) => data(vin, at))

test('a timer of a branch waits behind messages that its receiver has and the branch does not', async () => {
  const clock = unwatched(fakeClock())
  // With a part that skips messages, a branch gets them at their turn.
  const parts = [dedupe({ withinMs: 1_000 })]
  const receiver = newReceiver({ clock, parts, timeoutMs: 86_400_000 })
  const held = Promise.withResolvers<void>()
  receiver.on('data', { vins: ['A'] }, () => held.promise)
  const told: string[] = []
  const crm = branch(receiver, { name: 'crm', parts: [vehicles({ fields: ['Gear'] })] }).when(
    starts(is('Gear', 'P'), { first: true }).after({ minutes: 2 }),
    ({ vin }) => void told.push(vin),
  )
  const says = (vin: string, gear: string): Promise<void> =>
    send(receiver, { vin, createdAt: new Date(clock.now()).toISOString(), data: { Gear: gear } })
  for (const vin of ['A', 'B']) await says(vin, 'P')
  await soon(() => expect(crm.stats().handled).toBe(2))
  await clock.advance(30_000)
  // The receiver is busy with the message before it.
  await says('A', 'D')
  await clock.advance(300_000)
  await soon(() => expect(told).toEqual(['B']))
  held.resolve()
  await soon(() => expect(crm.stats().handled).toBe(3))
  await clock.advance(10_000)
  await says('A', 'P')
  await soon(() => expect(crm.stats().handled).toBe(4))
  await clock.advance(60_000)
  const drained = receiver.drain()
  await clock.advance(60_000)
  await drained
  expect(told).toEqual(['B'])
})

test('a timer of a branch waits behind a message that has just come', async () => {
  const clock = unwatched(fakeClock())
  const receiver = createReceiver({ secret: false, clock, log: silence })
  stops.push(() => receiver.drain())
  const told: string[] = []
  const parts = [vehicles({ fields: ['Gear'] })]
  const crm = branch(receiver, { name: 'crm', parts }).when(
    starts(is('Gear', 'P'), { first: true }).after({ minutes: 2 }),
    ({ vin }) => void told.push(vin),
  )
  const says = async (gear: string): Promise<void> => {
    const body = { vin: 'A', createdAt: new Date(clock.now()).toISOString(), data: { Gear: gear } }
    await receiver.accept({ authorization: undefined, body })
  }
  await says('P')
  await soon(() => expect(crm.stats().handled).toBe(1))
  await clock.advance(119_999)
  await says('D')
  await clock.advance(1)
  await soon(() => expect(crm.stats().handled).toBe(2))
  await soon(() => expect(crm.stats().pending.messages).toBe(0))
  expect(told).toEqual([])
})

test('handlers of one name that write once do so on the receiver and on each branch', async () => {
  const db = new DatabaseSync(':memory:')
  db.exec('CREATE TABLE rows (text TEXT)')
  let last: Promise<unknown> = Promise.resolve()
  const newOnce = (): Once<DatabaseSync> =>
    createOnce<DatabaseSync>({
      database: 'sqlite',
      run: async (tx, sql, values) => Number(tx.prepare(sql).run(...values).changes),
      transaction(work) {
        const done = last.then(async () => {
          db.exec('BEGIN')
          await work(db)
          db.exec('COMMIT')
        })
        last = done
        return done
      },
    })
  for (const sql of newOnce().schema) db.exec(sql)
  const writes = (place: string): ((event: { vin: string }, context: { delivery: Delivery }) => Promise<void>) =>
    newOnce()('rows', ({ vin }, _, tx) => void tx.prepare('INSERT INTO rows VALUES (?)').run(`${vin} ${place}`))
  const receiver = newReceiver().on('data', writes('receiver'))
  for (const name of ['crm', 'staging']) branch(receiver, { name }).on('data', writes(name))
  await send(receiver, data('A', 1), data('B', 1))
  const rows = (): unknown[] =>
    db
      .prepare('SELECT text FROM rows ORDER BY text')
      .all()
      .map(({ text }) => text)
  const all = ['A', 'B'].flatMap((vin) => ['crm', 'receiver', 'staging'].map((place) => `${vin} ${place}`))
  await soon(() => expect(rows()).toEqual(all))
})

const odometer = (event: { readonly data: { readonly Odometer?: unknown } }): number => Number(event.data.Odometer)

describe.each(pairs)('a branch %s', (_, places) => {
  test('gets every message of every kind once, with its id and text, in order per vehicle', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox') })
    const front: string[] = []
    const behind: string[] = []
    const raw: unknown[] = []
    receiver.on(['*', 'malformed'], (event, { delivery }) => void front.push(`${event.topic} ${delivery.id}`))
    const crm = branch(receiver, { name: 'crm' })
      .on(['*', 'malformed'], (event, { delivery }) => void behind.push(`${event.topic} ${delivery.id}`))
      .on('data', (event) => void raw.push([event.vin, event.raw, event.receivedAt instanceof Date]))
    expect(crm.name).toBe('crm')
    for (const at of upTo(20)) await send(receiver, data('A', at), data('B', at))
    await send(receiver, message.alerts([], { vin: 'A' }), { what: 'is this' }, '{"vin":"A"')
    for (const side of [behind, front])
      await soon(() => expect(side.filter((one) => !one.startsWith('gap'))).toHaveLength(43))
    const ofKind = (list: readonly string[], kind: string): readonly string[] =>
      list.filter((one) => one.startsWith(kind))
    for (const kind of ['data', 'alerts', 'unknown', 'malformed'])
      expect(ofKind(behind, kind).toSorted()).toEqual(ofKind(front, kind).toSorted())
    for (const vin of ['A', 'B'])
      expect(raw.filter((one) => Array.isArray(one) && one[0] === vin)).toEqual(
        upTo(20).map((at) => [vin, data(vin, at), true]),
      )
    await soon(() => expect(receiver.stats()).toMatchObject({ received: 42, handled: 42 }))
    await soon(() => expect(receiver.stats().branches?.['crm']).toMatchObject({ received: 42, handled: 42 }))
  })

  test('a test that waits for a message waits for its handlers on the branch, too', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox') })
    const stored: number[] = []
    branch(receiver, { name: 'crm', retry: { attempts: 2, minMs: 1 } }).on('data', async (event, { delivery }) => {
      await new Promise((resolve) => setImmediate(resolve))
      if (delivery.attempt === 1) throw new Error('again')
      stored.push(odometer(event))
    })
    for (const at of [1, 2]) {
      const { settled } = await deliver(receiver, message.data({ Odometer: at }, { vin: 'A' }))
      await settled
      expect(stored).toHaveLength(at)
    }
    await vehicle(receiver, 'B').data({ Odometer: 3 })
    expect(stored).toEqual([1, 2, 3])
  })

  test('delays nobody while its handlers fail, and is complete and in order afterwards', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox') })
    const rung: string[] = []
    const stored: string[] = []
    let isDown = true
    receiver.on('alerts', (event) => void rung.push(event.vin))
    const crm = branch(receiver, { name: 'crm', retry: { minMs: 5, maxMs: 5 } }).on('data', (event) => {
      if (isDown) throw new Retry(5)
      stored.push(`${event.vin} ${odometer(event)}`)
    })
    const vins = upTo(10).map((at) => `V${at}`)
    for (const at of upTo(10)) for (const vin of vins) await send(receiver, data(vin, at), message.alerts([], { vin }))
    await soon(() => expect(rung).toHaveLength(100))
    expect(stored).toEqual([])
    await soon(() => expect(receiver.stats().pending.messages).toBe(0))
    expect(crm.stats().pending.messages).toBeGreaterThan(90)
    isDown = false
    await soon(() => expect(stored).toHaveLength(100))
    for (const vin of vins)
      expect(stored.filter((one) => one.startsWith(`${vin} `))).toEqual(upTo(10).map((at) => `${vin} ${at}`))
  })

  test('gets the messages of a vehicle at once while a handler of the receiver fails for it, or is slow', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox'), concurrency: 1 }, { deadlineMs: 0, handlerGraceMs: 0 })
    const stored: string[] = []
    receiver.on('data', ({ vin }) => {
      if (vin === 'A') throw new Retry(60_000)
      return vin === 'B' ? new Promise(() => {}) : undefined
    })
    branch(receiver, { name: 'crm' }).on('data', (event) => void stored.push(`${event.vin} ${odometer(event)}`))
    // Its inbox is open.
    await send(receiver, data('C', 0))
    await soon(() => expect(stored).toEqual(['C 0']))
    for (const at of upTo(10)) await send(receiver, data('A', at), data('B', at))
    await soon(() => expect(stored).toHaveLength(21))
    for (const vin of ['A', 'B'])
      expect(stored.filter((one) => one.startsWith(vin))).toEqual(upTo(10).map((at) => `${vin} ${at}`))
  })

  test('that is full has a gap of its own, in its log and counts, and nobody else waits', async () => {
    const lines: string[] = []
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox'), log: logInto(lines) })
    const rung: number[] = []
    const gaps: GapEvent[] = []
    const isOpen = Promise.withResolvers<void>()
    receiver.on('data', (event) => void rung.push(odometer(event))).on('gap', (gap) => void gaps.push(gap))
    const own: GapEvent[] = []
    const crm = branch(receiver, { name: 'crm', limits: { pendingMessages: 3 } })
      .on('data', () => isOpen.promise)
      .on('gap', (gap) => void own.push(gap))
    await send(receiver, ...of('A', ...upTo(10)))
    await soon(() => expect(rung).toHaveLength(10))
    await soon(() => expect(crm.stats().refused).toEqual({ inbox_full: 7 }))
    expect(lines.find((line) => line.includes('inbox_full'))).toContain('"branch":"crm"')
    expect(receiver.stats().refused).toEqual({})
    isOpen.resolve()
    await soon(() => expect(own.reduce((sum, { missed }) => sum + missed, 0)).toBe(7))
    expect(own[0]).toMatchObject({ reason: 'inbox_full', vin: 'A' })
    expect(gaps).toEqual([])
    expect(crm.stats()).toMatchObject({ received: 3, handled: 3 })
  })

  test('hears of the gaps of its receiver', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox'), limits: { bodyBytes: 200 } })
    const own: GapEvent[] = []
    branch(receiver, { name: 'crm' }).on('gap', (gap) => void own.push(gap))
    await send(receiver, JSON.stringify({ vin: 'A', text: 'x'.repeat(300) }), data('A', 1))
    await soon(() => expect(own.map(({ reason }) => reason)).toEqual(['body_too_large']))
  })

  test('has dead letters of its own, and replays of handled messages are for one of the two', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox'), retry: { attempts: 1 } })
    const runs: string[] = []
    let isBad = true
    receiver.on('data', ({ vin }) => {
      runs.push(`front ${vin}`)
      if (vin === 'F' && isBad) throw new Error('front')
    })
    const crm = branch(receiver, { name: 'crm', retry: { attempts: 1 } }).on('data', ({ vin }) => {
      runs.push(`crm ${vin}`)
      if (vin === 'C' && isBad) throw new Error('crm')
    })
    await send(receiver, data('F', 1), data('C', 1))
    await soon(() => expect(runs.toSorted()).toEqual(['crm C', 'crm F', 'front C', 'front F']))
    await soon(() => expect(receiver.stats().deadLettered + crm.stats().deadLettered).toBe(2))
    isBad = false
    runs.length = 0
    expect(await crm.deadLetters.replay({})).toBe(1)
    await soon(() => expect(runs).toEqual(['crm C']))
    runs.length = 0
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await soon(() => expect(receiver.stats().handled).toBe(2))
    await soon(() => expect(runs).toEqual(['front F']))
    runs.length = 0
    const from = new Date(Date.now() - 60_000)
    const count = await receiver.replay({ from, to: new Date(Date.now() + 1) })
    await soon(() => expect(receiver.stats().pending.messages).toBe(0))
    expect(runs.filter((run) => run.startsWith('crm'))).toEqual([])
    expect(count).toBe(receiver.durability === 'memory' ? 0 : 2)
  })

  test('does not get messages of an erased vehicle that it was about to get', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox') })
    const seen: string[] = []
    const crm = branch(receiver, { name: 'crm' }).on('data', ({ vin }) => void seen.push(vin))
    await send(receiver, data('B', 1))
    await soon(() => expect(seen).toEqual(['B']))
    const erased = ['A1', 'A2', 'A3', 'A4', 'A5']
    for (const vin of erased) {
      await send(receiver, data(vin, 2), data('B', 2))
      await receiver.forget(vin)
      const before = seen.filter((each) => each === 'B').length
      await send(receiver, data('B', 3))
      await soon(() => expect(seen.filter((each) => each === 'B').length).toBeGreaterThan(before))
    }
    await soon(() => expect(crm.stats().pending.messages).toBe(0))
    for await (const { event } of crm.messages.list()) expect(erased).not.toContain('vin' in event ? event.vin : '')
  })

  test('is erased with its receiver', async () => {
    const place = places()
    const receiver = newReceiver({ inbox: place('inbox') })
    let ran = 0
    const crm = branch(receiver, { name: 'crm' }).on('data', () => {
      ran += 1
      throw new Retry(60_000)
    })
    await send(receiver, ...of('A', 1, 2))
    await soon(() => expect(ran).toBe(1))
    await soon(() => expect(crm.stats().pending.messages).toBe(2))
    await soon(async () => expect((await receiver.forget('A', { dryRun: true })).waiting).toBe(2))
    await receiver.forget('A')
    expect(crm.stats()).toMatchObject({ pending: { messages: 0 }, forgotten: 2 })
  })
})

describe('behind a receiver that stops', () => {
  test('what a branch has handled it does not get again when its receiver goes on with it, and one gap says why', async () => {
    const place = inFolder()
    const seen: number[] = []
    const gaps: string[] = []
    const start = (isStuck: boolean): Receiver => {
      const receiver = newReceiver({ inbox: place('inbox') })
      receiver.on('data', () => (isStuck ? new Promise(() => {}) : undefined))
      branch(receiver, { name: 'crm' })
        .on('data', (event) => void seen.push(odometer(event)))
        .on('gap', ({ reason }) => void gaps.push(reason))
      return receiver
    }
    const first = start(true)
    await send(first, data('B', 9), ...of('A', 0, 1, 2), data('C', 8))
    await soon(() => expect(seen).toHaveLength(5))
    const { left, branches } = await first.drain({ handlerGraceMs: 0 })
    expect([left, branches?.['crm']?.left]).toEqual([5, 0])
    const second = start(false)
    await second.open()
    await soon(() => expect(second.stats().handled).toBe(5))
    await send(second, data('A', 3))
    await soon(() => expect(seen.toSorted()).toEqual([0, 1, 2, 3, 8, 9]))
    expect(seen.filter((at) => at < 8)).toEqual([0, 1, 2, 3])
    const { received, handled, refused } = second.stats().branches?.['crm'] ?? {}
    expect({ received, handled, refused }).toEqual({ received: 1, handled: 1, refused: {} })
    await soon(() => expect(gaps).toEqual(['stopped']), 4_000)
  })

  test('what waits on the branch is handled after the restart, and one gap says that nobody listened', async () => {
    const place = inFolder()
    const seen: number[] = []
    const gaps: string[] = []
    const start = (isDown: boolean): Receiver => {
      const receiver = newReceiver({ inbox: place('inbox') })
      branch(receiver, { name: 'crm' })
        .on('data', (event) => {
          if (isDown) throw new Retry(200)
          seen.push(odometer(event))
        })
        .on('gap', ({ reason }) => void gaps.push(reason))
      return receiver
    }
    const first = start(true)
    await send(first, ...of('A', ...upTo(5)))
    await soon(() => expect(first.stats().handled).toBe(5))
    await first.drain()
    const second = start(false)
    await second.open()
    await soon(() => expect(gaps).toEqual(['stopped']), 4_000)
    await soon(() => expect(seen).toEqual(upTo(5)))
    expect(second.stats().branches?.['crm']).toMatchObject({ received: 0, recovered: 5, handled: 5 })
  })
})

test('what waits on a branch need not fit into memory, also while new messages come', async () => {
  const place = inFolder()
  const receiver = newReceiver({ inbox: place('inbox') })
  const isOpen = Promise.withResolvers<void>()
  const seen = new Map<string, number[]>()
  const crm = branch(receiver, { name: 'crm', timeoutMs: 600_000 }).on('data', async (event) => {
    await isOpen.promise
    seen.set(event.vin, [...(seen.get(event.vin) ?? []), odometer(event)])
  })
  const post = async (vin: string, from: number, count: number): Promise<void> => {
    const body = of(vin, ...upTo(count, from))
    expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  }
  for (let at = 0; at < 24; at += 1) await post(`V${at}`, 0, 500)
  expect(crm.stats().received).toBe(12_000)
  expect(crm.stats().lanes).toBeLessThanOrEqual(24)
  isOpen.resolve()
  for (let at = 0; at < 24; at += 1) await post(`V${at}`, 500, 20)
  await soon(() => expect(crm.stats().handled).toBe(12_480), 180_000)
  for (let at = 0; at < 24; at += 1) expect(seen.get(`V${at}`)).toEqual(upTo(520))
  expect(crm.stats()).toMatchObject({ pending: { messages: 0 }, recovered: 0 })
}, 600_000)

test('a branch starts few handlers of its backlog while the process is busy', async () => {
  const receiver = newReceiver()
  const isOpen = Promise.withResolvers<void>()
  let isBusy = true
  let started = 0
  const crm = branch(receiver, { name: 'crm' }).on('data', () => {
    started += 1
    if (isBusy) return isOpen.promise
    occupy(0.5)
    return undefined
  })
  const body = upTo(2_000).map((at) => data(`V${at % 100}`, at))
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  await soon(() => expect(crm.stats().received).toBe(2_000))
  await soon(() => expect(started).toBe(16))
  isOpen.resolve()
  isBusy = false
  for (let task = 0; task < 40; task += 1) {
    // Between two looks at the timers, so that each of them sees the whole task.
    await new Promise((resolve) => setImmediate(resolve))
    occupy(5)
  }
  // Four in one task, and none in the next.
  expect(started).toBeGreaterThan(16)
  expect(started).toBeLessThanOrEqual(16 + 20 * 4 + 8)
  await soon(() => expect(crm.stats().handled).toBe(2_000))
})

test('a branch is not slow where each commit occupies the process: it has a tenth of the time', async () => {
  const receiver = newReceiver()
  let handled = 0
  const crm = branch(receiver, { name: 'crm' }).on('data', () => void (handled += 1))
  const body = upTo(2_000).map((at) => data(`V${at % 100}`, at))
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  for (let task = 0; task < 30; task += 1) {
    await new Promise((resolve) => setImmediate(resolve))
    occupy(40)
  }
  expect(handled).toBeGreaterThan(30 * 4 * 2)
  await soon(() => expect(crm.stats().handled).toBe(2_000))
})

/** As a commit of the file on a slow disk does. */
function occupy(ms: number): void {
  const untilMs = performance.now() + ms
  while (performance.now() < untilMs);
}

test('rules about time work on both sides, each with its own state', async () => {
  const clock = fakeClock()
  const receiver = newReceiver({ clock, parts: [vehicles({ fields: ['Gear'] })] }, { deadlineMs: 0 })
  const told: string[] = []
  receiver.when(silent({ minutes: 5 }), ({ vin }) => void told.push(`front ${vin}`))
  branch(receiver, { name: 'crm', parts: [vehicles({ fields: ['Odometer'] })] }).when(
    silent({ minutes: 10 }),
    ({ vin, vehicle }) => void told.push(`crm ${vin} ${String(vehicle.value('Odometer'))}`),
  )
  await send(receiver, { ...data('A', 7), createdAt: new Date(clock.now()) })
  await soon(() => expect(receiver.stats().branches?.['crm']?.handled).toBe(1))
  await clock.advance(5 * 60_000 + 20_000)
  await soon(() => expect(told).toEqual(['front A']))
  await clock.advance(5 * 60_000 + 20_000)
  await soon(() => expect(told).toEqual(['front A', 'crm A 7']))
})

describe('at construction', () => {
  const folder = newFolder('branch')
  const db = { connect: () => {}, query: () => {}, on: () => {} } as never
  const objects = (): never => undefined as never
  const all = {
    memory: () => memoryInbox(),
    sqlite: () => sqliteInbox({ path: join(folder, 'one.db') }),
    postgres: () => postgresInbox({ db }),
    kafka: () => kafkaInbox({ brokers: ['localhost:9092'] }),
    objects: () => durableObjectInbox({ objects }),
  }
  test.each(['memory', 'sqlite', 'postgres', 'objects'] as const)(
    'reads the inbox of its receiver, behind %s',
    (front) => {
      const receiver = createReceiver({ secret: false, inbox: all[front](), log: silence })
      expect(branch(receiver, { name: 'crm' }).durability).toBe(receiver.durability)
    },
  )

  test('is refused where the inbox has one reader, and behind kafka the groups of a topic are named', () => {
    const receiver = createReceiver({ secret: false, inbox: all.kafka(), log: silence })
    expect(() => branch(receiver, { name: 'crm' })).toThrow(
      expect.objectContaining({
        code: 'option_invalid',
        message: expect.stringContaining('has one reader'),
        hint: expect.stringContaining('another group of the same topic is a branch already'),
      }),
    )
  })

  test.each([
    [{ name: '' }, '`name`'],
    [{ name: 'a b' }, '`name`'],
    [{ name: 'crm', secret: 'x' }, '`secret`'],
    [{ name: 'crm', inbox: memoryInbox() }, '`inbox`'],
  ])('refuses %o', (options, problem) => {
    const receiver = createReceiver({ secret: false, log: silence })
    expect(() => branch(receiver, options as never)).toThrow(problem)
  })

  test('refuses more readers than eight', () => {
    const many = createReceiver({ secret: false, log: silence })
    for (const at of upTo(7)) branch(many, { name: `crm-${at}` })
    expect(() => branch(many, { name: 'one-more' })).toThrow('at most 8 readers')
  })

  test('without a part of its own it says that this is missing on the branch', () => {
    const parts = [vehicles({ fields: ['Gear'] })] as const
    const receiver = createReceiver({ secret: false, parts, log: silence })
    const crm = branch(receiver, { name: 'crm' })
    const problem = expect.objectContaining({
      message: expect.stringContaining('branch'),
      hint: expect.stringContaining('Give the branch `crm` the option parts'),
    })
    expect(() => crm.when(starts(is('Gear', 'P')), () => {})).toThrow(problem)
    expect(() => crm.on('data', { changed: ['Gear'] }, () => {})).toThrow(problem)
  })

  test('reads the inbox of its receiver, and forgets with it', async () => {
    const receiver = newReceiver()
    const seen: number[] = []
    const crm = branch(receiver, { name: 'crm' }).on('data', (event) => {
      if (event.vin === 'B') throw new Retry(60_000)
      seen.push(odometer(event))
    })
    await send(receiver, ...of('A', ...upTo(5)), data('B', 9))
    await soon(() => expect(crm.stats()).toMatchObject({ received: 6, handled: 5, pending: { messages: 1 } }))
    expect(seen).toEqual(upTo(5))
    expect(await crm.forget('B')).toEqual({ messages: 1, waiting: 1, deadLetters: 0 })
    expect(crm.stats()).toMatchObject({ pending: { messages: 0 }, forgotten: 1 })
    const { branches } = await receiver.drain()
    expect(branches).toMatchObject({ crm: { left: 0, lost: 0 } })
  })

  test('refuses a name that is taken, and a branch of a branch', () => {
    const receiver = createReceiver({ secret: false, log: silence })
    const crm = branch(receiver, { name: 'crm' })
    expect(() => branch(receiver, { name: 'crm' })).toThrow('`crm` already')
    expect(() => branch(crm as never, { name: 'more' })).toThrow('not a receiver')
    expect('fetch' in crm || 'routes' in crm || 'accept' in crm).toBe(false)
  })
})
