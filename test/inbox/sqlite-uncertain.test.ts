import { createReceiver, type FleetEvent, FleethookError } from 'fleethook'
import type { Inbox } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, type FakeClock } from 'fleethook/testing'
import { describe, expect, test, vi } from 'vitest'
import { archiveOf, message as kept, reason, lettersIn, settledIn } from '../../src/testing/kept-message.ts'
import { createFiles } from './sqlite-files.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'
import { type InboxFile, inboxOn, type OpenedFile, rowOf, storeAt, transaction, withCalls } from './sqlite-store.ts'

const files = createFiles()
const nothing = { messages: 0, bytes: 0 }

/** An inbox on a disk whose next sync fails after `fail()`, although it has written everything. */
async function failingSync(
  path: string = files.path(),
  change: (store: InboxFile) => Partial<InboxFile> = () => ({}),
): Promise<{ inbox: Inbox; fail(): void; recovered(): Promise<void> }> {
  const clock: FakeClock = fakeClock(1_000_000)
  let fails = false
  let reopened = (): void => {}
  const failing = (store: InboxFile): Partial<InboxFile> => ({
    async commit(batch) {
      const result = await store.commit(batch)
      if (!fails) return result
      fails = false
      throw new FleethookError('inbox_unavailable', 'The sync failed.')
    },
  })
  const { inbox } = inboxOn(
    path,
    (store) => ({ ...failing(store), ...change(withCalls(store, failing(store))) }),
    settingsOf({ clock, on: ({ type }) => void (type === 'available' && reopened()) }).settings,
  )
  await inbox.open()
  return {
    inbox,
    fail() {
      fails = true
    },
    async recovered() {
      const whole = new Promise<void>((resolve) => (reopened = resolve))
      await clock.advance(1_000)
      await whole
    },
  }
}

describe('when a sync fails after the file was written', () => {
  test.each([
    ['a dead letter', { as: 'dead', reason }, lettersIn],
    ['a settled message', undefined, settledIn],
  ] as const)('%s whose revival failed is still one', async (_what, settled, listed) => {
    const { inbox, fail, recovered } = await failingSync()
    await inbox.put([kept(1)])
    await inbox.settle(kept(1).id, settled)
    // Reads after everything was written.
    await listed(inbox, { limit: 1 })
    fail()
    await expect(archiveOf(inbox)?.revive(kept(1).id)).rejects.toMatchObject({ code: 'inbox_unavailable' })
    await recovered()
    expect(await listed(inbox, { limit: 10 })).toMatchObject([{ id: kept(1).id, ...(settled && reason) }])
    expect(inbox.usage()).toEqual(nothing)
    expect(await archiveOf(inbox)?.revive(kept(1).id)).toBeDefined()
    expect(inbox.usage()).toEqual({ messages: 1, bytes: kept(1).bytes })
    await inbox.close()
  })
})

test('a message that a damaged file lost is not subtracted twice when its handlers are done', async () => {
  let opened = 0
  const damage = { quarantine: 'aside', fromMs: 0 }
  const { inbox, fail, recovered } = await failingSync(files.path(), (store) => ({
    async open(sign): Promise<OpenedFile> {
      const found = await store.open(sign)
      return (opened += 1) === 1 ? found : { ...found, ...nothing, damage }
    },
    async commit(batch) {
      const result = await store.commit(batch)
      return opened === 1 ? result : { ...result, retracted: nothing, moved: result.moved.map(() => undefined) }
    },
  }))
  await inbox.put([kept(1)])
  await inbox.claim(kept(1).id)
  fail()
  await expect(inbox.put([kept(2)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
  await recovered()
  expect(inbox.usage()).toEqual(nothing)
  await inbox.settle(kept(1).id)
  expect(inbox.usage()).toEqual(nothing)
  await inbox.close()
})

test('a log that throws loses no acknowledged message, and every request gets an answer', async () => {
  const path = files.path()
  const log = { debug() {}, info() {}, warn: fails, error: fails }
  const inbox = sqliteInbox({ path, waitMs: 0, maxBytes: 8 * 1_048_576 })
  const receiver = createReceiver({ secret: false, inbox, log, limits: { pendingMessages: 1e6 } })
  receiver.on('data', () => new Promise(() => {}))
  const filling = 'x'.repeat(50_000)
  let acknowledged = 0
  for (let status = 200; status === 200; acknowledged += Number(status === 200)) {
    const body = { vin: 'VIN', createdAt: '2024-02-24T04:58:44Z', data: { Version: filling } }
    status = (await receiver.accept({ authorization: undefined, body })).status
  }
  await receiver.drain({ deadlineMs: 0 })
  const next = sqliteInbox({ path, waitMs: 0 })(settingsOf().settings)
  expect((await waitingIn(await next.open())).filter(({ kind }) => kind === 'wire')).toHaveLength(acknowledged)
  await next.close()
})

function fails(): never {
  throw new Error('the log is broken')
}

test('several crashes make one gap event, and the recorded gaps are removed when it is stored', async () => {
  const path = files.path()
  for (const ms of [1_000, 2_000, 3_000]) {
    const killed = storeAt(path)
    await killed.open({ nowMs: ms })
    await killed.close()
  }
  const told = Promise.withResolvers<FleetEvent>()
  const inbox = sqliteInbox({ path, waitMs: 0 })
  let made: Inbox | undefined
  const receiver = createReceiver({ secret: false, inbox: (settings) => (made = inbox(settings)) })
  receiver.on('gap', (event) => told.resolve(event))
  await Array.fromAsync(receiver.deadLetters.list())
  expect(await told.promise).toMatchObject({ reason: 'restarted', from: new Date(1_000) })
  // Reads after everything was written.
  await (made && archiveOf(made))?.list('settled', { limit: 1 })
  await expect(gapsIn(path)).resolves.toBe(0)
  await receiver.drain()
})

/** The recorded gaps that a process would find if this one were killed now. */
async function gapsIn(path: string): Promise<number> {
  const copy = files.path()
  const { cpSync, mkdirSync } = await import('node:fs')
  const { dirname } = await import('node:path')
  mkdirSync(dirname(copy))
  for (const suffix of ['', '-wal']) cpSync(path + suffix, copy + suffix)
  const { DatabaseSync } = await import('node:sqlite')
  const db = new DatabaseSync(copy)
  const { gaps } = db.prepare('SELECT count(*) AS gaps FROM holes').get() ?? {}
  db.close()
  return Number(gaps)
}

test('a message settled while the sync failed takes no room, even if the disk is full at the next attempt', async () => {
  const failures: ('inbox_unavailable' | 'inbox_full')[] = []
  const { inbox, recovered } = await failingSync(files.path(), (store) => ({
    async commit(batch) {
      const code = failures.shift()
      if (code !== undefined) throw new FleethookError(code, 'It failed.')
      return store.commit(batch)
    },
  }))
  await inbox.put([kept(1)])
  failures.push('inbox_unavailable', 'inbox_full')
  await inbox.settle(kept(1).id)
  await expect(inbox.put([kept(2)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
  await recovered()
  await vi.waitUntil(() => failures.length === 0, 60_000)
  await recovered()
  expect(await settledIn(inbox, { limit: 10 })).toMatchObject([{ id: kept(1).id }])
  expect(inbox.usage()).toEqual(nothing)
  await inbox.close()
})

test('a claim that could not be written does not count: a failing disk does not make a message a dead letter', async () => {
  const path = files.path()
  const before = storeAt(path)
  await before.open({ nowMs: 1 })
  await before.commit(transaction(1, { puts: [rowOf(kept(1))] }))
  // Without a time: the process crashed.
  await before.close()
  let broken = true
  const { inbox } = await failingSync(path, (store) => ({
    commit: (batch) =>
      broken ? Promise.reject(new FleethookError('inbox_full', 'The disk is full.')) : store.commit(batch),
  }))
  for (let n = 0; n < 5; n += 1) await expect(inbox.claim(kept(1).id)).rejects.toMatchObject({ code: 'inbox_full' })
  broken = false
  // Once by the process that crashed, perhaps.
  expect(await inbox.claim(kept(1).id)).toMatchObject({ deliveries: 1 })
  expect(await inbox.claim(kept(1).id)).toMatchObject({ deliveries: 2 })
  await inbox.close()
})

test('reopening the file is not a restart: no gap is recorded', async () => {
  const path = files.path()
  const { inbox, fail, recovered } = await failingSync(path)
  await inbox.put([kept(1)])
  fail()
  await expect(inbox.settle(kept(1).id, { as: 'dead', reason })).rejects.toMatchObject({ code: 'inbox_unavailable' })
  await recovered()
  await expect(gapsIn(path)).resolves.toBe(0)
  await inbox.close()
})

test('a change during the reopening waits, and is counted once', async () => {
  let opening = 0
  const early: Promise<unknown>[] = []
  const { inbox, fail, recovered } = await failingSync(files.path(), (store) => ({
    open(sign) {
      const opened = store.open(sign)
      // The file is open, and its messages are being counted.
      if ((opening += 1) === 2)
        early.push(Promise.resolve(inbox.settle(kept(1).id, { as: 'dead', reason })).catch(() => 'later'))
      return opened
    },
  }))
  await inbox.put([kept(1), kept(2)])
  fail()
  await expect(inbox.put([kept(3)])).rejects.toMatchObject({ code: 'inbox_unavailable' })
  await recovered()
  expect(await Promise.all(early)).toEqual(['later'])
  await inbox.settle(kept(1).id, { as: 'dead', reason })
  expect(inbox.usage()).toEqual({ messages: 1, bytes: kept(2).bytes })
  await inbox.close()
})

test('a search for room that ends after the file was closed does not stop its reopening', async () => {
  const clock = fakeClock(1_000_000)
  let failing: (() => Promise<never>) | undefined
  const looked = Promise.withResolvers<boolean>()
  const inThread = (store: InboxFile): Partial<InboxFile> => ({
    commit: (batch) => failing?.() ?? store.commit(batch),
    // Like a thread that answers later.
    probe: () => looked.promise,
  })
  const { inbox } = inboxOn(files.path(), inThread, settingsOf({ clock }).settings)
  await inbox.open()
  await inbox.put([kept(1)])
  failing = () => Promise.reject(new FleethookError('inbox_full', 'The disk is full.'))
  await expect(inbox.put([kept(2)])).rejects.toMatchObject({ code: 'inbox_full' })
  const sync = Promise.withResolvers<never>()
  failing = () => sync.promise
  const dying = Promise.resolve(inbox.settle(kept(1).id, { as: 'dead', reason })).catch((error: unknown) => error)
  await clock.advance(1_000)
  sync.reject(new FleethookError('inbox_unavailable', 'The sync failed.'))
  expect(await dying).toMatchObject({ code: 'inbox_unavailable' })
  failing = undefined
  looked.resolve(true)
  await clock.advance(2_000)
  await inbox.put([kept(3)])
  await inbox.close()
})

test('a closed inbox does not open the file again, so another receiver can have it', async () => {
  const path = files.path()
  const receiver = createReceiver({ secret: false, inbox: sqliteInbox({ path, waitMs: 0 }) })
  await receiver.drain()
  await expect(Array.fromAsync(receiver.deadLetters.list())).rejects.toMatchObject({ code: 'inbox_unavailable' })
  const next = sqliteInbox({ path, waitMs: 0 })(settingsOf().settings)
  await next.open()
  await next.close()
})
