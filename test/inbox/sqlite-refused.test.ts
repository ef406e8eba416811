import { DatabaseSync } from 'node:sqlite'
import { type EventOf, FleethookError, Retry, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { data, scene } from '../dispatch/scene.ts'
import { createFiles } from './sqlite-files.ts'
import { systemClock } from '../../src/base/clock.ts'

const files = createFiles()

/** What the file refuses of a vehicle, by the first letter of its VIN. */
const refused = {
  P: 'the message itself',
  U: 'that it waits for its next attempt',
  E: 'the error of its dead letter',
  S: 'the state of its vehicle',
} as const
type Kind = keyof typeof refused | 'G' | 'R'

/** A file whose tables refuse rows of some vehicles, as a wrong value would be refused. */
async function strictFile(): Promise<string> {
  const path = files.path()
  const { receiver } = scene({ inbox: sqliteInbox({ path }), clock: systemClock })
  await receiver.open()
  await receiver.drain()
  const db = new DatabaseSync(path)
  const refuse = (name: string, on: string, when: string): void =>
    db.exec(
      `CREATE TRIGGER ${name} BEFORE ${on} FOR EACH ROW WHEN ${when} BEGIN SELECT RAISE(ABORT, 'refused for a test'); END`,
    )
  refuse('p', 'INSERT ON messages', "NEW.lane LIKE 'P%'")
  refuse('u', 'UPDATE ON pending', "NEW.lane LIKE 'U%' AND NEW.attempts > 0")
  refuse('e', 'INSERT ON dead', "NEW.error LIKE '%unwritable%'")
  refuse('s', 'INSERT ON vehicles', "NEW.vin LIKE 'S%'")
  db.close()
  return path
}

describe.each([false, true])('with thread: %s', (thread) => {
  test('rows that SQLite refuses take no others with them: good messages are handled, and each of the others is refused alone or a dead letter', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc
          .array(fc.constantFrom<Kind>('G', 'G', 'P', 'U', 'E', 'S', 'R'), { minLength: 3, maxLength: 24 })
          // A handler that fails for five vehicles in a row rests, and its messages with it.
          .filter((kinds) => kinds.filter((kind) => kind === 'U' || kind === 'E').length < 5),
        async (kinds) => {
          const path = await strictFile()
          const handled = new Set<string>()
          const failed = new Set<string>()
          const made = scene({
            inbox: sqliteInbox({ path, thread }),
            clock: systemClock,
            retry: { attempts: 2, minMs: 1, maxMs: 1 },
            parts: [vehicles({ fields: ['Odometer'] })],
          })
          const { receiver, post, lines } = made
          receiver.on('data', ({ vin }: EventOf<'data'>) => {
            const first = !failed.has(vin)
            failed.add(vin)
            if (vin.startsWith('U')) throw new Error('again')
            if (vin.startsWith('R') && first) throw new Retry(3.33)
            if (vin.startsWith('E')) throw new Error('unwritable')
            handled.add(vin)
          })
          await receiver.open()
          const vins = kinds.map((kind, at) => `${kind}${at}`)
          const answers = await Promise.all(vins.map((vin, at) => post(data(vin, at))))
          const of = (kind: string): readonly string[] => vins.filter((vin) => vin.startsWith(kind))
          expect(vins.filter((_, at) => answers[at]?.status !== 200)).toEqual(of('P'))
          await expect.poll(() => receiver.stats().pending.messages).toBe(0)
          expect([...handled].toSorted()).toEqual([...of('G'), ...of('R'), ...of('S')].toSorted())
          const dead = await Array.fromAsync(receiver.deadLetters.list())
          expect(dead.map(({ event }) => String(event.topic === 'data' && event.vin)).toSorted()).toEqual(
            [...of('U'), ...of('E')].toSorted(),
          )
          for (const kind of ['P', 'U', 'E']) if (of(kind).length > 0) expect(lines.join('\n')).toMatch('refuses a row')
          await receiver.drain()

          // The next process finds no more than what was refused there.
          const next = scene({ inbox: sqliteInbox({ path, thread }), clock: systemClock })
          await next.receiver.open()
          expect(next.receiver.stats().pending.messages).toBe(0)
          expect((await next.post(data('G-next', 1))).status).toBe(200)
          await next.receiver.drain()
        },
      ),
      { numRuns: thread ? 4 : 12 },
    )
  })
})

test.each([
  ['a fraction', 333.3],
  ['a text', '333.3'],
  ['a BigInt', 333n],
  ['no number', Number.NaN],
  ['infinite', Infinity],
  ['negative', -1],
  ['longer than any timer', 1e300],
])(
  'a Retry whose time is %s, set by another copy of the package, keeps no other vehicle waiting',
  async (_, afterMs) => {
    const path = files.path()
    const { receiver, post } = scene({ inbox: sqliteInbox({ path }), clock: systemClock })
    const handled: string[] = []
    receiver.on('data', ({ vin }) => {
      if (vin === 'BAD') throw Object.assign(new Retry(0), { afterMs })
      handled.push(vin)
    })
    await receiver.open()
    const vins = ['BAD', ...Array.from({ length: 20 }, (__, at) => `VIN${at}`)]
    for (const answer of await Promise.all(vins.map((vin) => post(data(vin, 1))))) expect(answer.status).toBe(200)
    await expect.poll(() => handled.length).toBe(20)
    await receiver.drain()
    const next = scene({ inbox: sqliteInbox({ path }), clock: systemClock })
    next.receiver.on('data', ({ vin }) => void handled.push(vin))
    await next.receiver.open()
    expect((await next.post(data('OTHER', 1))).status).toBe(200)
    await expect.poll(() => handled).toContain('OTHER')
    await next.receiver.drain()
  },
)

test.each([
  ['a fraction', 0.5, 1],
  ['0', 0, 0],
])('Retry takes %s and rounds it up', (_, given, taken) => {
  expect(new Retry(given).afterMs).toBe(taken)
})

test.each(['1', 1n, null, undefined, Number.NaN, Infinity, -1, 2 ** 31, {}, Symbol('x')])(
  'Retry refuses %s by name',
  (given) => {
    expect(() => new Retry(given as number)).toThrow(FleethookError)
    expect(() => new Retry(given as number)).toThrow(/Retry takes milliseconds from 0 to 2147483647/)
  },
)

test('an error text with a NUL, half of a character or a million characters becomes the text of a dead letter', async () => {
  const { receiver, post } = scene({
    inbox: sqliteInbox({ path: files.path() }),
    clock: systemClock,
    retry: { attempts: 1 },
  })
  const texts = ['a\0b', 'a\uD800b', 'x'.repeat(1_000_000), `${'x'.repeat(499 - 'Error: '.length)}🚗`]
  receiver.on('data', ({ data: { Odometer } }) => {
    throw new Error(texts[Number(Odometer)])
  })
  await receiver.open()
  for (const at of texts.keys()) await post(data(`VIN${at}`, at))
  await expect.poll(() => receiver.stats().deadLettered).toBe(texts.length)
  const dead = await Array.fromAsync(receiver.deadLetters.list())
  for (const { error } of dead) {
    expect(error.isWellFormed()).toBe(true)
    expect(error).not.toContain('\0')
    expect(error.length).toBeLessThan(600)
  }
  await receiver.drain()
})

test('a VIN with a NUL or half of a character keeps no other vehicle waiting', async () => {
  const path = files.path()
  const parts = [vehicles({ fields: ['Odometer'] })]
  const { receiver, post } = scene({ inbox: sqliteInbox({ path }), clock: systemClock, parts })
  const handled: string[] = []
  // Without a VIN that can be one, its event is `unknown`.
  receiver.on('*', ({ topic }) => void handled.push(topic))
  await receiver.open()
  const vins = ['A\0B', 'A\uD800', 'GOOD']
  for (const vin of vins) expect((await post(data(vin, 1))).status).toBe(200)
  await expect.poll(() => handled.length).toBe(3)
  await receiver.drain()
  const next = scene({ inbox: sqliteInbox({ path }), clock: systemClock, parts })
  await next.receiver.open()
  expect(next.receiver.stats().pending.messages).toBe(0)
  await next.receiver.drain()
})
