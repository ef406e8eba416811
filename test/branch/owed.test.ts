import { copyFileSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, type GapEvent, type Receiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { afterEach, expect, test } from 'vitest'
import { data } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { silent } from '../vehicles/scene.ts'
import { soon } from './soon.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

/** Resolves when the test is over. */
function notYet(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  stops.push(async () => resolve())
  return promise
}

interface Process {
  readonly receiver: Receiver
  readonly gaps: readonly GapEvent[]
  readonly received: readonly number[]
}

/** A receiver with its file in a folder, and a branch. */
function start(folder: string, crm: InboxFactory, clock: ReturnType<typeof fakeClock>): Process {
  const receiver = createReceiver({
    ...{ secret: false, log: silent, clock },
    inbox: sqliteInbox({ path: join(folder, 'inbox.db') }),
  }).on('data', () => {})
  stops.push(() => receiver.drain({ handlerGraceMs: 0, deadlineMs: 0 }))
  const gaps: GapEvent[] = []
  const received: number[] = []
  branch(receiver, { name: 'crm', inbox: crm })
    .on('data', (event) => void received.push(Number(event.data.Odometer)))
    .on('gap', (event) => void gaps.push(event))
  return { receiver, gaps, received }
}

const post = (receiver: Receiver, at: number): Promise<unknown> =>
  receiver.accept({ authorization: undefined, body: data('A', at) })

/** The file of a receiver as `kill -9` leaves it, in another folder. */
function killed(folder: string): string {
  const left = newFolder('killed')
  for (const name of ['inbox.db', 'inbox.db-wal'])
    if (existsSync(join(folder, name))) copyFileSync(join(folder, name), join(left, name))
  return left
}

/** An inbox that opens when the promise resolves. */
const late =
  (path: string, opened: Promise<void>): InboxFactory =>
  (settings) => {
    const made = sqliteInbox({ path, thread: false })(settings)
    const open = made.open.bind(made)
    return Object.assign(made, { open: (options: Parameters<typeof open>[0]) => opened.then(() => open(options)) })
  }

const at = (folder: string): InboxFactory => sqliteInbox({ path: join(folder, 'crm.db') })

test('messages that a branch lacks after a kill, because its new file was still being opened, are a gap of the branch', async () => {
  const clock = fakeClock()
  const folder = newFolder('owed')
  const one = start(folder, late(join(folder, 'crm.db'), notYet()), clock)
  await one.receiver.open()
  const firstAt = clock.now()
  for (let n = 0; n < 3; n += 1) await post(one.receiver, n)
  await soon(async () => {
    await clock.advance(1_000)
    expect(one.receiver.stats().handled).toBe(3)
  })
  const left = killed(folder)
  // Also when the next process ends before it could tell it.
  const two = start(left, late(join(left, 'crm.db'), notYet()), clock)
  await two.receiver.open()
  const again = killed(left)
  const three = start(again, at(again), clock)
  await three.receiver.open()
  await soon(async () => {
    await clock.advance(1_000)
    expect(three.gaps).toHaveLength(1)
  })
  const [gap] = three.gaps
  expect(gap?.reason).toBe('restarted')
  expect(gap?.vin).toBeUndefined()
  expect(gap?.from.getTime()).toBeLessThanOrEqual(firstAt)
  // What comes from now on is no longer missing, and is told once.
  await post(three.receiver, 3)
  await soon(() => expect(three.received).toContain(3))
  await clock.advance(20_000)
  await three.receiver.drain()
  const four = start(again, at(again), clock)
  await four.receiver.open({ listeningWasKept: true })
  await post(four.receiver, 4)
  await soon(() => expect(four.received).toContain(4))
  await clock.advance(20_000)
  expect(four.gaps).toEqual([])
})

test('of two receivers with one file for their branches, the one that is refused tells the gap once the file is free', async () => {
  const clock = fakeClock()
  const [first, second] = [newFolder('owner'), newFolder('refused')]
  const shared = join(newFolder('shared'), 'crm.db')
  const crm = (): InboxFactory => sqliteInbox({ path: shared, waitMs: 0 })
  const owner = start(first, crm(), clock)
  await owner.receiver.open()
  await post(owner.receiver, 0)
  await soon(() => expect(owner.received).toEqual([0]))
  const refused = start(second, crm(), clock)
  await refused.receiver.open()
  for (let n = 1; n < 4; n += 1) await post(refused.receiver, n)
  await soon(async () => {
    await clock.advance(1_000)
    expect(refused.receiver.stats().handled).toBe(3)
  })
  await refused.receiver.drain()
  await owner.receiver.drain()
  const after = start(second, crm(), clock)
  await after.receiver.open()
  await soon(async () => {
    await clock.advance(1_000)
    expect(after.gaps.map(({ reason }) => reason)).toContain('restarted')
  })
  await post(after.receiver, 4)
  await soon(() => expect(after.received).toEqual([4]))
})
