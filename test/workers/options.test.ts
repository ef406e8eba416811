import { fakeClock } from 'fleethook/testing'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { durableObjectInbox, inboxObject, type ObjectNamespace } from '../../adapters/inbox/durable-object.ts'
import { objectInbox } from './object-inbox.ts'
import { worker } from '../../adapters/workers.ts'
import { withHint } from '../../src/base/errors.ts'
import { createReceiver, memoryInbox, FleethookError, type ReceiverOptions, vehicles } from '../../src/index.ts'
import type { InboxMessage } from '../../src/extend.ts'
import { message, msOfSeq, seqOf } from '../../src/testing/kept-message.ts'
import { fnv1a } from '../../src/wire/identity.ts'
import { gapOf } from '../vehicles/everywhere.ts'
import { objectStorage } from './object-storage.ts'

/** Objects with prepared answers that record their calls. */
function objects(answer: (shard: string) => unknown): { readonly namespace: ObjectNamespace; readonly asked: Asked[] } {
  const asked: Asked[] = []
  return {
    asked,
    namespace: {
      idFromName: (name) => ({ name }),
      get: (id) => ({
        async fetch(_url, { body }) {
          const shard = String(Reflect.get(id, 'name'))
          const { question, about } = JSON.parse(body)
          asked.push({ shard, question, about })
          return { status: 200, json: async () => answer(shard) }
        },
      }),
    },
  }
}

interface Asked {
  readonly shard: string
  readonly question: string
  readonly about: readonly InboxMessage[]
}

const keeping = {
  ...{ maxBytes: 1_000_000, pendingMessages: 100, pendingBytes: 1_000_000 },
  dead: { forMs: 60_000, maxBytes: 100_000 },
}
const shardOf = (lane: string): string => `shard-${Number.parseInt(fnv1a(lane).slice(-8), 16) % 4}`

const silent = { debug() {}, info() {}, warn() {}, error() {} }
const receiverWith = (
  namespace: ObjectNamespace,
  options: Partial<ReceiverOptions> = {},
): ReturnType<typeof createReceiver> =>
  createReceiver({ secret: 'a', log: silent, inbox: durableObjectInbox({ objects: () => namespace }), ...options })
const body = { data: { BatteryLevel: 1 }, createdAt: '2026-05-01T00:00:00Z', vin: 'V1' }
const { namespace } = objects(() => ({}))
const gap = gapOf('V1', new Date(0), new Date(0))

describe('options of durableObjectInbox', () => {
  const cases: readonly (readonly [what: string, make: () => unknown, says: RegExp])[] = [
    [
      'shards',
      () => durableObjectInbox({ objects: () => namespace, shards: 0 }),
      /`shards` .* from 1 up and was given 0/,
    ],
    ['maxBytes', () => durableObjectInbox({ objects: () => namespace, maxBytes: 0.5 }), /`maxBytes`.* 0.5/],
    [
      'retention',
      () => durableObjectInbox({ objects: () => namespace, retention: { dead: { forMs: -1 } } }),
      /`retention.dead.forMs`/,
    ],
    ['a receiver with another inbox', () => inboxObject(createReceiver({ secret: 'a' })), /durableObjectInbox\(\{/],
    [
      'two receivers with one inbox',
      () => {
        const inbox = durableObjectInbox({ objects: () => namespace })
        return [createReceiver({ secret: 'a', inbox }), createReceiver({ secret: 'a', inbox })]
      },
      /given to two receivers/,
    ],
  ]
  test.each(cases)('that are wrong are refused at construction: %s', (_what, make, says) => {
    expect(make).toThrow(
      expect.toSatisfy(
        (error) => error instanceof FleethookError && error.code === 'option_invalid' && says.test(withHint(error)),
      ),
    )
  })

  test("ack: 'handled' is refused at construction", () => {
    expect(() => receiverWith(namespace, { ack: 'handled' })).toThrow(
      expect.objectContaining({ code: 'ack_unavailable' }),
    )
  })
})

describe('states of vehicles', () => {
  test('in the memory of a Worker are refused with the reason', () => {
    const receiver = createReceiver({ secret: 'a', log: silent, parts: [vehicles({ fields: 'all' })] })
    const why = /in memory here, and a Worker loses its memory at any time\.[^]*durableObjectInbox\(…\)/
    expect(() => worker(receiver)).toThrow(expect.toSatisfy((error: FleethookError) => why.test(withHint(error))))
    const app = new Hono().route('/telemetry', receiver.routes())
    expect(() => worker(app)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
    expect(worker(createReceiver({ secret: 'a', log: silent }))).toHaveProperty('fetch')
  })

  test('the object of a vehicle hears of its gap before the next message, and others do not', async () => {
    let reachable = false
    const { namespace: shards, asked } = objects(() => {
      if (!reachable) throw new Error('the object was reset')
      return {}
    })
    const receiver = receiverWith(shards, { parts: [vehicles({ fields: 'all' })] })
    const post = async (vin: string): Promise<number> =>
      (await receiver.accept({ authorization: 'a', body: { ...body, vin } })).status
    expect(await post('V1')).toBe(503)
    const mine = asked[0]?.shard
    const other = Array.from({ length: 20 }, (_, n) => `W${n}`).find((vin) => shardOf(vin) !== mine) ?? ''
    asked.length = 0
    reachable = true
    const both = [post(other), post('V1')]
    expect(await Promise.all(both)).toEqual([200, 200])
    await receiver.drain()
    expect(asked.filter(({ shard }) => shard !== mine).map(({ question }) => question)).toEqual(['put'])
    const told = asked.filter(({ shard }) => shard === mine).map(({ question, about }) => [question, about[0]?.kind])
    expect(told[0]).toEqual(['noteGaps', undefined])
    expect(told).toContainEqual(['put', 'wire'])
    expect(told).toContainEqual(['put', 'gap'])
  })

  test('a silent vehicle is forgotten by an alarm, without a further message', async () => {
    const clock = fakeClock()
    const alarms: number[] = []
    const storage = objectStorage(async (at) => void alarms.push(at))
    const parts = [vehicles({ fields: ['BatteryLevel'], forgetAfterMs: 7_200_000 })]
    const object = new (inboxObject(receiverWith(namespace, { parts, clock })))({ storage }, {})
    const ask = async (question: string, about: unknown): Promise<unknown> => {
      const request = { method: 'POST', body: JSON.stringify({ question, about }) }
      const answer = await object.fetch(new Request('https://object.invalid/', request))
      return Reflect.get(Object(await answer.json()), 'value')
    }
    const alarm = async (): Promise<void> => {
      const ringing = object.alarm()
      await clock.advance(1_000)
      await ringing
    }
    await ask('put', [{ ...message(1), lane: 'V1', receivedAt: clock.now(), text: JSON.stringify(body) }])
    await clock.advance(5_000)
    await alarm()
    expect(await ask('vehicle', 'V1')).toMatchObject({ vin: 'V1' })
    const forgetAt = alarms.at(-1) ?? 0
    expect(forgetAt - clock.now()).toBeGreaterThan(7_100_000)
    await clock.advance(forgetAt - clock.now() - 5_000)
    await alarm()
    expect(await ask('vehicle', 'V1')).toMatchObject({ vin: 'V1' })
    await clock.advance(5_000)
    const before = alarms.length
    await alarm()
    expect(await ask('vehicle', 'V1')).toBeUndefined()
    expect(await ask('countVehicles', undefined)).toMatchObject({ vehicles: 0 })
    expect(alarms.length).toBe(before)
  })

  test('what a receiver without the option settles is a gap for the next one with it, until its event is kept', async () => {
    const storage = objectStorage()
    let puts: InboxMessage['kind'][] = ['wire']
    const open = async (keepsVehicles: boolean): Promise<readonly unknown[]> => {
      const inbox = objectInbox(storage, { ...keeping, keepsVehicles })
      const { gaps = [] } = await inbox.open()
      for (const [n, kind] of puts.entries()) {
        const { id } = message(n + 1)
        await inbox.put([{ ...message(n + 1), kind }])
        const vehicle = { vin: 'V1', seq: seqOf(id), seenMs: 1, bytes: 2, text: () => '{}' }
        await inbox.settle(id, keepsVehicles ? { as: 'done', vehicle } : undefined)
      }
      puts = []
      return gaps
    }
    expect(await open(true)).toEqual([])
    expect(await open(true)).toEqual([])
    expect(await open(false)).toEqual([])
    expect(await open(false)).toEqual([])
    const stale = [{ reason: 'stopped', fromMs: msOfSeq(seqOf(message(1).id)) }]
    expect(await open(true)).toEqual(stale)
    puts = ['wire', 'gap']
    expect(await open(true)).toEqual(stale)
    expect(await open(true)).toEqual([])
  })
})

describe('what a Worker asks of its objects', () => {
  test('a message that the object cannot keep is answered with 503 and counted, and a gap reports it once the object is reachable', async () => {
    let reachable = false
    const { namespace: shards, asked } = objects(() => {
      if (!reachable) throw new Error('the object was reset')
      return {}
    })
    const receiver = receiverWith(shards)
    const post = async (): Promise<number> => (await receiver.accept({ authorization: 'a', body })).status
    expect([await post(), await post()]).toEqual([503, 503])
    expect(receiver.stats()).toMatchObject({ received: 0, refused: { inbox_unavailable: 2 }, openGaps: 1 })
    reachable = true
    expect(await post()).toBe(200)
    await receiver.drain()
    expect(asked.map(({ about }) => about[0]?.kind)).toEqual(['wire', 'wire', 'wire', 'gap'])
    expect(JSON.parse(String(asked.at(-1)?.about[0]?.text))).toMatchObject({ vin: 'V1', missed: 2 })
    expect(receiver.stats()).toMatchObject({ received: 1, openGaps: 0, draining: true })
    expect(await post()).toBe(503)
  })

  test('a gap that the object cannot keep yet counts the lost messages, and not itself', async () => {
    let reachable: readonly string[] = []
    const { namespace: shards, asked } = objects(() => {
      if (!reachable.includes(String(asked.at(-1)?.about[0]?.kind))) throw new Error('the object was reset')
      return {}
    })
    const receiver = receiverWith(shards)
    const post = async (): Promise<number> => (await receiver.accept({ authorization: 'a', body })).status
    expect(await post()).toBe(503)
    reachable = ['wire']
    expect([await post(), await post()]).toEqual([200, 200])
    reachable = ['wire', 'gap']
    expect(await post()).toBe(200)
    await receiver.drain()
    expect(JSON.parse(String(asked.at(-1)?.about[0]?.text))).toMatchObject({ topic: 'gap', vin: 'V1', missed: 1 })
    expect(receiver.stats().openGaps).toBe(0)
  })

  test('a source learns whether the gap that it reports is kept', async () => {
    let reachable = false
    const { namespace: shards } = objects(() => {
      if (!reachable) throw new Error('the object was reset')
      return {}
    })
    const told: boolean[] = []
    await receiverWith(shards).from({
      async feed({ tell }) {
        told.push(await tell(gap))
        reachable = true
        told.push(await tell(gap))
      },
    })
    expect(told).toEqual([false, true])
  })

  test('the Worker asks an object again that was being moved, and not one that is overloaded', async () => {
    let failures: readonly object[] = []
    const { namespace: shards, asked } = objects(() => {
      const [failure, ...others] = failures
      failures = others
      if (failure !== undefined) throw Object.assign(new Error('moved'), failure)
      return {}
    })
    const receiver = receiverWith(shards)
    const post = async (): Promise<number> => (await receiver.accept({ authorization: 'a', body })).status
    failures = [{ retryable: true }, { retryable: true }]
    expect([await post(), asked.length]).toEqual([200, 3])
    failures = [{ retryable: true, overloaded: true }]
    expect([await post(), asked.length]).toEqual([503, 4])
  })

  test('a missing binding is logged, and nothing is acknowledged', async () => {
    const said: unknown[] = []
    const receiver = createReceiver({
      secret: 'a',
      log: { ...silent, error: (message, details) => said.push([message, details]) },
      inbox: durableObjectInbox({ objects: (env: { X: ObjectNamespace }) => env.X }),
    })
    expect((await receiver.accept({ authorization: 'a', body, env: {} })).status).toBe(503)
    expect(JSON.stringify(said)).toMatch(/`objects` of durableObjectInbox returned nothing.*durable_objects/)
  })

  test('an inbox that has nothing to do with bindings gets none', async () => {
    const context = { waitUntil() {}, passThroughOnException() {}, props: {} }
    const receiver = createReceiver({ secret: 'a', log: silent, inbox: (settings) => memoryInbox()(settings) })
    const posted = new Request('http://any/', {
      method: 'POST',
      headers: { authorization: 'a' },
      body: JSON.stringify(body),
    })
    expect((await worker(receiver).fetch(posted, {}, context)).status).toBe(200)
    await receiver.drain()
  })
})
