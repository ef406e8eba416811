import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type GapEvent, Retry } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { afterEach, expect, test } from 'vitest'
import { data } from '../dispatch/scene.ts'
import { newFolder } from '../folder.ts'
import { silent } from '../vehicles/scene.ts'
import { soon } from './soon.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

test(
  'a branch that is down never makes its receiver refuse: its oldest messages make room, and a gap counts them',
  { timeout: 300_000 },
  async () => {
    const folder = newFolder('room')
    const path = join(folder, 'inbox.db')
    const receiver = createReceiver({
      secret: false,
      log: silent,
      inbox: sqliteInbox({ path, maxBytes: 16 * 1_048_576 }),
    })
    stops.push(() => receiver.drain({ handlerGraceMs: 0, deadlineMs: 0 }))
    let handled = 0
    receiver.on('data', () => void (handled += 1))
    let isDown = true
    const seen: number[] = []
    const gaps: GapEvent[] = []
    const crm = branch(receiver, { name: 'crm', timeoutMs: 600_000 })
      .on('data', (event) => {
        if (isDown) throw new Retry(50)
        seen.push(Number(event.data.Odometer))
      })
      .on('gap', (gap) => void gaps.push(gap))
    const other = branch(receiver, { name: 'other' }).on('data', () => {})
    const padding = 'x'.repeat(4_000)
    const count = 4_000
    for (let n = 0; n < count; n += 40) {
      const body = Array.from({ length: 40 }, (_one, at) => ({ ...data(`V${(n + at) % 50}`, n + at), padding }))
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
      await soon(() => expect(other.stats().pending.messages).toBe(0))
    }
    await soon(() => expect(handled).toBe(count), 60_000)
    expect(receiver.stats().refused).toEqual({})
    await soon(() => expect(other.stats()).toMatchObject({ handled: count, lost: 0 }), 60_000)
    const { lost, received, pending } = crm.stats()
    expect(lost).toBeGreaterThan(1_000)
    expect(received).toBe(count)
    isDown = false
    await soon(() => expect(crm.stats().pending.messages).toBe(0), 60_000)
    expect(pending.messages).toBeGreaterThan(100)
    const after = crm.stats()
    expect(after.handled + after.lost).toBe(count)
    expect(new Set(seen).size).toBe(after.handled)
    const expired = gaps.filter(({ reason }) => reason === 'inbox_expired')
    expect(expired.reduce((sum, { missed }) => sum + missed, 0)).toBe(after.lost)
    for (let vehicle = 0; vehicle < 50; vehicle += 1) {
      const own = seen.filter((at) => at % 50 === vehicle)
      expect(own).toEqual(own.toSorted((one, two) => one - two))
    }
  },
)

test('a message is stored once, and goes when no reader needs it any more', async () => {
  const path = join(newFolder('once'), 'inbox.db')
  const retention = { settled: { forMs: 0 } }
  const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path, retention }) })
  receiver.on('data', () => {})
  let isDown = true
  const crm = branch(receiver, { name: 'crm' }).on('data', () => {
    if (isDown) throw new Retry(10)
  })
  for (let n = 0; n < 20; n += 1) await receiver.accept({ authorization: undefined, body: data(`V${n}`, n) })
  await soon(() => expect(receiver.stats().pending.messages).toBe(0))
  isDown = false
  await soon(() => expect(crm.stats().handled).toBe(20))
  await receiver.drain()
  using file = new DatabaseSync(path)
  const countOf = (table: string): unknown => file.prepare(`SELECT count(*) AS count FROM ${table}`).get()?.['count']
  expect([countOf("messages WHERE kind = 'wire'"), countOf('pending'), countOf('pending_1')]).toEqual([20, 0, 0])
})
