import { type Inbox, type InboxFactory, type InboxMessage, type Waiting, Window } from 'fleethook/extend'
import { describe, expect, test } from 'vitest'
import { onlyWaiting } from '../inbox/shared-inbox.ts'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, scene } from './scene.ts'

/** A durable inbox that keeps messages as objects, because a disk of text is slow with many messages. */
function quickInbox(): InboxFactory {
  return () => {
    const kept = new Map<string, InboxMessage>()
    async function* waiting(after: string): AsyncGenerator<readonly InboxMessage[]> {
      const all = [...kept.values()].filter(({ id }) => id > after)
      for (let from = 0; from < all.length; from += 2_000) yield all.slice(from, from + 2_000)
    }
    const inbox: Inbox = {
      durability: 'disk',
      open: async () => ({ waiting: waiting('') }),
      window: (host) => new Window<Waiting>(host, (after = '') => waiting(after)),
      async put(messages) {
        for (const message of messages) kept.set(message.id, message)
      },
      async claim(id) {
        const message = kept.get(id)
        return message && { message, deliveries: 0, replayed: false }
      },
      async settle(id, { as } = { as: 'done' }) {
        if (as === 'done') kept.delete(id)
      },
      usage: () => ({ messages: kept.size, bytes: 0 }),
      ...onlyWaiting,
    }
    return inbox
  }
}

const limits = { pendingMessages: 100_000 }
const posts = Array.from({ length: 30 }, (_, n) => n)

describe('messages that wait far behind', () => {
  test('are handled in order, however long their lane, with those that come meanwhile', async () => {
    const { receiver, post } = scene({ inbox: storedInbox(disk()) })
    const gate = gates()
    const seen: Record<string, unknown[]> = { A: [], B: [] }
    receiver.on('data', async ({ vin, data: { Odometer } }) => {
      seen[vin]?.push(Odometer)
      if (vin === 'A' && Number(Odometer) % 7 === 0) await gate.wait(`A ${String(Odometer)}`)
    })
    for (const n of posts) await post([data('A', n), data('B', n)])
    await turn()
    expect(seen).toEqual({ A: [0], B: posts })
    gate.open('A 0')
    await turn()
    expect(seen['A']).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    for (const n of posts) await post(data('A', 30 + n))
    for (let n = 7; n < 60; n += 7) {
      gate.open(`A ${n}`)
      await turn()
    }
    expect(seen['A']).toEqual([...posts, ...posts.map((n) => 30 + n)])
    expect(receiver.stats()).toMatchObject({ handled: 90, lanes: 0, running: 0, pending: { messages: 0 } })
  })

  test('keep the env of their request', async () => {
    const { receiver } = scene({ inbox: storedInbox(disk()) })
    const gate = gates()
    const seen: unknown[] = []
    receiver.on('data', async (_, { env }) => {
      seen.push(env)
      if (seen.length === 1) await gate.wait('first')
    })
    const envs = [{ NAME: 'one' }, { NAME: 'two' }]
    for (const n of posts) await receiver.accept({ authorization: null, body: data('A', n), env: envs[n % 2] })
    await turn()
    gate.open('first')
    await turn()
    expect(seen).toEqual(posts.map((n) => envs[n % 2]))
  })

  test('are waited for by answers, and by deliveries in tests', async () => {
    const { receiver, post } = scene({ inbox: storedInbox(disk()), ack: 'handled' })
    const gate = gates()
    receiver.on('data', () => gate.wait('it'))
    const answers: number[] = []
    for (const n of posts) void post(data('A', n)).then(({ status }) => answers.push(status))
    await turn()
    for (const n of posts) {
      expect(answers).toHaveLength(n)
      gate.open('it')
      await turn()
    }
    expect(answers).toEqual(posts.map(() => 200))
  })

  test('a thousand stuck vehicles with messages behind them do not keep other vehicles waiting', async () => {
    const { receiver } = scene({ inbox: quickInbox(), limits, concurrency: 16, retry: { attempts: 9, minMs: 30_000 } })
    let healthy = 0
    receiver.on('data', ({ vin }) => {
      if (vin.startsWith('STUCK')) throw new Error('no')
      healthy += 1
    })
    for (let round = 0; round < 30; round += 1) {
      const body = Array.from({ length: 1000 }, (_, n) => data(`STUCK${n}`, round))
      await receiver.accept({ authorization: null, body })
    }
    for (let round = 0; round < 20; round += 1) await turn()
    for (let n = 0; n < 50; n += 1) await receiver.accept({ authorization: null, body: data('HEALTHY', n) })
    await turn()
    expect(healthy).toBe(50)
    expect(receiver.stats()).toMatchObject({ lanes: 1000, running: 0, pending: { messages: 30_000 } })
  })

  test.each([
    ['rest', 1_000, 15],
    // Fewer than open a circuit breaker.
    ['are tried again, and whose handler hangs then', 3, 5_000],
  ])('new messages of stuck vehicles that %s do not keep other vehicles waiting', async (_, vehicles, rounds) => {
    const retry = { attempts: 9, minMs: 30_000, maxMs: 30_000 }
    const { receiver, clock } = scene({ inbox: quickInbox(), limits, concurrency: 16, retry })
    let healthy = 0
    receiver.on('data', ({ vin }, { delivery }) => {
      if (vin.startsWith('HEALTHY')) healthy += 1
      else if (delivery.attempt === 1) throw new Error('no')
      else return new Promise(() => {})
    })
    const stuck = async (count: number): Promise<void> => {
      for (let sent = 0; sent < count * vehicles; sent += 1_000) {
        const body = Array.from({ length: 1_000 }, (_, n) => data(`STUCK${(sent + n) % vehicles}`, sent + n))
        await receiver.accept({ authorization: null, body })
      }
      for (let round = 0; round < 20; round += 1) await turn()
    }
    await stuck(rounds)
    if (vehicles === 3) await clock.advance(30_000)
    await stuck(rounds)
    for (let n = 0; n < 50; n += 1) await receiver.accept({ authorization: null, body: data('HEALTHY', n) })
    for (let round = 0; round < 20; round += 1) await turn()
    expect(healthy).toBe(50)
    expect(receiver.stats()).toMatchObject({ handled: 50, running: vehicles === 3 ? 3 : 0 })
  })

  test(
    'of more vehicles than there can be records are handled in order, also when some fail and more come meanwhile',
    { timeout: 180_000 },
    async () => {
      const vehicles = 10_500
      const { receiver, clock } = scene({
        inbox: quickInbox(),
        limits,
        concurrency: 16,
        retry: { attempts: 9, minMs: 1, maxMs: 1 },
      })
      const gate = gates()
      const seen = new Map<string, unknown[]>()
      let failures = 0
      let isHeld = true
      receiver.on('data', async ({ vin, data: { Odometer } }, { delivery }) => {
        if (isHeld) await gate.wait(vin)
        if (vin.endsWith('7') && delivery.attempt === 1) {
          failures += 1
          throw new Error('no')
        }
        seen.set(vin, [...(seen.get(vin) ?? []), Odometer])
      })
      const post = async (round: number): Promise<void> => {
        for (let from = 0; from < vehicles; from += 1500) {
          const body = Array.from({ length: 1500 }, (_, n) => data(`V${from + n}`, round))
          await receiver.accept({ authorization: null, body })
          await turn()
        }
      }
      for (let round = 0; round < 2; round += 1) await post(round)
      expect(receiver.stats()).toMatchObject({ lanes: vehicles, running: 16, pending: { messages: 2 * vehicles } })
      isHeld = false
      for (const name of [...gate.waiting]) gate.open(name)
      await post(2)
      while (receiver.stats().lanes > 0) await clock.advance(1000)
      expect(seen.size).toBe(vehicles)
      expect([...seen.values()].filter((each) => String(each) !== '0,1,2')).toEqual([])
      expect(failures).toBe((3 * vehicles) / 10)
    },
  )
})
