import { cpSync, readdirSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, vehicle } from 'fleethook/testing'
import { type Edge, type EdgeResult, is, silent, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { silent as silentLog, unwatched } from '../vehicles/scene.ts'
import { newFolder } from '../folder.ts'

const vin = '0FLEETV14T0000004'
const folder = newFolder('own-edges')

const own = (result: unknown, others: object = {}): Edge => ({
  ...silent({ hours: 1 }),
  name: 'own',
  topics: ['data'],
  detect: () => result as EdgeResult,
  ...others,
})

const receiverOf = (inbox = memoryInbox(), clock = fakeClock()) =>
  createReceiver({
    secret: false,
    log: silentLog,
    clock: unwatched(clock),
    retry: { attempts: 1 },
    inbox,
    parts: [vehicles({ fields: ['Gear'] })],
  })

describe('what an edge of your own returns is refused as the error of that edge, and the others go on', () => {
  const happened = { at: new Date(0), acrossGap: false }
  test.each<readonly [what: string, result: unknown, problem: string]>([
    ['a timer that is NaN', { timer: { due: Number.NaN, since: 0 } }, 'due at NaN'],
    ['a timer that never comes', { timer: { due: Infinity, since: 0 } }, 'due at Infinity'],
    ['a timer after the last date', { timer: { due: 8.64e15 + 2, since: 0 } }, 'due at 8640000000000002'],
    ['a timer that is a text', { timer: { due: '2026', since: 0 } }, 'due at a string'],
    ['a timer without a start', { timer: { due: 1 } }, 'since undefined'],
    ['a timer that is a number', { timer: 5 }, 'set 5 as its timer'],
    ['an invalid date', { happened: { ...happened, at: new Date(Number.NaN) } }, 'happened at no valid time'],
    ['no date', { happened: { ...happened, at: 5 } }, 'happened at no valid time'],
    ['an occurrence that is a text', { happened: 'yes' }, 'happened at no valid time'],
    ['a memory that is an object', { memory: { a: 1 } }, 'remembers an object'],
    ['a memory that is NaN', { memory: Number.NaN }, 'remembers NaN'],
    ['a memory that is too long', { memory: 'x'.repeat(65_537) }, 'remembers 65537 characters'],
    ['a promise', Promise.resolve(), 'returned an object'],
    ['a text', 'happened', 'returned a string'],
  ])('%s', async (_, result, problem) => {
    const told: string[] = []
    const receiver = receiverOf()
      .when(starts(is('Gear', 'P')), () => void told.push('starts'))
      .when(own(result), () => void told.push('own'))
    const car = vehicle(receiver, vin)
    await car.data({ Gear: 'D' })
    await car.data({ Gear: 'P' })
    expect(told).toEqual(['starts'])
    const dead = await Array.fromAsync(receiver.deadLetters.list())
    expect(dead.map(({ error }) => error)).toEqual([expect.stringContaining(problem), expect.stringContaining(problem)])
    expect(dead[0]?.error).toContain('`own`')
    expect(await receiver.vehicles.get(vin)).toMatchObject({ timers: [] })
    await receiver.drain()
  })
})

test('an edge without a usable shape is refused when it is registered, with the reason', () => {
  const refused = (others: object): string => {
    try {
      receiverOf().when(own(undefined, others), () => {})
      return ''
    } catch (error) {
      return String(error)
    }
  }
  expect(refused({ name: '' })).toContain('The name of an edge')
  expect(refused({ name: 5 })).toContain('The name of an edge is 5')
  expect(refused({ fields: 'Gear' })).toContain('`fields`')
  expect(refused({ reads: undefined })).toContain('`reads`')
  expect(refused({ topics: ['gap'] })).toContain('`gap`')
  expect(refused({ detect: 1 })).toContain('`detect`')
})

test('a file with a timer that no date can have does not stop a start, and the other timers of the vehicle go on', async () => {
  const path = join(folder, 'bad')
  const clock = fakeClock()
  const silence = silent({ minutes: 10 })
  const first = receiverOf(sqliteInbox({ path: join(path, 'inbox.db') }), clock).when(silence, () => {})
  await vehicle(first, vin, { clock }).data({ Gear: 'P' })
  const drained = first.drain()
  await clock.advance(10_000)
  await drained
  const copy = join(folder, 'copy')
  cpSync(path, copy, { recursive: true })
  const file = readdirSync(copy).find((name) => name.endsWith('.db')) ?? ''
  const db = new DatabaseSync(join(copy, file))
  const { text } = db.prepare(`SELECT text FROM vehicles WHERE vin <> ''`).get() as { text: string }
  const state = JSON.parse(text) as { due: number; timers: object }
  const timers = { own: { due: 1e308, since: 0 }, other: { due: 1, since: 1e300 }, ...state.timers }
  const changed = JSON.stringify({ ...state, due: 1e308, timers })
  db.prepare(`UPDATE vehicles SET text = ?, crc = ? WHERE vin <> ''`).run(changed, crc32(changed))
  db.close()
  const told: string[] = []
  const second = receiverOf(sqliteInbox({ path: join(copy, 'inbox.db') }), clock).when(
    silence,
    ({ vin: of }) => void told.push(of),
  )
  await second.open()
  await clock.advance(700_000)
  await vehicle(second, vin, { clock }).data({ Gear: 'P' })
  expect(told).toEqual([vin])
  await second.drain({ deadlineMs: 1, handlerGraceMs: 1 })
})
