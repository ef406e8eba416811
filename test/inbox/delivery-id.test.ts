import { expect, test } from 'vitest'
import { createDeliveryIds } from '../../src/inbox/delivery-id.ts'

const uuidV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

test('delivery ids are UUIDv7 that sort by arrival: within a millisecond, from one to the next, and when the clock is put back', () => {
  const nextId = createDeliveryIds()
  const start = 1_771_632_000_000
  const ids = [0, 0, 0, 1, 1, -3_600_000, 0, 2, 2, 500].flatMap((ms) =>
    Array.from({ length: 1000 }, () => nextId(start + ms)),
  )
  for (const id of ids) expect(id).toMatch(uuidV7)
  expect(ids.toSorted()).toEqual(ids)
  expect(new Set(ids).size).toBe(ids.length)
  expect(Number.parseInt(ids[0]?.replace('-', '').slice(0, 12) ?? '', 16)).toBe(start)
})

test('two processes that start in the same millisecond do not make the same ids', () => {
  const [one, other] = [createDeliveryIds(), createDeliveryIds()]
  const ids = Array.from({ length: 1000 }, () => [one(1), other(1)]).flat()
  expect(new Set(ids).size).toBe(ids.length)
})
