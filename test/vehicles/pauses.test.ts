import type { FleetEvent, Receiver } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { becomes, type Edge, episode, is, type Occurrence, span, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { episodeScene, type EpisodeScene, type Said, vin } from '../when/episodes-scene.ts'
import { untidied } from '../when/stepping.ts'

const files = createFiles()
const trip = episode('trip', { during: is('Gear', 'D'), joins: { minutes: 1 }, measures: { miles: span('Odometer') } })

/** The vehicle says its speed each so many seconds: it goes on. */
const speeds = (from: number, to: number, every: number = 10): readonly Said[] =>
  Array.from({ length: Math.ceil((to - from) / every) }, (_, nth) => [from + nth * every, { VehicleSpeed: nth % 9 }])

const inOrder = (...said: readonly Said[]): readonly Said[] => said.toSorted(([one], [other]) => one - other)

const parked: Said = [-600, { Gear: 'P', Odometer: 1_000, Locked: false }]
/** It drives off at 0, and sends something each ten seconds. */
const drive: readonly Said[] = inOrder(parked, ...speeds(-60, 100), [0, { Gear: 'D', Odometer: 1_000 }])
const rest = (from: number): readonly Said[] =>
  inOrder(...speeds(from, 400), [300, { Gear: 'P', Odometer: 1_010 }], [301, { Locked: true }])

interface Lives<Happened extends Occurrence> {
  readonly told: readonly Happened[]
  readonly events: readonly FleetEvent[]
  readonly scene: EpisodeScene<Happened>
}

type Life = readonly [stop: number, start: number, then: readonly Said[]]

/** The vehicle says something to one process, which stops and is followed by the next one, seconds of the scene later. */
async function lives<Happened extends Occurrence>(
  edge: Edge<Happened>,
  said: readonly Said[],
  ...following: readonly Life[]
): Promise<Lives<Happened>> {
  const path = files.path()
  const inbox = (): InboxFactory => untidied(sqliteInbox({ path }))
  const events: FleetEvent[] = []
  const place = { next: inbox, host: (receiver: Receiver) => void receiver.on('*', (event) => void events.push(event)) }
  let scene = episodeScene(edge, { place, startsAt: -700 })
  const told = [scene.told]
  await scene.say(...said)
  for (const [stop, start, then] of following) {
    await scene.until(stop)
    await scene.stop()
    const { clock } = scene
    await clock.advance((start - stop) * 1_000 - 10, async () => {})
    scene = episodeScene(edge, { place, clock })
    told.push(scene.told)
    await scene.receiver.open()
    await scene.say(...then)
  }
  return { told: told.flat(), events, scene }
}

const marks = async (edge: Edge, said: readonly Said[], ...following: readonly Life[]): Promise<readonly boolean[]> => {
  const { told, scene } = await lives(edge, said, ...following)
  await scene.until(9_000)
  await scene.stop()
  return told.map(({ acrossGap }) => acrossGap)
}

describe('a restart after which the vehicle goes on as before', () => {
  const short: Life = [92, 97, rest(100)]

  test('marks no episode and no change, and what is known is certain', async () => {
    const { scene, events, told } = await lives(trip, drive, short)
    const known = await scene.receiver.vehicles.get(vin)
    expect([known?.isCertain('Odometer'), known?.isCertain('Gear')]).toEqual([true, true])
    await scene.until(9_000)
    expect([...told, ...scene.told].at(-1)).toMatchObject({ acrossGap: false, missing: [] })
    expect(events.filter(({ topic }) => topic === 'gap')).toMatchObject([{ reason: 'stopped', missed: 0 }])
    expect(trip.in(events)).toMatchObject([{ acrossGap: false, missing: [] }])
    await scene.stop()
    expect(await marks(becomes('Locked', true), drive, short)).toEqual([false])
    expect(await marks(starts(is('Gear', 'P')), drive, short)).toEqual([false])
  })

  test('until it is heard, what is known is uncertain', async () => {
    const { scene } = await lives(trip, drive, [92, 97, []])
    expect((await scene.receiver.vehicles.get(vin))?.isCertain('Gear')).toBe(false)
    await scene.say([100, { VehicleSpeed: 1 }])
    expect((await scene.receiver.vehicles.get(vin))?.isCertain('Gear')).toBe(true)
    await scene.stop()
  })
})

test.each<[string, readonly Said[], ...(readonly Life[])]>([
  ['it was silent for longer than it usually is', drive, [92, 97, rest(110)]],
  ['it is not heard within two minutes', inOrder(...drive, ...speeds(190, 200)), [192, 330, [[340, { Locked: true }]]]],
  ['nobody knows how often it says something', [parked], [-595, -590, [[-588, { Locked: true }]]]],
  ['it has been silent since long before', drive, [250, 255, rest(260)]],
])('a restart marks a change when %s', async (_, said, ...following) => {
  expect(await marks(becomes('Locked', true), said, ...following)).toEqual([true])
})

test('a restart marks an episode, and in a list too, when it was silent for longer than it usually is', async () => {
  const { scene, events } = await lives(trip, drive, [92, 97, rest(110)])
  await scene.until(9_000)
  expect(scene.told.at(-1)).toMatchObject({ acrossGap: true })
  expect(trip.in(events)).toMatchObject([{ acrossGap: true }])
  await scene.stop()
})

test('a later restart that is none makes nothing from before an earlier one certain', async () => {
  const later: readonly Said[] = speeds(120, 202)
  const end: readonly Said[] = inOrder(...speeds(210, 250), [211, { Locked: true }])
  expect(await marks(becomes('Locked', true), drive, [92, 97, later], [202, 206, end])).toEqual([true])
})

test('a document that was asked for is no sign of the vehicle', async () => {
  const { scene, told } = await lives(becomes('Locked', true), drive, [92, 97, []])
  await scene.refill(98, { state: 'online' })
  await scene.say(...rest(100))
  expect([...told, ...scene.told]).toMatchObject([{ acrossGap: true }])
  await scene.stop()
})

test('requests that were refused are a gap, also for a vehicle that goes on', async () => {
  const { scene, told } = await lives(becomes('Locked', true), drive, [92, 97, []])
  const { status } = await scene.receiver.accept({ authorization: undefined, body: '{' })
  expect(status).toBe(400)
  await scene.say(...rest(100))
  expect([...told, ...scene.told]).toMatchObject([{ acrossGap: true }])
  await scene.stop()
})
