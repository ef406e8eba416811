import { expect, test } from 'vitest'
import { run } from '../../../bench/branches.ts'
import { inForm } from '../../form.ts'

test('a branch that forwards loses nothing and keeps the order, although its server is down, and both are killed', async () => {
  const messages = inForm({ short: 1_500, full: 6_000, long: 60_000 })
  const load = { messages, vehicles: 50, rate: 300, kills: 3, thread: false }
  const { posted, lost, outOfOrder, arrived } = await run(load, true, () => {})
  expect({ lost, outOfOrder }).toEqual({ lost: 0, outOfOrder: 0 })
  expect(posted).toBeGreaterThan(messages * 0.8)
  // A message whose answer was lost with its process may be there, too.
  expect(arrived).toBeGreaterThanOrEqual(posted ?? 0)
}, 600_000)
