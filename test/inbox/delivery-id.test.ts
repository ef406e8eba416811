import { validate, version } from 'uuid'
import { expect, test } from 'vitest'
import { DeliveryIds, seqOf } from '../../src/inbox/delivery-id.ts'

test('delivery ids are UUIDv7 that sort by arrival: within a millisecond, from one to the next, and when the clock is set back', () => {
  const deliveryIds = new DeliveryIds()
  const start = 1_771_632_000_000
  const ids = [0, 0, 0, 1, 1, -3_600_000, 0, 2, 2, 500].flatMap((ms) =>
    Array.from({ length: 1000 }, () => deliveryIds.next(start + ms)),
  )
  for (const id of ids) expect([validate(id), version(id)]).toEqual([true, 7])
  expect(ids.toSorted()).toEqual(ids)
  expect(new Set(ids).size).toBe(ids.length)
  const places = ids.map(seqOf)
  expect(places.toSorted((a, b) => a - b)).toEqual(places)
  expect(new Set(places).size).toBe(ids.length)
  expect([...places, seqOf(deliveryIds.next(Date.UTC(2109, 0)))].every(Number.isSafeInteger)).toBe(true)
  expect(Number.parseInt(ids[0]?.replace('-', '').slice(0, 12) ?? '', 16)).toBe(start)
})

test('two processes that start in the same millisecond do not make the same ids', () => {
  const [one, other] = [new DeliveryIds(), new DeliveryIds()]
  const ids = Array.from({ length: 1000 }, () => [one.next(1), other.next(1)]).flat()
  expect(new Set(ids).size).toBe(ids.length)
})

test('ids follow one that an earlier process made, also after the clock was set back', () => {
  const earlier = new DeliveryIds().next(5000)
  const deliveryIds = new DeliveryIds()
  deliveryIds.follow(earlier)
  const next = deliveryIds.next(1000)
  expect(next > earlier).toBe(true)
  expect(seqOf(next)).toBeGreaterThan(seqOf(earlier))
})
