import { existsSync, lstatSync, mkdirSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock, FleetEvent } from 'fleethook'
import type { Inbox, KeptGap } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { createReceiver } from 'fleethook'
import { describe, expect, test, vi } from 'vitest'
import { archiveOf, message as kept, reason, lettersIn } from '../../src/testing/kept-message.ts'
import { settableClock } from '../dispatch/fake-clock.ts'
import { createFiles } from './sqlite-files.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'

const files = createFiles()
const startMs = Date.UTC(2026, 10, 21, 10)
const hourMs = 3_600_000

async function begin(path: string, clock: Clock, open: KeptGap[] = [], held = false) {
  const { settings } = settingsOf({ clock, receiver: { openGaps: () => open } })
  const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
  const { gaps = [] } = await inbox.open({ listeningWasKept: held })
  return { inbox, gaps }
}

/** What the next process would find if this one were killed now. */
function killed(path: string): string {
  const copy = files.path()
  mkdirSync(dirname(copy), { recursive: true })
  files.copy(path, copy)
  return copy
}

describe('the time in which nobody listened', () => {
  test('is no gap when the listening socket was kept for a moment, and is one when that took too long', async () => {
    const path = files.path()
    const clock = fakeClock(startMs)
    await (await begin(path, clock)).inbox.close()
    await clock.advance(5_000)
    const second = await begin(path, clock, [], true)
    expect(second.gaps).toEqual([])
    await second.inbox.close()
    await clock.advance(5_001)
    const third = await begin(path, clock, [], true)
    expect(third.gaps).toMatchObject([{ reason: 'stopped' }])
    await third.inbox.close()
  })

  test('begins when the server stops listening, or when the receiver refuses messages, whichever is earlier', async () => {
    const clock = fakeClock(startMs)
    const silent = { debug() {}, info() {}, warn() {}, error() {} }
    /** The gap after a stop in which the server listens for `listensMs` and its last connection ends after `endsMs`. */
    const gapAfter = async (ack: 'stored' | 'handled', listensMs: number, endsMs: number): Promise<unknown> => {
      const path = files.path()
      const options = { secret: false, inbox: sqliteInbox({ path, waitMs: 0 }), ack, clock, log: silent } as const
      const receiver = createReceiver(options)
      await receiver.open()
      const fromMs = clock.now()
      const drained = receiver.drain({
        deadlineMs: 60_000,
        takeUntil: new Promise((resolve) => clock.after(endsMs, () => resolve(undefined))),
        notListeningMs: () => Math.max(0, clock.now() - fromMs - listensMs),
      })
      await clock.advance(endsMs)
      await drained
      const { inbox, gaps } = await begin(path, clock)
      await inbox.close()
      return gaps.map((gap) => ({ reason: gap.reason, fromMs: gap.fromMs - fromMs }))
    }
    expect(await gapAfter('stored', 30_000, 31_000)).toEqual([{ reason: 'stopped', fromMs: 30_000 }])
    // An answer that waits for handlers is refused from the start.
    expect(await gapAfter('handled', 30_000, 31_000)).toEqual([{ reason: 'stopped', fromMs: 0 }])
  })

  test('is no gap when the socket was kept, even if the old process went on listening for long', async () => {
    const path = files.path()
    const clock = fakeClock(startMs)
    const silent = { debug() {}, info() {}, warn() {}, error() {} }
    const receiver = createReceiver({ secret: false, inbox: sqliteInbox({ path, waitMs: 0 }), clock, log: silent })
    await receiver.open()
    const drained = receiver.drain({
      deadlineMs: 60_000,
      takeUntil: new Promise((resolve) => clock.after(30_000, () => resolve(undefined))),
      notListeningMs: () => Math.max(0, clock.now() - startMs - 29_000),
    })
    await clock.advance(30_000)
    await drained
    await clock.advance(1_000)
    const { inbox, gaps } = await begin(path, clock, [], true)
    expect(gaps).toEqual([])
    await inbox.close()
  })

  test('is a gap after a crash, although the listening socket was kept: open connections broke', async () => {
    const path = files.path()
    const clock = fakeClock(startMs)
    const first = await begin(path, clock)
    const second = await begin(killed(path), clock, [], true)
    expect(second.gaps).toMatchObject([{ reason: 'restarted' }])
    await first.inbox.close()
    await second.inbox.close()
  })

  test('covers the time by both clocks when the machine was restarted with a clock that is behind', async () => {
    const path = files.path()
    const clock = settableClock(startMs)
    await (await begin(path, clock)).inbox.close()
    // A machine that has just started has run for a shorter time.
    const restarted = { ...clock, elapsedMs: () => 1_000, now: () => startMs - hourMs }
    const { inbox, gaps } = await begin(path, restarted)
    expect(gaps).toEqual([{ reason: 'stopped', fromMs: startMs - hourMs, toMs: startMs }])
    await inbox.close()
  })

  test('is no gap when the listening socket was kept for a moment and the clock was set back', async () => {
    const path = files.path()
    const clock = settableClock(startMs)
    await (await begin(path, clock)).inbox.close()
    clock.set(-hourMs)
    await clock.fake.advance(1_000)
    const { inbox, gaps } = await begin(path, clock, [], true)
    expect(gaps).toEqual([])
    await inbox.close()
  })
})

describe('refused messages', () => {
  test('are reported by a receiver that was drained while its inbox was full, each vehicle once', async () => {
    const path = files.path()
    const inbox = sqliteInbox({ path, waitMs: 0 })
    const clock = fakeClock(startMs)
    const silent = { debug() {}, info() {}, warn() {}, error() {} }
    const options = { secret: false, inbox, clock, log: silent } as const
    const first = createReceiver({ ...options, limits: { pendingMessages: 1 } })
    first.on('data', () => new Promise(() => {}))
    for (const vin of ['A', 'B', 'C', 'B']) {
      await first.accept({ authorization: undefined, body: { vin, createdAt: '2026-11-21T10:00:00Z', data: {} } })
    }
    expect(first.stats().refused).toEqual({ inbox_full: 3 })
    const drained = first.drain({ deadlineMs: 10 })
    await clock.advance(10)
    await drained
    await clock.advance(500)
    const seen: FleetEvent[] = []
    const second = createReceiver(options)
    second.on('gap', (event) => void seen.push(event))
    await second.open()
    await vi.waitUntil(
      async () => {
        await clock.advance(1_000)
        return seen.length >= 3
      },
      { timeout: 60_000 },
    )
    const told = seen.map((event) => ('missed' in event ? [event.reason, event.vin, event.missed] : [])).toSorted()
    expect(told).toEqual([
      ['inbox_full', 'B', 2],
      ['inbox_full', 'C', 1],
      ['stopped', undefined, 0],
    ])
    await second.drain()
  })
})

describe('a file that is moved while it is open', () => {
  async function running(): Promise<{ path: string; inbox: Inbox; clock: FakeClock; log: readonly string[] }> {
    const path = files.path()
    const clock = fakeClock(startMs)
    const { settings, reported } = settingsOf({ clock })
    const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
    await inbox.open()
    await inbox.put([kept(1), kept(2)])
    await inbox.settle(kept(1).id)
    // Waits until that is written, because a commit would notice a move before the clock advances.
    await lettersIn(inbox, { limit: 1 })
    return { path, inbox, clock, log: reported.log }
  }

  const elsewhere = (path: string): string => join(dirname(path), 'elsewhere.db')

  test.each([
    ['deleted', (path: string) => rmSync(path)],
    ['renamed', (path: string) => renameSync(path, elsewhere(path))],
    ['deleted with its folder', (path: string) => rmSync(dirname(path), { recursive: true })],
    ['deleted with its journal', (path: string) => [path, `${path}-wal`].forEach((each) => rmSync(each))],
    ['kept, and its journal deleted', (path: string) => rmSync(`${path}-wal`)],
  ])('(%s) is noticed within a second, and everything in it has its old name again', async (_how, move) => {
    const { path, inbox, clock, log } = await running()
    move(path)
    await clock.advance(1_000)
    expect(inbox.refusing()).toBe('inbox_unavailable')
    expect(log.join()).toContain('was deleted, renamed or replaced')
    await expect(inbox.put([kept(3)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
    await clock.advance(1_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    expect(lstatSync(path).mode & 0o777).toBe(0o600)
    expect((await inbox.claim(kept(2).id))?.message.text).toBe(kept(2).text)
    await inbox.put([kept(3)])
    await inbox.close()
    const again = sqliteInbox({ path, waitMs: 0 })(settingsOf({ clock }).settings)
    expect((await waitingIn(await again.open())).map(({ id }) => id)).toEqual([kept(2).id, kept(3).id])
    await again.close()
  })

  test('that is gone acknowledges no message', async () => {
    const { path, inbox, clock } = await running()
    rmSync(path)
    await expect(inbox.put([kept(3)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
    await clock.advance(1_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    await inbox.close()
    const again = sqliteInbox({ path, waitMs: 0 })(settingsOf({ clock }).settings)
    expect((await waitingIn(await again.open())).map(({ id }) => id)).toEqual([kept(2).id])
    await again.close()
  })

  test('(replaced) is noticed, and its messages are taken over into the new file', async () => {
    const { path, inbox, clock } = await running()
    const other = files.path()
    const inOther = sqliteInbox({ path: other, waitMs: 0 })(settingsOf({ clock }).settings)
    await inOther.open()
    await inOther.put([kept(5)])
    await inOther.close()
    renameSync(other, path)
    rmSync(`${path}-wal`)
    await clock.advance(1_000)
    expect(inbox.refusing()).toBe('inbox_unavailable')
    await clock.advance(1_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    expect(inbox.usage().messages).toBe(2)
    for (const n of [2, 5]) expect((await inbox.claim(kept(n).id))?.message.text).toBe(kept(n).text)
    await inbox.close()
  })

  test('(deleted just before the stop) is written again', async () => {
    const { path, inbox, clock } = await running()
    rmSync(path)
    await inbox.close()
    const { inbox: again } = await begin(path, clock)
    expect(again.usage().messages).toBe(1)
    await again.close()
  })
})

test('a file behind a link to nothing is readable only by its owner', async () => {
  const path = files.path()
  const target = join(dirname(path), 'data', 'real.db')
  mkdirSync(dirname(path), { recursive: true })
  symlinkSync(join('data', basename(target)), path)
  const { inbox } = await begin(path, fakeClock(startMs))
  expect(statSync(target).mode & 0o777).toBe(0o600)
  await inbox.close()
})

test('stats: the size, the dead letters kept, the age of the oldest message and the time of commits', async () => {
  const path = files.path()
  const clock = fakeClock(Date.UTC(2027, 0))
  const { inbox } = await begin(path, clock)
  expect(inbox.stats?.()).toMatchObject({ deadLetters: 0, unopened: [] })
  expect(inbox.stats?.().oldestWaitingMs).toBeUndefined()
  await inbox.put([kept(1), kept(2), kept(3)])
  await inbox.settle(kept(1).id, { as: 'dead', reason })
  await inbox.settle(kept(2).id, { as: 'dead', reason })
  await archiveOf(inbox)?.discard(kept(1).id)
  const found = inbox.stats?.()
  expect(found).toMatchObject({ deadLetters: 1 })
  expect(found?.bytes).toBe(statSync(path).size + statSync(`${path}-wal`).size)
  expect(found?.oldestWaitingMs).toBe(clock.now() - Number.parseInt('018dd9c43fd7', 16))
  expect(found?.commitMs?.counts.reduce((sum, each) => sum + each)).toBe(4)
  expect(found?.commitMs?.counts).toHaveLength((found?.commitMs?.bounds.length ?? 0) + 1)
  await archiveOf(inbox)?.revive(kept(2).id)
  expect(inbox.stats?.()).toMatchObject({ deadLetters: 0 })
  await inbox.close()
  expect(existsSync(path)).toBe(true)
})

test('a message that a crash left is marked as redelivered, also after a clean stop in between', async () => {
  const path = files.path()
  const clock = fakeClock(startMs)
  const first = await begin(path, clock)
  await first.inbox.put([kept(startMs)])
  const copy = killed(path)
  await first.inbox.close()
  // The process that was killed may have handled it. The next one stops before its turn.
  const second = await begin(copy, clock)
  await second.inbox.close()
  const { settings } = settingsOf({ clock })
  const third = sqliteInbox({ path: copy, waitMs: 0 })(settings)
  const marks: unknown[] = []
  for await (const page of (await third.open()).waiting) for (const { redelivered } of page) marks.push(redelivered)
  expect(marks).toEqual([true])
  await third.close()
})
