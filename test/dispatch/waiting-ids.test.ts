import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { createWaitingIds, IdStore, type WaitingId, type WaitingIds } from '../../src/dispatch/waiting-ids.ts'

const entry: fc.Arbitrary<WaitingId> = fc.record({ id: fc.uuid({ version: 7 }), flags: fc.nat(255) })
const queues = 2

type Command =
  | { readonly kind: 'push'; readonly to: number; readonly entries: readonly WaitingId[] }
  | { readonly kind: 'unshift'; readonly to: number; readonly entries: readonly WaitingId[] }
  | { readonly kind: 'shift'; readonly from: number; readonly count: number }
  | { readonly kind: 'append' }

const which = fc.nat(queues - 1)
const command: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constant('push' as const), to: which, entries: fc.array(entry, { maxLength: 30 }) }),
  fc.record({ kind: fc.constant('unshift' as const), to: which, entries: fc.array(entry, { maxLength: 4 }) }),
  fc.record({ kind: fc.constant('shift' as const), from: which, count: fc.nat(30) }),
  fc.record({ kind: fc.constant('append' as const) }),
)

test('ids come out in order with their flags, after any pushes, shifts and appends', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 60, size: 'max' }), (commands) => {
      const store = new IdStore()
      const expected: WaitingId[][] = Array.from({ length: queues }, () => [])
      const real: WaitingIds[] = Array.from({ length: queues }, () => createWaitingIds())
      const [one = createWaitingIds()] = real
      for (const next of commands) {
        if (next.kind === 'push') {
          for (const { id, flags } of next.entries) store.push(real[next.to] ?? one, id, flags)
          expected[next.to]?.push(...next.entries)
        } else if (next.kind === 'unshift') {
          for (const { id, flags } of next.entries) store.unshift(real[next.to] ?? one, id, flags)
          expected[next.to]?.unshift(...next.entries.toReversed())
        } else if (next.kind === 'shift') {
          for (let n = 0; n < next.count; n += 1)
            expect(store.shift(real[next.from] ?? one)).toEqual(expected[next.from]?.shift())
        } else {
          store.append(one, real[1] ?? one)
          expected[0]?.push(...(expected[1]?.splice(0) ?? []))
          // Appended ids are not used again.
          real[1] = createWaitingIds()
        }
        expect(real.map(({ size }) => size)).toEqual(expected.map(({ length }) => length))
      }
      for (const [at, ids] of real.entries())
        for (const left of expected[at] ?? []) expect(store.shift(ids)).toEqual(left)
      // Nothing waits, so nothing is held.
      expect(store.bytes).toBe(0)
    }),
    { numRuns: 300 },
  )
})

test('100,000 ids take less than 18 bytes each, and 100,000 vehicles with five ids less than 120 bytes each', () => {
  const idOf = (n: number): string => `018dd9c4-3fd4-7000-8000-${n.toString(16).padStart(12, '0')}`
  const one = new IdStore()
  const ids = createWaitingIds()
  for (let n = 0; n < 100_000; n += 1) one.push(ids, idOf(n), 0)
  expect(one.bytes / 100_000).toBeLessThan(18)
  const many = new IdStore()
  for (let vehicle = 0; vehicle < 100_000; vehicle += 1) {
    const behind = createWaitingIds()
    for (let n = 0; n < 5; n += 1) many.push(behind, idOf(n), 0)
  }
  expect(many.bytes / 100_000).toBeLessThan(120)
})

test('an id that is not a UUID is refused', () => {
  const ids = createWaitingIds()
  expect(() => new IdStore().push(ids, 'x', 0)).toThrow(TypeError)
  expect(ids.size).toBe(0)
})
