import { AsyncLocalStorage } from 'node:async_hooks'
import type { Clock, ReceiverOptions } from 'fleethook'
import type { ExecutionContext } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { type FakeClock, fakeClock, turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

/** The request that the running code belongs to. */
const request = new AsyncLocalStorage<string>()

/** A runtime that binds work to requests, and ends the work when nothing keeps the request alive any more, as Workers do. */
function isolate(options: Partial<ReceiverOptions> = {}) {
  const clock: FakeClock = fakeClock()
  const held = new Map<string, number>()
  const killed = new Set<string>()
  const bound: Clock = {
    now: () => clock.now(),
    after(ms, run) {
      const name = request.getStore()
      const inRequest = AsyncLocalStorage.snapshot()
      return clock.after(ms, () => {
        if (name === undefined || !killed.has(name)) inRequest(run)
      })
    },
  }
  const around = scene({ ...options, clock: bound }, clock)
  return {
    ...around,
    clock,
    /** Posts as a request of its own. */
    send: (name: string, body: unknown): Promise<number> =>
      request.run(name, async () => {
        const context: ExecutionContext = {
          passThroughOnException() {},
          props: {},
          waitUntil(work) {
            held.set(name, (held.get(name) ?? 0) + 1)
            const end = (): void => void held.set(name, (held.get(name) ?? 0) - 1)
            work.then(end, end)
          },
        }
        const answer = await around.receiver.accept({ authorization: undefined, body, env: { NAME: name }, context })
        return answer.status
      }),
    isHeld: (name: string): boolean => (held.get(name) ?? 0) > 0,
    /** Ends a request without notice. None of its timers fires. */
    kill: (name: string) => void killed.add(name),
  }
}

describe('where the runtime binds work to its request', () => {
  test('every handler runs in a continuation of the request that brought its message, retries included', async () => {
    const { receiver, send, clock } = isolate({ concurrency: 1, retry: { attempts: 3, minMs: 100 } })
    const seen: unknown[] = []
    receiver.on('data', async ({ data: { Odometer } }, { env, delivery }) => {
      const before = request.getStore()
      await Promise.resolve()
      seen.push({ n: Odometer, before, after: request.getStore(), env: { ...env }, attempt: delivery.attempt })
      if (delivery.attempt < 3) throw new Error('no')
    })
    await Promise.all([1, 2, 3].map((n) => send(`request ${n}`, [data('A', n), data(`VIN${n}`, n)])))
    await turn()
    await clock.advance(20_000)
    expect(seen).toHaveLength(18)
    for (const { n, before, after, env } of seen as { n: number; before: string; after: string; env: object }[]) {
      expect({ before, after, env }).toEqual({
        ...{ before: `request ${n}`, after: `request ${n}`, env: { NAME: `request ${n}` } },
      })
    }
    expect(receiver.stats()).toMatchObject({ handled: 6, lanes: 0, running: 0 })
  })

  test('a request is held until every one of its messages is done, and no longer', async () => {
    const { receiver, send, isHeld } = isolate({ concurrency: 1 })
    const gate = gates()
    receiver.on('data', ({ data: { Odometer } }) => gate.wait(String(Odometer)))
    await send('first', [data('A', 1), data('B', 2)])
    await send('second', data('A', 3))
    await turn()
    expect([isHeld('first'), isHeld('second')]).toEqual([true, true])
    gate.open('1')
    await turn()
    expect([isHeld('first'), isHeld('second')]).toEqual([true, true])
    gate.open('2')
    await turn()
    expect([isHeld('first'), isHeld('second')]).toEqual([false, true])
    gate.open('3')
    await turn()
    expect([isHeld('first'), isHeld('second')]).toEqual([false, false])
  })

  test('after 25 s unfinished messages are aborted, counted as lost, logged, and reported in a gap; the others continue', async () => {
    const { receiver, send, isHeld, clock, lines } = isolate({ concurrency: 2 })
    const gate = gates()
    const seen: unknown[] = []
    const reasons: unknown[] = []
    receiver
      .on('data', ({ vin, data: { Odometer } }, { signal }) => {
        seen.push(`${vin}${String(Odometer)} ${request.getStore() ?? ''}`)
        if (Odometer !== 1) return gate.wait(`${vin}${String(Odometer)}`)
        signal.addEventListener('abort', () => reasons.push(signal.reason))
        return new Promise(() => {})
      })
      .on('gap', ({ vin, reason, missed, from }) => void seen.push({ vin, reason, missed, from }))
    const from = new Date(clock.now())
    // The first handler hangs and the second message waits behind it. The request of the others began later.
    await send('first', [data('A', 1), data('A', 1)])
    await clock.advance(10_000)
    await send('second', [data('A', 2), data('B', 2)])
    await clock.advance(14_999)
    expect(receiver.stats()).toMatchObject({ lost: 0, running: 2 })
    await clock.advance(1)
    expect(receiver.stats()).toMatchObject({ received: 4, lost: 2, handled: 0, running: 2, pending: { messages: 2 } })
    expect(reasons).toMatchObject([{ code: 'drain_deadline' }])
    expect([isHeld('first'), isHeld('second')]).toEqual([false, true])
    expect(lines.join('\n')).toContain('"messages":2')
    gate.open('A2')
    gate.open('B2')
    await turn()
    await turn()
    expect(seen).toEqual([...['A1 first', 'B2 second', 'A2 second'], { vin: 'A', reason: 'deadline', missed: 2, from }])
    expect(receiver.stats()).toMatchObject({ received: 4, lost: 2, handled: 2, lanes: 0, openGaps: 0 })
    expect(isHeld('second')).toBe(false)
  })

  test('the losses of a burst are added up and logged, although the runtime ends timers with their requests', async () => {
    const { receiver, send, isHeld, clock, kill, lines } = isolate({ timeoutMs: 60_000 })
    receiver.on('data', () => new Promise(() => {}))
    const names = ['0', '1', '2', '3', '4']
    for (const name of names) {
      await send(name, [data(`VIN${name}`, 1), data(`VIN${name}`, 2)])
      await clock.advance(100)
    }
    // What `waitUntil` holds may go on for 30 seconds.
    for (let ms = 0; ms < 29_500; ms += 100) {
      for (const name of names) if (!isHeld(name)) kill(name)
      await clock.advance(100)
    }
    expect(names.filter((name) => isHeld(name))).toEqual([])
    const lost = lines.filter((line) => line.includes('acknowledged messages were not handled in time'))
    expect(lost.map((line) => JSON.parse(line.slice(line.indexOf('{'))))).toEqual([{ messages: 2 }, { messages: 8 }])
  })

  test('the last count of refused requests is logged, although the runtime ends timers with their requests', async () => {
    const { send, isHeld, clock, kill, lines } = isolate({ secret: 'a-long-random-value' })
    for (const name of ['0', '1', '2']) {
      expect(await send(name, data('A', 1))).toBe(401)
      if (!isHeld(name)) kill(name)
    }
    await clock.advance(10_000)
    expect(['0', '1', '2'].filter((name) => isHeld(name))).toEqual([])
    expect(lines.filter((line) => line.includes('3 requests refused'))).toHaveLength(1)
  })

  test('a message in back-off releases its lane when its request ends', async () => {
    const { receiver, send, clock } = isolate({ retry: { attempts: 9, minMs: 20_000 } })
    const seen: unknown[] = []
    receiver.on('data', ({ data: { Odometer } }) => {
      seen.push(Odometer)
      if (Odometer === 1) throw new Error('no')
    })
    await send('first', data('A', 1))
    await clock.advance(24_000)
    await send('second', data('A', 2))
    await clock.advance(1000)
    expect(seen.at(-1)).toBe(2)
    expect(receiver.stats()).toMatchObject({ lost: 1, handled: 1 })
  })

  test('a request that the runtime ended without notice is given up when the next one comes', async () => {
    const { receiver, send, clock, kill } = isolate({ concurrency: 1 })
    const seen: unknown[] = []
    receiver.on('data', ({ data: { Odometer } }) => {
      seen.push(Odometer)
      return Odometer === 1 ? new Promise(() => {}) : undefined
    })
    await send('first', [data('A', 1), data('A', 1)])
    await turn()
    kill('first')
    await clock.advance(40_000)
    expect(receiver.stats()).toMatchObject({ running: 1, lost: 0 })
    await send('second', [data('A', 2), data('B', 2)])
    await turn()
    expect(seen).toEqual([1, 2, 2])
    expect(receiver.stats()).toMatchObject({ received: 4, lost: 2, handled: 2, lanes: 0, running: 0 })
  })

  test('a gap event within a request gets the bindings of the request and keeps it open', async () => {
    const { receiver, send, isHeld } = isolate({ limits: { pendingMessages: 1 } })
    const gate = gates()
    const seen: unknown[] = []
    receiver
      .on('data', () => gate.wait('data'))
      .on('gap', async ({ vin }, { env }) => {
        seen.push({ vin, env: { ...env }, request: request.getStore() })
        await gate.wait('gap')
      })
    await send('first', data('A', 1))
    expect(await send('second', data('B', 1))).toBe(503)
    await turn()
    gate.open('data')
    await turn()
    expect(seen).toEqual([{ vin: 'B', env: { NAME: 'first' }, request: 'first' }])
    expect(isHeld('first')).toBe(true)
    gate.open('gap')
    await turn()
    expect(isHeld('first')).toBe(false)
  })

  test("ack: 'handled' answers 503 when the request's time is over: the message is lost", async () => {
    const { receiver, send, clock } = isolate({ ack: 'handled' })
    receiver.on('data', () => new Promise(() => {}))
    const answer = send('first', data('A', 1))
    await clock.advance(25_000)
    expect(await answer).toBe(503)
    expect(receiver.stats()).toMatchObject({ lost: 1, refused: { not_handled_in_time: 1 } })
  })

  test('replay takes the bindings and the request of its caller', async () => {
    const { receiver, send } = isolate({ retry: { attempts: 1 } })
    const seen: unknown[] = []
    receiver.on('data', (_, { env, delivery }) => {
      if (!delivery.replayed) throw new Error('no')
      seen.push({ ...env })
    })
    await send('first', data('A', 1))
    await turn()
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    const held: Promise<unknown>[] = []
    const context = {
      passThroughOnException() {},
      props: {},
      waitUntil: (work: Promise<unknown>) => void held.push(work),
    }
    await receiver.deadLetters.replay(letter?.id ?? '', { env: { NAME: 'admin' }, context })
    await turn()
    expect(seen).toEqual([{ NAME: 'admin' }])
    expect(held).toHaveLength(1)
  })

  test('one request after another leaves nothing behind', async () => {
    const { receiver, send, clock } = isolate()
    receiver.on('data', () => {})
    for (let n = 0; n < 50; n += 1) await send(`request ${n}`, data(`VIN${n}`, n))
    await turn()
    expect(receiver.stats()).toMatchObject({ handled: 50, lanes: 0 })
    expect(clock.timers()).toEqual([])
  })
})
