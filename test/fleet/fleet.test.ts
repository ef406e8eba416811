import { describe, expect, test } from 'vitest'
import type { FieldValue } from '../../src/events/values.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import type { SimulatedEvent, SimulatedMessage } from '../../src/service/fleet/messages.ts'
import { checkDigit, syntheticVin } from '../../src/service/fleet/vin.ts'

const startAt = Date.UTC(2026, 10, 1, 8)

function take(count: number, options: { vins?: number; seed?: number } = {}): SimulatedMessage[] {
  const messages: SimulatedMessage[] = []
  for (const message of createFleet({ vins: 20, seed: 7, startAt, firmware: 'mixed', ...options })) {
    messages.push(message)
    if (messages.length === count) break
  }
  return messages
}

const long = take(60_000)

const lives = new Map<string, readonly SimulatedMessage[]>()

/** The messages of one vehicle of `long`, as `lifeIn` finds them. */
function lifeOf(vin: string): readonly SimulatedMessage[] {
  const life = lives.get(vin) ?? lifeIn(long, vin)
  lives.set(vin, life)
  return life
}

/** The messages of one vehicle without copies and without messages that are older than one before. */
function lifeIn(messages: readonly SimulatedMessage[], vin: string): readonly SimulatedMessage[] {
  const seen = new Set<string>()
  return messages.filter(({ event }) => {
    if (event.vin !== vin) return false
    const { meta: _, ...content } = event
    const key = JSON.stringify(content)
    return !seen.has(key) && seen.add(key)
  })
}

const vins = [...new Set(long.map(({ event }) => event.vin))]
const dataOf = (event: SimulatedEvent): { readonly [field: string]: FieldValue } =>
  event.topic === 'data' ? event.data : {}

describe('the stream of a fleet', () => {
  test('differs for another seed', () => {
    expect(take(300, { seed: 8 })).not.toEqual(take(300))
  })

  test('does not change a vehicle when the fleet is larger', () => {
    const vin = syntheticVin(3)
    const alone = lifeIn(take(4_000, { vins: 4 }), vin).slice(0, 100)
    expect(lifeIn(take(60_000, { vins: 40 }), vin).slice(0, 100)).toEqual(alone)
  })

  test('comes in the order in which the service would post it', () => {
    for (const [index, { at }] of long.entries()) expect(at).toBeGreaterThanOrEqual(long[index - 1]?.at ?? startAt)
  })

  test('has every topic in the first thousand messages of the command line’s default seed', () => {
    const topics = new Set(take(1_000, { vins: 25, seed: 1 }).map(({ event }) => event.topic))
    expect(topics.size).toBe(6)
  })
})

describe('the VINs of a fleet', () => {
  test('have seventeen characters, no I, O or Q, and a valid check digit', () => {
    for (const index of [0, 1, 42, 999, 123_456, 999_999]) {
      const vin = syntheticVin(index)
      expect(vin).toMatch(/^[0-9A-HJ-NPR-Z]{17}$/)
      expect(vin[8]).toBe(checkDigit(vin))
    }
  })

  test('are all different', () => {
    expect(new Set(Array.from({ length: 5_000 }, (_, index) => syntheticVin(index))).size).toBe(5_000)
  })
})

describe('a simulated vehicle', () => {
  test('belongs to a fleet in which most drive, some charge and all send messages', () => {
    const say = (pattern: (event: SimulatedEvent) => boolean): number =>
      vins.filter((vin) => long.some(({ event }) => event.vin === vin && pattern(event))).length
    expect(vins.length).toBe(20)
    expect(say((event) => event.topic === 'state' && event.state === 'driving')).toBeGreaterThan(15)
    expect(say((event) => dataOf(event)['DetailedChargeState'] === 'Charging')).toBeGreaterThan(5)
    expect(say((event) => dataOf(event)['DetailedChargeState'] === 'Complete')).toBeGreaterThan(5)
  })

  test('sends nothing while it is asleep', () => {
    let slept = 0
    const talk = vins.flatMap((vin) => {
      let asleep = false
      return lifeOf(vin).filter(({ event }) => {
        if (event.topic === 'connectivity' && event.status === 'connected') asleep = false
        const talks = asleep && event.topic !== 'connectivity'
        if (event.topic === 'state' && event.state === 'asleep') {
          asleep = true
          slept++
        }
        return talks
      })
    })
    expect(talk).toEqual([])
    expect(slept).toBeGreaterThan(10)
  })

  test('has a new connection id for each connection, and names the one that ends', () => {
    const connectivity = vins
      .flatMap((vin) => lifeOf(vin))
      .flatMap(({ event }) => (event.topic === 'connectivity' ? [event] : []))
    const ids = (status: string): string[] =>
      connectivity.filter((event) => event.status === status).map(({ connectionId }) => connectionId)
    expect(new Set(ids('connected')).size).toBe(ids('connected').length)
    expect(new Set(ids('disconnected')).size).toBe(ids('disconnected').length)
    expect(ids('disconnected').filter((id) => !ids('connected').includes(id))).toEqual([])
    expect(ids('disconnected').length).toBeGreaterThan(10)
  })
})

describe('the hard cases for receivers are in the stream:', () => {
  const lateMs = ({ at, event }: SimulatedMessage): number => at - Date.parse(event.createdAt)

  test('bursts of old messages after a time without a network, in order', () => {
    const bursts = vins.flatMap((vin) => {
      const late = lifeOf(vin).filter((message) => message.event.topic === 'data' && lateMs(message) > 20_000)
      return late.length > 20 ? [late] : []
    })
    expect(bursts.length).toBeGreaterThan(3)
    for (const burst of bursts) {
      const times = burst.map(({ event }) => Date.parse(event.createdAt))
      expect(times).toEqual(times.toSorted((a, b) => a - b))
    }
  })

  test('copies, most of them marked', () => {
    const marked = long.filter(({ event }) => event.meta?.isResend === true)
    const contents = long.map(({ event }) => JSON.stringify({ ...event, meta: undefined }))
    const copies = contents.length - new Set(contents).size
    expect(marked.length).toBeGreaterThan(50)
    expect(copies).toBeGreaterThan(marked.length)
    expect(copies).toBeLessThan(long.length * 0.02)
  })

  test('clocks that are up to five minutes ahead after waking', () => {
    const ahead = long.map((message) => -lateMs(message))
    expect(Math.max(...ahead)).toBeGreaterThan(60_000)
    expect(Math.max(...ahead)).toBeLessThanOrEqual(300_000)
  })

  test('typed values and the text of older firmware, no value at all, and every number of fraction digits', () => {
    const speeds = new Set(
      long.flatMap(({ event }) => ('VehicleSpeed' in dataOf(event) ? [typeof dataOf(event)['VehicleSpeed']] : [])),
    )
    expect(speeds).toEqual(new Set(['number', 'string', 'object']))
    const digits = new Set(long.map(({ event }) => event.createdAt.split('.')[1]?.length ?? 0))
    expect(digits).toEqual(new Set([0, 4, 7, 10]))
  })

  test('alerts that begin and end', () => {
    const alerts = long.flatMap(({ event }) => (event.topic === 'alerts' ? event.alerts : []))
    expect(alerts.some(({ endedAt }) => endedAt === undefined)).toBe(true)
    expect(
      alerts.some(({ endedAt, startedAt }) => endedAt !== undefined && startedAt !== undefined && endedAt > startedAt),
    ).toBe(true)
  })

  test('the recorded sizes: small messages of one or two fields, and sometimes a document of ten kilobytes', () => {
    const data = long.filter(({ event }) => event.topic === 'data')
    const fields = data.reduce((sum, { event }) => sum + Object.keys(dataOf(event)).length, 0) / data.length
    expect(fields).toBeGreaterThan(1.2)
    expect(fields).toBeLessThan(2.2)
    const bytes = long.map(({ event }) => JSON.stringify(event).length).toSorted((a, b) => a - b)
    expect(bytes[bytes.length >> 1]).toBeGreaterThan(90)
    expect(bytes[bytes.length >> 1]).toBeLessThan(180)
    const documents = long
      .filter(({ event }) => event.topic === 'vehicle_data')
      .map(({ event }) => JSON.stringify(event).length)
    expect(Math.min(...documents)).toBeGreaterThan(8_000)
    expect(Math.max(...documents)).toBeLessThan(12_000)
  })

  test('at most two live messages a second', () => {
    for (const vin of vins) {
      const live = lifeOf(vin).filter((message) => message.event.topic === 'data' && lateMs(message) < 1_000)
      const perMinute = new Map<number, number>()
      for (const { at } of live)
        perMinute.set(Math.floor(at / 60_000), (perMinute.get(Math.floor(at / 60_000)) ?? 0) + 1)
      expect(Math.max(...perMinute.values())).toBeLessThanOrEqual(120)
    }
  })
})
