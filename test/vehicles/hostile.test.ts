import fc from 'fast-check'
import { createReceiver, type OtherField, type Receiver } from 'fleethook'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { fields, rules } from './everywhere.ts'
import { silent } from './scene.ts'

const numRuns = inForm({ short: 150, full: 3_000, long: 100_000 })

const unhandled: unknown[] = []
const note = (error: unknown): void => void unhandled.push(error)
beforeAll(() => void process.on('unhandledRejection', note))
afterAll(() => void process.off('unhandledRejection', note))

/** As JSON text, because not every JSON text comes from a value: `1e400`, names that JavaScript knows, and deep lists. */
const deep = (depth: number): string => `${'['.repeat(depth)}1${']'.repeat(depth)}`
const odd = fc.oneof(
  fc.constantFrom('null', 'true', '""', '"NaN"', '"Infinity"', '"-0"', '-0', '1e400', '-1e308', '9007199254740993'),
  fc.constantFrom('5e-324', '"1e999"', '"<invalid>"', '"\\u0000"', '"\\ud800"', '{}', '[]', '[null]'),
  fc.constantFrom('{"__proto__":{"latitude":1}}', '{"constructor":null}', '{"latitude":"52","longitude":null}'),
  fc.constantFrom(
    '{"latitude":1e300,"longitude":-1e300}',
    '{"latitude":52.3731,"longitude":4.8926}',
    '"P"',
    '19',
    '81',
  ),
  fc.constantFrom('{"DriverFront":1}', `"${'x'.repeat(10_000)}"`, deep(50), deep(3_000)),
  fc.double().map((number) => (Number.isFinite(number) ? String(number) : `"${number}"`)),
  fc.json({ maxDepth: 4 }),
)
const name = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom<string>(...fields) },
  fc.constantFrom('__proto__', 'constructor', 'toString', 'hasOwnProperty', 'NoSuchField', '', '0', 'length'),
  fc.string({ maxLength: 8 }),
)
const sane = fc.constantFrom(
  ['Gear', '"P"'],
  ['Gear', '"D"'],
  ['BatteryLevel', '19'],
  ['BatteryLevel', '81'],
  ['DetailedChargeState', '"Charging"'],
  ['DetailedChargeState', '"Stopped"'],
  ['Location', '{"latitude":52.3731,"longitude":4.8926}'],
  ['Location', '{"latitude":52.6,"longitude":4}'],
  ['Odometer', '5'],
)
const members = fc
  .array(fc.oneof(sane, fc.tuple(name, odd)), { maxLength: 8 })
  .map((list) => `{${list.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join()}}`)
const time = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('2026-01-05T08:00:00Z', '2026-01-05T08:00:01.5Z') },
  fc.constantFrom('0000-01-01T00:00:00Z', '+275760-09-13T00:00:00.000Z', '2999-01-01T00:00:00Z', 'NaN', ''),
)
const vin = fc.constantFrom('A', 'A', 'A', 'A', 'B', '__proto__', 'constructor', 'ü', ' ')
const section = fc.constantFrom('charge_state', 'drive_state', 'vehicle_state', 'location_data', 'climate_state')
const content = fc.oneof(
  { weight: 4, arbitrary: members.map((data) => `"data":${data}`) },
  fc.tuple(section, members).map(([key, value]) => `"vehicle_data":{"${key}":${value}}`),
  odd.map((state) => `"state":${state}`),
  fc.array(members, { maxLength: 2 }).map((alerts) => `"alerts":[${alerts.join()}]`),
  fc.tuple(odd, odd).map(([status, id]) => `"connectivity":{"status":${status},"connectionId":${id}}`),
)
const body = fc
  .tuple(vin, time, content)
  .map(([of, createdAt, said]) => `{"vin":${JSON.stringify(of)},"createdAt":${JSON.stringify(createdAt)},${said}}`)

/** The fields can have any name. */
const heard = ({ fields: names }: { readonly fields: readonly string[] }): readonly OtherField[] =>
  names.map((field) => field as OtherField)

test('rules survive whatever values a message has: nothing throws, and every vehicle can be read', { timeout: 600_000 }, async () => {
  const taken = { acknowledged: 0, refused: 0, happened: 0 }
  await fc.assert(
    fc.asyncProperty(fc.subarray([...rules]), fc.array(body, { minLength: 1, maxLength: 12 }), fc.boolean(), async (some, bodies, keepsAll) => {
      const errors: unknown[] = []
      const receiver: Receiver = createReceiver({
        ...{ secret: false, log: silent, retry: { attempts: 1 } },
        vehicles: keepsAll ? true : { fields, deltas: { BatteryLevel: 2 } },
      })
      receiver.onError((error) => void errors.push(error))
      for (const rule of some)
        receiver.when(rule, ({ change, vehicle, id }) => {
          taken.happened += 1
          // What a handler would do with it.
          JSON.stringify([change, id, vehicle.online, heard(vehicle).map((field) => [vehicle.value(field), vehicle.ageMs(field)])])
        })
      receiver.on('data', (_event, { changes }) => void JSON.stringify(changes), { invalid: true, first: true, changed: ['Gear'] })
      for (const text of bodies) {
        const request = new Request('http://receiver.test/', { method: 'POST', body: text })
        const { status } = await receiver.fetch(request)
        expect([200, 400]).toContain(status)
        taken[status === 200 ? 'acknowledged' : 'refused'] += 1
      }
      await receiver.drain()
      expect(errors).toEqual([])
      expect(receiver.stats()).toMatchObject({ deadLettered: 0, pending: { messages: 0 } })
      for (const vehicle of await receiver.vehicles.list())
        for (const field of heard(vehicle)) {
          expect(vehicle.value(field)).toBeDefined()
          expect(vehicle.ageMs(field)).toBeGreaterThanOrEqual(0)
          expect(Number.isNaN(vehicle.at(field)?.getTime())).toBe(false)
        }
    }), // prettier-ignore
    { numRuns },
  )
  expect(unhandled).toEqual([])
  expect(Object.prototype).not.toHaveProperty('latitude')
  // The messages are odd, and not so odd that none is read.
  expect(taken.acknowledged).toBeGreaterThan(taken.refused)
  expect(taken.happened).toBeGreaterThan(numRuns / 10)
}) // prettier-ignore
