import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { createReceiver, type DrainResult, FleethookError } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

describe('drain', () => {
  test.each([Number.NaN, -1, '5', 5n])('refuses %s as a time, and loses nothing', async (deadlineMs) => {
    const { receiver, post } = scene()
    receiver.on('data', () => {})
    await expect(receiver.drain({ deadlineMs: deadlineMs as number })).rejects.toThrow(
      'Option `deadlineMs` of drain must be',
    )
    expect((await post(data('A', 1))).status).toBe(200)
    expect(await receiver.drain()).toMatchObject({ lost: 0 })
  })

  test('resolves at once when there is nothing to do, and leaves no timer', async () => {
    const { receiver, clock } = scene()
    expect(await receiver.drain()).toEqual({ handled: 0, left: 0, lost: 0 })
    expect(clock.timers()).toEqual([])
  })

  test('waits until the lanes are empty: waiting messages, running ones, and those that rest before a retry', async () => {
    const { receiver, post, send, clock } = scene({ concurrency: 2, retry: { attempts: 5 } })
    const gate = gates()
    receiver.on('data', ({ vin }, { delivery }) => {
      if (vin === 'RETRY' && delivery.attempt < 3) throw new Error('no')
      if (vin === 'DEAD') throw new Error('no')
      return vin === 'SLOW' ? gate.wait(vin) : undefined
    })
    await send(data('EARLY', 1))
    await post([data('SLOW', 1), data('RETRY', 1), data('DEAD', 1), data('B', 1), data('B', 2)])
    let result: DrainResult | undefined
    void receiver.drain().then((drained) => (result = drained))
    await clock.advance(10_000)
    expect(receiver.stats()).toMatchObject({ handled: 4, deadLettered: 1, lanes: 1 })
    expect(result).toBeUndefined()
    gate.open('SLOW')
    await turn()
    expect(result).toEqual({ handled: 5, left: 0, lost: 0 })
    expect(clock.timers()).toEqual([])
  })

  test('a message that comes with the drain does not wait until its batch is full', async () => {
    const { receiver, post } = scene()
    const batches: number[] = []
    receiver.batch('data', { size: 10, withinMs: 600_000 }, (events) => void batches.push(events.length))
    await post([data('A', 1), data('A', 2), data('B', 1)])
    const drained = receiver.drain()
    await turn()
    expect(batches).toEqual([3])
    expect(await drained).toEqual({ handled: 3, left: 0, lost: 0 })
  })

  test.each([Number.POSITIVE_INFINITY, 2 ** 40])('a deadline of %d ms is far away', async (deadlineMs) => {
    const receiver = createReceiver({ secret: false })
    const gate = gates()
    receiver.on('data', () => gate.wait('data'))
    await receiver.accept({ authorization: undefined, body: data('A', 1) })
    await turn()
    const drained = receiver.drain({ deadlineMs })
    await turn()
    gate.open('data')
    expect(await drained).toEqual({ handled: 1, left: 0, lost: 0 })
  })

  test('waits for work that arises meanwhile: the gap of refused messages', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 1 } })
    const gate = gates()
    const gaps: string[] = []
    receiver
      .on('data', () => gate.wait('data'))
      .on('gap', async ({ vin = '' }) => {
        await gate.wait(`gap ${vin}`)
        gaps.push(vin)
      })
    await post(data('A', 1))
    for (const vin of ['A', 'B', 'C']) await post(data(vin, 2))
    await turn()
    let result: DrainResult | undefined
    void receiver.drain().then((drained) => (result = drained))
    gate.open('data')
    for (const vin of ['A', 'B', 'C']) {
      await turn()
      expect(result).toBeUndefined()
      gate.open(`gap ${vin}`)
    }
    await turn()
    expect(gaps).toEqual(['A', 'B', 'C'])
    expect(result).toEqual({ handled: 1, left: 0, lost: 0 })
  })

  test('stores open gaps although nothing else is going on, and the next process emits them', async () => {
    let broken = true
    const on = disk()
    const inbox = storedInbox(on, {
      put() {
        if (broken) throw new Error('EIO')
      },
    })
    const { receiver, post } = scene({ inbox })
    const gaps: unknown[] = []
    receiver.on('gap', ({ vin }) => void gaps.push(vin))
    await post(data('A', 1))
    await post(data('B', 1))
    broken = false
    await receiver.drain()
    const next = scene({ inbox: storedInbox(on) })
    next.receiver.on('gap', ({ vin }) => void gaps.push(vin))
    await next.receiver.open()
    await turn()
    expect(gaps).toEqual(['A', 'B'])
  })

  test('logs a gap that no event could report any more', async () => {
    const inbox = storedInbox(disk(), {
      put() {
        throw new Error('EIO')
      },
    })
    const { receiver, post, lines } = scene({ inbox })
    receiver.on('gap', () => {})
    await post(data('A', 1))
    await receiver.drain()
    expect(lines.join('\n')).toContain('no gap event could report it')
  })

  test('at the deadline signals are aborted, and messages left in memory are counted, logged and lost', async () => {
    const { receiver, post, clock, lines } = scene({ concurrency: 2 })
    const reasons: unknown[] = []
    const started: unknown[] = []
    receiver
      .on('data', ({ vin, data: { Odometer } }, { signal }) => {
        started.push(`${vin}${String(Odometer)}`)
        if (vin === 'B') throw new Error('rests')
        if (vin === 'QUICK') return undefined
        signal.addEventListener('abort', () => reasons.push(signal.reason))
        return new Promise(() => {})
      })
      .on('data', ({ vin }) => void started.push(`second ${vin}`))
    await post([data('QUICK', 1), data('A', 1), data('A', 2), data('B', 1), data('C', 1), data('D', 1)])
    let result: DrainResult | undefined
    void receiver.drain({ deadlineMs: 150 }).then((drained) => (result = drained))
    await clock.advance(50)
    expect(receiver.stats()).toMatchObject({ running: 2, lanes: 4 })
    await clock.advance(99)
    expect(result).toBeUndefined()
    await clock.advance(1)
    expect(result).toEqual({ handled: 1, left: 0, lost: 5 })
    expect(reasons).toEqual([expect.any(FleethookError), expect.any(FleethookError)])
    expect(reasons[0]).toMatchObject({ code: 'drain_deadline' })
    const { received, handled, lost, pending, lanes, running } = receiver.stats()
    expect({ received, handled, lost, pending, lanes, running }).toEqual({
      ...{ received: 6, handled: 1, lost: 5, pending: { messages: 0, bytes: 0 }, lanes: 0, running: 0 },
    })
    expect(lines.join('\n')).toContain('"messages":5')
    expect(clock.timers()).toEqual([])
    const before = started.length
    await clock.advance(60_000)
    expect(started).toHaveLength(before)
  })

  test('one deadline covers open requests and handlers together', async () => {
    const { receiver, post, clock } = scene({ ack: 'handled' })
    receiver.on('data', () => new Promise(() => {}))
    const answer = post(data('A', 1))
    await turn()
    let result: DrainResult | undefined
    void receiver.drain({ deadlineMs: 1000 }).then((drained) => (result = drained))
    await clock.advance(1000)
    expect(result).toEqual({ handled: 0, left: 0, lost: 1 })
    expect(await answer).toMatchObject({ status: 503 })
    expect(clock.timers()).toEqual([])
  })

  test('a request that is still being read at the deadline is refused, not taken and lost', async () => {
    const { receiver, clock } = scene()
    receiver.on('data', () => {})
    const body = new TransformStream<Uint8Array, Uint8Array>()
    const writer = body.writable.getWriter()
    const answer = receiver.fetch(
      new Request('http://x/', { method: 'POST', body: body.readable, duplex: 'half' } as RequestInit),
    )
    await turn()
    void receiver.drain({ deadlineMs: 100 })
    await clock.advance(100)
    void writer.write(new TextEncoder().encode(JSON.stringify(data('A', 1))))
    void writer.close()
    expect((await answer).status).toBe(503)
    expect(receiver.stats()).toMatchObject({ received: 0, refused: { draining: 1 }, lost: 0 })
  })

  test('a drain ends although the inbox does not answer', async () => {
    const inbox = storedInbox(disk(), { settle: () => new Promise(() => {}) })
    const { receiver, post, clock } = scene({ inbox })
    receiver.on('data', () => {})
    await post(data('A', 1))
    let result: DrainResult | undefined
    void receiver.drain({ deadlineMs: 100 }).then((drained) => (result = drained))
    await clock.advance(2000)
    expect(result).toEqual({ handled: 0, left: 1, lost: 0 })
    expect(clock.timers()).toEqual([])
  })
})

test('a process ends by itself after a drain, also at the deadline, and with the system clock', async () => {
  const child = fileURLToPath(new URL('draining-process.ts', import.meta.url))
  const output = await new Promise<string>((resolve, reject) =>
    execFile(process.execPath, [child], { timeout: 180_000 }, (error, stdout, stderr) =>
      error === null ? resolve(stdout) : reject(new Error(`${error.message} ${stderr}`)),
    ),
  )
  expect(JSON.parse(output)).toEqual({
    ...{ result: { handled: 3, left: 0, lost: 2 }, received: 7, handled: 4, deadLettered: 1, lost: 2, pending: 0 },
  })
})
