import { createReceiver } from 'fleethook'
import { deliver, fakeClock, message } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'

const quiet = { secret: false, log: { debug() {}, info() {}, warn() {}, error() {} } } as const

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

describe('a receiver with a fake clock', () => {
  test('stamps messages with its time', async () => {
    const clock = fakeClock(Date.UTC(2026, 0, 2))
    const seen: Date[] = []
    const receiver = createReceiver({ ...quiet, clock }).on('*', (event) => seen.push(event.receivedAt))
    await (
      await deliver(receiver, message.state())
    ).settled
    expect(seen).toEqual([new Date('2026-01-02')])
  })

  test('ends a handler that hangs after timeoutMs, run after run, until its message is a dead letter', async () => {
    const clock = fakeClock()
    const reasons: unknown[] = []
    const receiver = createReceiver({
      ...quiet,
      clock,
      timeoutMs: 5_000,
      retry: { attempts: 2, minMs: 100, maxMs: 100 },
    })
    receiver.on('state', async (_event, { signal }) => {
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    })
    receiver.observe({ failed: (error) => reasons.push(error) })
    const { settled } = await deliver(receiver, message.state())
    await clock.advance(4_999)
    expect(reasons).toEqual([])
    await clock.advance(1)
    expect(reasons).toMatchObject([{ code: 'handler_timeout' }])
    await clock.advance(10_000)
    await settled
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ attempts: 2 }])
  })

  test('drains by the time of the clock', async () => {
    const clock = fakeClock()
    const receiver = createReceiver({ ...quiet, clock }).on('state', () => new Promise(() => {}))
    await deliver(receiver, message.state())
    const drained = receiver.drain({ deadlineMs: 1_000 })
    await clock.advance(1_000)
    expect(await drained).toEqual({ handled: 0, left: 0, lost: 1 })
  })
})
