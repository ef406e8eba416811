import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import type { OnceHandler } from 'fleethook/once'
import { episode, growth, rulesFor, span } from 'fleethook/when'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, expectTypeOf, test } from 'vitest'
import { at, episodeRows, measures, options, parked, trip, values } from './episodes-rows.ts'
import { episodeScene, fields, vin } from './episodes-scene.ts'
import { untidied } from './stepping.ts'

const folder = mkdtempSync(join(tmpdir(), 'fleethook-episodes-rows-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
let files = 0

episodeRows('in memory', () => ({ next: () => memoryInbox() }), false)
episodeRows(
  'in SQLite',
  () => {
    const file = join(folder, `${(files += 1)}.db`)
    return { next: () => untidied(sqliteInbox({ path: file })) }
  },
  true,
)

test('a span has the type of its field, also of your own', () => {
  const { span: own } = rulesFor({ Mood: { enum: ['Calm', 'Angry'] } } as const)
  const mixed = episode('mixed', { during: options.during, measures: { mood: own('Mood'), odometer: span('Odometer'), place: span('Location'), kwh: growth('Odometer') } }) // prettier-ignore
  type Found = NonNullable<ReturnType<typeof mixed.open>>
  expectTypeOf<Found['mood']['from']>().toEqualTypeOf<'Calm' | 'Angry' | null>()
  expectTypeOf<Found['odometer']['to']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['place']['to']>().toEqualTypeOf<{ readonly latitude: number; readonly longitude: number } | null>()
  expectTypeOf<Found['kwh']>().toEqualTypeOf<number | null>()
  expectTypeOf<Found['revision']>().toEqualTypeOf<number>()
})

test('an option that is wrong is refused with what to do', () => {
  const refused = (name: string, given: object): void => {
    // @ts-expect-error Options of another shape.
    expect(() => episode(name, given)).toThrow(expect.objectContaining({ code: 'option_invalid' }))
  }
  refused('', options)
  refused('x'.repeat(101), options)
  refused('trip', { measures })
  refused('trip', { during: options.during })
  refused('trip', { during: options.during, measures: { id: span('Odometer') } })
  refused('trip', { during: options.during, measures: { missing: span('Odometer') } })
  refused('trip', { during: options.during, measures: { odometer: 'Odometer' } })
  refused('trip', { ...options, joins: { seconds: 0.1 } })
  refused('trip', { ...options, waits: 60 })
  refused('trip', { ...options, unknown: 1 })
  expect(() => trip.where()).toThrow('An episode has no `where`')
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields })] }).when(trip, () => undefined)
  expect(() => receiver.when(episode('trip', { ...options, joins: { minutes: 4 } }), () => undefined)).toThrow(
    expect.objectContaining({ code: 'handler_invalid' }),
  )
})

test('`exactly` can be replaced in a test without a cast', async () => {
  const save = (exactly: OnceHandler<string[]>) =>
    exactly('trips', (happening: { readonly id: string }, _context, rows) => rows.push(happening.id))
  const rows: string[] = []
  const handler = save((_name, handle) => async (what, context) => void (await handle(what, context, rows)))
  await handler({ id: 'one' }, { delivery: { id: '', attempt: 1, redelivered: false, replayed: false } })
  expect(rows).toEqual(['one'])
})

test('`messages.events` are those of the wire, of one vehicle, in the order of arrival', async () => {
  const { receiver, say, until, told } = episodeScene(trip, {
    place: { next: () => untidied(sqliteInbox({ path: join(folder, 'history.db') })) },
  })
  await say(...parked, [0, { Gear: 'D' }], [600, { Gear: 'P' }], ...values)
  await until(3_000)
  const events = await receiver.messages.events({ vin, from: at(-3_600), to: at(3_600) })
  expect(events.map(({ at: sent }) => sent.getTime())).toEqual(
    [-600, -590, -580, 0, 600, 630, 645].map((second) => at(second).getTime()),
  )
  expect(trip.in(events)).toEqual(told)
})
