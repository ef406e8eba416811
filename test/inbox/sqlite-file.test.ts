import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { DeliveryIds, message } from '../../src/testing/kept-message.ts'
import { createFiles } from './sqlite-files.ts'
import { rowOf, storeAt, transaction } from './sqlite-store.ts'

const files = createFiles()
const nowMs = Date.UTC(2026, 10, 21, 10)
const mebibyte = 1_048_576

/** Creates messages of 1,000 bytes. */
function rows(): (count: number) => readonly ReturnType<typeof rowOf>[] {
  const ids = new DeliveryIds()
  return (count) =>
    Array.from({ length: count }, () => {
      const text = 'x'.repeat(1_000)
      return rowOf({ ...message(0, 1_000), id: ids.next(nowMs), text })
    })
}

test('a search for space in a full file lets other work run in between', async () => {
  const store = storeAt(files.path(), { maxBytes: 16 * mebibyte })
  await store.open({ nowMs })
  const make = rows()
  let isFull = false
  while (!isFull) {
    await store.commit(transaction(nowMs, { puts: make(20) })).catch(({ code }: { code: string }) => {
      expect(code).toBe('inbox_full')
      isFull = true
    })
  }
  // The first search ends at the end of the file, so the next one starts at its beginning.
  expect(await store.probe()).toBe(false)
  let found: boolean | undefined
  void store.probe().then((hasRoom) => (found = hasRoom))
  let turns = 0
  for (; found === undefined; turns += 1) await setImmediate()
  expect(found).toBe(false)
  expect(turns).toBeGreaterThan(5)
  await store.close({ nowMs })
})

test('only as many dead letters are dropped as exceed the limit', async () => {
  const dead = { maxBytes: 100_000 }
  const store = storeAt(files.path(), { retention: { dead } })
  await store.open({ nowMs })
  const puts = rows()(200)
  const moves = puts.map(({ seq }) => ({ to: 'dead' as const, seq, error: 'no', attempts: 5, diedAt: nowMs }))
  await store.commit(transaction(nowMs, { puts, moves }))
  while ((await store.tidy({ nowMs }, 0)).more);
  const { items: found } = await store.deadLetters({ limit: 1_000 }, -1)
  expect(found.map(({ id }) => id)).toEqual(puts.slice(100).map(({ id }) => id))
  await store.close({ nowMs })
})
