import { type DrainResult, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { fakeClock, turn } from '../dispatch/fake-clock.ts'
import { data, gates, scene, state } from '../dispatch/scene.ts'
import { disk, storedInbox } from './stored-inbox.ts'
import { memoryVehicles } from '../../src/testing/kept-message.ts'

const failed = new Error('EIO')

describe("ack: 'stored'", () => {
  test('is the default with a durable inbox, and the answer waits until the inbox has the message', async () => {
    const gate = gates()
    const { receiver, post } = scene({ inbox: storedInbox(disk(), { put: () => gate.wait('put') }) })
    const steps: string[] = []
    receiver.on('data', () => void steps.push('handler'))
    expect(receiver).toMatchObject({ ack: 'stored', durability: 'disk' })
    const answered = post(data('A', 1)).then(({ status }) => steps.push(`answer ${status}`))
    await turn()
    expect(steps).toEqual([])
    gate.open('put')
    await answered
    await turn()
    expect(steps).toEqual(['answer 200', 'handler'])
  })

  test('messages that the inbox does not take are refused with inbox_unavailable, and a gap reports them when the inbox recovers', async () => {
    let broken = true
    const inbox = storedInbox(disk(), {
      put() {
        if (broken) throw failed
      },
    })
    const { receiver, post, send, clock } = scene({ inbox })
    const told: unknown[] = []
    const seen: unknown[] = []
    receiver.observe({ failed: (error, { kind }) => void told.push([error, kind]) })
    receiver
      .on('gap', ({ vin, from, to, missed, reason }) => void seen.push({ vin, from, to, missed, reason }))
      .on('data', ({ data: { Odometer } }) => void seen.push(Odometer))
    const from = new Date(clock.now())
    const answer = await post(data('A', 1))
    expect(answer).toMatchObject({ status: 503, headers: { 'retry-after': '1' } })
    expect(JSON.parse(answer.body)).toMatchObject({ code: 9, error: 'inbox_unavailable' })
    await clock.advance(1000)
    await post(data('A', 2))
    broken = false
    await clock.advance(1000)
    await send(data('A', 3))
    const to = new Date(clock.now())
    expect(seen).toEqual([3, { vin: 'A', from, to, missed: 2, reason: 'inbox_unavailable' }])
    expect(told).toEqual([
      [failed, 'inbox'],
      [failed, 'inbox'],
    ])
    expect(receiver.stats()).toMatchObject({ received: 1, refused: { inbox_unavailable: 2 }, openGaps: 0, lanes: 0 })
  })

  test('a gap begins when the first lost message came, however long the inbox took to refuse it', async () => {
    const gate = gates()
    let slow = true
    const inbox = storedInbox(disk(), { put: () => (slow ? gate.wait('put') : undefined) })
    const { receiver, post, send, clock } = scene({ inbox })
    const gaps: unknown[] = []
    receiver.on('gap', ({ from, to }) => void gaps.push({ from, to }))
    const from = new Date(clock.now())
    const answer = post(data('A', 1))
    await clock.advance(20_000)
    slow = false
    gate.fail('put', failed)
    expect(await answer).toMatchObject({ status: 503 })
    await send(data('A', 2))
    expect(gaps).toEqual([{ from, to: new Date(clock.now()) }])
  })

  test('when the inbox fails to keep a dead letter, the inbox is tried again and the handler is not', async () => {
    let asked = 0
    const on = disk()
    const inbox = storedInbox(on, {
      deadLetter() {
        asked += 1
        if (asked === 1) throw failed
      },
    })
    const { receiver, post, clock } = scene({ inbox, retry: { attempts: 1 } })
    let runs = 0
    receiver.on('data', () => {
      runs += 1
      throw new TypeError('no')
    })
    await post(data('A', 1))
    await clock.advance(60_000)
    expect({ runs, asked }).toEqual({ runs: 1, asked: 2 })
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ error: 'TypeError: no', attempts: 1 }])
    expect(receiver.stats()).toMatchObject({ deadLettered: 1, lanes: 0 })
  })
})

describe("ack: 'received' with a durable inbox", () => {
  test('a drain waits until the inbox has the acknowledged messages', async () => {
    const gate = gates()
    const { receiver, post } = scene({ ack: 'received', inbox: storedInbox(disk(), { put: () => gate.wait('put') }) })
    receiver.on('data', () => {})
    await post(data('A', 1))
    let drained: DrainResult | undefined
    void receiver.drain().then((result) => (drained = result))
    await turn()
    expect(drained).toBeUndefined()
    gate.open('put')
    await turn()
    expect(drained).toEqual({ handled: 0, left: 1, lost: 0 })
  })

  test('messages that the inbox did not take after the answer are counted as lost, logged, and reported by a gap', async () => {
    let broken = true
    const inbox = storedInbox(disk(), {
      put() {
        if (broken) throw failed
      },
    })
    const { receiver, post, send, lines } = scene({ ack: 'received', inbox })
    const gaps: unknown[] = []
    receiver.on('gap', ({ vin, missed }) => void gaps.push({ vin, missed }))
    expect(await post(data('A', 1))).toMatchObject({ status: 200 })
    await turn()
    expect(receiver.stats()).toMatchObject({ received: 1, lost: 1, openGaps: 1 })
    expect(lines.join('\n')).toContain('are lost')
    broken = false
    await send(data('B', 1))
    expect(gaps).toEqual([{ vin: 'A', missed: 1 }])
    expect(receiver.stats()).toMatchObject({ received: 2, handled: 1, lost: 1, openGaps: 0 })
  })
})

describe('after a restart', () => {
  /** A receiver over the same disk. The one before it is abandoned without a drain, as in a crash. */
  function restarted(on: ReturnType<typeof disk>): {
    readonly seen: unknown[]
    readonly started: ReturnType<typeof scene>
  } {
    const seen: unknown[] = []
    const started = scene({ inbox: storedInbox(on) })
    started.receiver
      .on('data', ({ vin, data: { Odometer } }, { delivery }) => void seen.push({ vin, Odometer, ...delivery }))
      .on('state', ({ vin, state: is }, { delivery }) => void seen.push({ vin, is, ...delivery }))
    void started.receiver.open()
    return { seen, started }
  }

  test('messages that were stored and not handled are delivered again, in order, with the same ids', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on) })
    first.receiver.on('*', () => new Promise(() => {}))
    await first.post([data('A', 1), data('A', 2), state('B', 'online')])
    await first.post('{"data":{"Odometer":3},"vin":"A","createdAt":"2024-02-24T04:58:44Z"}')
    await turn()
    const ids = [...on.messages.keys()]
    const { seen, started } = restarted(on)
    await turn()
    const again = { attempt: 1, replayed: false }
    expect(seen).toEqual([
      { vin: 'A', Odometer: 1, id: ids[0], redelivered: true, ...again },
      { vin: 'B', is: 'online', id: ids[2], redelivered: true, ...again },
      { vin: 'A', Odometer: 2, id: ids[1], redelivered: false, ...again },
      { vin: 'A', Odometer: 3, id: ids[3], redelivered: false, ...again },
    ])
    expect(started.receiver.stats()).toMatchObject({ received: 0, recovered: 4, handled: 4, pending: { messages: 0 } })
    expect(on.messages.size).toBe(0)
  })

  test('nothing is handled before the receiver is opened, however long the program takes to register its handlers', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on) })
    first.receiver.on('*', () => new Promise(() => {}))
    await first.post(data('A', 1))
    const { receiver } = scene({ inbox: storedInbox(on) })
    await turn()
    expect(on.messages.size).toBe(1)
    const seen: string[] = []
    receiver.on('data', ({ vin }) => void seen.push(vin))
    await receiver.open()
    await turn()
    expect(seen).toEqual(['A'])
  })

  test('the event is the same: id, values and receivedAt', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on) })
    const before: unknown[] = []
    first.receiver.on('*', (event) => {
      before.push({ ...event, id: event.topic === 'gap' ? '' : event.id })
      return new Promise(() => {})
    })
    await first.post(
      '  {"data":{"Odometer":"81.50","Nope":{"x":1e400}},"vin":"A","createdAt":"2024-02-24T04:58:44.1234Z"}',
    )
    await first.post({ event: { data: [] }, source: 'B', sourcetype: 'x:y', time: '1708750724.5' })
    await turn()
    const second = scene({ inbox: storedInbox(on) })
    await second.clock.advance(1000)
    const after: unknown[] = []
    const wire = ['data', 'unknown'] as const
    second.receiver.on(wire, (event) => void after.push({ ...event, id: event.id }))
    await second.receiver.open()
    await turn()
    expect(before).toHaveLength(2)
    expect(after).toEqual(before)
  })

  test('gaps and malformed bodies survive as text', async () => {
    const on = disk()
    let full = true
    const first = scene({
      inbox: storedInbox(on, {
        put([message]) {
          if (full && message?.kind === 'wire') throw failed
        },
      }),
    })
    const before: unknown[] = []
    const stuck = (event: unknown): Promise<void> => {
      before.push(event)
      return new Promise(() => {})
    }
    first.receiver.on('gap', stuck).on('malformed', stuck)
    await first.post('{"vin":')
    await first.post(data('A', 1))
    full = false
    await first.post(state('B', 'online'))
    await turn()
    expect(before).toMatchObject([
      { topic: 'malformed' },
      { topic: 'gap', reason: 'body_unreadable' },
      { topic: 'gap', vin: 'A' },
    ])
    const second = scene({ inbox: storedInbox(on) })
    const after: unknown[] = []
    second.receiver.on('gap', (gap) => void after.push(gap)).on('malformed', (body) => void after.push(body))
    await second.receiver.open()
    await second.clock.advance(1_000)
    expect(after).toEqual([...before, expect.objectContaining({ topic: 'gap', reason: 'restarted' })])
    expect(second.receiver.stats()).toMatchObject({ recovered: 0, handled: 0, lanes: 0 })
  })

  test('a text that cannot be read any more becomes a dead letter, and its lane goes on', async () => {
    const on = disk()
    const first = scene({ inbox: storedInbox(on) })
    first.receiver.on('*', () => new Promise(() => {}))
    await first.post([data('A', 1), data('A', 2)])
    const [id = ''] = on.messages.keys()
    const stored: { message: { text: string } } = JSON.parse(on.messages.get(id) ?? '')
    stored.message.text = '{"broken'
    on.messages.set(id, JSON.stringify(stored))
    const { seen, started } = restarted(on)
    await turn()
    expect(seen).toMatchObject([{ Odometer: 2 }])
    expect(await Array.fromAsync(started.receiver.deadLetters.list())).toMatchObject([
      { id, event: { topic: 'malformed', error: 'message_unreadable', text: '{"broken' } },
    ])
  })

  test('an attempt that a drain broke off does not count, even after many drains', async () => {
    const on = disk()
    const attempts: unknown[] = []
    for (let deploy = 0; deploy < 8; deploy += 1) {
      const { receiver, post, drainedIn } = scene({ inbox: storedInbox(on), retry: { attempts: 2 } })
      receiver.on('data', (_, { delivery: { attempt, redelivered } }) => {
        attempts.push([attempt, redelivered])
        return new Promise(() => {})
      })
      if (deploy === 0) await post(data('A', 1))
      else await receiver.open()
      await turn()
      expect(await drainedIn(10, { deadlineMs: 10 })).toEqual({ handled: 0, left: 1, lost: 0 })
    }
    expect(attempts).toEqual([[1, false], ...Array.from({ length: 7 }, () => [1, true])])
    expect(on.dead.size).toBe(0)
  })

  test.each([
    ['the default', undefined],
    ['1 attempt', 1],
    ['5 attempts', 5],
  ])('with %s, a message during which 3 processes ended is a dead letter', async (_, attempts) => {
    const ends = 3
    const on = disk()
    let runs = 0
    const crashing = async (): Promise<ReturnType<typeof scene>> => {
      const made = scene({ inbox: storedInbox(on), ...(attempts === undefined ? {} : { retry: { attempts } }) })
      made.receiver.on('data', ({ data: { Odometer } }) => {
        if (Odometer !== 1) return undefined
        runs += 1
        return new Promise(() => {})
      })
      await made.receiver.open()
      await turn()
      return made
    }
    const first = await crashing()
    await first.post([data('A', 1), data('A', 2)])
    await turn()
    for (let n = 1; n < ends; n += 1) await crashing()
    expect(runs).toBe(ends)
    expect(on.dead.size).toBe(0)
    const { receiver, lines } = await crashing()
    expect(runs).toBe(ends)
    expect(lines.join('\n')).toContain(`is a dead letter: ${ends} processes ended while they handled it`)
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(letter).toMatchObject({
      error: expect.stringContaining(`${ends} processes ended while they handled it`),
      event: { data: { Odometer: 1 } },
    })
    // The one behind it is handled.
    expect(receiver.stats()).toMatchObject({ recovered: 2, deadLettered: 1, handled: 1, lanes: 0 })
  })

  describe('a message that was in hand when two processes ended', () => {
    /** A disk with a message each of A, B, … Two processes ended while the handlers of the first ones ran. */
    async function crashedTwice(inHand: number, messages: number): Promise<ReturnType<typeof disk>> {
      const on = disk()
      const vins = ['A', 'B', 'C', 'D', 'E', 'F'].slice(0, messages)
      for (let process = 0; process < 2; process += 1) {
        const { receiver, post } = scene({ inbox: storedInbox(on), concurrency: inHand })
        receiver.on('data', () => new Promise(() => {}))
        if (process === 0) await post(vins.map((vin) => data(vin, 1)))
        else await receiver.open()
        await turn()
      }
      return on
    }

    test('runs alone: others start when it has ended, whether or not its handler failed', async () => {
      const on = await crashedTwice(2, 4)
      const { receiver, clock } = scene({ inbox: storedInbox(on), retry: { minMs: 1_000, maxMs: 1_000 } })
      const gate = gates()
      receiver.on('data', ({ vin }, { delivery: { attempt } }) => gate.wait(`${vin} ${attempt}`))
      await receiver.open()
      const waiting = async (): Promise<readonly string[]> => {
        await turn()
        return gate.waiting
      }
      expect(await waiting()).toEqual(['A 1'])
      gate.fail('A 1', new Error('no'))
      expect(await waiting()).toEqual(['B 1'])
      gate.open('B 1')
      expect(await waiting()).toEqual(['C 1', 'D 1'])
      // Its next attempt waits for them, and nothing starts meanwhile.
      await clock.advance(1_000)
      await receiver.accept({ authorization: undefined, body: data('E', 1) })
      gate.open('C 1')
      expect(await waiting()).toEqual(['D 1'])
      gate.open('D 1')
      expect(await waiting()).toEqual(['A 2'])
      gate.open('A 2')
      expect(await waiting()).toEqual(['E 1'])
      gate.open('E 1')
      await turn()
      expect(receiver.stats()).toMatchObject({ handled: 5, deadLettered: 0, running: 0, lanes: 0 })
    })

    test('is in a batch of its own, which runs alone', async () => {
      const on = await crashedTwice(2, 5)
      const { receiver, clock } = scene({ inbox: storedInbox(on) })
      const gate = gates()
      receiver.batch('data', { size: 10, withinMs: 50 }, (events) => gate.wait(events.map(({ vin }) => vin).join()))
      await receiver.open()
      const seen: string[] = []
      for (let round = 0; round < 3; round += 1) {
        await turn()
        await clock.advance(50)
        await turn()
        seen.push(gate.waiting.join(' and '))
        for (const name of [...gate.waiting]) gate.open(name)
      }
      await turn()
      expect(seen).toEqual(['A', 'B', 'C,D,E'])
      expect(receiver.stats()).toMatchObject({ handled: 5, deadLettered: 0, running: 0, lanes: 0 })
    })

    test('does not keep a drain from ending', async () => {
      const on = await crashedTwice(1, 3)
      const { receiver, drainedIn } = scene({ inbox: storedInbox(on) })
      receiver.on('data', () => new Promise(() => {}))
      await receiver.open()
      await turn()
      expect(receiver.stats().running).toBe(1)
      expect(await drainedIn(10, { deadlineMs: 10 })).toEqual({ handled: 0, left: 3, lost: 0 })
    })
  })

  test('a message that was claimed and not seen by a handler, because the inbox failed, is not taken for one that ended its process', async () => {
    const on = disk()
    let fails = true
    const flaky: InboxFactory = (settings) => {
      const load = async (vin: string): Promise<undefined> => {
        if (fails && vin !== '') throw new Error('EIO')
      }
      return { ...storedInbox(on)(settings), states: { ...memoryVehicles(), load } }
    }
    const { receiver, post, clock } = scene({ inbox: flaky, parts: [vehicles({ fields: ['Odometer'] })] })
    receiver.on('data', () => {})
    await post(data('A', 1))
    for (let n = 0; n < 5; n += 1) await clock.advance(5_000)
    expect(on.deliveries.size).toBe(1)
    expect([...on.deliveries.values()]).toEqual([0])
    fails = false
    await clock.advance(5_000)
    expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 0 })
  })

  test('after an unclean stop a gap covers the time from the last sign of life to now; after a drain there is none', async () => {
    const on = disk()
    const clock = fakeClock()
    const life = clock.now()
    const open = async (): Promise<{ gaps: unknown[]; made: ReturnType<typeof scene> }> => {
      const made = scene({ inbox: storedInbox(on) }, clock)
      const gaps: unknown[] = []
      made.receiver.on('gap', ({ vin, from, to, reason, missed }) => void gaps.push({ vin, from, to, reason, missed }))
      await made.receiver.open()
      await clock.advance(1_000)
      return { gaps, made }
    }
    const first = await open()
    expect(first.gaps).toEqual([])
    await clock.advance(5000)
    await first.made.post(data('A', 1))
    await clock.advance(60_000)
    const second = await open()
    const gap = { vin: undefined, reason: 'restarted', missed: 0 }
    expect(second.gaps).toEqual([{ ...gap, from: new Date(life + 6000), to: new Date(life + 67_000) }])
    await second.made.receiver.drain()
    await clock.advance(60_000)
    expect((await open()).gaps).toEqual([])
  })

  test('an inbox that cannot be read is reported, and new messages are taken', async () => {
    const told: unknown[] = []
    const base = storedInbox(disk())
    const { receiver, post } = scene({
      inbox: (settings) => ({
        ...base(settings),
        async open() {
          return { waiting: broken() }
        },
      }),
    })
    receiver.observe({ failed: (error, { kind }) => void told.push([error, kind]) })
    receiver.on('data', () => {})
    expect(await post(data('A', 1))).toMatchObject({ status: 200 })
    await turn()
    expect(told).toEqual([[failed, 'inbox']])
    expect(receiver.stats()).toMatchObject({ handled: 1 })
  })
})

async function* broken(): AsyncGenerator<never> {
  throw failed
}
