import fc from 'fast-check'
import { createReceiver, type FieldCatalogue, type Log, memoryInbox, type Receiver, vehicles } from 'fleethook'
import type { OtherField } from 'fleethook/normalize'
import type { Edge } from 'fleethook/when'
import { alertStarts, becomes, changed } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { places } from './places.ts'
import { edgeOf, silent } from './scene.ts'

const own = { Mood: 'any' } as const satisfies FieldCatalogue
const vin = '0FLEETV14T0000001'
const forms = [
  ['all fields', { fields: 'all' }],
  ['a list of fields', { fields: ['Gear', 'SpeedLimitMode', 'RouteLine', 'Mood'] }],
] as const

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
async function post(receiver: Pick<Receiver, 'accept' | 'stats'>, body: string): Promise<void> {
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  while (receiver.stats().pending.messages > 0) await turn()
}
const message = (said: string): string => `{"vin":"${vin}","createdAt":"2026-01-05T08:00:00Z",${said}}`

const nested = (depth: number, isArray: boolean): string =>
  isArray ? `${'['.repeat(depth)}${']'.repeat(depth)}` : `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
/** What messages can say, by name: a counterexample stays short. */
const large: Readonly<Record<string, (size: number) => string>> = {
  arrays: (depth) => nested(depth, true),
  objects: (depth) => nested(depth, false),
  wide: (width) => `[${'0,'.repeat(width)}0]`,
  members: (width) => `{${Array.from({ length: width }, (_, n) => `"${n}":[]`).join()}}`,
  text: (length) => JSON.stringify('x'.repeat(length)),
  controls: (length) => JSON.stringify('\u0000'.repeat(length)),
}
const says: Readonly<Record<string, (value: string, size: number) => string>> = {
  any: (value) => `"data":{"SpeedLimitMode":${value}}`,
  own: (value) => `"data":{"Mood":${value}}`,
  string: (value) => `"data":{"RouteLine":${value}}`,
  other: (value) => `"data":{"Other":${value},"__proto__":${value},"1":${value}}`,
  name: (value, size) => `"data":{"${'n'.repeat(size)}":${value}}`,
  names: (_, size) => `"data":{${Array.from({ length: Math.min(size, 4_000) }, (_each, n) => `"f${n}":null,"g${n}":${n}`).join()}}`,
  document: (value) => `"vehicle_data":{"charge_state":{"charging_state":${value}},"vehicle_state":{"car_version":${value}}}`,
  alert: (value) => `"alerts":[{"name":"Low","startedAt":"2026-01-05T08:00:00Z","more":${value}}]`,
  alertName: (_, size) => `"alerts":[{"name":"${'n'.repeat(size)}"}]`,
  state: (_, size) => `"state":"${'s'.repeat(size)}"`,
  connection: (_, size) => `"networkInterface":"wifi","status":"CONNECTED","connectionId":"${'c'.repeat(size)}"`,
} // prettier-ignore
const case_ = fc.tuple(
  fc.constantFrom(...Object.keys(says)),
  fc.constantFrom(...Object.keys(large)),
  fc.constantFrom(1, 31, 33, 101, 500, 5_000, 17_000, 20_000, 200_000),
)
/** What ended a process, or stopped its lane. */
const worst: [string, string, number][] = [
  ['any', 'arrays', 20_000],
  ['names', 'text', 4_000],
  ['alert', 'objects', 20_000],
  ['document', 'arrays', 20_000],
]
/** Nothing in the body of a message can be nested deeper: 40 kB with a bracket at each end. */
const bodyOf = ([what, value, size]: readonly [string, string, number]): string =>
  message(
    says[what]?.(
      large[value]?.(value === 'arrays' || value === 'objects' ? Math.min(size, 20_000) : size) ?? '',
      size,
    ) ?? '',
  )

describe.each(places)('%s', (_, open) => {
  test.each(forms)(
    'no depth, width or length of what messages say ends the process, stops a lane or the next start, with %s',
    async (_form, kept) => {
      await fc.assert(
        fc.asyncProperty(fc.array(case_, { minLength: 1, maxLength: 6 }), async (cases) => {
          const place = open()
          const errors: unknown[] = []
          const make = (fails: boolean) => {
            const receiver = createReceiver({
              ...{
                secret: false,
                log: silent,
                fields: own,
                retry: { attempts: 1 },
                limits: { bodyBytes: 8_000_000 },
              },
              inbox: place.next(),
              parts: [vehicles(kept)],
            })
            receiver.observe({ failed: (error) => void errors.push(error) })
            const handler = (): void => {
              happened += 1
              if (fails) throw new Error('for the last time')
            }
            receiver.when(changed('SpeedLimitMode', { first: true }), handler).when(becomes('Gear', 'P'), handler)
            receiver.when(alertStarts(), handler)
            return receiver
          }
          let happened = 0
          const first = make(true)
          for (const each of cases) await post(first, bodyOf(each))
          await post(first, message('"data":{"Gear":"D"}'))
          await post(first, message('"data":{"Gear":"P"}'))
          expect(happened).toBeGreaterThan(0)
          expect(errors.filter((error) => !String(error).includes('for the last time'))).toEqual([])
          expect((await first.vehicles.get(vin))?.value('Gear')).toBe('P')
          const letters = (await Array.fromAsync(first.deadLetters.list())).length
          expect(letters).toBeGreaterThan(0)
          await first.drain()
          const second = make(false)
          await second.open()
          happened = 0
          if (first.durability !== 'memory') {
            expect((await second.vehicles.get(vin))?.value('Gear')).toBe('P')
            expect(await second.deadLetters.replay({})).toBe(letters)
            while (second.stats().pending.messages > 0) await turn()
            expect(happened).toBe(letters)
          }
          await second.drain()
          place.end()
        }),
        { numRuns: inForm({ short: 8, full: 60, long: 1_500 }), examples: [[worst]] },
      )
    },
    inForm({ short: 60_000, full: 280_000, long: 3_600_000 }),
  )
})

/** Log lines about values that are not kept. */
function listening(): { readonly log: Log; readonly reasons: unknown[] } {
  const reasons: unknown[] = []
  return { reasons, log: { ...silent, warn: (_line, details) => void reasons.push(details?.['reason']) } }
}

const names = (count: number, value: string, first = 0): string =>
  `"data":{${Array.from({ length: count }, (_, n) => `"made up ${first + n}":${value}`).join()}}`

test('made-up names take no slot from a field of the catalogue or its edges, and the log says so', async () => {
  const { log, reasons } = listening()
  const receiver = createReceiver({
    secret: false,
    log,
    parts: [vehicles({ fields: 'all' })],
    fields: { Mood: 'string' },
  })
  const seen: unknown[] = []
  receiver.when(becomes('Mood' as OtherField, 'Calm'), ({ vin: of }) => void seen.push(of))
  for (const first of [0, 500, 1_000]) await post(receiver, message(names(500, '1', first)))
  expect(new Set(reasons)).toEqual(new Set(['there are too many fields that are in no catalogue']))
  for (const mood of ['Angry', 'Calm']) await post(receiver, message(`"data":{"Mood":"${mood}","Gear":"P"}`))
  expect(seen).toEqual([vin])
  expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
  expect((await receiver.vehicles.get(vin))?.fields).toHaveLength(1_002)
})

test('the state of a vehicle has a limit, which made-up fields cannot use up', async () => {
  const { log, reasons } = listening()
  const receiver = createReceiver({
    secret: false,
    log,
    parts: [vehicles({ fields: 'all' })],
    limits: { bodyBytes: 20_000_000 },
  })
  await post(receiver, message(names(500, JSON.stringify('x'.repeat(10_000)))))
  expect(new Set(reasons)).toEqual(new Set(['its state is full']))
  await post(receiver, message(`"data":{"Gear":"P","RouteLine":"${'x'.repeat(16_000)}"}`))
  const vehicle = await receiver.vehicles.get(vin)
  expect([vehicle?.value('Gear'), vehicle?.value('RouteLine')?.length]).toEqual(['P', 16_000])
  expect(JSON.stringify(vehicle?.fields.map((field) => vehicle.value(field as OtherField))).length).toBeLessThan(65_536)
})

test('a value that is too large is left out, and the last one stays', async () => {
  const { log, reasons } = listening()
  const receiver = createReceiver({ secret: false, log, parts: [vehicles({ fields: ['RouteLine'] })] })
  await post(receiver, message('"data":{"RouteLine":"short"}'))
  await post(receiver, message(`"data":{"RouteLine":"${'x'.repeat(17_000)}"}`))
  expect((await receiver.vehicles.get(vin))?.value('RouteLine')).toBe('short')
  expect(reasons).toEqual(['a value is too large or nested too deep'])
})

test('a stored state that cannot be read is replaced by a new one, and its vehicle goes on', async () => {
  for (const text of ['not JSON', '{"fields":{"Gear":1}}', '{"fields":null}', `{"fields":{"Gear":[${nested(9_000, true)},1,1]}}`]) {
    const { log, reasons } = listening()
    const inbox = memoryInbox()
    const receiver = createReceiver({
      ...{ secret: false, log, parts: [vehicles({ fields: 'all' })] },
      inbox(settings) {
        const made = inbox(settings)
        made.vehicles?.keep({ vin, seq: 1, seenMs: 1, bytes: 10, text: () => text })
        return made
      },
    })
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBeUndefined()
    await post(receiver, message('"data":{"Gear":"P"}'))
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
    if (!text.includes('[[')) expect(reasons).toEqual(['a stored state cannot be read'])
  }
}) // prettier-ignore

test('an edge cannot remember without a limit, and a dead letter of one that returns anything can be replayed', async () => {
  const errors: unknown[] = []
  const receiver = createReceiver({
    ...{ secret: false, log: silent, parts: [vehicles({ fields: 'all' })] },
    retry: { attempts: 1 },
  })
  receiver.observe({ failed: (error) => void errors.push(error) })
  const long: Edge = { ...edgeOf('Gear', 'long'), detect: () => ({ memory: 'x'.repeat(70_000) }) }
  const odd: Edge = {
    ...edgeOf('Gear', 'odd'),
    detect: () => ({ happened: Object.assign({ at: new Date(5), acrossGap: false }, { big: 1n }) }),
  }
  let isAway = true
  const seen: unknown[] = []
  receiver.when(long, () => {})
  receiver.when(odd, ({ change }) => {
    if (isAway) throw new Error('away')
    seen.push(change.at)
  })
  await post(receiver, message('"data":{"Gear":"P"}'))
  expect(errors.map((error) => Reflect.get(Object(error), 'code'))).toEqual(['handler_invalid', undefined])
  isAway = false
  expect(await receiver.deadLetters.replay({})).toBe(1)
  while (receiver.stats().pending.messages > 0) await turn()
  expect(seen).toEqual([new Date(5)])
})
