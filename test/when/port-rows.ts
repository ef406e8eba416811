import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { type FakeClock, fakeClock, vehicle } from 'fleethook/testing'
import { becomes, is, silent, starts, type VehicleEdge } from 'fleethook/when'
import { expect, test } from 'vitest'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'
import type { Place } from './fleet-time.ts'
import { idle } from './stepping.ts'

const vin = '0FLEETV14T0000004'
const startMs = Date.UTC(2026, 10, 21, 10)
const second = (at: number): { createdAt: string } => ({ createdAt: new Date(startMs + at * 1_000).toISOString() })

const parked = starts(is('Gear', 'P'), { first: true }).after({ seconds: 60 })
const parks = becomes('Gear', 'P').after({ seconds: 60 })
const lost = silent({ seconds: 60 })

interface Life {
  readonly receiver: Receiver
  isOver: boolean
  /** The next handler of a message never ends. */
  hang: (() => void) | undefined
}

/**
 * What a process does with times that were up while nobody ran, on each inbox that outlives it. `own`: messages wait at its port. An object has none,
 * and waits only when it was woken late.
 */
export function portRows(open: () => Place | Promise<Place>, port: 'own' | 'elsewhere' = 'own'): void {
  interface Scene {
    readonly clock: FakeClock
    /** The second at which each was told. */
    readonly told: string[]
    begin(...edges: readonly VehicleEdge[]): Promise<void>
    send(gear: 'P' | 'D', at: number): Promise<void>
    /** Lets the time pass until this second. */
    until(at: number): Promise<void>
    /** Ends the process, by a crash while the next message is handled. */
    crashesIn(gear: 'P' | 'D', at: number): Promise<void>
    stop(): Promise<void>
    end(): Promise<void>
  }

  async function scene(): Promise<Scene> {
    const place = await open()
    const clock = fakeClock(startMs)
    const told: string[] = []
    const lives: Life[] = []
    const alive = (): Life => lives.at(-1) ?? expect.fail('No life began.')
    const settled = (): Promise<void> =>
      idle(async () => alive().receiver.stats().pending.messages + ((await place.pending?.()) ?? 0))
    const drains: Promise<unknown>[] = []
    return {
      clock,
      told,
      async begin(...edges) {
        const receiver: Receiver = createReceiver({
          ...{ secret: false, log: silentLog, clock: unwatched(clock), inbox: place.next() },
          parts: [vehicles({ fields: ['Gear'] })],
        })
        const life: Life = { receiver, isOver: false, hang: undefined }
        receiver.on('data', () => (life.hang === undefined ? undefined : new Promise(life.hang)))
        for (const edge of edges)
          receiver.when(edge, ({ edge: name }) => {
            if (!life.isOver) told.push(`${name.split('(')[0]} ${(clock.now() - startMs) / 1_000}`)
          })
        lives.push(life)
        await receiver.open()
        await clock.advance(1)
        await settled()
      },
      async send(gear, at) {
        void vehicle(alive().receiver, vin).data({ Gear: gear }, second(at))
        await clock.advance(0)
        await settled()
      },
      async until(at) {
        while (clock.now() < startMs + at * 1_000) {
          await clock.advance(Math.min(500, startMs + at * 1_000 - clock.now()))
          await settled()
        }
      },
      async crashesIn(gear, at) {
        const life = alive()
        const hangs = new Promise<void>((resolve) => (life.hang = resolve))
        void vehicle(life.receiver, vin).data({ Gear: gear }, second(at))
        await clock.advance(1)
        await hangs
        await place.crash()
        life.isOver = true
        drains.push(life.receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 }))
      },
      async stop() {
        await alive().receiver.drain()
        alive().isOver = true
      },
      async end() {
        drains.push(alive().receiver.drain({ deadlineMs: 1, handlerGraceMs: 1 }))
        await clock.advance(1_000)
        await Promise.all(drains)
      },
    }
  }

  test.each([
    ['the message that begins it is left by a crash', true, [parked, parks]],
    ['its timer is stored', false, [parked, parks]],
  ] as const)(
    'what was up while nobody ran is not told when a message at the port says otherwise: %s',
    async (_, isLeft, edges) => {
      for (const saysAt of [0.1, 4.9]) {
        const { begin, send, until, crashesIn, stop, end, clock, told } = await scene()
        await begin(...edges)
        await send('D', 0)
        await until(10)
        if (isLeft) await crashesIn('P', 10)
        else {
          await send('P', 10)
          await stop()
        }
        await clock.advance(3_600_000)
        const startsAt = (clock.now() - startMs) / 1_000
        await begin(...edges)
        await until(startsAt + saysAt)
        await send('D', 65)
        await until(startsAt + 200)
        expect(told).toEqual([])
        await end()
      }
    },
  )

  test.each([
    ['the message that begins it is left by a crash', true],
    ['its timer is stored', false],
  ] as const)(
    'what was up while nobody ran is told after five seconds, when none says otherwise: %s',
    async (_, isLeft) => {
      const { begin, send, until, crashesIn, stop, end, clock, told } = await scene()
      await begin(parked)
      await send('D', 0)
      await until(10)
      if (isLeft) await crashesIn('P', 10)
      else {
        await send('P', 10)
        await stop()
      }
      await clock.advance(3_600_000)
      const startsAt = (clock.now() - startMs) / 1_000
      await begin(parked)
      await until(startsAt + 4.5)
      expect(told).toEqual([])
      await until(startsAt + 5.5)
      expect(told).toHaveLength(1)
      await until(startsAt + 200)
      expect(told).toHaveLength(1)
      await end()
    },
  )

  test('a rule that is new counts from the stored state, and waits for the port too', async () => {
    for (const saysAt of [4.9, undefined]) {
      const { begin, send, until, stop, end, clock, told } = await scene()
      await begin()
      await send('P', 0)
      await until(10)
      await stop()
      await clock.advance(3_600_000)
      const startsAt = (clock.now() - startMs) / 1_000
      await begin(parked)
      await until(startsAt + (saysAt ?? 5.5))
      if (saysAt !== undefined) await send('D', 59)
      await until(startsAt + 200)
      expect(told).toHaveLength(saysAt === undefined ? 1 : 0)
      await end()
    }
  })

  if (port === 'elsewhere') return
  test('what is up when a process starts, or in the five seconds after it, waits for the port too', async () => {
    for (const dueAt of [-0.5, 0.5, 4]) {
      const { begin, send, until, stop, end, clock, told } = await scene()
      await begin(parked, lost)
      await send('P', 0)
      await until(10)
      await stop()
      await clock.advance((60 - dueAt) * 1_000 - (clock.now() - startMs))
      const startsAt = (clock.now() - startMs) / 1_000
      await begin(parked, lost)
      await until(startsAt + 4.5)
      expect(told).toEqual([])
      await send('D', 20)
      await until(startsAt + 30)
      // By its arrival, the silence was over.
      expect(told.map((each) => each.split(' ')[0])).toEqual(['silent'])
      await end()
    }
  })
}
