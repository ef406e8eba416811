import { describe, expect, test } from 'vitest'
import { disk, storedInbox } from '../inbox/stored-inbox.ts'
import { turn } from './fake-clock.ts'
import { data, gates, type Scene, scene, state } from './scene.ts'

const fails = { retry: { attempts: 1 } }

/** Ten dead letters a second apart: data of A and B alternating, and a state of A at the end. */
async function withLetters(options: Parameters<typeof scene>[0] = {}): Promise<Scene & { readonly startMs: number }> {
  const made = scene({ ...fails, ...options })
  let broken = true
  made.receiver.on('*', () => {
    if (broken) throw new Error('no')
  })
  const startMs = made.clock.now()
  for (let n = 0; n < 9; n += 1) {
    await made.post(data(n % 2 === 0 ? 'A' : 'B', n))
    await made.clock.advance(1000)
  }
  await made.post(state('A', 'online'))
  await turn()
  broken = false
  return { ...made, startMs }
}

const inboxes = [
  ['in memory', () => ({})],
  ['on a disk', () => ({ inbox: storedInbox(disk()) })],
] as const

describe.each(inboxes)('dead letters %s', (_, options) => {
  test('are listed by vehicle, topic and time of receipt, and go on behind one', async () => {
    const { receiver, startMs } = await withLetters(options())
    const list = async (which?: Parameters<typeof receiver.deadLetters.list>[0]): Promise<unknown[]> =>
      (await Array.fromAsync(receiver.deadLetters.list(which))).map(({ event }) =>
        event.topic === 'data' ? event.data.Odometer : event.topic,
      )
    expect(await list()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 'state'])
    expect(await list({ vin: 'B' })).toEqual([1, 3, 5, 7])
    expect(await list({ topic: 'state' })).toEqual(['state'])
    expect(await list({ vin: 'B', topic: 'state' })).toEqual([])
    const from = new Date(startMs + 2000)
    expect(await list({ from, to: new Date(startMs + 5000) })).toEqual([2, 3, 4])
    let third: string | undefined
    let seen = 0
    for await (const { id } of receiver.deadLetters.list({ topic: 'data' })) {
      third = id
      if ((seen += 1) === 3) break
    }
    expect(await list({ after: third })).toEqual([3, 4, 5, 6, 7, 8, 'state'])
  })

  test('get returns one by its id', async () => {
    const { receiver } = await withLetters(options())
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(await receiver.deadLetters.get(letter?.id ?? '')).toEqual(letter)
    expect(await receiver.deadLetters.get('018dd97c-0480-7000-bf06-cd51878c1524')).toBeUndefined()
  })

  test('those that match are replayed, in order, or only counted', async () => {
    const { receiver } = await withLetters(options())
    const seen: unknown[] = []
    receiver.on('data', ({ data: { Odometer } }, { delivery }) => void seen.push([Odometer, delivery.replayed]))
    expect(await receiver.deadLetters.replay({ vin: 'B', dryRun: true })).toBe(4)
    expect(await receiver.deadLetters.replay({ vin: 'B' })).toBe(4)
    await turn()
    expect(seen).toEqual([1, 3, 5, 7].map((n) => [n, true]))
    expect(await Array.fromAsync(receiver.deadLetters.list())).toHaveLength(6)
    expect(receiver.stats()).toMatchObject({ replayed: 4, handled: 4, lanes: 0 })
  })

  test('those that match are discarded, or only counted', async () => {
    const { receiver } = await withLetters(options())
    expect(await receiver.deadLetters.discard({ topic: 'data', dryRun: true })).toBe(9)
    expect(await receiver.deadLetters.discard({ topic: 'data' })).toBe(9)
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ event: { topic: 'state' } }])
    expect(await receiver.deadLetters.discard({})).toBe(1)
    expect(await receiver.deadLetters.discard({})).toBe(0)
  })

  test('those that die again while they are replayed are replayed once', async () => {
    const { receiver, post } = scene({ ...fails, ...options() })
    let runs = 0
    receiver.on('data', () => {
      runs += 1
      throw new Error('no')
    })
    for (let n = 0; n < 250; n += 1) await post(data('A', n))
    await turn()
    expect(await receiver.deadLetters.replay({})).toBe(250)
    await turn()
    expect(runs).toBe(500)
    expect(await Array.fromAsync(receiver.deadLetters.list())).toHaveLength(250)
  })

  test('an invalid time is refused', async () => {
    const { receiver } = scene(options())
    await expect(Array.fromAsync(receiver.deadLetters.list({ from: new Date('x') }))).rejects.toMatchObject({
      code: 'option_invalid',
    })
  })
})

describe('a replay of handled messages', () => {
  async function handled(count: number): Promise<Scene & { readonly startMs: number; readonly seen: unknown[] }> {
    const made = scene({ inbox: storedInbox(disk({ retains: true })) })
    const seen: unknown[] = []
    made.receiver.on('data', ({ vin, data: { Odometer } }, { delivery }) => {
      seen.push([vin, Odometer, delivery.replayed])
    })
    const startMs = made.clock.now()
    for (let n = 0; n < count; n += 1) {
      await made.post([data('A', n), data('B', n)])
      await made.clock.advance(1000)
    }
    await turn()
    seen.length = 0
    return { ...made, seen, startMs }
  }
  const times = (startMs: number, from: number, to: number): { from: Date; to: Date } => ({
    from: new Date(startMs + from * 1000),
    to: new Date(startMs + to * 1000),
  })

  test('selects by time of receipt, vehicle and topic, and keeps the order and the mark', async () => {
    const { receiver, startMs, seen } = await handled(6)
    expect(await receiver.replay({ ...times(startMs, 1, 4), dryRun: true })).toBe(6)
    expect(await receiver.replay({ ...times(startMs, 1, 4), vin: 'A' })).toBe(3)
    await turn()
    expect(seen).toEqual([1, 2, 3].map((n) => ['A', n, true]))
    expect(await receiver.replay({ ...times(startMs, 0, 100), topic: 'state' })).toBe(0)
    expect(receiver.stats()).toMatchObject({ received: 12, replayed: 3, handled: 15, lanes: 0 })
  })

  test('runs each once, although it is settled again before the replay ends; live messages run in between', async () => {
    const { receiver, post, startMs, seen } = await handled(150)
    const gate = gates()
    receiver.on('data', ({ vin, data: { Odometer } }, { delivery }) =>
      vin === 'A' && Odometer === 99 && delivery.replayed ? gate.wait('it') : undefined,
    )
    const replayed = receiver.replay({ ...times(startMs, 0, 1000), vin: 'A' })
    await turn()
    await post(data('A', 1000))
    gate.open('it')
    expect(await replayed).toBe(150)
    await turn()
    const order = seen.filter((each) => Array.isArray(each) && each[0] === 'A').map((each) => (each as unknown[])[1])
    expect(order).toHaveLength(151)
    // The second hundred waits until the first hundred is done, so the live message comes before it.
    expect(order.indexOf(1000)).toBe(100)
  })

  test('has no messages when the inbox does not keep them', async () => {
    const { receiver, send } = scene()
    await send(data('A', 1))
    expect(await receiver.replay({ from: new Date(0), to: new Date(8.64e15) })).toBe(0)
  })

  test('is refused while the receiver drains', async () => {
    const { receiver, startMs } = await handled(1)
    await receiver.drain()
    await expect(receiver.replay(times(startMs, 0, 10))).rejects.toMatchObject({ code: 'inbox_unavailable' })
  })
})
