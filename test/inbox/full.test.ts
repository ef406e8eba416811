import { describe, expect, test } from 'vitest'
import { turn } from '../dispatch/fake-clock.ts'
import { data, gates, scene } from '../dispatch/scene.ts'

describe('a full inbox', () => {
  test('emits one gap for each VIN, and one without, with from, to, missed and reason, when there is room again', async () => {
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
    await post({ what: 1 })
    expect(receiver.stats()).toMatchObject({ openGaps: 3, refused: { inbox_full: 5 } })
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
      { ...told, missed: 1, from: to },
    ])
    expect(gaps[2]).not.toHaveProperty('vin')
    expect(receiver.stats()).toMatchObject({ openGaps: 0, lanes: 0, pending: { messages: 0 } })
  })

  test('the gap of a VIN comes after the messages of the VIN that were taken before it', async () => {
    const { receiver, post, send } = scene({ limits: { pendingMessages: 3 }, concurrency: 1 })
    const gate = gates()
    const seen: unknown[] = []
    receiver
      .on('data', async ({ vin, data: { Odometer } }) => {
        seen.push(`${vin}${String(Odometer)}`)
        await gate.wait('data')
      })
      .on('gap', ({ vin }) => void seen.push(`gap ${vin ?? ''}`))
    await post([data('B', 1), data('A', 1), data('A', 2)])
    await send(data('A', 3))
    for (let n = 0; n < 3; n += 1) {
      gate.open('data')
      await turn()
    }
    expect(seen).toEqual(['B1', 'A1', 'A2', 'gap A'])
  })

  test('remembers a bounded number of VINs; beyond that a gap concerns any vehicle', async () => {
    const { receiver, post, send } = scene({ limits: { pendingMessages: 40 } })
    const gate = gates()
    const gaps: { vin?: string | undefined; missed: number }[] = []
    receiver.on('data', () => gate.wait('data')).on('gap', ({ vin, missed }) => void gaps.push({ vin, missed }))
    await send(Array.from({ length: 40 }, (_, n) => data('A', n)))
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
})
