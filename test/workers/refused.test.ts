/* Rows that the database of an object refuses, as it refuses a wrong value: other messages of the object go on. */
import { createReceiver, type EventOf, Retry, vehicles } from 'fleethook'
import { durableObjectInbox, type InboxObject, inboxObject, type ObjectStorage } from 'fleethook/inbox/durable-object'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { data, logInto } from '../dispatch/scene.ts'
import { objectStorage } from './object-storage.ts'

/** By the first letter of the VIN: refused are the message, that it waits for its next attempt, the error of its dead letter, its state, its claim, and its end. */
type Kind = 'P' | 'U' | 'E' | 'S' | 'C' | 'D' | 'G' | 'R'

interface Running {
  readonly handled: string[]
  readonly lines: string[]
  readonly storage: ObjectStorage
  readonly receiver: ReturnType<typeof createReceiver>
  post(body: object): Promise<number>
  alarm(): Promise<void>
}

/** A receiver whose one object has this storage. */
function start(storage: ObjectStorage, handle: (vin: string, attempt: number) => void | Promise<void>): Running {
  const lines: string[] = []
  const handled: string[] = []
  const made: { object?: InboxObject } = {}
  const inbox = durableObjectInbox({
    shards: 1,
    objects: () => ({
      idFromName: () => ({}),
      get: () => ({ fetch: async (url, request) => made.object?.fetch(new Request(url, request)) ?? new Response() }),
    }),
  })
  const receiver = createReceiver({
    secret: false,
    inbox,
    log: logInto(lines),
    retry: { attempts: 2, minMs: 1, maxMs: 1 },
    parts: [vehicles({ fields: ['Odometer'] })],
  })
  // With one handler, its circuit breaker would open: here, most messages fail.
  for (let at = 0; at < 8; at += 1)
    receiver.on(
      'data',
      { vins: (vin) => Number(vin.slice(1)) % 8 === at },
      async ({ vin }: EventOf<'data'>, { delivery }) => {
        await handle(vin, delivery.attempt)
        handled.push(vin)
      },
    )
  const object = new (inboxObject(receiver))({ storage }, {})
  made.object = object
  return {
    ...{ handled, lines, storage, receiver },
    post: async (body) => (await receiver.accept({ authorization: undefined, body })).status,
    alarm: () => object.alarm(),
  }
}

/** Creates the tables, and lets them refuse rows of some vehicles. */
async function strictStorage(): Promise<ObjectStorage> {
  const storage = objectStorage()
  const made = start(storage, () => {})
  await made.post(data('G0', 0))
  await expect.poll(() => made.handled).toEqual(['G0'])
  const refuse = (on: string, when: string): void => {
    const name = `refuses_${on.replaceAll(/\W/g, '_')}_${when.replaceAll(/\W/g, '_')}`
    storage.sql.exec(
      `CREATE TRIGGER ${name} BEFORE ${on} FOR EACH ROW WHEN ${when} BEGIN SELECT RAISE(ABORT, 'refused for a test'); END;`,
    )
  }
  refuse('INSERT ON fleethook_messages', "NEW.lane LIKE 'P%'")
  refuse('UPDATE ON fleethook_messages', "NEW.lane LIKE 'U%' AND NEW.attempts > 0 AND NEW.state = 0")
  refuse('UPDATE ON fleethook_messages', "NEW.error LIKE '%unwritable%' AND NEW.state = 1")
  refuse('UPDATE ON fleethook_messages', "NEW.lane LIKE 'C%' AND NEW.deliveries > 0 AND NEW.state = 0")
  refuse('DELETE ON fleethook_messages', "OLD.lane LIKE 'D%'")
  refuse('INSERT ON fleethook_vehicles', "NEW.vin LIKE 'S%'")
  return storage
}

const deadVins = async ({ receiver }: Running): Promise<readonly string[]> =>
  (await Array.fromAsync(receiver.deadLetters.list())).map(({ event }) => String('vin' in event && event.vin))

test('rows that an object refuses take no others with them: good messages are handled, and each of the others is refused alone or a dead letter', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom<Kind>('G', 'G', 'P', 'U', 'E', 'S', 'R', 'C', 'D'), { minLength: 3, maxLength: 24 }),
      async (kinds) => {
        const made = start(await strictStorage(), (vin, attempt) => {
          if (vin.startsWith('U')) throw new Error('again')
          if (vin.startsWith('R') && attempt === 1) throw new Retry(3)
          if (vin.startsWith('E')) throw new Error('unwritable')
        })
        const vins = kinds.map((kind, at) => `${kind}${at}`)
        const of = (...some: readonly string[]): readonly string[] =>
          vins.filter((vin) => some.includes(vin.charAt(0))).toSorted()
        const statuses = await Promise.all(vins.map((vin, at) => made.post(data(vin, at))))
        expect(vins.filter((_, at) => statuses[at] !== 200)).toEqual(
          of('P').toSorted((a, b) => vins.indexOf(a) - vins.indexOf(b)),
        )
        await expect.poll(() => made.handled.toSorted()).toEqual(of('G', 'R', 'S', 'C', 'D'))
        await expect.poll(() => deadVins(made).then((all) => all.toSorted())).toEqual(of('U', 'E'))
        if (of('U', 'S', 'D').length > 0) expect(made.lines.join('\n')).toContain('refused for a test')
        // What could not be deleted is handled again by the next object, and nothing else is.
        const next = start(made.storage, () => {})
        await next.alarm()
        expect(next.handled.toSorted()).toEqual(of('D'))
        expect(await next.post(data('G-1', 1))).toBe(200)
      },
    ),
    { numRuns: 12 },
  )
})

test('a claim whose row an object refuses holds no message, also after the object ended', async () => {
  const first = start(await strictStorage(), () => new Promise(() => {}))
  for (const vin of ['C1', 'G2']) expect(await first.post(data(vin, 1))).toBe(200)
  const next = start(first.storage, () => {})
  await next.alarm()
  expect(next.handled.toSorted()).toEqual(['C1', 'G2'])
  expect(next.lines.join('\n')).toContain('refused for a test')
})

test('a storage that fails for a while refuses no row: the message waits for its next attempt', async () => {
  const inner = objectStorage()
  let fails = false
  const made = start(
    {
      ...inner,
      sql: {
        exec(query, ...bindings) {
          if (fails && query.includes('UPDATE')) throw new Error('the storage is away')
          return inner.sql.exec(query, ...bindings)
        },
      },
    },
    (_, attempt) => {
      fails = attempt === 1
      if (fails) throw new Error('again')
    },
  )
  expect(await made.post(data('G1', 1))).toBe(200)
  await expect.poll(() => made.lines.join('\n')).toContain('the inbox failed')
  fails = false
  await expect.poll(() => made.handled).toEqual(['G1'])
  expect(await deadVins(made)).toEqual([])
})
