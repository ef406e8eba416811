import { createReceiver, vehicles } from 'fleethook'
import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
import { fakeClock, vehicle } from 'fleethook/testing'
import { type Edge, is, type Lasted, silent as silently, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { silent } from '../vehicles/scene.ts'
import { objectStorage } from './object-storage.ts'

const vin = '0FLEETV14T0000004'
const minuteMs = 60_000

test('an alarm wakes an object for the timers of its vehicles, also when it was gone from memory', async () => {
  const clock = fakeClock()
  const startMs = clock.now()
  const alarms: number[] = []
  const told: { readonly change: Lasted; readonly id: string }[] = []
  const state = { storage: objectStorage(async (ms) => void alarms.push(ms)) }
  const env: { OBJECTS?: ObjectNamespace } = {}
  const receiver = createReceiver({
    ...{ secret: false, log: silent, clock, parts: [vehicles({ fields: ['Gear'] })] },
    inbox: durableObjectInbox({ objects: () => namespace }),
  }).when(starts(is('Gear', 'P')).after({ minutes: 30 }), ({ change, id }) => void told.push({ change, id }))
  const Inbox = inboxObject(receiver)
  let object = new Inbox(state, env)
  const namespace = {
    idFromName: (name: string) => ({ name }),
    get: () => ({ fetch: (url: string, init: RequestInit) => object.fetch(new Request(url, init)) }),
  } as never as ObjectNamespace
  async function alarm(): Promise<void> {
    const ringing = object.alarm()
    await clock.advance(1_000)
    await ringing
  }

  const car = vehicle(receiver, vin, { clock })
  for (const gear of ['D', 'P', 'D', 'P'] as const) {
    await car.data({ Gear: gear })
    await clock.advance(10)
  }
  await clock.advance(5_000)
  await alarm()
  const dueMs = alarms.at(-1) ?? 0
  expect(dueMs - startMs).toBeGreaterThanOrEqual(30 * minuteMs)
  expect(dueMs - startMs).toBeLessThan(31 * minuteMs)
  expect((await receiver.vehicles.get(vin))?.timers).toHaveLength(1)
  // The platform ends an object that has nothing to do.
  object = new Inbox(state, env)
  await clock.advance(dueMs - clock.now())
  expect(told).toEqual([])
  await alarm()
  expect(told.map(({ change: { late } }) => late)).toEqual([false])
  expect((await receiver.vehicles.get(vin))?.timers).toEqual([])
  const rung = alarms.length
  await alarm()
  expect(alarms).toHaveLength(rung)
})

test('rules that are new count from the states that an object has stored, once', async () => {
  const clock = fakeClock()
  const alarms: number[] = []
  const told: string[] = []
  const state = { storage: objectStorage(async (ms) => void alarms.push(ms)) }
  const deploy = (rules: readonly Edge[]) => {
    const env: { OBJECTS?: ObjectNamespace } = {}
    const receiver = createReceiver({
      ...{ secret: false, log: silent, clock, parts: [vehicles({ fields: ['Gear'] })] },
      inbox: durableObjectInbox({ objects: () => namespace, shards: 1 }),
    })
    for (const rule of rules) receiver.when(rule, ({ vin: of }) => void told.push(`${of} ${rule.name.slice(0, 6)}`))
    const object = new (inboxObject(receiver))(state, env)
    const namespace = {
      idFromName: (name: string) => ({ name }),
      get: () => ({ fetch: (url: string, init: RequestInit) => object.fetch(new Request(url, init)) }),
    } as never as ObjectNamespace
    return { receiver, object }
  }
  const run = async ({ object }: ReturnType<typeof deploy>): Promise<void> => {
    const ringing = object.alarm()
    for (let second = 0; second < 20; second += 1) await clock.advance(1_000)
    await ringing
  }
  const all = Array.from({ length: 520 }, (_, n) => `0FLEETV14T${String(n).padStart(7, '0')}`)
  const first = deploy([])
  for (const of of all) {
    await vehicle(first.receiver, of, { clock }).data({ Gear: of === all[0] ? 'D' : 'P' })
    await clock.advance(1)
  }
  await run(first)
  await clock.advance(60 * minuteMs)
  const rules = [starts(is('Gear', 'P'), { first: true }).after({ minutes: 30 }), silently({ minutes: 45 })]
  const expected = all.flatMap((of) => (of === all[0] ? [`${of} silent`] : [`${of} silent`, `${of} starts`]))
  const second = deploy(rules)
  for (let ring = 0; ring < 5 && told.length < expected.length; ring += 1) await run(second)
  expect(told.toSorted()).toEqual(expected.toSorted())
  for (const again of [[], rules]) await run(deploy(again))
  expect(told).toHaveLength(expected.length)
})
