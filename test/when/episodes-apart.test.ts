import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { episode, fact, is, span } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { silent, unwatched } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000001'
const customer = fact('customer', 'string')
const trip = episode('trip', {
  during: is('Gear', 'D'),
  by: [customer],
  joins: { minutes: 3 },
  measures: { odometer: span('Odometer') },
})
const minute = 60_000

interface Row {
  readonly customer: string | null
  readonly revision: number
  readonly revoked: boolean
  readonly from: number
  readonly to: number
  readonly miles: number | null
}

async function begin(inbox: ReturnType<typeof memoryInbox>) {
  const clock = unwatched(fakeClock())
  const beganMs = clock.now()
  const rows = new Map<string, Row>()
  const warned: string[] = []
  const receiver = createReceiver({
    secret: false,
    clock,
    log: { ...silent, warn: (line) => void warned.push(line) },
    inbox,
    parts: [vehicles({ fields: ['Gear', 'Odometer'], facts: [customer] })] as const,
  }).when(trip, ({ change }) => {
    const at = (date: Date): number => (date.getTime() - beganMs) / minute
    expect(rows.get(change.id)?.customer ?? change.customer).toBe(change.customer)
    rows.set(change.id, {
      customer: change.customer,
      revision: change.revision,
      revoked: change.revoked,
      from: at(change.startedAt),
      to: at(change.endedAt),
      miles:
        change.odometer.to === null || change.odometer.from === null ? null : change.odometer.to - change.odometer.from,
    })
  })
  await receiver.open()
  const date = (minutes: number): Date => new Date(beganMs + minutes * minute)
  return {
    receiver,
    rows,
    warned,
    date,
    shown: () =>
      [...rows.values()]
        .filter(({ revoked }) => !revoked)
        .toSorted((a, b) => a.from - b.from)
        .map((row) => `${row.customer} ${row.from}-${row.to} ${row.miles}`),
    async goTo(minutes: number) {
      const ms = beganMs + minutes * minute - clock.now()
      if (ms > 0) await clock.advance(ms)
    },
    async send(data: Readonly<Record<string, unknown>>, sentAt = clock.now()) {
      const createdAt = new Date(sentAt).toISOString()
      const { settled } = await deliver(receiver, { ...message.data({}, { vin, createdAt }), data })
      await settled
    },
    set: async (to: string | null, from?: Date) => {
      await receiver.vehicles.set(vin, { customer: to }, { from })
      await clock.advance(0)
    },
    clock,
  }
}

/** A drive from minute 10 to 40, a mile a minute. */
async function drive(
  { goTo, send }: Awaited<ReturnType<typeof begin>>,
  on: (minutes: number) => Promise<void> = async () => {},
) {
  await send({ Gear: 'P', Odometer: 100 })
  await goTo(10)
  await send({ Gear: 'D', Odometer: 100 })
  for (let at = 11; at <= 40; at += 1) {
    await goTo(at)
    await on(at)
    await send(at === 40 ? { Gear: 'P', Odometer: 130 } : { Odometer: 90 + at })
  }
  await goTo(60)
}

const inboxes = {
  'in memory': () => memoryInbox(),
  'in SQLite': () => sqliteInbox({ path: `${newFolder('apart')}/inbox.db` }),
}

describe.each(Object.entries(inboxes))('%s', (_, create) => {
  test('a trip with a handover is told as two, and no mile is lost', async () => {
    const scene = await begin(create())
    await scene.set('c-1')
    await drive(scene, async (at) => {
      if (at === 25) await scene.set('c-2', scene.date(24.5))
    })
    expect(scene.shown()).toEqual(['c-1 10-24.5 14', 'c-2 24.5-40 16'])
    await scene.receiver.drain()
  })

  test('a handover that is planned parts the trip by itself', async () => {
    const scene = await begin(create())
    await scene.set('c-1')
    await scene.set('c-2', scene.date(24.5))
    await drive(scene)
    expect(scene.shown()).toEqual(['c-1 10-24.5 14', 'c-2 24.5-40 16'])
    await scene.receiver.drain()
  })

  test('told late, it corrects the trip of then, and no row moves to another customer', async () => {
    const scene = await begin(create())
    await scene.set('c-1')
    await drive(scene)
    expect(scene.shown()).toEqual(['c-1 10-40 30'])
    await scene.set('c-2', scene.date(24.5))
    await scene.goTo(75)
    expect(scene.shown()).toEqual(['c-1 10-24.5 14', 'c-2 24.5-40 16'])
    await scene.set('c-3', scene.date(5))
    await scene.goTo(90)
    expect(scene.shown()).toEqual(['c-3 10-24.5 14', 'c-2 24.5-40 16'])
    expect([...scene.rows.values()].filter(({ revoked }) => revoked).map((row) => row.customer)).toEqual(['c-1'])
    await scene.receiver.drain()
  })

  test('told later than it is corrected, the log says that the row may be wrong, and of a change alone', async () => {
    const scene = await begin(create())
    // Nothing was told of this vehicle.
    await scene.set('c-1', scene.date(-600))
    await drive(scene)
    await scene.set('c-2', scene.date(50))
    await scene.goTo(300)
    await scene.set('c-1', scene.date(20))
    expect(scene.warned).toEqual([])
    await scene.set('c-3', scene.date(24.5))
    await scene.goTo(400)
    expect(scene.warned).toEqual([expect.stringContaining('a fact was told later than its episodes are corrected')])
    expect(scene.shown()).toEqual(['c-1 10-40 30'])
    await scene.receiver.drain()
  })

  test('a message that comes late belongs to who had the vehicle then', async () => {
    const scene = await begin(create())
    await scene.set('c-1')
    await scene.set('c-2', scene.date(30))
    await scene.send({ Gear: 'P', Odometer: 100 })
    await scene.goTo(40)
    for (let at = 10; at <= 40; at += 1)
      await scene.send(
        { Odometer: 90 + at, ...(at === 10 ? { Gear: 'D' } : at === 40 ? { Gear: 'P' } : {}) },
        scene.date(at).getTime(),
      )
    await scene.goTo(60)
    expect(scene.shown()).toEqual(['c-1 10-30 20', 'c-2 30-40 10'])
    await scene.receiver.drain()
  })
})
