import { createReceiver, type Receiver, type Vehicles, vehicles } from 'fleethook'
import { alertStarts, becomes, comesOnline, starts, is } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { settableClock } from '../dispatch/fake-clock.ts'
import { logInto } from '../dispatch/scene.ts'
import { gapOf } from './everywhere.ts'
import { durablePlaces, type Place, places } from './places.ts'

const backMs = 120_000
const vin = '0FLEETV14T0000001'
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** A vehicle whose clock is right, and a receiver whose clock is set back by two minutes. Until then, or from then on, it is wrong. */
function scene(open: () => Place, wasRight: boolean) {
  const clock = settableClock()
  if (!wasRight) clock.set(backMs)
  const place = open()
  const lines: string[] = []
  const found: string[] = []
  const begin = (): Receiver & { readonly vehicles: Vehicles } => {
    const receiver = createReceiver({
      ...{ secret: false, log: logInto(lines), clock, inbox: place.next() },
      parts: [vehicles({ fields: ['Gear', 'BatteryLevel'] })],
    })
    const note = (name: string) => (happening: { readonly change: { readonly acrossGap: boolean } }) =>
      void found.push(`${name}${happening.change.acrossGap ? '~' : ''}`)
    receiver.when(becomes('Gear', 'P'), note('parks')).when(starts(is('Gear', 'D')), note('drives'))
    return receiver.when(comesOnline(), note('online')).when(alertStarts(), note('alert'))
  }
  return {
    ...{ clock, lines, found, begin, end: place.end },
    /** Sends what the vehicle says now, and resolves to the edges that happened. */
    async says(receiver: Receiver, said: object, agoMs = 0): Promise<readonly string[]> {
      found.length = 0
      const createdAt = new Date(clock.fake.now() - agoMs).toISOString()
      expect((await receiver.accept({ authorization: undefined, body: { vin, createdAt, ...said } })).status).toBe(200)
      while (receiver.stats().pending.messages > 0) await turn()
      await clock.fake.advance(1_000)
      return [...found]
    },
  }
}
const behind = (lines: readonly string[]): number => lines.filter((line) => line.includes('the clock is behind')).length

/** A gap of the last second. */
async function gap(receiver: Receiver, clock: ReturnType<typeof settableClock>, of?: string): Promise<void> {
  const at = new Date(clock.now())
  const told = gapOf(of, new Date(at.getTime() - 1_000), at)
  await receiver.from({ feed: async ({ tell }) => void (await tell(told)) })
  while (receiver.stats().pending.messages > 0) await turn()
}

async function inOneProcess(open: () => Place, wasRight: boolean): Promise<void> {
  const { begin, clock, says, lines, end } = scene(open, wasRight)
  const receiver = begin()
  await says(receiver, { data: { Gear: 'D', BatteryLevel: 50 } })
  clock.set(-backMs)
  expect(await says(receiver, { data: { Gear: 'P' } })).toEqual(['parks'])
  for (const of of [undefined, vin]) {
    await gap(receiver, clock, of)
    expect(await says(receiver, { data: { Gear: 'D' } })).toEqual(['drives~'])
    expect(await says(receiver, { data: { Gear: 'P' } })).toEqual(['parks'])
    expect((await receiver.vehicles.get(vin))?.isCertain('BatteryLevel')).toBe(false)
    await says(receiver, { data: { BatteryLevel: 50 } })
    expect((await receiver.vehicles.get(vin))?.isCertain('BatteryLevel')).toBe(true)
  }
  expect(behind(lines)).toBe(1)
  await receiver.drain()
  end()
}

async function betweenTwo(open: () => Place, wasRight: boolean, where: string): Promise<void> {
  const { begin, clock, says, lines, end } = scene(open, wasRight)
  const alert = () => ({ name: 'Low', startedAt: new Date(clock.fake.now()).toISOString() })
  const first = begin()
  await says(first, { data: { Gear: 'D', BatteryLevel: 50 } })
  await says(first, { state: 'asleep' })
  expect(await says(first, { alerts: [alert()] })).toEqual(['alert'])
  expect(await says(first, { data: { Gear: 'P' } })).toEqual(['parks'])
  await first.drain()
  clock.set(-backMs)
  await clock.fake.advance(60_000)
  const second = begin()
  await second.open()
  // Nobody listened meanwhile. A Durable Object begins with the request that needs it.
  const across = where === 'in SQLite' ? '~' : ''
  expect(await says(second, { data: { Gear: 'D' } })).toEqual([`drives${across}`])
  expect(await says(second, { data: { Gear: 'P' } })).toEqual(['parks'])
  expect(await says(second, { state: 'online' })).toEqual([`online${across}`])
  // A new one that is over.
  expect(await says(second, { alerts: [{ ...alert(), endedAt: alert().startedAt }] })).toEqual(['alert'])
  expect(await says(second, { alerts: [alert()] })).toEqual(['alert'])
  expect(await says(second, { data: { Gear: 'D' } }, 10 * backMs)).toEqual([])
  expect((await second.vehicles.get(vin))?.value('Gear')).toBe('P')
  expect(behind(lines)).toBe(1)
  await gap(second, clock)
  expect((await second.vehicles.get(vin))?.isCertain('Gear')).toBe(false)
  expect(await says(second, { data: { Gear: 'D' } })).toEqual(['drives~'])
  expect(await says(second, { data: { Gear: 'P' } })).toEqual(['parks'])
  await clock.fake.advance(backMs)
  expect(await says(second, { data: { Gear: 'D' } })).toEqual(['drives'])
  expect(behind(lines)).toBe(1)
  await second.drain()
  end()
}

/** Also names the place that fails. */
async function everywhere(of: typeof places, check: typeof betweenTwo): Promise<void> {
  for (const [where, open] of of)
    for (const wasRight of [true, false])
      await check(open, wasRight, where).catch((cause: unknown) => {
        throw new Error(`${where}, and the clock was ${wasRight ? 'right' : 'ahead'} before`, { cause })
      })
}

describe('a clock that is set back', () => {
  test('hides no edge and no gap, and the log says so once', () => everywhere(places, inOneProcess))

  test('hides none between two processes either', () => everywhere(durablePlaces, betweenTwo))
})
