import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { turn } from '../dispatch/fake-clock.ts'
import { data, gates, scene, state } from '../dispatch/scene.ts'

describe('a full inbox', () => {
  test('refuses with 503, code 9 and Retry-After', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 2 } })
    receiver.on('data', () => new Promise(() => {}))
    await post([data('A', 1), data('A', 2)])
    const answer = await post(data('A', 3))
    expect(answer).toMatchObject({ status: 503, headers: { 'retry-after': '1' } })
    expect(JSON.parse(answer.body)).toMatchObject({ code: 9, error: 'inbox_full', hint: expect.any(String) })
    expect(receiver.stats()).toMatchObject({ received: 2, refused: { inbox_full: 1 }, pending: { messages: 2 } })
  })

  test('counts bytes as well as messages', async () => {
    const body = JSON.stringify(data('A', 1))
    const { receiver, post } = scene({ limits: { pendingBytes: body.length * 2 } })
    receiver.on('data', () => new Promise(() => {}))
    expect(await post(body)).toMatchObject({ status: 200 })
    expect(await post(body)).toMatchObject({ status: 200 })
    expect(await post(body)).toMatchObject({ status: 503 })
    expect(receiver.stats().pending).toEqual({ messages: 2, bytes: body.length * 2 })
  })

  test('takes all events of a body or none', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 2 } })
    receiver.on('data', () => new Promise(() => {}))
    await post(data('A', 1))
    expect(await post([2, 3].map((n) => data('B', n)))).toMatchObject({ status: 503 })
    expect(receiver.stats()).toMatchObject({ received: 1, lanes: 1, openGaps: 1 })
  })

  test('emits one gap for each VIN, with from, to, missed and reason, when there is room again', async () => {
    const { receiver, post, clock } = scene({ limits: { pendingMessages: 1 } })
    const gate = gates()
    const gaps: unknown[] = []
    receiver.on('data', () => gate.wait('data')).on('gap', (gap) => void gaps.push(gap))
    await post(data('A', 1))
    const from = clock.now()
    for (const vin of ['A', 'B', 'A', 'A']) {
      await post(data(vin, 2))
      await clock.advance(1000)
    }
    expect(receiver.stats()).toMatchObject({ openGaps: 2, refused: { inbox_full: 4 } })
    expect(gaps).toEqual([])
    gate.open('data')
    await receiver.drain()
    const to = new Date(clock.now())
    const told = {
      topic: 'gap',
      reason: 'inbox_full',
      to,
      at: to,
      createdAt: to.toISOString(),
      format: null,
      raw: null,
    }
    expect(gaps).toMatchObject([
      { ...told, vin: 'A', missed: 3, from: new Date(from) },
      { ...told, vin: 'B', missed: 1, from: new Date(from + 1000) },
    ])
    expect(receiver.stats()).toMatchObject({ openGaps: 0, lanes: 0, pending: { messages: 0 } })
  })

  test('messages that are refused while a gap is emitted are in the next gap: all are counted', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 1 } })
    const gate = gates()
    const missed: number[] = []
    receiver.on('data', () => gate.wait('data')).on('gap', (gap) => void missed.push(gap.missed))
    await post(data('A', 1))
    await post(data('A', 2))
    await turn()
    gate.open('data')
    // Refusals in each of the microtasks that it takes to store the gap.
    let refused = 1
    for (let n = 0; n < 12; n += 1) {
      await Promise.resolve()
      if ((await post(data('A', 3))).status === 503) refused += 1
    }
    await turn()
    while (gate.waiting.length > 0) {
      gate.open('data')
      await turn()
    }
    await turn()
    expect(refused).toBeGreaterThan(1)
    expect(missed.reduce((sum, n) => sum + n, 0)).toBe(refused)
  })

  test('the gap of a VIN comes after the messages of the VIN that were taken before it', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 3 }, concurrency: 1 })
    const gate = gates()
    const seen: unknown[] = []
    receiver
      .on('data', async ({ vin, data: { Odometer } }) => {
        seen.push(`${vin}${String(Odometer)}`)
        await gate.wait('data')
      })
      .on('gap', ({ vin }) => void seen.push(`gap ${vin ?? ''}`))
    await post([data('B', 1), data('A', 1), data('A', 2)])
    await post(data('A', 3))
    await turn()
    for (let n = 0; n < 3; n += 1) {
      gate.open('data')
      await turn()
    }
    expect(seen).toEqual(['B1', 'A1', 'A2', 'gap A'])
  })

  test('remembers a bounded number of VINs; beyond that a gap concerns any vehicle', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 40 } })
    const gate = gates()
    const gaps: { vin?: string | undefined; missed: number }[] = []
    receiver.on('data', () => gate.wait('data')).on('gap', ({ vin, missed }) => void gaps.push({ vin, missed }))
    await post(Array.from({ length: 40 }, (_, n) => data('A', n)))
    await turn()
    for (let n = 0; n < 12_000; n += 1) await post(data(`VIN${n}`, n))
    expect(receiver.stats().openGaps).toBe(10_001)
    for (let n = 0; n < 40; n += 1) {
      gate.open('data')
      await turn()
    }
    await receiver.drain()
    expect(gaps).toHaveLength(10_001)
    expect(gaps.filter(({ vin }) => vin === undefined)).toEqual([{ vin: undefined, missed: 2000 }])
    expect(gaps.reduce((sum, { missed }) => sum + missed, 0)).toBe(12_000)
  })

  test('gaps leave room for messages: sixteen at most are in the inbox at once', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 40 }, concurrency: 40 })
    const gate = gates()
    receiver.on('data', () => gate.wait('data')).on('gap', () => new Promise(() => {}))
    await post(Array.from({ length: 40 }, () => data('A', 1)))
    for (let n = 0; n < 100; n += 1) await post(data(`VIN${n}`, n))
    for (let n = 0; n < 40; n += 1) {
      await turn()
      gate.open('data')
    }
    await turn()
    expect(receiver.stats()).toMatchObject({ openGaps: 84, pending: { messages: 16 } })
  })

  test('a message without a VIN leaves a gap without one', async () => {
    const { receiver, post } = scene({ limits: { pendingMessages: 1 } })
    const gate = gates()
    const gaps: unknown[] = []
    receiver.on('data', () => gate.wait('data')).on('gap', (gap) => void gaps.push('vin' in gap))
    await post(data('A', 1))
    await post({ what: 1 })
    await turn()
    gate.open('data')
    await turn()
    expect(gaps).toEqual([false])
  })
})

describe("overflow: 'conflate'", () => {
  const conflate = { overflow: 'conflate', concurrency: 1 } as const
  const at = (vin: string, second: number, fields: object): object => ({
    vin,
    createdAt: `2024-02-24T04:58:${String(second).padStart(2, '0')}Z`,
    data: fields,
  })

  test('merges queued data of a VIN, newest value of each field by the vehicle clock, and takes the message', async () => {
    const { receiver, post } = scene({ ...conflate, limits: { pendingMessages: 4 } })
    const gate = gates()
    const seen: unknown[] = []
    receiver.on('data', async ({ vin, at: when, data: fields, meta: { conflated } }) => {
      seen.push({
        vin,
        when: when.getUTCSeconds(),
        fields: { ...fields },
        ...(conflated === undefined ? {} : { conflated }),
      })
      await gate.wait('data')
    })
    await post(state('FIRST', 'online'))
    await post(at('HEAD', 0, { Odometer: 0 }))
    await turn()
    await post(at('A', 10, { Odometer: 10, Soc: 50 }))
    await post(at('A', 30, { Odometer: 30 }))
    await post(at('A', 20, { Odometer: 20, BatteryLevel: 70 }))
    // Full: the first two are merged.
    await post(at('A', 25, { BatteryLevel: 75, Soc: 49 }))
    expect(receiver.stats()).toMatchObject({ received: 6, conflated: 1, pending: { messages: 4 } })
    // The third is merged into them, and its odometer is older than the current one.
    await post(at('A', 26, { Soc: 48 }))
    expect(receiver.stats()).toMatchObject({ received: 7, conflated: 2, refused: {} })
    for (let n = 0; n < 4; n += 1) {
      await turn()
      gate.open('data')
    }
    await turn()
    expect(seen).toEqual([
      { vin: 'HEAD', when: 0, fields: { Odometer: 0 } },
      { vin: 'A', when: 30, fields: { Odometer: 30, Soc: 50, BatteryLevel: 70 }, conflated: 3 },
      { vin: 'A', when: 25, fields: { BatteryLevel: 75, Soc: 49 } },
      { vin: 'A', when: 26, fields: { Soc: 48 } },
    ])
    expect(receiver.stats()).toMatchObject({ handled: 5, conflated: 2, lanes: 0, pending: { messages: 0, bytes: 0 } })
  })

  test('messages of other topics are not merged and keep their places', async () => {
    const { receiver, post } = scene({ ...conflate, limits: { pendingMessages: 6 } })
    const gate = gates()
    const seen: unknown[] = []
    receiver.on('*', async (event) => {
      seen.push(event.topic === 'data' ? `${event.vin} ${String(event.data.Odometer)}` : event.topic)
      await gate.wait('any')
    })
    await post(data('HEAD', 0))
    await turn()
    await post([data('A', 1), data('A', 2), state('A', 'online'), data('A', 3), data('A', 4)])
    await post([data('B', 5), data('B', 6)])
    expect(receiver.stats()).toMatchObject({ conflated: 2, pending: { messages: 6 } })
    for (let n = 0; n < 6; n += 1) {
      await turn()
      gate.open('any')
    }
    await turn()
    // What was merged away has no turn either.
    expect(seen).toEqual(['HEAD 0', 'A 2', 'B 5', 'state', 'B 6', 'A 4'])
  })

  test('refuses when merging frees nothing, with a gap', async () => {
    const { receiver, post } = scene({ ...conflate, limits: { pendingMessages: 3 } })
    receiver.on('*', () => new Promise(() => {}))
    await post([data('A', 1), state('B', 'online'), data('C', 1)])
    expect(await post(data('D', 1))).toMatchObject({ status: 503 })
    expect(receiver.stats()).toMatchObject({ conflated: 0, refused: { inbox_full: 1 }, openGaps: 1 })
  })

  test('a message that a handler has seen already is not merged with others', async () => {
    const { receiver, post, clock } = scene({ ...conflate, limits: { pendingMessages: 2 }, retry: { minMs: 1000 } })
    const first: unknown[] = []
    const second: unknown[] = []
    receiver
      .on('data', ({ data: { Odometer } }) => void first.push(Odometer))
      .on('data', ({ data: { Odometer } }, { delivery }) => {
        if (delivery.attempt === 1) throw new Error('once')
        second.push(Odometer)
      })
    await post(data('A', 1))
    await turn()
    await post(data('A', 2))
    expect(await post(data('A', 3))).toMatchObject({ status: 503 })
    await clock.advance(10_000)
    expect({ first, second }).toEqual({ first: [1, 2], second: [1, 2] })
  })

  test('a replayed message is not merged: somebody wants exactly this message handled', async () => {
    const { receiver, post } = scene({ ...conflate, limits: { pendingMessages: 3 }, retry: { attempts: 1 } })
    const gate = gates()
    receiver.on('data', async ({ vin }, { delivery }) => {
      if (vin === 'A' && !delivery.replayed) throw new Error('no')
      await gate.wait('data')
    })
    await post(data('A', 1))
    await turn()
    await post(data('HEAD', 1))
    await turn()
    const [letter] = await receiver.deadLetters.list()
    await receiver.deadLetters.replay(letter?.id ?? '')
    await post(data('A', 2))
    expect(await post(data('A', 3))).toMatchObject({ status: 503 })
    expect(receiver.stats().conflated).toBe(0)
  })

  test.each(['vin', 'none'] as const)(
    "ack: 'handled' waits for the message into which another was merged (order: '%s')",
    async (order) => {
      const { receiver, post } = scene({
        ...{ ...conflate, ack: 'handled', order },
        ...{ limits: { pendingMessages: 4 }, concurrency: 2 },
      })
      const gate = gates()
      const answers: string[] = []
      receiver.on('data', ({ vin, data: { Odometer } }) => gate.wait(`${vin}${String(Odometer)}`))
      const ask = (vin: string, n: number): void =>
        void post(data(vin, n)).then(({ status }) => answers.push(`${vin}${n} ${status}`))
      ask('HEAD', 1)
      ask('BESIDE', 1)
      await turn()
      for (const n of [1, 2, 3]) ask('A', n)
      await turn()
      expect(receiver.stats()).toMatchObject({ conflated: 1, refused: {} })
      gate.open('HEAD1')
      gate.open('BESIDE1')
      await turn()
      expect({ waiting: gate.waiting, answers: answers.toSorted() }).toEqual({
        ...{ waiting: ['A2'], answers: ['BESIDE1 200', 'HEAD1 200'] },
      })
      gate.open('A2')
      await turn()
      expect(answers.slice(2)).toEqual(['A1 200', 'A2 200'])
      gate.open('A3')
      await turn()
      expect(answers.slice(4)).toEqual(['A3 200'])
      expect(receiver.stats()).toMatchObject({ received: 5, handled: 4, conflated: 1, lanes: 0 })
    },
  )

  test('whatever arrives in whatever order, each VIN ends with the newest value of each field', async () => {
    const field = fc.constantFrom('Odometer', 'Soc', 'BatteryLevel')
    const arrival = fc.record({
      vin: fc.constantFrom('A', 'B'),
      second: fc.nat(59),
      fields: fc.dictionary(field, fc.nat(1000), { minKeys: 1 }),
      isState: fc.boolean(),
      settle: fc.boolean(),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(arrival, { maxLength: 40 }), fc.integer({ min: 3, max: 8 }), async (arrivals, most) => {
        const { receiver, post } = scene({ ...conflate, limits: { pendingMessages: most } })
        const seen = new Map<string, Map<string, { second: number; value: unknown }>>()
        const expected = new Map<string, Map<string, { second: number; value: unknown }>>()
        const states: Record<string, string[]> = { A: [], B: [] }
        const statesExpected: Record<string, string[]> = { A: [], B: [] }
        const note = (into: typeof seen, vin: string, second: number, fields: object): void => {
          const known = into.get(vin) ?? new Map<string, { second: number; value: unknown }>()
          into.set(vin, known)
          for (const [name, value] of Object.entries(fields)) {
            if (second >= (known.get(name)?.second ?? -1)) known.set(name, { second, value })
          }
        }
        receiver.on('state', ({ vin, state: is }) => void states[vin]?.push(is))
        // A merged event has one time, so only its values are checked: the newest must arrive.
        const values = new Map<string, unknown[]>()
        receiver.on('data', ({ vin, data: fields }) => {
          for (const [name, value] of Object.entries(fields)) {
            values.set(`${vin} ${name}`, [...(values.get(`${vin} ${name}`) ?? []), value])
          }
        })
        let n = 0
        for (const { vin, second, fields, isState, settle } of arrivals) {
          n += 1
          const answer = await post(isState ? { ...state(vin, `s${n}`) } : at(vin, second, fields))
          if (answer.status === 200) {
            if (isState) statesExpected[vin]?.push(`s${n}`)
            else note(expected, vin, second, fields)
          }
          if (settle) await turn()
        }
        await receiver.drain()
        expect(states).toEqual(statesExpected)
        for (const [vin, fields] of expected) {
          for (const [name, { value }] of fields) expect(values.get(`${vin} ${name}`)).toContain(value)
        }
        const { received, handled, conflated, pending, lost, deadLettered } = receiver.stats()
        expect({ received, pending: pending.messages, bytes: pending.bytes, lost, deadLettered }).toEqual({
          ...{ received: handled + conflated, pending: 0, bytes: 0, lost: 0, deadLettered: 0 },
        })
      }),
      { numRuns: 60 },
    )
  }, 60_000)
})
