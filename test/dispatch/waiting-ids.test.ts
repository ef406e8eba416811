import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import {
  appendIds,
  createWaitingIds,
  pushId,
  shiftId,
  type WaitingId,
  type WaitingIds,
} from '../../src/dispatch/waiting-ids.ts'

const entry: fc.Arbitrary<WaitingId> = fc.record({ id: fc.uuid({ version: 7 }), flags: fc.nat(255) })
const queues = 2

type Command =
  | { readonly kind: 'push'; readonly to: number; readonly entries: readonly WaitingId[] }
  | { readonly kind: 'shift'; readonly from: number; readonly count: number }
  | { readonly kind: 'append' }

const which = fc.nat(queues - 1)
const command: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constant('push' as const), to: which, entries: fc.array(entry, { maxLength: 30 }) }),
  fc.record({ kind: fc.constant('shift' as const), from: which, count: fc.nat(30) }),
  fc.record({ kind: fc.constant('append' as const) }),
)

test('ids come out in order with their flags, after any pushes, shifts and appends', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 60, size: 'max' }), (commands) => {
      const expected: WaitingId[][] = Array.from({ length: queues }, () => [])
      const real: WaitingIds[] = Array.from({ length: queues }, () => createWaitingIds())
      const [one = createWaitingIds()] = real
      for (const next of commands) {
        if (next.kind === 'push') {
          for (const { id, flags } of next.entries) pushId(real[next.to] ?? one, id, flags)
          expected[next.to]?.push(...next.entries)
        } else if (next.kind === 'shift') {
          for (let n = 0; n < next.count; n += 1)
            expect(shiftId(real[next.from] ?? one)).toEqual(expected[next.from]?.shift())
        } else {
          appendIds(one, real[1] ?? one)
          expected[0]?.push(...(expected[1]?.splice(0) ?? []))
          // Appended ids are not used again.
          real[1] = createWaitingIds()
        }
        expect(real.map(({ size }) => size)).toEqual(expected.map(({ length }) => length))
      }
      for (const [at, ids] of real.entries()) for (const left of expected[at] ?? []) expect(shiftId(ids)).toEqual(left)
    }),
    { numRuns: 300 },
  )
})

test('100,000 ids take less than 18 bytes each', () => {
  const ids = createWaitingIds()
  for (let n = 0; n < 100_000; n += 1) pushId(ids, `018dd9c4-3fd4-7000-8000-${n.toString(16).padStart(12, '0')}`, 0)
  let bytes = 0
  for (let chunk = ids.first; chunk !== undefined; chunk = chunk.next) bytes += chunk.bytes.length
  expect(bytes / 100_000).toBeLessThan(18)
})

test('an id that is not a UUID is refused', () => {
  const ids = createWaitingIds()
  expect(() => pushId(ids, 'x', 0)).toThrow(TypeError)
  expect(ids.size).toBe(0)
})
