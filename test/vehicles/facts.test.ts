import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { below, fact, has, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
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
  ...{ unitMs, now, survives },
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
