import { createReceiver, type GapEvent, vehicles } from 'fleethook'
import { branch, type BranchOptions } from 'fleethook/branch'
import {
  durableObjectInbox,
  type DurableObjectInboxOptions,
  inboxObject,
  type ObjectNamespace,
  type ObjectStorage,
} from 'fleethook/inbox/durable-object'
import { fakeClock } from 'fleethook/testing'
import { is, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { soon } from '../branch/soon.ts'
import { data, logInto } from '../dispatch/scene.ts'
import { post } from '../runtimes/client.ts'
import { objectStorage } from './object-storage.ts'
import { started } from './running.ts'

interface Deployment {
  readonly storage: ObjectStorage
  readonly branches?: Readonly<Record<string, Pick<BranchOptions, 'limits' | 'retry'>>>
  /** Messages of these branches fail. */
  readonly down?: ReadonlySet<string>
  readonly inbox?: Omit<DurableObjectInboxOptions<never>, 'objects'>
  readonly clock?: ReturnType<typeof fakeClock>
}

/** A receiver whose objects have this storage, until it is deployed again on the same one. */
function deploy({ storage, branches = { crm: {} }, down = new Set(), inbox: options, clock }: Deployment) {
  const lines: string[] = []
  /** What handlers got: `crm A 1`. */
  const seen: string[] = []
  const gaps: GapEvent[] = []
  const life = { isOver: false }
  const made: { object?: InstanceType<ReturnType<typeof inboxObject>> } = {}
  const namespace: ObjectNamespace = {
    idFromName: (name) => ({ name }),
    get: () => ({ fetch: async (url, init) => made.object?.fetch(new Request(url, init)) ?? new Response() }),
  }
  const receiver = createReceiver({
    ...{ secret: false, log: logInto(lines) },
    ...(clock && { clock }),
    inbox: durableObjectInbox({ ...options, shards: 1, objects: () => namespace }),
  }).on('data', ({ vin, data: { Odometer } }) => void seen.push(`receiver ${vin} ${Odometer}`))
  const behind = Object.entries(branches).map(([name, its]) => {
    const own = branch(receiver, { name, retry: { minMs: 5, maxMs: 5 }, ...its })
      .on('data', ({ vin, data: { Odometer } }) => {
        if (down.has(name)) throw new Error('it is down')
        seen.push(`${name} ${vin} ${Odometer}`)
      })
      .on('gap', (gap) => void gaps.push(gap))
    return [name, own] as const
  })
  const own: ObjectStorage = {
    ...storage,
    sql: {
      exec: (query, ...bindings) => {
        if (life.isOver) throw new Error('This object has ended.')
        return storage.sql.exec(query, ...bindings)
      },
    },
    transactionSync: (change) => storage.transactionSync(change),
  }
  const object = new (inboxObject(receiver))({ storage: own }, {})
  made.object = object
  const of = (who: string): readonly string[] => seen.filter((each) => each.startsWith(`${who} `))
  return {
    ...{ receiver, lines, seen, gaps, of, object, branches: Object.fromEntries(behind) },
    post: async (vin: string, at: number) =>
      (await receiver.accept({ authorization: undefined, body: data(vin, at) })).status,
    end: () => void (life.isOver = true),
  }
}

const count = (storage: ObjectStorage, table: string): unknown =>
  storage.sql.exec(`SELECT count(*) AS count FROM ${table}`).toArray()[0]?.['count']

test('a branch behind Durable Objects gets each message once, in order, and the object keeps nothing of it afterwards', async () => {
  const storage = objectStorage()
  const { post: send, of } = deploy({ storage, branches: { crm: {}, sales: {} } })
  for (let at = 0; at < 10; at += 1) for (const vin of ['A', 'C', 'D']) expect(await send(vin, at)).toBe(200)
  for (const who of ['receiver', 'crm', 'sales'])
    await soon(() => {
      for (const vin of ['A', 'C', 'D'])
        expect(of(who).filter((one) => one.startsWith(`${who} ${vin}`))).toEqual(
          Array.from({ length: 10 }, (_, at) => `${who} ${vin} ${at}`),
        )
    })
  await soon(() => expect(count(storage, 'fleethook_messages')).toBe(0))
  expect(count(storage, 'fleethook_places')).toBe(0)
})

test('a branch that fails delays nobody else: what fails, dead letters and replays are its own', async () => {
  const storage = objectStorage()
  const down = new Set(['crm'])
  const first = deploy({ storage, down, branches: { crm: { retry: { attempts: 2, minMs: 1, maxMs: 1 } } } })
  const crm = first.branches['crm']
  for (const at of [1, 2]) expect(await first.post('A', at)).toBe(200)
  await soon(() => expect(first.of('receiver')).toEqual(['receiver A 1', 'receiver A 2']))
  const letters = async () => Array.fromAsync(crm?.deadLetters.list() ?? [])
  await soon(async () => expect(await letters()).toHaveLength(2))
  expect(await Array.fromAsync(first.receiver.deadLetters.list())).toEqual([])
  down.clear()
  expect(await crm?.deadLetters.replay((await letters())[0]?.id ?? '')).toBe(1)
  await soon(() => expect(first.of('crm')).toEqual(['crm A 1']))
  expect(first.of('receiver')).toHaveLength(2)
  expect(await crm?.deadLetters.discard({})).toBe(1)
  await soon(() => expect(count(storage, 'fleethook_messages')).toBe(0))
})

test('what waits for a branch waits for the next object, with its attempts, and an alarm goes on with it', async () => {
  const storage = objectStorage()
  const first = deploy({ storage, down: new Set(['crm']) })
  for (const at of [1, 2, 3]) await first.post('A', at)
  await soon(() => expect(first.of('receiver')).toHaveLength(3))
  await soon(async () => expect(await first.branches['crm']?.failing()).toMatchObject({ messages: 1 }))
  expect(await first.receiver.failing()).toMatchObject({ messages: 0 })
  first.end()
  const next = deploy({ storage })
  await soon(async () => {
    await next.object.alarm()
    expect(next.of('crm')).toEqual(['crm A 1', 'crm A 2', 'crm A 3'])
  })
  expect(next.of('receiver')).toEqual([])
})

test('a branch over its limits never makes its receiver refuse: what it does not get is a counted gap, also when the object ends', async () => {
  const storage = objectStorage()
  const branches = { crm: { limits: { pendingMessages: 2 }, retry: { attempts: 1_000, minMs: 200, maxMs: 200 } } }
  const first = deploy({ storage, branches, down: new Set(['crm']) })
  for (const at of [1, 2, 3, 4, 5]) expect(await first.post('A', at)).toBe(200)
  await soon(() => expect(first.of('receiver')).toHaveLength(5))
  expect(first.branches['crm']?.stats()).toMatchObject({ refused: { inbox_full: 3 } })
  first.end()
  const next = deploy({ storage, branches })
  await soon(async () => {
    await next.object.alarm()
    expect(next.gaps).toMatchObject([{ reason: 'inbox_full', vin: 'A', missed: 3 }])
  })
  expect(next.of('crm')).toEqual(['crm A 1', 'crm A 2'])
  // It is reported once.
  await next.object.alarm()
  next.end()
  const last = deploy({ storage, branches })
  expect(await last.post('A', 6)).toBe(200)
  await soon(() => expect(last.of('crm')).toEqual(['crm A 6']))
  expect(last.gaps).toEqual([])
})

test('in a full object, the oldest messages that only branches need make room, and gaps count them', async () => {
  const storage = objectStorage()
  const down = new Set(['crm'])
  const { post: send, of, gaps, receiver } = deploy({ storage, down, inbox: { maxBytes: 2_000 } })
  for (let at = 0; at < 60; at += 1) {
    expect(await send(`V${at % 5}`, at)).toBe(200)
    await soon(() => expect(of('receiver')).toHaveLength(at + 1))
  }
  expect(receiver.stats().refused).toEqual({})
  down.clear()
  const missed = (): number => gaps.reduce((sum, gap) => sum + gap.missed, 0)
  await soon(() => expect(of('crm').length + missed()).toBe(60))
  expect(missed()).toBeGreaterThan(10)
  expect(new Set(gaps.map(({ reason }) => reason))).toEqual(new Set(['inbox_expired']))
  for (let vehicle = 0; vehicle < 5; vehicle += 1) {
    const numbers = of('crm').flatMap((one) => (one.startsWith(`crm V${vehicle} `) ? [Number(one.split(' ')[2])] : []))
    expect(numbers).toEqual(numbers.toSorted((one, other) => one - other))
  }
})

test('what waits for a branch that was removed is told by each object, until it is there again, and a gap says what it lacks', async () => {
  const storage = objectStorage()
  const clock = fakeClock()
  const until = (check: () => void): Promise<void> =>
    soon(async () => {
      await clock.advance(100)
      check()
    })
  const first = deploy({ storage, down: new Set(['crm']), clock })
  for (const at of [1, 2]) await first.post('A', at)
  await until(() => expect(first.of('receiver')).toHaveLength(2))
  first.end()
  for (const branches of [{}, { sales: {} }]) {
    await clock.advance(60_000)
    const without = deploy({ storage, clock, branches })
    await without.post('B', 9)
    expect(without.lines.filter((line) => line.includes('2 messages and 0 dead letters wait'))).toHaveLength(1)
    await until(() => expect(without.of('receiver')).toEqual(['receiver B 9']))
    without.end()
  }
  const back = deploy({ storage, clock, branches: { crm: {}, sales: {} } })
  await back.post('C', 1)
  await until(() => expect(back.of('crm').toSorted()).toEqual(['crm A 1', 'crm A 2', 'crm C 1']))
  await until(() => expect(back.gaps).toMatchObject([{ reason: 'stopped' }]))
  back.end()
  const again = deploy({ storage, clock, branches: { crm: {}, sales: {} } })
  await again.post('C', 2)
  await clock.advance(2_000)
  await until(() => expect(again.of('crm')).toEqual(['crm C 2']))
  expect(again.gaps).toEqual([])
  again.end()
})

test('a branch that nobody has had for as long as dead letters are kept goes by itself, and the log counts what it had', async () => {
  const storage = objectStorage()
  const startMs = Date.UTC(2026, 10, 21, 10)
  const first = deploy({ storage, down: new Set(['crm']), clock: fakeClock(startMs) })
  await first.post('A', 1)
  first.end()
  for (const [days, dropped] of [
    [0, 0],
    [29, 0],
    [31, 1],
    [32, 0],
  ] as const) {
    const clock = fakeClock(startMs + days * 86_400_000)
    const { post: send, lines, of, end } = deploy({ storage, clock, branches: {} })
    await send('D', 1)
    await soon(async () => {
      await clock.advance(10)
      expect(of('receiver')).toContain('receiver D 1')
    })
    expect(lines.filter((line) => line.includes('a removed branch was dropped'))).toHaveLength(dropped)
    end()
  }
  await soon(() => expect(count(storage, 'fleethook_messages')).toBe(0))
  expect(count(storage, 'fleethook_readers')).toBe(0)
})

test('a branch keeps states of vehicles of its own, and an alarm wakes the object for their timers', async () => {
  const clock = fakeClock()
  const alarms: number[] = []
  const storage = objectStorage(async (ms) => void alarms.push(ms))
  const told: string[] = []
  const made = deploy({ storage, clock, branches: {} })
  const crm = branch(made.receiver, { name: 'crm', parts: [vehicles({ fields: ['Gear'] })] })
  crm.when(starts(is('Gear', 'P')).after({ minutes: 30 }), ({ vin }) => void told.push(vin))
  const object = new (inboxObject(made.receiver))({ storage }, {})
  const alarm = async (): Promise<void> => {
    const ringing = object.alarm()
    await clock.advance(1_000)
    await ringing
  }
  for (const Gear of ['D', 'P']) {
    await clock.advance(10)
    await object.fetch(
      new Request('https://object.invalid/', {
        method: 'POST',
        body: JSON.stringify({
          question: 'put',
          about: [
            {
              ...{ id: '', lane: 'A', receivedAt: clock.now(), door: 'root', kind: 'wire', bytes: 9 },
              text: JSON.stringify({ vin: 'A', createdAt: new Date(clock.now()).toISOString(), data: { Gear } }),
            },
          ],
        }),
      }),
    )
  }
  // A branch gives way to its receiver between two handlers.
  await soon(async () => {
    await clock.advance(10)
    expect(count(storage, 'fleethook_messages')).toBe(0)
  })
  await alarm()
  const dueMs = alarms.at(-1) ?? 0
  expect(dueMs - clock.now()).toBeGreaterThan(29 * 60_000)
  await clock.advance(dueMs - clock.now())
  expect(told).toEqual([])
  await alarm()
  await soon(() => expect(told).toEqual(['A']))
})

test('an erased vehicle is erased for all readers, and a message counts once', async () => {
  const storage = objectStorage()
  const down = new Set(['crm'])
  const { post: send, of, receiver, branches } = deploy({ storage, down })
  for (const at of [1, 2]) await send('A', at)
  await send('B', 1)
  await soon(() => expect(of('receiver')).toHaveLength(3))
  const erased = { messages: 2, waiting: 2, deadLetters: 0 }
  expect(await receiver.forget('A', { dryRun: true })).toEqual(erased)
  expect(await branches['crm']?.forget('A')).toEqual(erased)
  down.clear()
  await soon(() => expect(of('crm')).toEqual(['crm B 1']))
  expect(count(storage, 'fleethook_places')).toBe(0)
})

test('an object of an earlier fleethook goes on with what it has, and without branches an earlier one could, too', async () => {
  const storage = objectStorage()
  const first = deploy({ storage, branches: {} })
  await first.post('A', 1)
  first.end()
  const versionOf = (): unknown =>
    storage.sql.exec("SELECT value FROM fleethook_meta WHERE key = 'version'").toArray()[0]?.['value']
  expect(versionOf()).toBe('2')
  // As it was without branches.
  storage.sql.exec('DROP TABLE fleethook_places; DROP TABLE fleethook_readers;')
  storage.sql.exec('ALTER TABLE fleethook_messages DROP COLUMN readers')
  const next = deploy({ storage })
  expect(await next.post('A', 2)).toBe(200)
  await soon(() => expect(next.of('crm')).toEqual(['crm A 2']))
  expect(versionOf()).toBe('3')
})

test('a branch has no objects of its own', () => {
  const { receiver, branches } = deploy({ storage: objectStorage() })
  expect(() => inboxObject(branches['crm'] ?? receiver)).toThrow(/keeps its messages somewhere else/)
})

describe('in workerd', () => {
  test('after kills, each reader has handled every message that was acknowledged, in order, under the same ids, also a branch that fails', async () => {
    await using running = await started({
      branch: { failing: { B: 3 } },
      receiver: { retry: { minMs: 20, maxMs: 100 } },
    })
    const vins = ['A', 'B', 'C']
    for (let round = 0; round < 3; round += 1) {
      for (let at = 1; at <= 10; at += 1)
        for (const vin of vins) expect(await post(running.url, vin, round * 10 + at)).toBe(200)
      await running.again()
    }
    for (const vin of vins)
      for (const who of [vin, `crm ${vin}`])
        await soon(() => {
          const first = [...new Set(running.numbersOf(who))]
          expect(first, who).toEqual(Array.from({ length: 30 }, (_, at) => at + 1))
        })
    const ids = (who: string): unknown =>
      new Set(running.entries.flatMap(({ vin, delivery }) => (vin === who ? [delivery] : [])))
    for (const vin of vins) expect(ids(`crm ${vin}`)).toEqual(ids(vin))
  })

  test('a message that fails every attempt on a branch is a dead letter of that branch, also after a kill, and its replay is for that branch', async () => {
    await using running = await started({
      branch: { failing: { BAD: 3 } },
      receiver: { retry: { attempts: 2, minMs: 1, maxMs: 1 } },
    })
    expect(await post(running.url, 'BAD', 1)).toBe(200)
    await soon(async () => expect(await running.json('/crm-dead')).toMatchObject([{ attempts: 2 }]))
    expect(await running.json('/dead')).toEqual([])
    await running.again()
    const [letter] = (await running.json('/crm-dead')) as readonly { readonly id: string }[]
    expect(await running.json(`/crm-replay?id=${letter?.id}`)).toBe(1)
    await soon(() => expect(running.numbersOf('crm BAD')).toEqual([1]))
    expect(running.numbersOf('BAD')).toEqual([1])
  })
})
