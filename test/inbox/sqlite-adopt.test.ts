import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { linkSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { setTimeout } from 'node:timers/promises'
import { createReceiver } from 'fleethook'
import type { Inbox, InboxGap, InboxMessage, Opened, Waiting } from 'fleethook/extend'
import { sqliteInbox, type SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { DeliveryIds, reason, lettersIn } from '../../src/testing/kept-message.ts'
import { inForm } from '../form.ts'
import { unwatched } from '../vehicles/scene.ts'
import { createFiles, type Files } from './sqlite-files.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'

const files: Files = createFiles()
const startMs = Date.UTC(2026, 10, 21, 10)
const clock = unwatched(fakeClock(startMs + 3_600_000))

interface Life {
  readonly inbox: Inbox
  readonly opened: Opened
  readonly log: readonly string[]
}

async function begin(path: string, options: Partial<SqliteInboxOptions> = {}): Promise<Life> {
  const { settings, reported } = settingsOf({ clock, openGaps: () => [] })
  const inbox = sqliteInbox({ path, waitMs: 0, ...options })(settings)
  return { inbox, opened: await inbox.open(), log: reported.log }
}

/** Messages of one process, `n` milliseconds after the start. The first of each millisecond has the same `seq` everywhere. */
function received(by: string, times: readonly number[]): readonly InboxMessage[] {
  const ids = new DeliveryIds()
  return times.map((n) => {
    const receivedAt = startMs + n
    const text = JSON.stringify({ vin: 'VIN', by, n })
    return { id: ids.next(receivedAt), lane: 'VIN', receivedAt, door: 'root', kind: 'wire', text, bytes: text.length }
  })
}

async function filled(path: string, messages: readonly InboxMessage[]): Promise<Inbox> {
  const { inbox } = await begin(path)
  await inbox.put(messages)
  return inbox
}

async function textsIn({ inbox, opened }: Life): Promise<readonly string[]> {
  // Together, because each claim that is awaited alone waits for the disk.
  const claims = await Promise.all((await waitingIn(opened)).map(async ({ id }) => inbox.claim(id)))
  return claims.map((claim) => claim?.message.text ?? 'missing')
}

function folder(): string {
  const path = dirname(files.path())
  mkdirSync(path, { recursive: true })
  return path
}

test('messages that stopped siblings left are taken over in the order of arrival, and the files are empty then', async () => {
  const at = folder()
  const own = received('own', [1, 4, 5])
  const theirs = received('theirs', [1, 2, 4, 7, 8])
  await (await filled(join(at, 'inbox-a.db'), own)).close()
  const sibling = await filled(join(at, 'inbox-b.db'), theirs)
  await sibling.settle(theirs[4]?.id ?? '', { as: 'dead', reason })
  await sibling.settle(theirs[1]?.id ?? '')
  await sibling.settle(theirs[3]?.id ?? '', { as: 'later', next: { attempts: 2, notBefore: 5 } })
  await sibling.close()
  writeFileSync(join(at, 'inbox-note.db'), 'not a database')
  const life = await begin(join(at, 'inbox-a.db'), { adopt: join(at, 'inbox-*.db') })
  expect(life.log.filter((line) => line.includes('took over'))).toEqual([
    `took over 3 messages and 1 dead letters from the inbox ${join(at, 'inbox-b.db')}`,
  ])
  expect(life.inbox.usage().messages).toBe(6)
  expect(life.inbox.stats?.()).toMatchObject({ deadLetters: 1 })
  const texts = await textsIn(life)
  expect(texts.map((text) => JSON.parse(text))).toMatchObject([
    { by: 'own', n: 1 },
    { by: 'theirs', n: 1 },
    { by: 'own', n: 4 },
    { by: 'theirs', n: 4 },
    { by: 'own', n: 5 },
    { by: 'theirs', n: 7 },
  ])
  expect(life.opened.lastId).toBe(theirs[4]?.id)
  await life.inbox.close()
  const left = await begin(join(at, 'inbox-b.db'))
  expect(left.inbox.usage().messages).toBe(0)
  expect(await lettersIn(left.inbox, { limit: 10 })).toEqual([])
  await left.inbox.close()
})

test('a file in use is left alone', async () => {
  const at = folder()
  const busy = await filled(join(at, 'inbox-b.db'), received('busy', [1]))
  const life = await begin(join(at, 'inbox-a.db'), { adopt: join(at, 'inbox-*.db') })
  expect(life.inbox.usage().messages).toBe(0)
  expect(life.inbox.stats?.()).toMatchObject({ unopened: [] })
  expect(busy.usage().messages).toBe(1)
  await life.inbox.close()
  await busy.put(received('busy', [2]))
  await busy.close()
})

test('the gaps of a sibling, and that of its crash, are taken over and reported once', async () => {
  const at = folder()
  const path = join(at, 'inbox-b.db')
  const gap = { vin: 'A', reason: 'inbox_full', fromMs: startMs, toMs: startMs + 5, missed: 2 } as const
  const { settings } = settingsOf({ clock, openGaps: () => [gap] })
  const first = sqliteInbox({ path, waitMs: 0 })(settings)
  await first.open()
  await clock.advance(10_000)
  const crashed = join(at, 'crashed-b.db')
  files.copy(path, crashed)
  await first.close()
  const life = await begin(join(at, 'own.db'), { adopt: join(at, 'crashed-*.db') })
  expect(life.opened.gaps).toEqual([gap, { reason: 'restarted', fromMs: clock.now(), toMs: clock.now() }])
  await life.inbox.close()
  const again = await begin(join(at, 'own-2.db'), { adopt: join(at, 'crashed-*.db') })
  expect(again.opened.gaps).toEqual([])
  await again.inbox.close()
})

test('the moment in which a sibling closed is a gap, once', async () => {
  const at = folder()
  const first = await begin(join(at, 'inbox-b.db'))
  const closedMs = clock.now()
  await clock.advance(700)
  await first.inbox.close(closedMs)
  await clock.advance(1_000)
  const adopt = join(at, 'inbox-*.db')
  const life = await begin(join(at, 'inbox-a.db'), { adopt })
  expect(life.opened.gaps).toEqual([{ reason: 'stopped', fromMs: closedMs, toMs: closedMs + 700 }])
  const other = await begin(join(at, 'inbox-c.db'), { adopt })
  expect(other.opened.gaps).toEqual([])
  await other.inbox.close()
  await life.inbox.close()
})

test('without `adopt`, the log and `stats()` name stopped siblings that hold messages', async () => {
  const at = folder()
  await (await filled(join(at, 'inbox-b.db'), received('left', [1, 2]))).close()
  await (await filled(join(at, 'inbox-empty.db'), [])).close()
  await (await filled(join(at, 'other.db'), received('other', [1]))).close()
  const life = await begin(join(at, 'inbox-a.db'))
  const path = join(at, 'inbox-b.db')
  expect(life.inbox.stats?.().unopened).toEqual([{ path, messages: 2, deadLetters: 0 }])
  expect(life.log.join()).toContain(`2 messages and 0 dead letters wait in the inbox ${path}`)
  await life.inbox.close()
})

describe('while it runs', () => {
  interface Running extends Life {
    readonly taken: Waiting[]
    readonly gaps: InboxGap[]
    texts(): Promise<readonly unknown[]>
  }

  async function running(at: string): Promise<Running> {
    const taken: Waiting[] = []
    const gaps: InboxGap[] = []
    const { settings, reported } = settingsOf({
      clock,
      openGaps: () => [],
      onWaiting: (page) => void taken.push(...page),
      onGap: (gap) => void gaps.push(gap),
    })
    const inbox = sqliteInbox({ path: join(at, 'inbox-a.db'), adopt: join(at, 'inbox-*.db'), waitMs: 0 })(settings)
    const opened = await inbox.open()
    async function texts(): Promise<readonly unknown[]> {
      const claims = await Promise.all(taken.map(async ({ id }) => inbox.claim(id)))
      return claims.map((claim): unknown => JSON.parse(claim?.message.text ?? '{}'))
    }
    return { inbox, opened, log: reported.log, taken, gaps, texts }
  }

  test('it takes over the file of a receiver that stopped more than a minute ago, once and in order', async () => {
    const at = folder()
    const life = await running(at)
    // The file has more than one part, and its first message has the place of an existing one here.
    const theirs = received(
      'theirs',
      Array.from({ length: 2_500 }, (_, n) => n),
    )
    const own = received('own', [0])
    await life.inbox.put(own)
    const sibling = await filled(join(at, 'inbox-b.db'), theirs)
    await sibling.settle(theirs[7]?.id ?? '', { as: 'dead', reason: { ...reason, diedAt: clock.now() } })
    await sibling.settle(theirs[8]?.id ?? '')
    await sibling.close()
    await clock.advance(59_000)
    expect(life.taken).toEqual([])
    // Taking over deletes the journal and makes a new one, which is another file for the system, because this one stays.
    linkSync(join(at, 'inbox-a.db-wal'), join(at, 'journal'))
    await clock.advance(120_000)
    expect(life.taken).toHaveLength(2_498)
    const left = theirs.filter((_, n) => n !== 7 && n !== 8).map(({ text }): unknown => JSON.parse(text))
    expect(await life.texts()).toEqual(left)
    expect(life.inbox.usage().messages).toBe(2_499)
    expect(life.inbox.stats?.()).toMatchObject({ deadLetters: 1 })
    await clock.advance(300_000)
    expect(life.taken).toHaveLength(2_498)
    expect(life.log.filter((line) => line.includes('took over'))).toEqual([
      `took over 2498 messages and 1 dead letters from the inbox ${join(at, 'inbox-b.db')}`,
    ])
    const before = life.inbox.usage()
    // It goes on as before: it writes, and after a crash everything is there.
    await life.inbox.put(received('own', [9_000]))
    files.copy(join(at, 'inbox-a.db'), join(at, 'copied.db'))
    await life.inbox.close()
    const again = await begin(join(at, 'copied.db'))
    expect(again.inbox.usage().messages).toBe(before.messages + 1)
    expect(await textsIn(again)).toHaveLength(2_500)
    await again.inbox.close()
    const emptied = await begin(join(at, 'inbox-b.db'))
    expect(emptied.inbox.usage().messages).toBe(0)
    await emptied.inbox.close()
  })

  test('it leaves a file alone when its receiver runs, or comes back within a minute', async () => {
    const at = folder()
    const life = await running(at)
    const busy = await filled(join(at, 'inbox-b.db'), received('busy', [1]))
    await clock.advance(180_000)
    await busy.close()
    await clock.advance(50_000)
    const back = await begin(join(at, 'inbox-b.db'))
    expect(back.inbox.usage().messages).toBe(1)
    await clock.advance(180_000)
    expect(life.taken).toEqual([])
    await back.inbox.close()
    await life.inbox.close()
  })

  test('it takes over the gaps of a receiver that crashed, and marks its messages as redelivered', async () => {
    const at = folder()
    const life = await running(at)
    const sibling = await filled(join(at, 'other.db'), received('theirs', [1, 2]))
    files.copy(join(at, 'other.db'), join(at, 'inbox-b.db'))
    await sibling.close()
    const crashedMs = clock.now()
    await clock.advance(180_000)
    expect(life.taken).toMatchObject([{ redelivered: true }, { redelivered: true }])
    expect(life.gaps).toMatchObject([{ reason: 'restarted', fromMs: crashedMs }])
    await life.inbox.close()
  })

  test('a receiver handles them', async () => {
    const at = folder()
    const silent = { debug() {}, info() {}, warn() {}, error() {} }
    const inbox = sqliteInbox({ path: join(at, 'inbox-a.db'), adopt: join(at, 'inbox-*.db'), waitMs: 0 })
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: false, inbox, clock, log: silent }).on('unknown', ({ raw }) => {
      seen.push(raw)
    })
    await receiver.open()
    const theirs = received('theirs', [1, 2, 3])
    await (await filled(join(at, 'inbox-b.db'), theirs)).close()
    await clock.advance(180_000)
    expect(seen).toEqual(theirs.map(({ text }): unknown => JSON.parse(text)))
    expect(receiver.stats()).toMatchObject({ recovered: 3, handled: 3, pending: { messages: 0 } })
    const drained = receiver.drain()
    await clock.advance(2_000)
    await drained
  })
})

test.each([
  ['at the start', inForm({ real: 1, full: 6, long: 25 })],
  ['while it runs', inForm({ real: 1, full: 6, long: 25 })],
])(
  'each message is taken over exactly once by processes that are killed in the middle (%s, %i rounds)',
  { timeout: 600_000 },
  async (moment, rounds) => {
    const program = fileURLToPath(new URL('sqlite-adopting.ts', import.meta.url))
    let moved = 0
    let longestMs = moment === 'at the start' ? 250 : 50
    // On a busy machine or a slow disk all processes of a round can be killed before they move anything. Then it takes more rounds, with more time.
    for (let round = 0; round < rounds || moved === 0; round += 1) {
      const at = folder()
      const times = Array.from({ length: 6_000 }, (_, n) => n)
      const expected: string[] = []
      for (const by of ['b', 'c']) {
        const messages = received(by, times)
        expected.push(...messages.map(({ text }) => text))
        const inbox = await filled(join(at, `inbox-${by}.db`), messages)
        await inbox.close()
      }
      const paths = ['a', 'b', 'c'].map((name) => join(at, `inbox-${name}.db`))
      for (let kill = 0; kill < 4; kill += 1) {
        const child = spawn(process.execPath, [program, paths[kill % 2] ?? '', join(at, 'inbox-*.db'), moment])
        const ended = once(child, 'exit')
        // Nothing may be left to take over.
        await Promise.race([once(child.stdout, 'data'), ended])
        await setTimeout(Math.random() * longestMs)
        child.kill('SIGKILL')
        await ended
      }
      const found: string[] = []
      for (const [place, path] of paths.entries()) {
        const life = await begin(path, { adopt: join(at, 'nothing-*.db') })
        const texts = await textsIn(life)
        const numbers = (by: string): number[] => texts.map((text): { by: string; n: number } => JSON.parse(text)).filter((each) => each.by === by).map(({ n }) => n) // prettier-ignore
        for (const by of ['b', 'c']) expect(numbers(by)).toEqual(numbers(by).toSorted((a, b) => a - b))
        found.push(...texts)
        // Also those that were moved on, or back into the other file.
        moved += texts.length - numbers(['a', 'b', 'c'][place] ?? '').length
        await life.inbox.close()
        expect(integrity(path)).toBe('ok')
      }
      expect(found.toSorted()).toEqual(expected.toSorted())
      if (moved === 0) longestMs *= 4
    }
  },
)

function integrity(path: string): unknown {
  const db = new DatabaseSync(path)
  try {
    return db.prepare('PRAGMA integrity_check').get()?.['integrity_check']
  } finally {
    db.close()
  }
}
