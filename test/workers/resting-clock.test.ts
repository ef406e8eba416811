import { fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { createRestingClock } from '../../adapters/inbox/durable-object/resting-clock.ts'
import { settableClock } from '../dispatch/fake-clock.ts'

test('a resting clock calls nothing and says when the first call is due; after that it makes all due calls', async () => {
  const clock = fakeClock()
  const resting = createRestingClock(clock)
  const called: string[] = []
  const start = clock.now()
  resting.after(300, () => called.push('late'))
  resting.after(100, () => called.push('soon'))
  resting.after(50, () => called.push('never')).cancel()
  expect(resting.sleep()).toBe(start + 100)
  await clock.advance(200)
  expect(called).toEqual([])
  resting.wake()
  await clock.advance(0)
  expect(called).toEqual(['soon'])
  await clock.advance(100)
  expect(called).toEqual(['soon', 'late'])
  expect(resting.sleep()).toBeUndefined()
})

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

test('a request for a call wakes it', async () => {
  const clock = fakeClock()
  const resting = createRestingClock(clock)
  const called: string[] = []
  resting.after(100, () => called.push('before'))
  resting.sleep()
  resting.after(10, () => called.push('after'))
  await clock.advance(100)
  expect(called).toEqual(['after', 'before'])
})
