/* Messages that are deep, wide or long, or of vehicles with odd names, on every inbox. */
import fc from 'fast-check'
import { createReceiver, type FleetEvent, type Receiver, type ReceiverOptions, vehicles } from 'fleethook'
import { kafkaInbox } from 'fleethook/inbox/kafka'
import { fakeClock } from 'fleethook/testing'
import { alertStarts, becomes, changed, type Edge } from 'fleethook/when'
import { expect, test, vi } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { clientOf, FakeCluster } from '../inbox/kafka-cluster.ts'
import { secret } from '../runtimes/targets.ts'
import { places } from '../vehicles/places.ts'
import { silent } from '../vehicles/scene.ts'
import { kill, storedWorker } from '../workers/command.ts'
import { startLog } from '../workers/log.ts'
import { durableSource } from '../workers/programs/durable.ts'
import { expectNoLeftovers } from './leftovers.ts'
import { type LargeMessage, largeMessages, textOf, vins } from './large-messages.ts'

/** What `kafkaInbox` finds as the package of the client. */
const kafka = vi.hoisted((): { client: object } => ({ client: {} }))
vi.mock('@platformatic/kafka', async (importOriginal) => {
  const original = await importOriginal<typeof import('@platformatic/kafka')>()
  return { ...original, ...Object.fromEntries(['Producer', 'Consumer', 'Admin'].map((name) => [name, made(name)])) }
  function made(name: string): unknown {
    return function make() {
      return Reflect.construct(Reflect.get(kafka.client, name), [])
    }
  }
})

expectNoLeftovers()

type Options = Omit<ReceiverOptions, 'secret' | 'inbox'>

interface Place {
  /** The receiver of the next process. */
  readonly next: (options: Options) => Receiver
  /** Time passes. */
  readonly turn: () => Promise<void>
  /** Whether messages are on their way from the inbox to the receiver, which does not count them yet. */
  readonly areUnread: () => boolean
  readonly end: () => void
}

const areUnread = (): boolean => false
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

function onKafka(): Place {
  const clock = fakeClock()
  const cluster = new FakeCluster(clock)
  cluster.assigned = [0, 1]
  kafka.client = clientOf(cluster)
  const inbox = { brokers: ['b1:9092'], partitions: 2 }
  return {
    next: (options) => createReceiver({ ...options, secret: false, clock, inbox: kafkaInbox(inbox) }),
    turn: () => clock.advance(50),
    areUnread: () => cluster.logsOf('fleethook').some(({ end }, partition) => cluster.committed.get(partition) !== end),
    end: () => {},
  }
}

type Parts = NonNullable<Options['parts']>
const forms: readonly (readonly [withWhat: string, parts: Parts])[] = [
  ['without vehicles', []],
  ['with all fields of vehicles', [vehicles({ fields: 'all' })]],
  ['with a list of fields of vehicles', [vehicles({ fields: ['Gear', 'Location', 'SpeedLimitMode'] })]],
]
const everywhere: readonly (readonly [where: string, withWhat: string, open: () => Place, parts: Parts])[] = [
  ...places.flatMap(([where, open]) => {
    const opened = (): Place => {
      const { next, end } = open()
      return { next: (options) => createReceiver({ ...options, secret: false, inbox: next() }), turn, areUnread, end }
    }
    return forms.map(([withWhat, parts]) => [where, withWhat, opened, parts] as const)
  }),
  ['on Kafka', 'without vehicles', onKafka, []],
]

/** What they find in messages. The state of its vehicle is in the dead letter of a message whose handler fails. */
const rules: readonly Edge[] = [
  changed('SpeedLimitMode', { first: true }),
  becomes('Gear', 'P', { first: true }),
  alertStarts(),
]
const options: Options = {
  log: silent,
  retry: { attempts: 1 },
  limits: { bodyBytes: 16_000_000, pendingBytes: 100_000_000 },
}

/** Of each body: the messages, and whether it is posted to the path of the collector. */
const posts = fc.array(
  fc.record({ messages: fc.array(largeMessages, { minLength: 1, maxLength: 3 }), isCollector: fc.boolean() }),
  { minLength: 1, maxLength: 4 },
)
const worst: LargeMessage[] = [
  { format: 'service', vin: '"V1"', names: 'SpeedLimitMode', value: 'arrays', size: 20_000 },
  { format: 'vehicle_maker', vin: '"\\u0000V"', names: 'Gear', value: 'objects', size: 20_000 },
  { format: 'event_collector', vin: '"\\ud800"', names: 'many', value: 'text', size: 5_000 },
]

test.each(everywhere)(
  '%s, %s: every message is handled, a dead letter or refused, and the next process opens the inbox',
  async (_where, _with, open, parts) => {
    await fc.assert(
      fc.asyncProperty(posts, async (bodies) => {
        const place = open()
        const seen: FleetEvent[] = []
        const told: string[] = []
        const errors: string[] = []
        // Not for many vehicles in a row, which would open its circuit breaker.
        const fail = (mayFail: boolean, { length }: readonly unknown[]): void => {
          if (mayFail && length % 2 === 0) throw new Error('for the last time')
        }
        const make = (mayFail: boolean): Receiver => {
          const receiver = place
            .next({ ...options, parts })
            .on('*', (event) => fail(mayFail, (seen.push(event), seen)))
            .on('malformed', () => {})
          receiver.observe({ failed: (error) => void errors.push(String(error)) })
          for (const rule of parts.length === 0 ? [] : rules)
            receiver.when(rule, ({ vin }) => fail(mayFail, (told.push(vin), told)))
          return receiver
        }
        const first = make(true)
        await opened(first, place)
        let accepted = 0
        for (const { messages, isCollector } of bodies) {
          const url = `http://receiver.test${isCollector ? '/services/collector' : '/'}`
          const answering = Promise.resolve(
            first.fetch(new Request(url, { method: 'POST', body: messages.map(textOf).join('') })),
          )
          const { status } = await during(answering, place)
          expect(status === 200 || (status >= 400 && status < 500)).toBe(true)
          if (status === 200) accepted += messages.length
        }
        await quiet(first, place)
        const { handled, deadLettered, received, lost } = first.stats()
        expect({ over: handled + deadLettered, lost }).toEqual({ over: received, lost: 0 })
        expect(received).toBeGreaterThanOrEqual(accepted)
        // A handler can also fail for the event of a gap, which is in no count.
        const letters = (await during(Array.fromAsync(first.deadLetters.list()), place)).length
        expect(letters).toBeGreaterThanOrEqual(deadLettered)
        await during(first.drain(), place)
        expect(errors.filter((error) => !error.includes('for the last time'))).toEqual([])

        const second = make(false)
        await opened(second, place)
        if (first.durability !== 'memory') {
          expect(await during(second.deadLetters.replay({}), place)).toBe(letters)
          await quiet(second, place)
        }
        seen.length = 0
        const body = '{"vin":"last","createdAt":"2026-01-05T08:00:00Z","data":{"Gear":"P"}}'
        expect((await during(Promise.resolve(second.accept({ authorization: undefined, body })), place)).status).toBe(
          200,
        )
        await quiet(second, place)
        expect(seen.map(({ vin }) => vin)).toContain('last')
        if (parts.length > 0) expect(told).toContain('last')
        await during(second.drain(), place)
        place.end()
      }),
      {
        numRuns: inForm({ short: 6, full: 60, long: 2_000 }),
        examples: [[[{ messages: worst, isCollector: false }]]],
      },
    )
  },
  inForm({ short: 60_000, full: 280_000, long: 3_600_000 }),
)

test(
  'in Durable Objects of workerd: every message is handled or refused, and the objects start again',
  async () => {
    await using log = await startLog()
    const source = durableSource({ edges: 'numbers', vehicles: { fields: 'all' } })
    using worker = await storedWorker(source, log.port)
    let target = await spawnTarget(worker.commands.workerd)
    const post = async (body: string, path = '/'): Promise<number> => {
      const answer = await fetch(target.url + path, { method: 'POST', headers: { authorization: secret }, body })
      return answer.status
    }
    /** Each vehicle sends one message more. When that is handled, so are those before it. Those without a VIN have no number. */
    const areHandled = async (number: number): Promise<void> => {
      const data = { BatteryLevel: number }
      const last = vins.map((vin) => `{"vin":${vin},"createdAt":"2026-01-05T08:00:00Z","data":${JSON.stringify(data)}}`)
      expect(await post(last.join(''))).toBe(200)
      const handled = (): readonly string[] =>
        log.entries.flatMap((entry) => (entry.number === number && entry.happened === undefined ? [entry.vin] : []))
      await expect.poll(() => handled().toSorted(), { timeout: 60_000 }).toEqual(['*gap', 'V1', 'V2', '__proto__', 'é'])
      expect(await (await fetch(`${target.url}/dead`)).json()).toEqual([])
    }
    try {
      await fc.assert(
        fc.asyncProperty(posts, async (bodies) => {
          for (const { messages, isCollector } of bodies) {
            const status = await post(messages.map(textOf).join(''), isCollector ? '/services/collector' : '/')
            expect(status === 200 || (status >= 400 && status < 500)).toBe(true)
          }
        }),
        {
          numRuns: inForm({ short: 10, full: 80, long: 1_000 }),
          examples: [[[{ messages: worst, isCollector: false }]]],
        },
      )
      await areHandled(97)
      await kill(target)
      target = await spawnTarget(worker.commands.workerd)
      await areHandled(98)
    } finally {
      await kill(target)
    }
  },
  inForm({ short: 60_000, full: 280_000, long: 3_600_000 }),
)

/** Lets time pass until the promise is settled. */
async function during<Result>(promise: Promise<Result>, place: Place): Promise<Result> {
  let isOver = false
  const over = (): void => void (isOver = true)
  void promise.then(over, over)
  while (!isOver) await place.turn()
  return promise
}

const opened = (receiver: Receiver, place: Place): Promise<void> => during(receiver.open(), place)

/** Resolves when nothing waits. */
async function quiet(receiver: Receiver, place: Place): Promise<void> {
  await place.turn()
  while (receiver.stats().pending.messages > 0 || place.areUnread()) await place.turn()
}
