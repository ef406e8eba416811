import { createReceiver, memoryInbox, type Secret } from 'fleethook'
import { fakeClock } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { places } from '../vehicles/places.ts'
import { silent } from '../vehicles/scene.ts'

const vin = '0FLEETV14T0000001'
const createdAt = '2026-11-21T10:00:00.000Z'
const formats = {
  service: { data: { Gear: 'D' }, vin, createdAt, secret: 7 },
  vehicle_maker: { data: [{ key: 'Gear', value: { stringValue: 'D' } }], vin, createdAt, secret: 7 },
  event_collector: {
    time: 1795255200.983,
    source: vin,
    sourcetype: 'v:telemetry:data',
    event: { Gear: 'D' },
    secret: 7,
  },
  unknown: { hello: 1, secret: 7 },
}

function watched(secret: Secret, inbox: ReturnType<typeof memoryInbox> = memoryInbox(), handle = (): void => {}) {
  const seen: unknown[] = []
  const clock = fakeClock()
  const receiver = createReceiver({ secret, inbox, clock, log: silent, retry: { attempts: 1 } }).on('*', (event) => {
    seen.push(event.meta?.secret)
    handle()
  })
  receiver.observe({ failed: () => {} })
  const settled = async (): Promise<void> => {
    do await clock.advance(1)
    while (receiver.stats().pending.messages > 0)
  }
  return { receiver, seen, settled }
}

const list = ['first-secret-value', 'second-secret-value'] as const

describe('the place of the secret that a message came with', () => {
  test.each(Object.entries(formats))('is in `meta` of a message of the format %s', async (_, body) => {
    const { receiver, seen, settled } = watched(list)
    for (const authorization of list) await receiver.accept({ authorization, body })
    await settled()
    expect(seen).toEqual([0, 1])
  })

  test('is there in every way in, for each message of a batch, and for a function', async () => {
    const body = JSON.stringify([formats.service, formats.event_collector])
    for (const secret of [list, () => list]) {
      const { receiver, seen, settled } = watched(secret)
      const request = (path: string, authorization: string): Request =>
        new Request(`http://localhost${path}`, { method: 'POST', headers: { authorization }, body })
      expect((await receiver.fetch(request('/', list[1]))).status).toBe(200)
      expect((await receiver.routes().request(request('/', `Splunk ${list[0]}`))).status).toBe(200)
      await receiver.accept({ authorization: list[1], body: JSON.parse(body) })
      const basic = `Basic ${btoa(`x:${list[1]}`)}`
      const path = '/services/collector'
      await receiver.accept({ authorization: basic, body: formats.event_collector, path })
      await settled()
      expect(seen).toEqual([1, 1, 0, 0, 1, 1, 1])
    }
  })

  test('is left out without a list, and no message can set it', async () => {
    for (const secret of [list[0], false, () => list[0]] as const) {
      const { receiver, seen, settled } = watched(secret)
      await receiver.accept({ authorization: list[0], body: formats.service })
      await settled()
      expect(seen).toEqual([undefined])
    }
  })

  test.each(places)('stays with a dead letter and its replay, %s', async (_, open) => {
    const place = open()
    const first = watched(list, place.next(), () => {
      throw new Error('not today')
    })
    await first.receiver.accept({ authorization: list[1], body: formats.service })
    await first.settled()
    await first.receiver.deadLetters.replay({})
    await first.settled()
    expect(first.seen).toEqual([1, 1])
    await first.receiver.drain()
    if (first.receiver.durability === 'memory') return
    const next = watched(list, place.next())
    await next.receiver.open()
    await next.receiver.deadLetters.replay({})
    await next.settled()
    // Beside what the restart says.
    expect(next.seen.filter((one) => one !== undefined)).toEqual([1])
    await next.receiver.drain()
  })
})
