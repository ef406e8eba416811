import { createReceiver } from 'fleethook'
import { fakeClock, vehicle } from 'fleethook/testing'
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

test('a vehicle with a clock sends its first message at the time of that clock, also of a clock in the past', async () => {
  const clock = fakeClock(Date.UTC(2020, 0, 1))
  const times: string[] = []
  const receiver = createReceiver({ secret: false, clock }).on('state', ({ createdAt }) => void times.push(createdAt))
  const car = vehicle(receiver, '0FLEETV14T0000004', { clock })
  await car.state('online')
  await car.wait({ minutes: 1 })
  await car.state('asleep')
  expect(times).toEqual(['2020-01-01T00:00:00.000Z', '2020-01-01T00:01:00.000Z'])
})
