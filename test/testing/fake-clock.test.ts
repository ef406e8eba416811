import { fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'

test('time stands still until a test advances it, and begins where the test says', async () => {
  const clock = fakeClock(1_000)
  expect(clock.now()).toBe(1_000)
  await clock.advance(250)
  expect(clock.now()).toBe(1_250)
  expect(fakeClock().now()).toBe(fakeClock().now())
})

test('timers run when they fall due, in order, at their own time, and once', async () => {
  const clock = fakeClock(0)
  const ran: [string, number][] = []
  const note = (name: string) => (): void => void ran.push([name, clock.now()])
  clock.after(30, note('late'))
  clock.after(10, note('early'))
  clock.after(10, note('early too'))
  clock.after(20, note('cancelled')).cancel()
  expect(clock.timers()).toEqual([10, 10, 30])
  await clock.advance(9)
  expect(ran).toEqual([])
  await clock.advance(1)
  await clock.advance(1_000)
  expect(ran).toEqual([
    ['early', 10],
    ['early too', 10],
    ['late', 30],
  ])
  expect(clock.timers()).toEqual([])
})

test('everything that follows from a timer happens before the next one, timers that it sets included', async () => {
  const clock = fakeClock(0)
  const ran: string[] = []
  clock.after(10, () => {
    void Promise.resolve()
      .then(() => undefined)
      .then(() => ran.push('promise'))
    clock.after(5, () => ran.push('set by a timer'))
  })
  clock.after(20, () => ran.push('last'))
  await clock.advance(20)
  expect(ran).toEqual(['promise', 'set by a timer', 'last'])
})
