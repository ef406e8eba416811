/* `fleethook move`: an inbox file goes into another one. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { setTimeout } from 'node:timers/promises'
import type { Inbox, InboxMessage, Opened, Waiting } from 'fleethook/extend'
import { sqliteInbox, type SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { DeliveryIds, readersInMemory, reason, lettersIn } from '../../src/testing/kept-message.ts'
import { command } from '../cli/command.ts'
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
  const { settings, reported } = settingsOf({ clock, receiver: { openGaps: () => [] } })
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

async function textsIn(inbox: Inbox, waiting: readonly Waiting[]): Promise<readonly string[]> {
  // Together, because each claim that is awaited alone waits for the disk.
  const claims = await Promise.all(waiting.map(async ({ id }) => inbox.claim(id)))
  return claims.map((claim) => claim?.message.text ?? 'missing')
}

/** `fleethook move`. */
async function move(from: string, to: string): Promise<unknown> {
  const { stdout, stderr } = await command(['move', from, to, '--json'])
  return JSON.parse(stdout === '' ? stderr : stdout)
}

function folder(): string {
  const path = dirname(files.path())
  mkdirSync(path, { recursive: true })
  return path
}

test('what waits in the file of a stopped receiver moves in the order of arrival, and the file is empty then', async () => {
  const at = folder()
  const [path, from] = [join(at, 'inbox-a.db'), join(at, 'inbox-b.db')]
  await (await filled(path, received('own', [1, 4, 5]))).close()
  const theirs = received('theirs', [1, 2, 4, 7, 8])
  const sibling = await filled(from, theirs)
  await sibling.settle(theirs[4]?.id ?? '', { as: 'dead', reason })
  await sibling.settle(theirs[1]?.id ?? '')
  const failure = { handler: 'data', error: 'Error: no', sinceMs: 7 }
  await sibling.settle(theirs[3]?.id ?? '', { as: 'later', next: { attempts: 2, notBefore: 5, failure } })
  await sibling.close()
  expect(await move(from, path)).toMatchObject({ messages: 3, deadLetters: 1 })
  const life = await begin(path)
  expect(life.log.filter((line) => line.includes('wait in the inbox'))).toEqual([])
  expect(life.inbox.usage().messages).toBe(6)
  expect(life.inbox.stats?.()).toMatchObject({ deadLetters: 1 })
  const waiting = await waitingIn(life.opened)
  expect(waiting.filter(({ attempts = 0 }) => attempts > 0)).toMatchObject([{ attempts: 2, notBefore: 5, failure }])
  const texts = await textsIn(life.inbox, waiting)
  expect(texts.map((text): unknown => JSON.parse(text))).toMatchObject([
    { by: 'own', n: 1 },
    { by: 'theirs', n: 1 },
    { by: 'own', n: 4 },
    { by: 'theirs', n: 4 },
    { by: 'own', n: 5 },
    { by: 'theirs', n: 7 },
  ])
  expect(life.opened.lastId).toBe(theirs[4]?.id)
  await life.inbox.close()
  const left = await begin(from)
  expect(left.inbox.usage().messages).toBe(0)
  expect(await lettersIn(left.inbox, { limit: 10 })).toEqual([])
  await left.inbox.close()
  expect(await move(from, path)).toMatchObject({ messages: 0, deadLetters: 0 })
})

test('more messages than one page move, and those of a copy that are there already are not there twice', async () => {
  const at = folder()
  const [path, from, copy] = [join(at, 'inbox-a.db'), join(at, 'inbox-b.db'), join(at, 'copied.db')]
  const theirs = received(
    'theirs',
    Array.from({ length: 2_500 }, (_, n) => n),
  )
  await (await filled(from, theirs)).close()
  files.copy(from, copy)
  expect(await move(from, path)).toMatchObject({ messages: 2_500 })
  expect(await move(copy, path)).toMatchObject({ messages: 0 })
  const life = await begin(path)
  expect(await textsIn(life.inbox, await waitingIn(life.opened))).toEqual(theirs.map(({ text }) => text))
  await life.inbox.close()
})

test.each(['from', 'to'])('a file in use moves nothing (%s)', async (which) => {
  const at = folder()
  const [path, from] = [join(at, 'inbox-a.db'), join(at, 'inbox-b.db')]
  await (await filled(path, received('own', [1]))).close()
  await (await filled(from, received('theirs', [1]))).close()
  const busy = await begin(which === 'from' ? from : path)
  expect(await move(from, path)).toMatchObject({ error: { code: 'inbox_locked' } })
  expect(busy.inbox.usage().messages).toBe(1)
  await busy.inbox.put(received('busy', [2]))
  await busy.inbox.close()
  const other = await begin(which === 'from' ? path : from)
  expect(other.inbox.usage().messages).toBe(1)
  await other.inbox.close()
})

test('a file that is no inbox, or is not there, moves nothing', async () => {
  const at = folder()
  const path = join(at, 'inbox.db')
  await (await filled(path, received('own', [1]))).close()
  writeFileSync(join(at, 'note.db'), 'not a database, but a note of some length')
  expect(await move(join(at, 'missing.db'), path)).toMatchObject({ error: { code: 'inbox_unavailable' } })
  expect(await move(join(at, 'note.db'), path)).toMatchObject({ error: { code: 'inbox_damaged' } })
  expect(readFileSync(join(at, 'note.db'), 'utf8')).toBe('not a database, but a note of some length')
  const life = await begin(path)
  expect(life.inbox.usage().messages).toBe(1)
  await life.inbox.close()
})

test('gaps move, and that of a crash, and are reported once. What a crash left is redelivered', async () => {
  const at = folder()
  const path = join(at, 'inbox-b.db')
  const gap = { vin: 'A', reason: 'inbox_full', fromMs: startMs, toMs: startMs + 5, missed: 2 } as const
  const { settings } = settingsOf({ clock, receiver: { openGaps: () => [gap] } })
  const first = sqliteInbox({ path, waitMs: 0 })(settings)
  await first.open()
  await first.put(received('theirs', [1]))
  await clock.advance(10_000)
  const crashedMs = clock.now()
  const crashed = join(at, 'crashed-b.db')
  files.copy(path, crashed)
  await first.close()
  const own = join(at, 'own.db')
  expect(await move(crashed, own)).toMatchObject({ messages: 1, gaps: 2 })
  const life = await begin(own)
  expect(life.opened.gaps).toMatchObject([gap, { reason: 'restarted', fromMs: crashedMs }])
  expect(await waitingIn(life.opened)).toMatchObject([{ redelivered: true }])
  await life.inbox.close()
  expect(await move(crashed, own)).toMatchObject({ messages: 0, gaps: 0 })
})

test('what waits for a branch moves to the branch of the same name, also what only the branch still needs', async () => {
  const at = folder()
  const [path, from] = [join(at, 'inbox-a.db'), join(at, 'inbox-b.db')]
  const own = received('own', [1])
  const theirs = received('theirs', [1, 2, 3])
  const withBranch = async (
    file: string,
  ): Promise<Record<'front' | 'crm', Inbox> & { waiting: readonly Waiting[] }> => {
    const { settings } = settingsOf({ clock, receiver: { openGaps: () => [] } })
    const front = sqliteInbox({ path: file, waitMs: 0 })(settings)
    const itsOwn = settingsOf({ clock, receiver: { openGaps: () => [] } }).settings
    const crm = front.reader?.('crm', { ...itsOwn, readersInMemory })
    if (crm === undefined) throw new Error('The inbox has one reader only.')
    await front.open()
    return { front, crm, waiting: await waitingIn(await crm.open()) }
  }
  const stop = async ({ front, crm }: Record<'front' | 'crm', Inbox>): Promise<void> => {
    await crm.close()
    await front.close()
  }
  const here = await withBranch(path)
  await here.front.put(own)
  await stop(here)
  const there = await withBranch(from)
  await there.front.put(theirs)
  for (const { id } of theirs) await there.front.settle(id)
  await there.crm.settle(theirs[1]?.id ?? '', { as: 'dead', reason })
  await there.crm.settle(theirs[2]?.id ?? '')
  await stop(there)

  const looking = await begin(path)
  expect(looking.inbox.stats?.().unopened).toContainEqual({ path: from, messages: 1, deadLetters: 1 })
  await looking.inbox.close()
  expect(await move(from, path)).toMatchObject({ messages: 1, deadLetters: 1 })
  const moved = await withBranch(path)
  expect([moved.front.usage().messages, moved.crm.usage().messages]).toEqual([1, 2])
  const texts = await textsIn(moved.crm, moved.waiting)
  expect(texts).toEqual([own[0]?.text, theirs[0]?.text])
  expect(await lettersIn(moved.front, { limit: 9 })).toEqual([])
  expect((await lettersIn(moved.crm, { limit: 9 })).map(({ message }) => message.text)).toEqual([theirs[1]?.text])
  await stop(moved)
  expect(await move(from, path)).toMatchObject({ messages: 0, deadLetters: 0 })
})

test('the log and `stats()` name stopped siblings that hold messages', async () => {
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

test('each message is in exactly one file, whenever the process ends', { timeout: 600_000 }, async () => {
  const program = fileURLToPath(new URL('sqlite-moving-process.ts', import.meta.url))
  const at = folder()
  const paths = [join(at, 'inbox-a.db'), join(at, 'inbox-b.db')] as const
  const theirs = received(
    'theirs',
    Array.from({ length: 6_000 }, (_, n) => n),
  )
  await (await filled(paths[1], theirs)).close()
  await (await filled(paths[0], [])).close()
  let from = 1
  let longestMs = 50
  const ends = { before: 0, after: 0 }
  const rounds = inForm({ real: 6, full: 20, long: 100 })
  // On a busy machine each process may be killed before it has moved everything, and then it gets more time.
  for (let round = 0; round < rounds || ends.after === 0 || ends.before === 0; round += 1) {
    const child = spawn(process.execPath, [program, paths[from] ?? '', paths[1 - from] ?? ''])
    const ended = once(child, 'exit')
    await Promise.race([once(child.stdout, 'data'), ended])
    await setTimeout(Math.random() * longestMs)
    child.kill('SIGKILL')
    await ended
    const found: (readonly string[])[] = []
    for (const path of paths) {
      const life = await begin(path)
      found.push(await textsIn(life.inbox, await waitingIn(life.opened)))
      await life.inbox.close()
      expect(integrity(path)).toBe('ok')
    }
    const isMoved = found[from]?.length === 0
    expect(found[isMoved ? 1 - from : from]).toEqual(theirs.map(({ text }) => text))
    expect(found[isMoved ? from : 1 - from]).toEqual([])
    if (isMoved) from = 1 - from
    ends[isMoved ? 'after' : 'before'] += 1
    longestMs = isMoved ? Math.max(5, longestMs / 2) : longestMs * 2
  }
})

function integrity(path: string): unknown {
  const db = new DatabaseSync(path)
  try {
    return db.prepare('PRAGMA integrity_check').get()?.['integrity_check']
  } finally {
    db.close()
  }
}
