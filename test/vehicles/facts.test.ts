import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { below, fact, has, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { data } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { quiet } from '../postgres/quiet.ts'
import { placeHere } from './facts-place.ts'
import { factRows } from './facts-rows.ts'

const unitMs = 60_000
const now = (): number => Date.UTC(2026, 10, 21, 10, 20)
const survives = false

factRows('facts in memory', {
  ...{ unitMs, now, survives },
  open: (settings, startMs) => placeHere(settings, startMs, memoryInbox()),
})

// `test/faults/process/facts.test.ts` ends its process.
factRows('facts in SQLite', {
  ...{ unitMs, now, survives, keepsHandled: true },
  open: (settings, startMs) => placeHere(settings, startMs, sqliteInbox({ path: `${newFolder('facts')}/inbox.db` })),
})

test('an edge over a fact that the part does not keep is refused when it is registered', () => {
  const [customer, lowBattery] = [fact('customer', 'string'), fact('lowBattery', 'number')]
  const receiver = createReceiver({
    secret: false,
    parts: [vehicles({ fields: ['BatteryLevel'], facts: [customer] })] as const,
  })
  expect(() => receiver.when(starts(below('BatteryLevel', lowBattery)), () => {})).toThrow(
    'reads the fact `lowBattery`',
  )
  expect(() => receiver.when(starts(has(fact('customer', 'number'))), () => {})).toThrow('keeps it as string')
})

test('in a deploy, a process that declares no facts keeps what others were told is kept', async () => {
  const path = `${newFolder('facts')}/inbox.db`
  const limit = fact('limit', 'number')
  const options = { secret: false, log: quiet } as const
  const before = createReceiver({
    ...options,
    inbox: sqliteInbox({ path }),
    parts: [vehicles({ fields: ['Odometer'], facts: [limit] })],
  }).on('data', () => new Promise(() => {}))
  await before.accept({ authorization: undefined, body: data('A', 1) })
  // It waits behind a message whose handler does not end.
  await before.vehicles.set('A', { limit: 20 })
  await before.drain({ handlerGraceMs: 0, deadlineMs: 0 })
  const without = createReceiver({
    ...options,
    inbox: sqliteInbox({ path }),
    parts: [vehicles({ fields: ['Odometer'] })],
  })
  await without.open()
  await expect.poll(() => without.stats().pending.messages).toBe(0)
  await without.drain()
  const after = createReceiver({
    ...options,
    inbox: sqliteInbox({ path }),
    parts: [vehicles({ fields: ['Odometer'], facts: [limit] })],
  })
  await after.open()
  expect((await after.vehicles.get('A'))?.fact(limit)).toBe(20)
  await after.drain()
})

test('in a deploy, a process that declares no facts writes a state with the facts that it has', async () => {
  const path = `${newFolder('facts')}/inbox.db`
  const limit = fact('limit', 'number')
  const begin = (facts: readonly (typeof limit)[]) =>
    createReceiver({
      ...{ secret: false, log: quiet, inbox: sqliteInbox({ path }) },
      parts: [vehicles({ fields: ['Odometer'], facts })] as const,
    })
  const before = begin([limit])
  await before.vehicles.set('A', { limit: 20 })
  await expect.poll(() => before.stats().pending.messages).toBe(0)
  await before.drain()
  const without = begin([])
  await without.accept({ authorization: undefined, body: data('A', 1) })
  await expect.poll(() => without.stats().pending.messages).toBe(0)
  await without.drain()
  const after = begin([limit])
  await after.open()
  const vehicle = await after.vehicles.get('A')
  expect([vehicle?.value('Odometer'), vehicle?.fact(limit)]).toEqual([1, 20])
  await after.drain()
})
