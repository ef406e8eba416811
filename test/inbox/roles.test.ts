/* What an inbox says about itself decides what the receiver does: who hands out, who takes messages, and what goes in front. */
import { FleethookError, type Observer } from 'fleethook'
import type { Inbox, InboxFactory, InboxMessage, InboxHost } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { turn } from '../dispatch/fake-clock.ts'
import { data, scene, type Scene } from '../dispatch/scene.ts'
import { onlyWaiting } from './shared-inbox.ts'

interface Other extends Scene {
  /** The messages of each `put` that the other side took: their kinds and lanes. */
  readonly puts: (readonly string[])[]
  /** What `put` rejects with. `undefined`: it takes messages. */
  failure: unknown
  settings(): InboxHost
}

/** A receiver whose messages are kept and handled by somebody else. */
function other(says: Partial<Inbox>, observe: Observer = {}): Other {
  const puts: (readonly string[])[] = []
  let given: InboxHost | undefined
  const inbox: InboxFactory = (settings) => {
    given = settings
    return {
      durability: 'replicated',
      shared: { handsOut: 'elsewhere' },
      open: async () => ({ waiting: nothing() }),
      async put(messages: readonly InboxMessage[]) {
        if (made.failure !== undefined) throw made.failure
        puts.push(messages.map(({ kind, lane }) => `${kind} ${lane}`))
      },
      claim: () => undefined,
      settle: () => {},
      usage: () => ({ messages: 0, bytes: 0 }),
      ...onlyWaiting,
      ...says,
    }
  }
  const settings = (): InboxHost => {
    if (given === undefined) throw new Error('No receiver has this inbox.')
    return given
  }
  const made: Other = Object.assign(scene({ inbox, observe }), { puts, failure: undefined, settings })
  return made
}

async function* nothing(): AsyncGenerator<never> {}

const away = new FleethookError('inbox_unavailable', 'The other side does not answer.')

describe('an inbox whose messages are handed out elsewhere', () => {
  test('takes messages without a lane and without a handler', async () => {
    const { receiver, post, puts, clock } = other({})
    let runs = 0
    receiver.on('*', () => void (runs += 1))
    expect(await post(data('A', 1))).toMatchObject({ status: 200 })
    await clock.advance(1_000)
    expect(puts).toEqual([['wire A']])
    expect(receiver.stats()).toMatchObject({
      received: 1,
      lanes: 0,
      running: 0,
      backlog: undefined,
      failing: undefined,
    })
    expect(runs).toBe(0)
    expect(await receiver.drain()).toEqual({ handled: 0, left: 0, lost: 0 })
  })

  test('says in the answer why it did not take a message, and reports the gap five seconds later', async () => {
    const there = other({})
    there.failure = away
    const { status, body } = await there.post(data('A', 1))
    expect([status, body]).toEqual([503, expect.stringContaining('The other side does not answer.')])
    there.failure = undefined
    await there.clock.advance(4_900)
    expect(there.puts).toEqual([])
    await there.clock.advance(200)
    expect(there.puts).toEqual([['gap A']])
    expect(there.receiver.stats().openGaps).toBe(0)
  })

  test('a gap waits for no message and no timer when the inbox says that it takes messages again', async () => {
    const there = other({})
    there.failure = away
    await there.post(data('A', 1))
    there.failure = undefined
    there.settings().on({ type: 'available' })
    await turn()
    expect(there.puts).toEqual([['gap A']])
  })

  test('an own message that it does not take is a failure of the inbox, and a gap stays open', async () => {
    const failed: unknown[] = []
    const there = other({}, { failed: (error) => void failed.push(error) })
    await there.receiver.open()
    there.failure = away
    there.settings().on({ type: 'gap', gap: { reason: 'restarted', fromMs: 0 } })
    await turn()
    expect(failed).toEqual([away])
    expect(there.receiver.stats().openGaps).toBe(1)
  })

  test('learns the option `ack`, which it may refuse', () => {
    let ack: unknown
    scene({ ack: 'handled', inbox: (settings) => ((ack = settings.ack), { ...bare, shared: { handsOut: 'shared' } }) })
    expect(ack).toBe('handled')
  })
})

test('a process that takes no messages counts each one that is posted to it as a gap, and the gap goes to the others', async () => {
  const { post, puts, clock, receiver } = other({
    shared: { handsOut: 'shared', takesNone: { error: 'inbox_unavailable', hint: 'Post to another process.' } },
  })
  const { status, body } = await post([data('A', 1), data('A', 2)])
  expect([status, body]).toEqual([503, expect.stringContaining('Post to another process.')])
  await clock.advance(1_000)
  expect(puts).toEqual([['gap A']])
  expect(await post('{')).toMatchObject({ status: 400 })
  expect(receiver.stats().received).toBe(0)
})

test('where messages keep the order of gaps, all open gaps go in one put in front of the next message', async () => {
  const there = other({ shared: { handsOut: 'elsewhere', keepsOrder: true } })
  there.failure = away
  for (const vin of ['A', 'B', 'C']) await there.post(data(vin, 1))
  there.failure = undefined
  await there.post(data('A', 2))
  expect(there.puts).toEqual([['gap A', 'gap B', 'gap C'], ['wire A']])
})

test('where messages keep the order of gaps, one that opens while the event of another is being stored goes in front of the next message, too', async () => {
  const puts: (readonly string[])[] = []
  let isAway = true
  let store = (): void => {}
  const { post, receiver } = other({
    shared: { handsOut: 'elsewhere', keepsOrder: true },
    async put(messages: readonly InboxMessage[]) {
      if (isAway && messages.some(({ kind }) => kind === 'wire')) throw away
      puts.push(messages.map(({ kind, lane }) => `${kind} ${lane}`))
      if (puts.length === 1) await new Promise<void>((resolve) => (store = resolve))
    },
  })
  await post(data('A', 1))
  await post(data('A', 2))
  isAway = false
  await post(data('A', 3))
  expect(puts).toEqual([['gap A'], ['gap A'], ['wire A']])
  store()
  await turn()
  expect(receiver.stats().openGaps).toBe(0)
})

test('the inbox learns for how long the receiver has not taken messages while it stops', async () => {
  const there = other({})
  await there.post(data('A', 1))
  expect(there.settings().receiver?.notListeningMs?.()).toBe(0)
  let close = (): void => {}
  const takeUntil = new Promise<void>((resolve) => {
    close = resolve
  })
  const drained = there.receiver.drain({ takeUntil, notListeningMs: () => there.clock.now() - closedAt })
  const closedAt = there.clock.now()
  await there.clock.advance(700)
  expect(there.settings().receiver?.notListeningMs?.()).toBe(700)
  close()
  await drained
})

test('at a stop, handlers that run may finish before the work of the process is broken off', async () => {
  const order: string[] = []
  const there = other({
    shared: {
      handsOut: 'shared',
      async finish(withinMs, breakOff) {
        order.push(`within ${withinMs}`)
        await breakOff()
        order.push('broken off')
      },
    },
    async close() {
      order.push('closed')
    },
  })
  await there.receiver.open()
  await there.receiver.drain({ handlerGraceMs: 300 })
  expect(order).toEqual(['within 300', 'broken off', 'closed'])
})

const bare: Inbox = {
  durability: 'replicated',
  open: async () => ({ waiting: nothing() }),
  put: () => {},
  claim: () => undefined,
  settle: () => {},
  usage: () => ({ messages: 0, bytes: 0 }),
  ...onlyWaiting,
}
