/* A clock that jumps forward deletes nothing, and what is deleted is told. */
import type { Inbox, InboxGap, InboxMessage, InboxHost } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { DeliveryIds, reason, lettersIn, settledIn } from '../../src/testing/kept-message.ts'
import { unwatched } from '../vehicles/scene.ts'
import { createFiles } from './sqlite-files.ts'
import { settingsOf } from './sqlite-settings.ts'

const files = createFiles()
const startMs = Date.UTC(2026, 10, 21, 10)
const day = 86_400_000
const soon = 30_000

/** A clock whose time of day a test sets, while the other one goes on. */
function settable(): { readonly clock: InboxHost['clock']; readonly real: FakeClock; aheadMs: number } {
  const real = unwatched(fakeClock(startMs))
  const set = { real, aheadMs: 0, clock: { ...real, now: () => real.now() + set.aheadMs, elapsedMs: () => real.now() } }
  return set
}

async function open(
  path: string,
  clock: InboxHost['clock'],
): Promise<{ readonly inbox: Inbox; readonly gaps: InboxGap[]; readonly told: string[]; dropped: number }> {
  const gaps: InboxGap[] = []
  const { settings, reported } = settingsOf({
    clock,
    on(event) {
      if (event.type === 'gap') gaps.push(event.gap)
      if (event.type === 'dropped') opened.dropped += event.deadLetters
    },
  })
  const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
  const opened = { inbox, gaps, told: reported.log, dropped: 0 }
  await inbox.open()
  return opened
}

/** One message becomes a dead letter, and one is handled. */
async function fill(inbox: Inbox, atMs: number): Promise<void> {
  const ids = new DeliveryIds()
  const [dies, settles, last] = [1, 2, 3].map((n): InboxMessage => {
    const text = JSON.stringify({ vin: 'VIN', n })
    return { id: ids.next(atMs), lane: 'VIN', receivedAt: atMs, door: 'root', kind: 'wire', text, bytes: text.length }
  })
  if (dies === undefined || settles === undefined || last === undefined) throw new Error('There are three.')
  await inbox.put([dies, settles, last])
  await inbox.settle(dies.id, { as: 'dead', reason: { ...reason, diedAt: atMs } })
  await inbox.settle(settles.id)
}

const kept = async (inbox: Inbox): Promise<readonly number[]> => [
  (await lettersIn(inbox, { limit: 10 })).length,
  (await settledIn(inbox, { limit: 10 })).length,
]

test('a clock that jumps ahead for a while deletes nothing', async () => {
  const set = settable()
  const { inbox, gaps } = await open(files.path(), set.clock)
  await fill(inbox, startMs)
  set.aheadMs = 40 * day
  await set.real.advance(soon)
  set.aheadMs = 0
  await set.real.advance(soon)
  expect(await kept(inbox)).toEqual([1, 1])
  expect(gaps).toEqual([])
  await inbox.close()
})

test('a process that starts with a clock far ahead deletes nothing, however often it starts', async () => {
  const path = files.path()
  const set = settable()
  const first = await open(path, set.clock)
  await fill(first.inbox, startMs)
  await first.inbox.close()
  set.aheadMs = 40 * day
  for (let start = 0; start < 3; start += 1) {
    const { inbox, told } = await open(path, set.clock)
    await set.real.advance(soon)
    expect(await kept(inbox)).toEqual([1, 1])
    // Once, because the doubt goes on.
    if (start === 0)
      expect(told).toContain('the clock is far ahead of the last known time: nothing is deleted by it for an hour')
    await inbox.close()
  }
})

test('a machine that was off for long deletes after an hour, and tells each dead letter as a gap', async () => {
  const path = files.path()
  const set = settable()
  const first = await open(path, set.clock)
  await fill(first.inbox, startMs)
  await first.inbox.close()
  set.aheadMs = 40 * day
  const next = await open(path, set.clock)
  await set.real.advance(3_600_000 + soon)
  await expect.poll(async () => (await set.real.advance(soon), kept(next.inbox))).toEqual([0, 0])
  expect(next.gaps).toEqual([{ reason: 'inbox_expired', fromMs: startMs, toMs: startMs, missed: 1 }])
  expect(next.dropped).toBe(1)
  expect(next.told).toContain('dead letters were deleted: their retention is over')
  expect(next.inbox.stats?.().purged).toBe(1)
  await next.inbox.close()
})
