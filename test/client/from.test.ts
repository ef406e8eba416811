import { createReceiver, type FleetEvent, memoryInbox } from 'fleethook'
import type { InboxFactory, InboxMessage } from 'fleethook/extend'
import { fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { remember } from '../http/ways.ts'
import { ended, feed, item } from './sse.ts'
import { json, refusal, rejection, stub, vin } from './stub.ts'

const createdAt = '2026-11-21T10:00:00.123456789Z'
const data = (level: number, of = vin): object => ({ data: { BatteryLevel: String(level) }, createdAt, vin: of })
const nothingMore = (): Response => new Response(null, { status: 204 })

/** The messages that a memory inbox got. */
function watched(kept: InboxMessage[]): InboxFactory {
  const create = memoryInbox()
  return (settings) => {
    const inbox = create(settings)
    return {
      ...inbox,
      put(messages) {
        kept.push(...messages)
        return inbox.put(messages)
      },
    }
  }
}

describe('receiver.from', () => {
  test('handles the messages of a stream as if they had been posted', async () => {
    const texts = [
      JSON.stringify(data(1)),
      `{"vin":"${vin}",  "state":"online", "createdAt":"${createdAt}"}`,
      `{"vin":"${vin}", "vehicle_data":{"charge_state":{}}, "createdAt":"${createdAt}"}`,
      `{"credits":5, "createdAt":"${createdAt}"}`,
    ]
    const seen: FleetEvent[][] = [[], []]
    const kept: InboxMessage[][] = [[], []]
    const clock = fakeClock()
    const [streamed, posted] = [0, 1].map((index) =>
      createReceiver({ secret: false, clock, inbox: watched(kept[index] ?? []) }).on('*', (event) => {
        seen[index]?.push(event)
      }),
    )
    const { client } = stub([ended(texts.map((text) => `data: ${text}\n\n`).join('')), nothingMore], { clock })
    const done = streamed?.from(client.stream(vin))
    await clock.advance(5_000)
    await done
    for (const text of texts) await posted?.accept({ authorization: undefined, body: text })
    await clock.advance(0)

    const plain = (events: readonly FleetEvent[] = []): unknown[] =>
      events
        .map((event) => ({ ...event, receivedAt: undefined, id: event.id }))
        .toSorted((a, b) => a.topic.localeCompare(b.topic))
    expect(plain(seen[0])).toEqual(plain(seen[1]))
    expect(seen[0]?.map(({ topic }) => topic).toSorted()).toEqual(['data', 'state', 'unknown', 'vehicle_data'])
    const core = (messages: readonly InboxMessage[] = []): unknown[] =>
      messages.map(({ lane, door, kind, text, bytes }) => ({ lane, door, kind, text, bytes }))
    // The text is kept as it came, because a newer fleethook may read more of it.
    expect(core(kept[0])).toEqual(core(kept[1]))
    expect(kept[0]?.map(({ text }) => text)).toEqual(texts)
    expect(streamed?.stats()).toMatchObject({ received: 4, handled: 4 })
  })

  test('waits while the inbox is full, where a posted message would be refused: nothing is lost, and there is no gap', async () => {
    const clock = fakeClock()
    const seen: unknown[] = []
    const releases: (() => void)[] = []
    const receiver = createReceiver({ secret: false, clock, limits: { pendingMessages: 2 }, timeoutMs: 600_000 })
      .on('data', async (event) => {
        await new Promise<void>((resolve) => releases.push(resolve))
        seen.push(event.data.BatteryLevel)
      })
      .on('gap', () => seen.push('gap'))
    const levels = [1, 2, 3, 4, 5, 6]
    const { client } = stub([ended(levels.map((level) => item(data(level))).join('')), nothingMore], { clock })
    const done = receiver.from(client.stream(vin))
    await clock.advance(10_000)
    expect(receiver.stats()).toMatchObject({ received: 2, refused: {} })
    for (let turn = 0; turn < 8; turn += 1) {
      releases.shift()?.()
      await clock.advance(5_000)
    }
    await done
    expect(seen).toEqual(levels)
    expect(receiver.stats()).toMatchObject({ received: 6, handled: 6, refused: {}, openGaps: 0 })
  })

  test('ends when the receiver drains, after the messages that it took are handled', async () => {
    const clock = fakeClock()
    const live = feed()
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: false, clock }).on('data', (event) => seen.push(event.data.BatteryLevel))
    const { client } = stub(live.answer, { clock })
    const done = receiver.from(client.stream(vin))
    live.send(item(data(1)))
    await clock.advance(10)
    const drained = receiver.drain()
    await clock.advance(10)
    await done
    expect(await drained).toMatchObject({ lost: 0 })
    expect(seen).toEqual([1])
    expect(live.cancelled()).toBe(true)
    expect(clock.timers()).toEqual([])
    await receiver.from(client.stream(vin))
  })

  test('rejects with the error that ended the stream', async () => {
    const { client } = stub(refusal(404, 'vehicle_not_found'))
    const receiver = createReceiver({ secret: false })
    expect(await rejection(receiver.from(client.stream(vin)))).toMatchObject({ code: 'vehicle_not_found' })
  })

  test('hands an item that is not a message to the handlers of malformed bodies, and continues', async () => {
    const clock = fakeClock()
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: false, clock, log: remember() })
      .on('malformed', ({ text }) => seen.push(text))
      .on('data', (event) => seen.push(event.data.BatteryLevel))
    const { client } = stub([ended(`data: no json\n\n${item(data(1))}`), nothingMore], { clock })
    const done = receiver.from(client.stream(vin))
    await clock.advance(5_000)
    await done
    expect(seen.toSorted()).toEqual([1, 'no json'])
    expect(receiver.stats().refused).toEqual({ body_not_json: 1 })
  })

  test('an interruption becomes a gap, before the messages that follow it', async () => {
    const clock = fakeClock()
    const seen: unknown[] = []
    const gaps: FleetEvent[] = []
    const live = feed()
    const receiver = createReceiver({ secret: false, clock })
      .on('data', (event) => seen.push(event.data.BatteryLevel))
      .on('gap', (gap) => {
        seen.push('gap')
        gaps.push(gap)
      })
    const more = ended(item(data(2)) + item(data(3)))
    const { client } = stub([live.answer, refusal(503, 'unavailable'), more, nothingMore], { clock })
    const done = receiver.from(client.stream(vin, { heartbeatTimeoutMs: 30_000 }))
    live.send(item(data(1)))
    const from = new Date(clock.now())
    await clock.advance(60_000)
    await done
    expect(seen).toEqual([1, 'gap', 2, 3])
    expect(gaps).toMatchObject([{ vin, reason: 'stream_interrupted', from, missed: 0 }])
  })

  test('takes a refill too', async () => {
    const clock = fakeClock()
    const seen: unknown[] = []
    const receiver = createReceiver({ secret: false, clock }).on('vehicle_data', (event) =>
      seen.push(event.vehicleData),
    )
    const { client } = stub(json({ response: { charge_state: 1 } }), { clock })
    await receiver.from(client.refill({ vin }))
    await clock.advance(0)
    expect(seen).toEqual([{ charge_state: 1 }])
  })
})
