import { type BatchHandler, Discard, type Handler, type Observer, Retry } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import type { NextAttempt } from 'fleethook/extend'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, test } from 'vitest'
import { createFiles } from '../inbox/sqlite-files.ts'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

const files = createFiles()

/** What a file has for the first branch of its receiver. */
function leftOfBranch(path: string): { readonly dead: number; readonly next: readonly NextAttempt[] } {
  using db = new DatabaseSync(path)
  const rows = db.prepare('SELECT attempts, not_before FROM pending_1 ORDER BY place').all()
  return {
    dead: db.prepare('SELECT place FROM dead_1').all().length,
    next: rows.map((row) => ({ attempts: Number(row['attempts']), notBefore: Number(row['not_before']) })),
  }
}

describe('the drain of a durable inbox', () => {
  test('starts no handler, and leaves waiting messages to the next process in order', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on), concurrency: 1 })
    const gate = gates()
    first.receiver.on('data', ({ data: { Odometer } }) => gate.wait(String(Odometer)))
    await first.post([data('A', 1), data('A', 2), data('B', 3)])
    await turn()
    const drained = first.receiver.drain()
    await turn()
    gate.open('1')
    await first.clock.advance(0)
    expect(await drained).toEqual({ handled: 1, left: 2, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await turn()
    expect(seen).toEqual([2, 3])
  })

  test('aborts a handler that hangs after `handlerGraceMs`, and its attempt does not count', async () => {
    const on = disk()
    const { receiver, send, clock } = scene({ inbox: storedInbox(on) })
    let aborted = false
    receiver.on('data', (_, { signal }) => {
      signal.addEventListener('abort', () => (aborted = true))
      return new Promise(() => {})
    })
    await send(data('A', 1))
    const drained = receiver.drain({ handlerGraceMs: 500 })
    await clock.advance(499)
    expect(aborted).toBe(false)
    await clock.advance(1)
    expect(aborted).toBe(true)
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    const attempts: number[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', (_, { delivery }) => void attempts.push(delivery.attempt))
    await next.receiver.open()
    await turn()
    expect(attempts).toEqual([1])
  })

  test('still takes messages until `takeUntil` resolves, and refuses them from then on', async () => {
    const on = disk()
    const { receiver, post } = scene({ inbox: storedInbox(on) })
    receiver.on('data', () => {})
    await receiver.open()
    let close = (): void => {}
    const drained = receiver.drain({ takeUntil: new Promise<void>((resolve) => (close = resolve)) })
    expect((await post(data('A', 1))).status).toBe(200)
    close()
    expect(await drained).toEqual({ handled: 0, left: 1, lost: 0 })
    expect((await post(data('A', 2))).status).toBe(503)
  })

  test('acknowledges a message that the inbox stores after the handlers were aborted', async () => {
    const on = disk()
    const slow: { storing?: Promise<void> } = {}
    const { receiver, post, clock } = scene({ inbox: storedInbox(on, { put: () => slow.storing }) })
    receiver.on('data', () => new Promise(() => {}))
    const numbers = Array.from({ length: 10 }, (_, n) => n + 1)
    for (const n of numbers.slice(0, 8)) await post(data('A', n))
    let store = (): void => {}
    slow.storing = new Promise((resolve) => (store = resolve))
    const late = numbers.slice(8).map((n) => post(data('A', n)))
    await turn()
    let close = (): void => {}
    const takeUntil = new Promise<void>((resolve) => (close = resolve))
    const drained = receiver.drain({ handlerGraceMs: 500, takeUntil })
    await clock.advance(500)
    store()
    expect((await Promise.all(late)).map(({ status }) => status)).toEqual([200, 200])
    close()
    expect(await drained).toMatchObject({ handled: 0, lost: 0 })
    const seen: unknown[] = []
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    await next.receiver.open()
    await next.clock.advance(1_000)
    expect(seen).toEqual(numbers)
  })

  test('settles what a handler discards during its grace, in a batch as well', async () => {
    for (const kind of ['on', 'batch'] as const) {
      const { receiver, send, clock } = scene({ inbox: storedInbox(disk()) })
      const gate = gates()
      if (kind === 'on') receiver.on('data', ({ vin }) => gate.wait(vin))
      else receiver.batch('data', { size: 3, withinMs: 10 }, () => gate.wait('batch'))
      await send([data('A', 1), data('B', 2), data('C', 3)])
      const drained = receiver.drain()
      await turn()
      for (const name of gate.waiting) gate.fail(name, new Discard('old'))
      await clock.advance(0)
      expect(await drained, kind).toEqual({ handled: 3, left: 0, lost: 0 })
      expect(receiver.stats(), kind).toMatchObject({ discarded: 3 })
    }
  })

  test.each([{ attempts: 1 }, {}])(
    'does not count the attempt of a batch that it aborts, with observers that wrap it as well (retry: %j)',
    async (retry) => {
      const path = files.path()
      const options = { inbox: sqliteInbox({ path }), retry }
      const hang: BatchHandler<'data'> = () => new Promise(() => {})
      const first = scene({ ...options, observe: { around: async (run) => void (await run()) } })
      first.receiver.batch('data', { size: 3, withinMs: 10 }, hang)
      await first.post([data('A', 1), data('B', 2), data('C', 3)])
      await first.clock.advance(10)
      expect(await first.drainedIn(2_000)).toEqual({ handled: 0, left: 3, lost: 0 })
      const seen: number[] = []
      const next = scene(options)
      next.receiver.batch('data', { size: 3, withinMs: 10 }, (_, { deliveries }) => {
        seen.push(...deliveries.map(({ attempt }) => attempt))
      })
      await next.receiver.open()
      // The file needs some of the real time.
      const handled = async (): Promise<number> => {
        await next.clock.advance(10)
        return next.receiver.stats().handled
      }
      await expect.poll(handled).toBe(3)
      expect(seen).toEqual([1, 1, 1])
      expect(next.receiver.stats().deadLettered).toBe(0)
      await next.receiver.drain()
    },
  )

  test('does not count stops as crashes of messages that wait for a slot after their batch failed', async () => {
    const on = disk()
    for (let process = 1; process <= 3; process += 1) {
      const { receiver, post, clock, drainedIn } = scene({ inbox: storedInbox(on), concurrency: 1 })
      receiver.batch('data', { size: 3, withinMs: 10 }, (events) => {
        if (events.length > 1) throw new Error('no')
        return new Promise(() => {})
      })
      if (process === 1) await post([data('A', 1), data('B', 2), data('C', 3)])
      else await receiver.open()
      await clock.advance(10)
      expect(await drainedIn(2_000)).toEqual({ handled: 0, left: 3, lost: 0 })
      expect([...on.deliveries.values()], `after stop ${process}`).toEqual([1, 1, 1])
    }
  })

  test.each(['on', 'batch', 'branch', 'Retry'] as const)(
    'tells a failure in its grace as any other, and counts no attempt and no dead letter (%s)',
    async (kind) => {
      const on = disk()
      const path = files.path()
      const failed: unknown[] = []
      const told: Observer = { failed: (error) => void failed.push(error) }
      const retry = { attempts: 1, minMs: 60_000 }
      const isBranch = kind === 'branch'
      const inbox = isBranch ? sqliteInbox({ path }) : storedInbox(on)
      const first = scene({ inbox, retry, ...(!isBranch && { observe: told }) })
      const gate = gates()
      const wait: Handler<'data'> = ({ vin }) => gate.wait(vin)
      if (isBranch) branch(first.receiver, { name: 'crm', retry, observe: told }).on('data', wait)
      else if (kind === 'batch') first.receiver.batch('data', { size: 3, withinMs: 10 }, () => gate.wait('batch'))
      else first.receiver.on('data', wait)
      await first.post([data('A', 1), data('B', 2), data('C', 3)])
      await expect.poll(() => gate.waiting.length).toBe(kind === 'batch' ? 1 : 3)
      const drained = first.receiver.drain()
      await turn()
      const error = kind === 'Retry' ? new Retry(600_000) : new Error('the database is away')
      for (const name of gate.waiting) gate.fail(name, error)
      await first.clock.advance(2_000)
      const result = await drained
      const own = isBranch ? result.branches?.['crm'] : result
      expect(own).toMatchObject({ handled: 0, left: 3, lost: 0 })
      // Nobody sees a `Retry`, in the grace as before it.
      expect(failed).toHaveLength(kind === 'Retry' ? 0 : kind === 'batch' ? 1 : 3)
      const lines = first.lines.filter((line) => /a handler for (a batch of )?data failed/.test(line))
      expect(lines).toHaveLength(kind === 'Retry' ? 0 : kind === 'batch' ? 1 : 2)
      const left = isBranch ? leftOfBranch(path) : { dead: on.dead.size, next: [...on.next.values()] }
      expect(left.dead).toBe(0)
      const waits = left.next.map(({ attempts, notBefore }) => [attempts, notBefore > first.clock.now()])
      // Also for as long as its handler asked.
      expect(waits).toEqual([1, 2, 3].map(() => [0, true]))
    },
  )

  test('tells nobody that the handlers failed that it aborts, whatever these make of it', async () => {
    const failed: unknown[] = []
    const inbox = storedInbox(disk())
    const { receiver, send, lines, drainedIn } = scene({
      inbox,
      observe: { failed: (error) => void failed.push(error) },
    })
    receiver.on('data', (_, { signal }) => {
      return new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(new Error('AbortError', { cause: signal.reason }))),
      )
    })
    await send([data('A', 1), data('B', 2)])
    expect(await drainedIn(2_000)).toEqual({ handled: 0, left: 2, lost: 0 })
    expect(failed).toEqual([])
    expect(lines.filter((line) => line.includes('failed'))).toEqual([])
  })
})
