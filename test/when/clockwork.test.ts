import type { Clock } from 'fleethook'
import { expect, test } from 'vitest'
import { createClockwork } from '../../src/when/clockwork.ts'

/** A clock whose timer is run by the test, as late as it likes. */
function lateClock() {
  let [ms, run] = [Date.UTC(2026, 10, 21, 10), (): void => {}]
  const clock: Clock = {
    now: () => ms,
    after(_, later) {
      run = later
      return { cancel() {}, unref() {} }
    },
  }
  return {
    clock,
    pass(by: number): void {
      ms += by
      run()
    },
  }
}

test('timers of a whole fleet that are due at once cost the same, however often the process stands still', async () => {
  const count = 50_000
  const { clock, pass } = lateClock()
  const told = new Set<string>()
  const beganMs = clock.now()
  const clockwork = createClockwork({
    clock,
    newestMs: () => 0,
    async put(due) {
      for (const { vin } of due) {
        expect(told.has(vin)).toBe(false)
        told.add(vin)
        clockwork.set(vin, undefined, true)
      }
      return true
    },
  })
  const setAll = (): number => {
    const startedAt = performance.now()
    for (let nth = 0; nth < count; nth += 1) clockwork.set(`V${nth}`, beganMs + 60_000)
    return performance.now() - startedAt
  }
  clockwork.start()
  const setting = setAll()
  pass(10_000)
  pass(51_000)
  const startedAt = performance.now()
  // Each of these turns is late by two seconds.
  for (let turn = 0; turn < 20; turn += 1) pass(2_000)
  // Moving all of them in each turn would take twenty times as long as setting them.
  expect(performance.now() - startedAt).toBeLessThan(5 * setting)
  for (let turn = 0; turn < 1_000 && told.size < count; turn += 1) {
    pass(100)
    await Promise.resolve()
  }
  expect(told.size).toBe(count)
})
