import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, type FakeClock, fakeClock, message } from 'fleethook/testing'
import { fact, inside, rulesFor, starts } from 'fleethook/when'
import { uniformInt } from 'pure-rand/distribution/uniformInt'
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'
import { Painted } from './painted.ts'
import { silent, unwatched } from './scene.ts'

const own = { Level: 'number' } as const
const { below } = rulesFor(own)
const vin = '0FLEETV14T0000001'
const limit = fact('limit', 'number')
const home = fact('home', 'area')
const minute = 60_000
const minutes = 240

const inboxes = {
  'in memory': () => () => memoryInbox(),
  'in SQLite, with restarts': () => {
    const path = `${newFolder('facts-model')}/inbox.db`
    return () => sqliteInbox({ path })
  },
}

function open(inbox: ReturnType<typeof memoryInbox>, clock: FakeClock, told: string[]) {
  const beganMs = Date.UTC(2026, 10, 21, 10)
  const at = ({ change }: { readonly change: { readonly at: Date } }): number =>
    Math.floor((change.at.getTime() - beganMs) / minute)
  return createReceiver({
    secret: false,
    // Physics allows any.
    fields: own,
    clock,
    log: silent,
    inbox,
    parts: [vehicles({ fields: ['Level', 'Location'], facts: [limit, home] })] as const,
  })
    .when(starts(below('Level', limit)), (happened) => void told.push(`low ${at(happened)}`))
    .when(starts(inside(home)), (happened) => void told.push(`home ${at(happened)}`))
}

describe.each(Object.entries(inboxes))('%s', (name, create) => {
  const seeds = name === 'in memory' ? { short: 6, full: 150 } : { short: 1, full: 20 }
  test.each(Array.from({ length: inForm(seeds) }, (_, seed) => seed))(
    'limits and areas that change at random tell what a plain model tells (seed %i)',
    async (seed) => {
      const random = xoroshiro128plus(seed + 1)
      const upTo = (most: number): number => uniformInt(random, 0, most)
      const clock = unwatched(fakeClock())
      const beganMs = clock.now()
      const date = (at: number): Date => new Date(beganMs + at * minute)
      const inbox = create()
      const told: string[] = []
      let receiver = open(inbox(), clock, told)
      await receiver.open()
      const [limits, homes] = [new Painted<number>(), new Painted<number>()]
      const wanted: string[] = []
      let [level, place, wasLow, wasHome]: [
        number | undefined,
        number | undefined,
        boolean | undefined,
        boolean | undefined,
      ] = [undefined, undefined, undefined, undefined]
      const look = (at: number): void => {
        const most = limits.at(at)
        const isLow = most === undefined ? false : level === undefined ? undefined : level < most
        if (isLow === true && wasLow === false) wanted.push(`low ${at}`)
        if (isLow !== undefined) wasLow = isLow
        const own = homes.at(at)
        const isHome = own === undefined ? false : place === undefined ? undefined : place === own
        if (isHome === true && wasHome === false) wanted.push(`home ${at}`)
        if (isHome !== undefined) wasHome = isHome
      }
      for (let at = 0; at < minutes; at += 1) {
        // A little after the minute: what is planned for it comes first.
        await clock.advance(date(at).getTime() + 1 - clock.now())
        look(at)
        const what = upTo(9)
        if (what < 3) {
          level = upTo(100)
          place = upTo(2)
          const Location = { latitude: 52 + place / 1_000, longitude: 5 }
          const made = {
            ...message.data({}, { vin, createdAt: date(at).toISOString() }),
            data: { Level: level, Location },
          }
          await (
            await deliver(receiver, made)
          ).settled
        } else if (what < 7) {
          const from = at + (upTo(1) === 0 ? -upTo(30) : upTo(30))
          const until = upTo(1) === 0 ? Math.max(from, at) + 1 + upTo(40) : undefined
          const times = { from: date(from), until: until === undefined ? undefined : date(until) }
          const nth = upTo(3)
          if (upTo(1) === 0) {
            const value = nth === 0 ? null : upTo(100)
            limits.say(value, Math.max(0, from), until)
            await receiver.vehicles.set(vin, { limit: value }, { ...times, from: date(Math.max(0, from)) })
          } else {
            const value = nth === 0 ? null : nth - 1
            homes.say(value, Math.max(0, from), until)
            const area = value === null ? null : { latitude: 52 + value / 1_000, longitude: 5, radiusMeters: 20 }
            await receiver.vehicles.set(vin, { home: area }, { ...times, from: date(Math.max(0, from)) })
          }
          await clock.advance(0)
        } else if (what === 9 && name !== 'in memory') {
          await receiver.drain()
          receiver = open(inbox(), clock, told)
          await receiver.open()
        }
        const before = wanted.length
        look(at)
        // A change that is said late is told at its own time.
        for (let nth = before; nth < wanted.length; nth += 1) wanted[nth] = String(wanted[nth]?.split(' ')[0])
      }
      await clock.advance(minute)
      const vehicle = await receiver.vehicles.get(vin)
      for (let at = minutes - 60; at < minutes; at += 1)
        expect([at, vehicle?.fact(limit, date(at))]).toEqual([at, limits.at(at)])
      const words = (list: readonly string[]): readonly string[] => list.map((each) => each.split(' ')[0] ?? '')
      expect(words(told)).toEqual(words(wanted))
      await receiver.drain()
    },
  )
})
