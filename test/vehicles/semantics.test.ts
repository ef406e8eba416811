import { join } from 'node:path'
import { createReceiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, message } from 'fleethook/testing'
import { all, below, circle, inside, is, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { gapOf } from './everywhere.ts'
import { places } from './places.ts'
import { edgeOf, shown, silent, unwatched, vehicleScene, type VehicleScene, vin } from './scene.ts'
import { newFolder } from '../folder.ts'

const last = <T>(list: readonly T[]): T | undefined => list.at(-1)

describe('the newest value wins', () => {
  test('by the time of the vehicle, and an older message never replaces a newer value', async () => {
    const { receiver, send, told } = vehicleScene()
    await send({ BatteryLevel: 50 })
    await send({ BatteryLevel: 40 }, { agoMs: 60_000 })
    expect(last(told)?.changes).toEqual([])
    expect((await receiver.vehicles.get(vin))?.value('BatteryLevel')).toBe(50)
  })

  test('and a clock that is five minutes fast does not freeze the state', async () => {
    const { receiver, send, told } = vehicleScene()
    await send({ BatteryLevel: 50 }, { agoMs: -300_000 })
    await send({ BatteryLevel: 49 })
    expect(last(told)?.changes).toEqual(['BatteryLevel 50>49'])
    expect((await receiver.vehicles.get(vin))?.value('BatteryLevel')).toBe(49)
  })
})

describe('null', () => {
  test('keeps the last value, and is no change', async () => {
    const { receiver, send, told } = vehicleScene()
    await send({ Gear: 'D' })
    await send({ Gear: null })
    expect(last(told)?.changes).toEqual([])
    const asleep = await receiver.vehicles.get(vin)
    expect(asleep?.value('Gear')).toBe('D')
    expect(asleep?.invalidSince('Gear')).toBeInstanceOf(Date)
    await send({ Gear: 'D' })
    expect(last(told)?.changes).toEqual([])
    expect((await receiver.vehicles.get(vin))?.invalidSince('Gear')).toBeUndefined()
    await send({ Gear: null })
    await send({ Gear: 'P' })
    expect(last(told)?.changes).toEqual(['Gear "D">"P"'])
  })

  test('is a change for a handler that asks for it', async () => {
    const { receiver, send } = vehicleScene()
    const seen: string[] = []
    receiver.on('data', { changed: ['Gear'], invalid: true }, (event) => void seen.push(String(event.data.Gear)))
    await send({ Gear: 'D' })
    await send({ Gear: null })
    const since = (await receiver.vehicles.get(vin))?.invalidSince('Gear')
    await send({ Gear: null })
    expect((await receiver.vehicles.get(vin))?.invalidSince('Gear')).toEqual(since)
    await send({ Gear: 'D' })
    expect(seen).toEqual(['null', 'D'])
  })

  test('in place of a value that could not be read as its type changes nothing', async () => {
    const { receiver, send } = vehicleScene()
    await send({ BatteryLevel: 50 })
    await send({ BatteryLevel: 'much' })
    expect((await receiver.vehicles.get(vin))?.invalidSince('BatteryLevel')).toBeUndefined()
  })
})

describe('changes', () => {
  test('do not include the first value of a field, unless a handler asks for it', async () => {
    const { receiver, send, told } = vehicleScene()
    const seen: unknown[] = []
    receiver.on('data', { changed: ['Gear'], first: true }, (event) => void seen.push(event.data.Gear))
    await send({ Gear: 'P' })
    await send({ Gear: 'P' })
    await send({ Gear: 'R' })
    expect(told.map(({ changes }) => changes)).toEqual([[], [], ['Gear "P">"R"']])
    expect(seen).toEqual(['P', 'R'])
  })

  test('compare structures deeply', async () => {
    const { send, told } = vehicleScene()
    await send({ Location: { latitude: 1, longitude: 2 } })
    await send({ Location: { longitude: 2, latitude: 1 } })
    expect(last(told)?.changes).toEqual([])
    await send({ Location: { latitude: 1, longitude: 2.001 } })
    expect(last(told)?.changes).toHaveLength(1)
  })

  test('of a number with a delta are measured from the last reported change', async () => {
    const { send, told } = vehicleScene({
      vehicles: { fields: ['BatteryLevel'], deltas: { BatteryLevel: 2 } },
    })
    for (const BatteryLevel of [50, 51, 51.9, 52.1, 53, 50]) await send({ BatteryLevel })
    expect(told.map(({ changes }) => changes.join())).toEqual([
      '',
      '',
      '',
      'BatteryLevel 50>52.1',
      '',
      'BatteryLevel 52.1>50',
    ])
  })

  test('stay the same over retries', async () => {
    const { receiver, clock, send } = vehicleScene({ retry: { attempts: 3, minMs: 500, maxMs: 500 } })
    const seen: string[] = []
    receiver.observe({ failed: () => {} })
    receiver.on('data', (_event, { changes, vehicle }) => {
      seen.push(`${changes.map(shown).join()} ${vehicle?.value('Gear')}`)
      if (seen.length === 2 || seen.length === 3) throw new Error('not yet')
    })
    await send({ Gear: 'P' })
    const sent = send({ Gear: 'R' })
    await clock.advance(5_000)
    await sent
    expect(seen.slice(1)).toEqual(Array(3).fill('Gear "P">"R" R'))
  })
})

describe('the time since which a value is what it is', () => {
  const agoMs = async ({ receiver, clock }: VehicleScene, field: 'Gear' | 'BatteryLevel'): Promise<number> =>
    clock.now() - ((await receiver.vehicles.get(vin))?.since(field)?.getTime() ?? 0)

  test('stays when the value is repeated, missing, or uncertain after a gap', async () => {
    const scene = vehicleScene()
    expect((await scene.receiver.vehicles.get(vin))?.since('Gear')).toBeUndefined()
    await scene.send({ Gear: 'D' })
    await scene.send({ Gear: 'P' }, { agoMs: 500 })
    expect(await agoMs(scene, 'Gear')).toBe(1_500)
    await scene.send({ Gear: 'P' })
    await scene.send({ Gear: null })
    await scene.send({ Gear: 'P' })
    await scene.send({ Gear: 'R' }, { agoMs: 60_000 })
    await gap(scene)
    await scene.send({ Gear: 'P' })
    expect(await agoMs(scene, 'Gear')).toBe(6_510)
    await scene.send({ Gear: 'D' })
    expect(await agoMs(scene, 'Gear')).toBe(1_000)
  })

  test('is that of the last change that counted, with a delta', async () => {
    const scene = vehicleScene({ vehicles: { fields: ['BatteryLevel'], deltas: { BatteryLevel: 2 } } })
    for (const BatteryLevel of [50, 51, 51.9]) await scene.send({ BatteryLevel })
    expect(await agoMs(scene, 'BatteryLevel')).toBe(3_000)
    await scene.send({ BatteryLevel: 52.1 })
    expect(await agoMs(scene, 'BatteryLevel')).toBe(1_000)
  })

  test.each(places)('is there for a handler and outlives the process, %s', async (_, open) => {
    const place = open()
    const clock = fakeClock()
    const began = new Date(clock.now())
    const first = vehicleScene({ clock, inbox: place.next() })
    const seen: unknown[] = []
    first.receiver.on('data', (_event, { vehicle }) => void seen.push(vehicle?.since('Gear')))
    for (const data of [{ Gear: 'P' }, { Gear: 'P', BatteryLevel: 50 }, { BatteryLevel: 49 }]) await first.send(data)
    expect(seen).toEqual([began, began, began])
    await first.receiver.drain()
    const next = vehicleScene({ clock, inbox: place.next() })
    if (first.receiver.durability === 'memory') await next.send({ Gear: 'P' })
    await next.send({ Gear: 'P' })
    const since = (await next.receiver.vehicles.get(vin))?.since('Gear')
    expect(since).toEqual(first.receiver.durability === 'memory' ? new Date(began.getTime() + 3_000) : began)
    await next.receiver.drain()
    place.end()
  })
})

/** Messages of this vehicle, or of any, may be missing up to a time. */
async function gap({ receiver, clock }: VehicleScene, of?: string, agoMs: number = 0): Promise<void> {
  const to = new Date(clock.now() - agoMs)
  const told = gapOf(of, new Date(to.getTime() - 100), to, new Date(clock.now()))
  await receiver.from({ feed: async ({ tell }) => void (await tell(told)) })
  await clock.advance(10)
}

describe('a gap', () => {
  const certain = async ({ receiver }: VehicleScene): Promise<unknown> => {
    const vehicle = await receiver.vehicles.get(vin)
    return [vehicle?.isCertain('Gear'), vehicle?.isCertain('BatteryLevel')]
  }

  test('makes values uncertain until they are reported again, and marks the change across it', async () => {
    // A gap of all vehicles, and one of this vehicle.
    for (const of of [undefined, vin]) {
      const scene = vehicleScene()
      const { receiver, send, told } = scene
      await send({ Gear: 'P', BatteryLevel: 50 })
      await gap(scene, of)
      expect(await certain(scene)).toEqual([false, false])
      expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
      await send({ Gear: 'R' })
      expect(last(told)?.changes).toEqual(['Gear "P">"R"~'])
      expect(await certain(scene)).toEqual([true, false])
      await send({ Gear: 'P' })
      expect(last(told)?.changes).toEqual(['Gear "R">"P"'])
    }
  })

  test('leaves values certain that were reported after it, although its event came later', async () => {
    const scene = vehicleScene()
    await scene.send({ Gear: 'P', BatteryLevel: 50 })
    await scene.clock.advance(10_000)
    await scene.send({ Gear: 'R' })
    await gap(scene, vin, 5_000)
    expect(await certain(scene)).toEqual([true, false])
  })

  test('marks what starts with a value from before it, until that was reported again', async () => {
    const scene = vehicleScene()
    const seen: unknown[] = []
    scene.receiver.when(starts(all(is('Gear', 'P'), below('BatteryLevel', 20))), ({ change }) => {
      seen.push(change.acrossGap)
    })
    await scene.send({ Gear: 'P', BatteryLevel: 30 })
    await gap(scene, vin)
    await scene.send({ BatteryLevel: 15 })
    expect(seen).toEqual([true])
    await scene.send({ Gear: 'P' })
    await scene.send({ BatteryLevel: 30 })
    await scene.send({ BatteryLevel: 15 })
    expect(seen).toEqual([true, false])
  })

  test('of another vehicle changes nothing', async () => {
    const scene = vehicleScene()
    await scene.send({ Gear: 'P', BatteryLevel: 50 })
    await gap(scene, 'another')
    expect(await certain(scene)).toEqual([true, true])
  })
})

describe('a replay', () => {
  const folder = newFolder('replay')
  const stored = (name: string): VehicleScene =>
    vehicleScene({ inbox: sqliteInbox({ path: join(folder, `${name}.db`) }), retry: { attempts: 1 } })

  test('of a dead letter shows the values that were uncertain as uncertain', async () => {
    const scene = stored('uncertain')
    const { receiver, send } = scene
    const seen: unknown[] = []
    receiver.observe({ failed: () => {} })
    receiver.on('data', (_event, { vehicle, changes }) => {
      seen.push([vehicle?.isCertain('Gear'), vehicle?.isCertain('BatteryLevel'), changes.map(shown)])
      if (seen.length === 2) throw new Error('once')
    })
    await send({ Gear: 'P', BatteryLevel: 50 })
    await gap(scene)
    await send({ Gear: 'R' })
    await send({ BatteryLevel: 49 })
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await expect.poll(() => seen.length).toBe(4)
    expect(seen[1]).toEqual([true, false, ['Gear "P">"R"~']])
    expect(seen[3]).toEqual(seen[1])
    await receiver.drain()
  })
})

test('state and connectivity messages say whether a vehicle is online', async () => {
  const { receiver, post, clock } = vehicleScene()
  const online = async (): Promise<unknown> => (await receiver.vehicles.get(vin))?.online
  const at = (): { vin: string; createdAt: string } => ({ vin, createdAt: new Date(clock.now()).toISOString() })
  const posted = async (given: Parameters<typeof post>[0]): Promise<unknown> => {
    await (
      await post(given)
    ).settled
    await clock.advance(1_000)
    return online()
  }
  expect(await posted(message.state('online', at()))).toBe(true)
  expect(await posted(message.state('asleep', at()))).toBe(false)
  expect((await receiver.vehicles.get(vin))?.state).toBe('asleep')
  const connection = (status: string, networkInterface: string): Parameters<typeof post>[0] =>
    message.connectivity({ status, networkInterface, connectionId: networkInterface }, at())
  expect(await posted(connection('CONNECTED', 'wifi'))).toBe(true)
  expect(await posted(connection('CONNECTED', 'cellular'))).toBe(true)
  expect(await posted(connection('DISCONNECTED', 'wifi'))).toBe(true)
  expect(await posted(connection('DISCONNECTED', 'cellular'))).toBe(false)
})

test('a message without a handler is settled after one that a batch gathers, because its state includes that one', async () => {
  const { receiver, post, clock } = vehicleScene()
  receiver.batch('data', { size: 10, withinMs: 5_000 }, () => {})
  const at = { vin, createdAt: new Date(clock.now()).toISOString() }
  const gathered = await post({ ...message.data({}, at), data: { Gear: 'P' } })
  const behind = await post(message.state('online', at))
  let isSettled = false
  void behind.settled.then(() => (isSettled = true))
  await clock.advance(4_999)
  expect(isSettled).toBe(false)
  await clock.advance(1)
  await gathered.settled
  await behind.settled
  const car = await receiver.vehicles.get(vin)
  expect([car?.value('Gear'), car?.online]).toEqual(['P', true])
})

describe('receiver.when', () => {
  test('runs its handler with what happened, the vehicle after the message, and a stable id', async () => {
    const { receiver, clock, send, told } = vehicleScene({ retry: { attempts: 2, minMs: 1, maxMs: 1 } })
    const seen: unknown[] = []
    receiver.observe({ failed: () => {} })
    receiver.when(edgeOf('Gear'), ({ vin: of, change, vehicle, edge, id, event }) => {
      seen.push([of, shown(change), vehicle.value('Gear'), edge, id, event.topic])
      if (seen.length === 1) throw new Error('once')
    })
    await send({ Gear: 'P' })
    const sent = send({ Gear: 'R' })
    await clock.advance(5_000)
    await sent
    const id = `${vin}:any Gear:${last(told)?.id}`
    const once = [vin, 'Gear "P">"R"', 'R', 'any Gear', id, 'data']
    expect(seen).toEqual([once, once])
  })

  test('keeps what a rule over an area remembered before the first position', async () => {
    const { receiver, send } = vehicleScene()
    const seen: unknown[] = []
    const depot = circle({ latitude: 52, longitude: 5, radiusMeters: 200 })
    receiver.when(starts(all(inside(depot), is('Gear', 'P'))), ({ vin: of }) => void seen.push(of))
    await send({ Gear: 'D' })
    await send({ Gear: 'P' })
    await send({ Location: { latitude: 52, longitude: 5 } })
    expect(seen).toEqual([vin])
  })

  test('deletes the memory of an edge that returns `null`', async () => {
    const { receiver, send } = vehicleScene()
    const memories: unknown[] = []
    const edge = edgeOf('Gear')
    const detect = ({ memory }: { readonly memory: unknown }): { readonly memory: 1 | null } => {
      memories.push(memory)
      return { memory: memory === undefined ? 1 : null }
    }
    receiver.when({ ...edge, detect }, () => {})
    for (const Gear of ['P', 'D', 'R']) await send({ Gear })
    expect(memories).toEqual([undefined, 1, undefined])
  })

  test('keeps the memory of an edge per vehicle', async () => {
    const { receiver, send } = vehicleScene()
    const memories: unknown[] = []
    const edge = edgeOf('Gear')
    receiver.when({ ...edge, detect: (step) => (memories.push(step.memory), edge.detect(step)) }, () => {})
    for (const Gear of ['P', 'P', 'R', 'D']) await send({ Gear })
    await send({ Gear: 'D' }, { vin: 'another' })
    expect(memories).toEqual([undefined, 1, 2, undefined])
  })

  test('collects occurrences for a batch', async () => {
    const { receiver, send, clock } = vehicleScene()
    const seen: unknown[] = []
    receiver.batch(edgeOf('Gear'), { size: 10, withinMs: 100 }, (happenings, { vehicles }) => {
      seen.push(
        happenings.map(({ change }) => shown(change)),
        vehicles.map((vehicle) => vehicle?.value('Gear')),
      )
    })
    await send({ Gear: 'P' })
    const sent = send({ Gear: 'R' })
    await clock.advance(5_000)
    await sent
    expect(seen).toEqual([['Gear "P">"R"'], ['R']])
  })

  test('makes the message a dead letter when its handler fails, and a replay shows the same', async () => {
    const { receiver, send, told } = vehicleScene({ retry: { attempts: 1 } })
    const seen: string[] = []
    receiver.observe({ failed: () => {} })
    receiver.when(edgeOf('Gear'), ({ change, vehicle, id }) => {
      seen.push(`${shown(change)} ${vehicle.value('Gear')} ${id}`)
      if (seen.length === 1) throw new Error('once')
    })
    await send({ Gear: 'P' })
    await send({ Gear: 'R' })
    await send({ Gear: 'D' })
    expect(seen).toHaveLength(2)
    expect(await receiver.deadLetters.replay({})).toBe(1)
    await expect.poll(() => last(told)?.changes).toEqual(['Gear "P">"R"'])
    expect(seen[2]).toBe(seen[0])
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('D')
  })

  test.each([
    ['an edge over a field that is not kept', [vehicles({ fields: ['BatteryLevel'] })], /`Gear`, which is not among/],
    ['any edge without the part', [], /needs the part `vehicles`/],
  ])('refuses %s', (_, parts, text) => {
    const receiver = createReceiver({ secret: false, log: silent, parts })
    expect(() => receiver.when(edgeOf('Gear'), () => {})).toThrow(text)
  })
})

describe('receiver.vehicles', () => {
  const folder = newFolder('vehicles')
  const places = [
    ['in memory', undefined],
    ['in SQLite', 'file'],
  ] as const
  const inboxOf = (file: string | undefined, name: string): Partial<Parameters<typeof vehicleScene>[0]> =>
    file === undefined ? {} : { inbox: sqliteInbox({ path: join(folder, `${name}.db`) }) }

  test.each(places)('lists vehicles, and forgets one, %s', async (_, file) => {
    const { receiver, send } = vehicleScene(inboxOf(file, 'pages'))
    for (const of of ['c', 'a', 'b']) await send({ Gear: 'P' }, { vin: of })
    const vins = async (which?: { after?: string }): Promise<unknown> =>
      (await Array.fromAsync(receiver.vehicles.list(which))).map((vehicle) => vehicle.vin)
    expect(await vins()).toEqual(['a', 'b', 'c'])
    expect(await vins({ after: 'b' })).toEqual(['c'])
    expect(await receiver.vehicles.forget('b')).toBe(true)
    expect(await receiver.vehicles.forget('b')).toBe(false)
    expect(await vins()).toEqual(['a', 'c'])
    expect(await receiver.vehicles.get('b')).toBeUndefined()
    expect(await receiver.vehicles.stats()).toMatchObject({ vehicles: 2, edges: 0 })
    await receiver.drain()
  })

  test('forgets a vehicle while one of its messages is being handled, and that message does not restore its state', async () => {
    const { receiver, post, clock } = vehicleScene()
    let end = (): void => {}
    receiver.on('data', () => new Promise<void>((resolve) => void (end = resolve)))
    const { settled } = await post(message.data({ Gear: 'P' }, { vin }))
    await clock.advance(10)
    expect((await receiver.vehicles.get(vin))?.value('Gear')).toBe('P')
    expect(await receiver.vehicles.forget(vin)).toBe(true)
    end()
    await settled
    expect(await receiver.vehicles.get(vin)).toBeUndefined()
    expect(await receiver.vehicles.stats()).toMatchObject({ vehicles: 0 })
  })

  test('forgets vehicles that were not seen for a time', async () => {
    const kept = { fields: ['Gear'] as const, forgetAfterMs: 3_600_000 }
    for (const [, file] of places) {
      const clock = unwatched(fakeClock())
      const { receiver, send } = vehicleScene({ clock, vehicles: kept, ...inboxOf(file, 'unseen') })
      await send({ Gear: 'P' })
      await clock.advance(3_500_000)
      expect(await receiver.vehicles.get(vin)).toBeDefined()
      await clock.advance(3_600_000)
      await expect.poll(() => receiver.vehicles.get(vin)).toBeUndefined()
      await receiver.drain()
    }
  })

  test('is not there without the part', () => {
    expect(createReceiver({ secret: false, log: silent })).not.toHaveProperty('vehicles')
  })
})

describe('construction refuses', () => {
  test.each([
    ['an unknown field', { parts: [vehicles({ fields: ['BateryLevel'] })] }, 'not in the catalogue'],
    [
      'a delta of a field that is not kept',
      { parts: [vehicles({ fields: ['Gear'], deltas: { Soc: 1 } as never })] },
      'not among',
    ],
    ['the part twice', { parts: [vehicles({ fields: 'all' }), vehicles({ fields: ['Gear'] })] }, 'at most once'],
    ['decode: false', { parts: [vehicles({ fields: 'all' })], decode: false }, '`decode` of createReceiver is false'],
  ])('%s', (_, options, text) => {
    expect(() => Reflect.apply(createReceiver, undefined, [{ secret: false, ...options }])).toThrow(text)
  })

  test('an inbox that has no place for the state', () => {
    const inbox = (): never => ({ durability: 'disk' }) as never
    expect(() => createReceiver({ secret: false, log: silent, inbox, parts: [vehicles({ fields: 'all' })] })).toThrow(
      'needs an inbox that keeps',
    )
  })
})
