import { readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Inbox, InboxGap, InboxMessage } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test, vi } from 'vitest'
import { FleethookError } from 'fleethook'
import { fakeClock } from 'fleethook/testing'
import { DeliveryIds, message as kept, reason } from '../../src/testing/kept-message.ts'
import { createFiles } from './sqlite-files.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'
import { type InboxFile, inboxOn } from './sqlite-store.ts'

const files = createFiles()
let ids = new DeliveryIds()
const nowMs = Date.UTC(2026, 10, 21, 10)
const hourMs = 3_600_000

function make(n: number): InboxMessage {
  const text = JSON.stringify({ vin: 'VIN', n, filling: `number ${n}: ${'x'.repeat(700)}` })
  return {
    id: ids.next(nowMs + n),
    lane: `V${n % 50}`,
    receivedAt: nowMs + n,
    door: 'root',
    kind: 'wire',
    text,
    bytes: 700,
  }
}

/** A file with `count` waiting messages, and these messages in the order of their ids. */
async function filled(count: number): Promise<{ readonly path: string; readonly all: readonly InboxMessage[] }> {
  ids = new DeliveryIds()
  const path = files.path()
  const inbox = sqliteInbox({ path, waitMs: 0 })(settingsOf().settings)
  await inbox.open()
  const all = Array.from({ length: count }, (_, n) => make(n))
  for (let at = 0; at < count; at += 500) await inbox.put(all.slice(at, at + 500))
  await inbox.close()
  return { path, all }
}

/** The numbers of a table's pages, from 1 up. */
function pagesOf(path: string, table: string): readonly number[] {
  const db = new DatabaseSync(path)
  const rows = db.prepare("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path").all(table)
  db.close()
  return rows.map((row) => Number(row['pageno']))
}

/** Overwrites pages with nonsense, as a dying disk does. */
function destroy(path: string, pages: readonly number[]): void {
  const bytes = readFileSync(path)
  for (const page of pages) bytes.fill(0xa5, (page - 1) * 8192, page * 8192)
  writeFileSync(path, bytes)
}

async function reopened(path: string): Promise<{
  inbox: Inbox
  log: readonly string[]
  gaps: readonly InboxGap[]
  ids: readonly string[]
  lastId: string | undefined
}> {
  const { settings, reported } = settingsOf()
  const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
  const opened = await inbox.open()
  const waiting = await waitingIn(opened)
  return {
    inbox,
    log: reported.log,
    // The file was closed for a moment.
    gaps: (opened.gaps ?? []).filter((gap) => gap.reason !== 'stopped'),
    ids: waiting.map(({ id }) => id),
    lastId: opened.lastId,
  }
}

/** What stands beside the file under the name of a damaged one. */
const quarantined = (path: string): readonly string[] =>
  readdirSync(dirname(path)).filter((name) => name.startsWith(`${basename(path)}.damaged-`))

/** What the damaged file still has, for whoever recovers it by hand. */
function textIn(path: string): string {
  const [name = ''] = quarantined(path)
  return readFileSync(join(dirname(path), name), 'latin1')
}

describe('a damaged file is moved aside whole, a new one begins, and one gap covers what the old one held:', () => {
  test.each([
    [
      'damaged pages in the list of pending messages',
      true,
      (path: string) => destroy(path, pagesOf(path, 'pending').slice(3, 5)),
    ],
    ['a destroyed header', false, (path: string) => writeFileSync(path, readFileSync(path).fill(0, 0, 100))],
    ['a destroyed first page', false, (path: string) => writeFileSync(path, readFileSync(path).fill(0, 0, 8_192))],
    ['a truncated file', false, (path: string) => truncateSync(path, 100 * 8_192)],
    ['a file of zeros', false, (path: string) => writeFileSync(path, readFileSync(path).fill(0))],
    ['no SQLite file at all', false, (path: string) => writeFileSync(path, 'number 7: this was a message')],
  ])('%s', async (_what, isReadable, damage) => {
    const { path, all } = await filled(3_000)
    damage(path)
    const bytes = readFileSync(path)
    const createdMs = statSync(path).birthtimeMs
    const { inbox, log, gaps, ids } = await reopened(path)
    expect(log[0]).toContain('was damaged: it was moved aside')
    expect(gaps.map(({ reason }) => reason)).toEqual(['inbox_damaged'])
    // Where nothing can be read, everything since the file was created may be lost.
    expect(gaps[0]?.fromMs).toBe(isReadable ? all[0]?.receivedAt : Math.floor(createdMs))
    expect(ids).toEqual([])
    expect(quarantined(path)).toHaveLength(1)
    // SQLite has counted in the first page that somebody has opened it.
    const kept = readFileSync(join(dirname(path), quarantined(path)[0] ?? ''))
    expect(kept.subarray(8_192).equals(bytes.subarray(8_192))).toBe(true)
    expect(inbox.usage()).toEqual({ messages: 0, bytes: 0 })
    // It takes messages, and what it takes survives. The gap is told until an event has it.
    const next = make(5_000)
    await inbox.put([next])
    await inbox.close()
    const again = await reopened(path)
    expect(again.ids).toEqual([next.id])
    expect(quarantined(path)).toHaveLength(1)
    await again.inbox.close()
  })

  test('damage that is found at a claim', async () => {
    const { path, all } = await filled(1_000)
    destroy(path, pagesOf(path, 'messages').slice(40, 42))
    const clock = fakeClock(nowMs + hourMs)
    const { settings, reported } = settingsOf({ clock })
    const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
    await waitingIn(await inbox.open())
    let failed = 0
    const left: string[] = []
    for (const { id } of all) {
      const claim = await Promise.resolve(inbox.claim(id)).catch(async (error: unknown) => {
        failed += 1
        expect(error).toMatchObject({ code: expect.stringMatching(/inbox_(damaged|unavailable)/) })
        expect(inbox.refusing()).toBe('inbox_unavailable')
        await clock.advance(1_000)
        await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
        return inbox.claim(id)
      })
      if (claim === undefined) left.push(id)
    }
    expect(failed).toBe(1)
    expect(reported.gaps).toEqual(['inbox_damaged'])
    // None of those that are gone is handed out, and they are in the file that was moved aside.
    expect(left.length).toBeGreaterThan(500)
    expect(textIn(path)).toContain(left.at(-1))
    expect(inbox.usage().messages).toBe(0)
    await inbox.put([make(5_000)])
    await inbox.close()
  })

  test('one changed letter in one text', async () => {
    const { path, all } = await filled(20)
    const bytes = readFileSync(path)
    // In every copy: SQLite leaves some in free space.
    for (let at = bytes.indexOf('number 7: '); at >= 0; at = bytes.indexOf('number 7: ', at)) bytes.write('N', at)
    writeFileSync(path, bytes)
    const clock = fakeClock(nowMs + hourMs)
    const { settings, reported } = settingsOf({ clock })
    const inbox = sqliteInbox({ path, waitMs: 0 })(settings)
    await waitingIn(await inbox.open())
    await expect(inbox.claim(all[7]?.id ?? '')).rejects.toMatchObject({ code: 'inbox_damaged' })
    await clock.advance(1_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    expect(reported.gaps).toEqual(['inbox_damaged'])
    expect(await inbox.claim(all[7]?.id ?? '')).toBeUndefined()
    expect(textIn(path)).toContain('number 8: ')
    await inbox.close()
  })

  test('a message whose time is known begins the gap, also when it is a dead letter', async () => {
    const { path, all } = await filled(2_000)
    const before = sqliteInbox({ path, waitMs: 0 })(settingsOf().settings)
    await before.open()
    await before.settle(all[0]?.id ?? '')
    await before.settle(all[1]?.id ?? '', { as: 'dead', reason })
    await before.settle(all[2]?.id ?? '')
    await before.close()
    destroy(path, pagesOf(path, 'pending').slice(3, 5))
    const { inbox, gaps } = await reopened(path)
    expect(gaps).toMatchObject([{ reason: 'inbox_damaged', fromMs: all[1]?.receivedAt }])
    await inbox.close()
  })

  test('a new message has a newer id than those of the old file', async () => {
    const { path, all } = await filled(100)
    writeFileSync(path, readFileSync(path).fill(0xa5, 8_192 * 12, 8_192 * 13))
    const { inbox, lastId } = await reopened(path)
    expect(lastId).toBe(all.at(-1)?.id)
    await inbox.close()
  })
})

test('a torn end of the journal is not damage: every earlier commit is there', async () => {
  const { settings } = settingsOf()
  const inbox = files.create(settings)
  await inbox.open()
  await inbox.put([kept(1)])
  await inbox.put([kept(2)])
  const again = files.reopen(inbox, settings)
  const wal = `${files.pathOf(again)}-wal`
  truncateSync(wal, readFileSync(wal).length - 100)
  expect((await waitingIn(await again.open())).map(({ id }) => id)).toEqual([kept(1).id])
  await again.close()
})

describe('on a failing disk', () => {
  interface Faults {
    commit?: 'before' | 'after'
    open?: boolean
    code?: 'inbox_full' | 'inbox_unavailable'
  }

  async function failing(): Promise<{
    inbox: Inbox
    faults: Faults
    clock: ReturnType<typeof fakeClock>
    calls: string[]
    reported: ReturnType<typeof settingsOf>['reported']
    path: string
  }> {
    const clock = fakeClock(nowMs)
    const { settings, reported } = settingsOf({ clock })
    const path = files.path()
    const faults: Faults = {}
    const calls: string[] = []
    const error = (): FleethookError => new FleethookError(faults.code ?? 'inbox_unavailable', 'The disk says EIO.')
    const faulty = (store: InboxFile): Partial<InboxFile> => ({
      async open(now) {
        calls.push('open')
        if (faults.open === true) throw error()
        return store.open(now)
      },
      async commit(batch) {
        if (faults.commit === 'before') throw error()
        const result = await store.commit(batch)
        // Like a sync that fails after the pages were written.
        if (faults.commit === 'after') throw error()
        return result
      },
      async probe() {
        return faults.commit === undefined && (await store.probe())
      },
      async close(now) {
        calls.push(now === undefined ? 'dropped' : 'closed')
        return store.close(now)
      },
    })
    const { inbox } = inboxOn(path, faulty, settings)
    await inbox.open()
    return { inbox, faults, clock, calls, reported, path }
  }

  test('a failed sync closes the file, refuses messages, and opens the file again after growing waits', async () => {
    const { inbox, faults, clock, calls, reported, path } = await failing()
    await inbox.put([kept(1)])
    await inbox.claim(kept(1).id)
    faults.commit = 'after'
    faults.open = true
    await expect(inbox.put([kept(2)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
    expect(inbox.refusing()).toBe('inbox_unavailable')
    expect(inbox.usage().messages).toBe(1)
    await expect(inbox.put([kept(3)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
    // A message that is settled meanwhile stays settled.
    await inbox.settle(kept(1).id)
    expect(await inbox.claim(kept(1).id)).toBeUndefined()
    await clock.advance(1_000 + 2_000)
    expect(calls).toEqual(['open', 'dropped', 'open', 'dropped', 'open', 'dropped'])
    delete faults.commit
    delete faults.open
    await clock.advance(4_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    expect(reported.capacityReports).toBe(1)
    await inbox.put([kept(4)])
    // The refused message is gone although it had been written, and the settled one is settled.
    await inbox.close()
    const { inbox: again, ids } = await reopened(path)
    expect(ids).toEqual([kept(4).id])
    await again.close()
  })

  test('a full disk refuses messages with inbox_full, keeps the file open, and recovers when there is room', async () => {
    const { inbox, faults, clock, calls, reported } = await failing()
    await inbox.put([kept(1)])
    await inbox.claim(kept(1).id)
    faults.commit = 'before'
    faults.code = 'inbox_full'
    await expect(inbox.put([kept(2)])).rejects.toMatchObject({ code: 'inbox_full' })
    await inbox.settle(kept(1).id)
    expect(inbox.refusing()).toBe('inbox_full')
    await clock.advance(3_000)
    expect(inbox.refusing()).toBe('inbox_full')
    delete faults.commit
    await clock.advance(1_000)
    await vi.waitUntil(() => inbox.refusing() === undefined, 60_000)
    expect({ calls, capacityReports: reported.capacityReports }).toEqual({ calls: ['open'], capacityReports: 1 })
    await inbox.put([kept(2)])
    expect(inbox.usage().messages).toBe(1)
    await inbox.close()
    expect(calls).toEqual(['open', 'closed'])
  })
})
