import { expect, test } from 'vitest'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import type { SimulatedMessage } from '../../src/service/fleet/messages.ts'
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

test('a fleet differs for another seed, and is in the order in which the service would post it', () => {
  expect(take(300, { seed: 8 })).not.toEqual(take(300))
  for (const [index, { at }] of long.entries()) expect(at).toBeGreaterThanOrEqual(long[index - 1]?.at ?? startAt)
})

test('has every topic in the first thousand messages of the command line’s default seed', () => {
  const topics = new Set(take(1_000, { vins: 25, seed: 1 }).map(({ event }) => event.topic))
  expect(topics.size).toBe(6)
})

test('VINs differ, and have seventeen characters, no I, O or Q, and a valid check digit', () => {
  const vins = Array.from({ length: 5_000 }, (_, index) => syntheticVin(index * 199))
  expect(new Set(vins).size).toBe(vins.length)
  for (const vin of vins) {
    expect(vin).toMatch(/^[0-9A-HJ-NPR-Z]{17}$/)
    expect(vin[8]).toBe(checkDigit(vin))
  }
})

test('the hard cases for receivers are in the stream: late bursts, copies, fast clocks, old firmware and alerts that end', () => {
  const lateMs = long.map(({ at, event }) => at - Date.parse(event.createdAt))
  expect(lateMs.filter((ms) => ms > 20_000).length).toBeGreaterThan(60)
  expect(Math.max(...lateMs.map((ms) => -ms))).toBeGreaterThan(60_000)
  expect(Math.max(...lateMs.map((ms) => -ms))).toBeLessThanOrEqual(300_000)
  const marked = long.filter(({ event }) => event.meta?.isResend === true).length
  const contents = long.map(({ event }) => JSON.stringify({ ...event, meta: undefined }))
  expect(marked).toBeGreaterThan(50)
  expect(contents.length - new Set(contents).size).toBeGreaterThan(marked)
  const speeds = long.flatMap(({ event }) => ('data' in event ? [typeof event.data['VehicleSpeed']] : []))
  expect(new Set(speeds)).toEqual(new Set(['undefined', 'number', 'string', 'object']))
  const alerts = long.flatMap(({ event }) => (event.topic === 'alerts' ? event.alerts : []))
  expect(new Set(alerts.map(({ endedAt }) => endedAt === undefined))).toEqual(new Set([true, false]))
})
