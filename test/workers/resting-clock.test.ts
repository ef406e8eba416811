import { expect, test } from 'vitest'
import { createRestingClock } from '../../adapters/inbox/durable-object/resting-clock.ts'
import { settableClock } from '../dispatch/fake-clock.ts'

test('a call fires after no more than its time, also when the clock was a day ahead while it slept', async () => {
  const clock = settableClock()
  clock.set(86_400_000)
  const resting = createRestingClock(clock)
  let fired = 0
  resting.after(1_000, () => (fired += 1))
  resting.sleep()
  clock.set(-86_400_000)
  resting.wake()
  await clock.fake.advance(1_000)
  expect(fired).toBe(1)
})
