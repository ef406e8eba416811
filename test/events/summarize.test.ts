import { createReceiver, summarize, type FleetEvent } from 'fleethook'
import { deliver, message } from 'fleethook/testing'
import { createNormalizer } from 'fleethook/normalize'
import { expect, test } from 'vitest'

const now = new Date('2026-11-21T10:00:01Z')
const vin = '0FLEETV14T0000004'
const createdAt = '2026-11-21T10:00:00.4Z'

const event = (wire: object): FleetEvent => createNormalizer().normalize({ vin, createdAt, ...wire }, now.getTime())

test.each([
  [{ data: { BatteryLevel: 81.4884, Gear: 'D' } }, 'data         BatteryLevel 81.488, Gear D'],
  [{ data: { Location: { latitude: 37.41, longitude: -122.14 } } }, 'data         Location 37.4100 -122.1400'],
  [{ data: { BatteryLevel: null } }, 'data         BatteryLevel none'],
  [{ data: { DoorState: 'DriverFront|TrunkRear' } }, 'data         DoorState driverFront trunkRear'],
  [{ state: 'asleep' }, 'state        asleep'],
  [{ vehicle_data: { charge_state: {} } }, 'vehicle_data a document with 1 section'],
  [
    {
      alerts: [
        { name: 'Low', audiences: [] },
        { name: 'Old', endedAt: createdAt },
      ],
    },
    'alerts       Low began, Old ended',
  ],
  [{ errors: [{ name: 'stream_backpressure' }] }, 'errors       stream_backpressure'],
  [{ status: 'DISCONNECTED', networkInterface: 'WIFI' }, 'connectivity wifi disconnected'],
  [{ weather: 'fair' }, 'unknown      no_topic'],
])('%j is one line', (wire, said) => {
  expect(summarize(event(wire), now)).toBe(`10:00:01             ${vin} service   ${said}`)
})

test('the vehicle’s own time follows the time of handling when they differ', () => {
  const at = (time: string): string => summarize(event({ state: 'online', createdAt: time }), now).slice(0, 20)
  expect(at('2026-11-21T09:59:59.5Z')).toBe('10:00:01            ')
  expect(at('2026-11-21T09:58:30Z')).toBe('10:00:01 (09:58:30) ')
  expect(at('2026-11-20T10:00:01Z')).toBe('10:00:01 2026-11-20 ')
})

test('the line has at most 100 columns, and the number of fields that do not fit', () => {
  const data = Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [`Field${index}`, index]))
  const line = summarize(event({ data }), now)
  expect(line.length).toBeLessThanOrEqual(100)
  expect(line).toMatch(/Field0 0, Field1 1, .*, \+\d+$/)
  const long = summarize(event({ state: 'x'.repeat(1_000), vin: 'y'.repeat(64) }), now)
  expect(long).toHaveLength(100)
  expect(long).toMatch(/…$/)
  expect(summarize(event({ data: { Long: 'z'.repeat(200), Other: 1 } }), now)).toMatch(/z…, \+1$/)
})

test('control characters are escaped wherever they are', () => {
  const line = summarize(event({ data: { 'a\u001b[2Jb': 1, 'c\nd': 'e\u202ef' } }), now)
  expect(line).toContain('a\\u001b[2Jb')
  expect(line).toContain('c\\u000ad e\\u202ef')
})

test('a gap says since when messages may be missing', async () => {
  const lines: string[] = []
  const receiver = createReceiver({ secret: 'a-long-random-value', limits: { pendingMessages: 1 } })
    .on('state', () => new Promise((resolve) => setTimeout(resolve, 20)))
    .on('gap', (gap) => void lines.push(summarize(gap)))
  await Promise.all([1, 2, 3].map(() => deliver(receiver, message.state('online'), { secret: 'a-long-random-value' })))
  await expect.poll(() => lines).toHaveLength(1)
  expect(lines[0]).toMatch(/gap +[12] missing \(inbox_full\), since \d\d:\d\d:\d\d$/)
})
