import { type GapEvent, Retry } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { settableClock, turn } from './fake-clock.ts'
import { data, scene } from './scene.ts'

const hourMs = 3_600_000
const fails = (): never => {
  throw new Error('no')
}

describe('after the clock was set back by an hour', () => {
  test('a message that rests until its next attempt is handled within a minute of the next start', async () => {
    const on = disk()
    const clock = settableClock()
    const first = scene({ inbox: storedInbox(on), clock })
    first.receiver.on('data', fails)
    await first.post(data('A', 1))
    await turn()
    await clock.fake.advance(20_000)
    await first.receiver.drain()
    expect([...on.next.values()]).toMatchObject([{ notBefore: expect.closeTo(clock.now(), -5) }])

    clock.set(-hourMs)
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on), clock })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await turn()
    expect(seen).toEqual([])
    await clock.fake.advance(60_000)
    expect(seen).toEqual([1])
  })

  test('a paused handler is tried again as soon as before', async () => {
    const clock = settableClock()
    const { receiver, send } = scene({ clock })
    let isAway = true
    let handled = 0
    receiver.on('data', () => {
      if (isAway) fails()
      handled += 1
    })
    await send(Array.from({ length: 8 }, (_, n) => data(`VIN${n}`, n)))
    await clock.fake.advance(5_000)
    const [paused] = receiver.stats().paused
    expect(paused).toBeDefined()
    const restMs = (paused?.nextTryAt.getTime() ?? 0) - clock.now()
    clock.set(-hourMs)
    expect(receiver.stats().paused[0]?.nextTryAt.getTime()).toBe(clock.now() + restMs)
    isAway = false
    await clock.fake.advance(60_000)
    expect(handled).toBe(8)
  })

  test('messages that were refused before and after are in a gap that lasts as long as the refusals did', async () => {
    const clock = settableClock()
    const { receiver, post, send } = scene({ clock, limits: { pendingMessages: 1 } })
    const gaps: unknown[] = []
    let release = (): void => {}
    receiver
      .on('data', () => new Promise<void>((resolve) => (release = resolve)))
      .on('gap', ({ vin, from, to, missed }) => {
        gaps.push({ vin, fromAgoMs: clock.now() - from.getTime(), lastsMs: to.getTime() - from.getTime(), missed })
      })
    await send(data('A', 1))
    for (const n of [2, 3]) {
      expect((await post(data('B', n))).status).toBe(503)
      await clock.fake.advance(5_000)
      clock.set(-hourMs)
    }
    release()
    await turn()
    await clock.fake.advance(10)
    expect(gaps).toEqual([{ vin: 'B', fromAgoMs: 10_000, lastsMs: 10_000, missed: 2 }])
  })

  test('a line of the log comes again after ten seconds', async () => {
    const clock = settableClock()
    const { receiver, send, lines } = scene({ clock, retry: { attempts: 1 } })
    receiver.on('data', fails)
    for (const n of [1, 2]) {
      await send(data('A', n))
      clock.set(-hourMs)
      await clock.fake.advance(10_000)
    }
    expect(lines.filter((line) => line.includes('a handler for data failed'))).toHaveLength(2)
  })

  test('a drain ends at its deadline', async () => {
    const clock = settableClock()
    const { receiver, send } = scene({ clock })
    receiver.on('data', () => new Promise(() => {}))
    await send(data('A', 1))
    let result: unknown
    void receiver
      .drain({ deadlineMs: 5_000, takeUntil: new Promise((resolve) => clock.after(1_000, () => resolve(undefined))) })
      .then((drained) => (result = drained))
    clock.set(-hourMs)
    await clock.fake.advance(5_000)
    expect(result).toEqual({ handled: 0, left: 0, lost: 1 })
  })
})

describe('while the clock was ahead by a day', () => {
  test.each(['an error', 'a Retry'])(
    'a handler failed with %s: after a restart with the right clock its vehicle waits for a minute at most',
    async (what) => {
      const files = createFiles()
      const inbox = (): InboxFactory => sqliteInbox({ path })
      const path = files.path()
      const clock = settableClock()
      clock.set(24 * hourMs)
      const first = scene({ inbox: inbox(), clock })
      first.receiver.on('data', () => (what === 'an error' ? fails() : Promise.reject(new Retry(hourMs))))
      await first.receiver.open()
      await first.post(data('A', 1))
      await expect.poll(() => clock.fake.advance(100).then(() => first.receiver.stats().running)).toBe(0)
      await first.receiver.drain()

      clock.set(-24 * hourMs)
      const seen: string[] = []
      const next = scene({ inbox: inbox(), clock })
      next.receiver.on('data', ({ vin, data: { Odometer } }) => void seen.push(`${vin} ${String(Odometer)}`))
      await next.receiver.open()
      await next.post([data('A', 2), data('B', 3)])
      const untilMs = clock.fake.now() + 60_000
      await expect.poll(() => clock.fake.advance(1_000).then(() => seen.length)).toBe(3)
      expect(clock.fake.now()).toBeLessThanOrEqual(untilMs + 1_000)
      expect(seen.filter((each) => each.startsWith('A'))).toEqual(['A 1', 'A 2'])
      await next.receiver.drain()
    },
  )
})

test('after the clock was set forward by a day, a message that fails is still retried', async () => {
  const clock = settableClock()
  const { receiver, send } = scene({ inbox: storedInbox(disk()), clock })
  let isAway = true
  let handled = 0
  receiver.on('data', () => {
    if (isAway) fails()
    handled += 1
  })
  await send(data('A', 1))
  clock.set(24 * hourMs)
  await clock.fake.advance(60_000)
  isAway = false
  await clock.fake.advance(60_000)
  expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 0 })
  expect(handled).toBe(1)
})

/** A receiver that is open, and the gaps that it emits. */
async function watching() {
  const clock = settableClock()
  const { receiver } = scene({ clock })
  const gaps: GapEvent[] = []
  receiver.on('gap', (gap) => void gaps.push(gap))
  await receiver.open()
  const takeUntil = (ms: number): Promise<unknown> => new Promise((resolve) => clock.fake.after(ms, () => resolve(0)))
  return { clock, receiver, gaps, takeUntil }
}

test('with an inbox in memory too, a process that stood still emits a gap for that time, also while it stops', async () => {
  for (const isStopping of [false, true]) {
    const { clock, receiver, gaps, takeUntil } = await watching()
    await clock.fake.advance(10_000)
    const fromMs = clock.now()
    const drained = isStopping ? receiver.drain({ takeUntil: takeUntil(10_000) }) : undefined
    // Lets time pass. No timer runs before the end.
    clock.set(20_000)
    await clock.fake.advance(10_000)
    await drained
    // From the last tick to the late one, or to the report.
    expect(gaps).toMatchObject([{ reason: 'stalled', from: new Date(fromMs) }])
    expect(gaps[0]?.to.getTime()).toBeGreaterThanOrEqual(fromMs + 21_000)
  }
})

test('a short delay, or a clock that is set back, is no gap', async () => {
  const { clock, gaps } = await watching()
  clock.set(1_999)
  await clock.fake.advance(1_000)
  clock.set(-hourMs)
  await clock.fake.advance(10_000)
  expect(gaps).toEqual([])
})

test('a process that stood still right before it stops emits a gap until its sockets are closed', async () => {
  const { clock, receiver, gaps, takeUntil } = await watching()
  await clock.fake.advance(10_000)
  clock.set(20_000)
  await clock.fake.advance(1_000)
  const drained = receiver.drain({ takeUntil: takeUntil(1_500) })
  await clock.fake.advance(1_500)
  await drained
  expect(gaps).toMatchObject([{ reason: 'stalled', to: new Date(clock.now()) }])
})
