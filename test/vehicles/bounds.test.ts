import { createReceiver, type Log, memoryInbox, type Receiver, vehicles } from 'fleethook'
import type { OtherField } from 'fleethook/normalize'
import type { Edge } from 'fleethook/when'
import { becomes } from 'fleethook/when'
import { expect, test } from 'vitest'
import { edgeOf, silent } from './scene.ts'

const vin = '0FLEETV14T0000001'
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
async function post(receiver: Pick<Receiver, 'accept' | 'stats'>, body: string): Promise<void> {
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  while (receiver.stats().pending.messages > 0) await turn()
}
const message = (said: string): string => `{"vin":"${vin}","createdAt":"2026-01-05T08:00:00Z",${said}}`

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
  for (const text of [
    'not JSON',
    '{"fields":{"Gear":1}}',
    '{"fields":null}',
    `{"fields":{"Gear":[${'['.repeat(9_000)}${']'.repeat(9_000)},1,1]}}`,
  ]) {
    const { log, reasons } = listening()
    const inbox = memoryInbox()
    const receiver = createReceiver({
      ...{ secret: false, log, parts: [vehicles({ fields: 'all' })] },
      inbox(settings) {
        const made = inbox(settings)
        made.states?.keep({ vin, seq: 1, seenMs: 1, bytes: 10, text: () => text })
        return made
      },
    })
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBeUndefined()
    await post(receiver, message('"data":{"Gear":"P"}'))
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
    if (!text.includes('[[')) expect(reasons).toEqual(['a stored state cannot be read'])
  }
})

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
