import type { Clock } from 'fleethook'
import { type FakeClock, fakeClock } from '../../src/testing/fake-clock.ts'

export { type FakeClock, fakeClock, turn } from '../../src/testing/fake-clock.ts'

/** A clock that can be set. Setting it does not affect `elapsedMs`. */
export function settableClock(
  startMs?: number,
): Required<Clock> & { readonly fake: FakeClock; set(byMs: number): void } {
  const fake = fakeClock(startMs)
  let offset = 0
  return {
    fake,
    now: () => fake.now() + offset,
    elapsedMs: fake.now,
    after: fake.after,
    set: (byMs) => void (offset += byMs),
  }
}
