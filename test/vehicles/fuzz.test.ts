import fc from 'fast-check'
import { createReceiver, vehicles } from 'fleethook'
import type { OtherField } from 'fleethook/normalize'
import {
  above,
  alertEnds,
  alertStarts,
  all,
  any,
  becomes,
  below,
  between,
  ceases,
  changed,
  circle,
  comesOnline,
  type Condition,
  crosses,
  ends,
  enters,
  falls,
  fallsAsleep,
  goesOffline,
  inside,
  is,
  leaves,
  not,
  polygon,
  rises,
  starts,
  type VehicleEdge,
} from 'fleethook/when'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { expectNoLeftovers } from '../fuzz/leftovers.ts'
import { silent } from './scene.ts'

expectNoLeftovers()

const own = 'Humidity' as OtherField
const latitude = fc.oneof(fc.double({ min: -90, max: 90, noNaN: true }), fc.constantFrom(52, 52.001, -90, 90))
const longitude = fc.oneof(fc.double({ min: -180, max: 180, noNaN: true }), fc.constantFrom(5, 5.001, -180, 180))
const limit = fc.oneof(fc.integer({ min: -3, max: 3 }), fc.double({ noNaN: true, noDefaultInfinity: true }))

const area = fc.oneof(
  fc
    .record({ latitude, longitude, radiusMeters: fc.constantFrom(1, 200, 100_000, 1_000_000) })
    .map((given) => orNone(() => circle(given))),
  fc
    .array(fc.record({ latitude, longitude }), { minLength: 3, maxLength: 6 })
    .map((given) => orNone(() => polygon(given))),
)

/** `when` refuses a rule that makes no sense. This test does not cover that. */
function orNone<Made>(make: () => Made): Made | undefined {
  try {
    return make()
  } catch {
    return undefined
  }
}

const { condition } = fc.letrec<{ readonly condition: Condition | undefined }>((tie) => ({
  condition: fc.oneof(
    { maxDepth: 4 },
    fc
      .tuple(fc.constantFrom('BatteryLevel', 'Soc', own), limit)
      .map(([field, n]) => orNone(() => below(field as 'Soc', n))),
    limit.map((n) => orNone(() => above('BatteryLevel', n))),
    fc.tuple(limit, limit).map(([a, b]) => orNone(() => between('Soc', a, b))),
    fc.constantFrom('P', 'D', 'SNA').map((gear) => is('Gear', gear as 'P')),
    fc.anything().map((value) => orNone(() => is(own, value as never))),
    fc.boolean().map((locked) => is('Locked', locked)),
    area.map((given) => (given === undefined ? undefined : inside(given))),
    tie('condition').map((part) => (part === undefined ? undefined : not(part))),
    fc
      .tuple(fc.constantFrom(all, any), fc.array(tie('condition'), { minLength: 1, maxLength: 4 }))
      .map(([combine, given]) => orNone(() => combine(...given.filter((part) => part !== undefined)))),
  ),
}))

const options = fc.record({ first: fc.boolean(), invalid: fc.boolean() }, { requiredKeys: [] })
const edge: fc.Arbitrary<VehicleEdge | undefined> = fc
  .tuple(
    fc.oneof(
      fc
        .tuple(fc.constantFrom('P', 'D', null), options)
        .map(([gear, how]) => orNone(() => becomes('Gear', gear as 'P', how))),
      fc.tuple(fc.anything(), options).map(([value, how]) => orNone(() => becomes(own, value as never, how))),
      fc.boolean().map((invalid) => ceases('Gear', 'P', { invalid })),
      fc.constantFrom('BatteryLevel', 'Location', 'DoorState', own).map((field) => changed(field as 'Soc')),
      limit.map((delta) => orNone(() => changed('BatteryLevel', { delta }))),
      fc.tuple(limit, limit).map(([limit_, again]) => orNone(() => crosses('BatteryLevel', { below: limit_, again }))),
      limit.map((delta) => orNone(() => rises(own as never, { delta }))),
      fc.constant(falls('Soc')),
      area.map((given) => (given === undefined ? undefined : enters(given, { marginMeters: 50 }))),
      area.map((given) => (given === undefined ? undefined : leaves(given))),
      fc.constantFrom(comesOnline(), goesOffline(), fallsAsleep(), alertStarts(), alertEnds()),
      condition.map((given) => (given === undefined ? undefined : starts(given, { first: true }))),
      condition.map((given) => (given === undefined ? undefined : ends(given))),
    ),
    fc.option(condition),
  )
  .map(([made, where]): VehicleEdge | undefined => (made === undefined || where == null ? made : made.where(where)))

const deep = (depth: number): string => `${'{"a":['.repeat(depth)}1${']}'.repeat(depth)}`
/** Values as JSON text: of the right type, of another type, and some that no JavaScript value is written as. */
const value = fc.oneof(
  fc.constantFrom(
    '1',
    '-1',
    '"P"',
    '"D"',
    '"ShiftStateP"',
    'null',
    'true',
    '0',
    '-0',
    '1e999',
    '-1e999',
    '5e-324',
    '1e308',
  ),
  fc.constantFrom(
    '"NaN"',
    '"Infinity"',
    '"-1e999"',
    '"1e400"',
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '{}',
    '[]',
    '[[]]',
    '{"invalid":true}',
  ),
  fc.constantFrom(
    '{"stringValue":"1"}',
    '{"doubleValue":1e999}',
    '{"__proto__":{"x":1}}',
    '{"constructor":null}',
    deep(20),
    deep(500),
  ),
  fc.constantFrom(
    '{"latitude":1e999,"longitude":5}',
    '{"latitude":52}',
    '{"latitude":"52","longitude":"5"}',
    '"(52 N, 5 E)"',
  ),
  fc.tuple(latitude, longitude).map(([lat, long]) => JSON.stringify({ latitude: lat, longitude: long })),
  limit.map((n) => JSON.stringify(n)),
  fc.jsonValue({ maxDepth: 3 }).map((given) => JSON.stringify(given)),
)
const name = fc.constantFrom(
  ...['BatteryLevel', 'Soc', 'Gear', 'Location', 'Locked', 'DoorState', 'Humidity', 'DestinationName'],
  ...['__proto__', 'constructor', 'toString', '', 'hasOwnProperty'],
)
const time = fc.constantFrom(
  ...['"2026-11-21T10:00:00Z"', '"2026-11-21T10:00:00Z"', '"2026-11-21T09:00:00Z"', '"9999-12-31T00:00:00Z"'],
  ...['"-271821-04-20T00:00:00Z"', '"soon"', 'null', '1e999'],
)
const object = (members: readonly (readonly [string, string])[]): string =>
  `{${members.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join()}}`
const part = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.array(fc.tuple(name, value), { minLength: 1, maxLength: 4 }).map((data) => `"data":${object(data)}`),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom('online', 'asleep', 'offline', '', 'x').map((state) => `"state":"${state}"`),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom('battery_level', 'charging_state', 'timestamp', 'latitude', '__proto__'), value)
      .map(([member, text]) => `"vehicle_data":{"charge_state":${object([[member, text]])},"drive_state":${text}}`),
  },
  { weight: 1, arbitrary: value.map((text) => `"alerts":[{"name":"Low","startedAt":${text},"endedAt":${text}}]`) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom('CONNECTED', 'DISCONNECTED', '')
      .map((status) => `"networkInterface":"wifi","status":"${status}"`),
  },
)
const body = fc
  .tuple(fc.constantFrom('A', 'B', '__proto__'), time, part)
  .map(([vin, createdAt, said]) => `{"vin":"${vin}","createdAt":${createdAt},${said}}`)

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

test(
  'random rules over hostile messages: no crash, no rule that throws, and a replay of a dead letter shows the same',
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(edge, { minLength: 1, maxLength: 8 }),
        fc.array(body, { minLength: 1, maxLength: 20 }),
        async (given, bodies) => {
          const receiver = createReceiver({
            ...{ secret: false, log: silent, parts: [vehicles({ fields: 'all' })], fields: { Humidity: 'any' } },
            retry: { attempts: 1 },
          })
          const rules = given.filter((rule) => rule !== undefined)
          const seen = new Map<string, string[]>()
          const errors: unknown[] = []
          receiver.observe({ failed: (error) => void errors.push(error) })
          let dies = true
          for (const [index, rule] of rules.entries())
            receiver.when(rule.named(`${index}`), ({ id, change, vehicle }) => {
              expect(Number.isNaN(change.at.getTime())).toBe(false)
              const values = vehicle.fields.map((field) => [
                field,
                vehicle.value(field as 'Soc'),
                vehicle.at(field as 'Soc'),
              ])
              seen.set(id, [...(seen.get(id) ?? []), JSON.stringify([change, values])])
              if (dies) throw new Error('for the last time')
            })
          for (const text of bodies) {
            const { status } = await receiver.fetch(new Request('https://x.example/', { method: 'POST', body: text }))
            expect([200, 400]).toContain(status)
          }
          const settled = async (): Promise<void> => {
            while (receiver.stats().pending.messages > 0) await turn()
          }
          await settled()
          expect(errors.map(String).filter((error) => !error.includes('for the last time'))).toEqual([])
          for (const vehicle of await Array.fromAsync(receiver.vehicles.list()))
            JSON.stringify(vehicle.fields.map((field) => vehicle.value(field as 'Soc')))
          dies = false
          await receiver.deadLetters.replay({})
          await settled()
          for (const [id, [first, ...again]] of seen) expect([id, again]).toEqual([id, [first]])
          await receiver.drain()
        },
      ),
      { numRuns: inForm({ short: 60, full: 1_500, long: 30_000 }) },
    )
  },
  inForm({ full: 280_000, long: 3_600_000 }),
)
