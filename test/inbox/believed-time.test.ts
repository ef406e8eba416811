/* A clock that jumps forward deletes nothing. */
import { expect, test } from 'vitest'
import { type Believed, BelievedTime } from '../../src/base/believed-time.ts'

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

/** A clock whose two times a test moves. */
function movable(): {
  now(): number
  elapsedMs(): number
  after(): never
  pass(ms: number): void
  jump(ms: number): void
} {
  let [now, elapsed] = [Date.UTC(2026, 10, 21), 0]
  return {
    now: () => now,
    elapsedMs: () => elapsed,
    after: () => expect.fail('Nothing waits.'),
    pass(ms) {
      now += ms
      elapsed += ms
    },
    jump(ms) {
      now += ms
    },
  }
}

test('a clock that comes back was never believed, and the next jump waits for its own hour', () => {
  const clock = movable()
  const believed = new BelievedTime(clock)
  const start = believed.now()
  clock.jump(40 * day)
  believed.now()
  clock.pass(50 * minute)
  clock.jump(-40 * day)
  expect(believed.now()).toBe(start + 50 * minute)
  clock.jump(40 * day)
  expect(believed.now()).toBe(start + 50 * minute)
  clock.pass(20 * minute)
  expect(believed.now()).toBe(start + 70 * minute)
  // It is no longer the jump that began an hour ago.
  clock.jump(400 * day)
  clock.pass(50 * minute)
  expect(believed.now()).toBe(start + 120 * minute)
})

test('processes that live for a minute believe a clock after an hour too, unless it jumps again', () => {
  const clock = movable()
  const known = clock.now()
  let left: Believed = { knownMs: known, doubtedMs: 0, seenMs: known }
  const live = (): number => {
    const believed = new BelievedTime(clock)
    believed.follow(left)
    believed.now()
    clock.pass(minute)
    const now = believed.now()
    left = believed.state
    clock.pass(4 * minute)
    return now
  }
  clock.jump(40 * day)
  for (let at = 0; at < 12; at += 1) expect(live()).toBeLessThan(known + hour)
  clock.jump(40 * day)
  for (let at = 0; at < 12; at += 1) expect(live()).toBeLessThan(known + hour)
  expect(live()).toBe(clock.now() - 4 * minute)
})

test('a clock that is set back is followed at once, and so is a short downtime', () => {
  const clock = movable()
  const believed = new BelievedTime(clock)
  clock.jump(-day)
  expect(believed.now()).toBe(clock.now())
  const next = new BelievedTime(clock)
  const downSince = clock.now() - minute
  next.follow({ knownMs: downSince, doubtedMs: 0, seenMs: downSince })
  expect(next.now()).toBe(clock.now())
})
