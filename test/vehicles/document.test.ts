import { builtInFields } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import { documentFields, documentValues } from '../../src/vehicles/document.ts'

/** The shape of recorded documents, with made-up values. */
const document = {
  vin: '0FLEETV14T0000001',
  state: 'online',
  charge_state: {
    battery_level: 71,
    charge_limit_soc: 80,
    charge_port_door_open: true,
    charge_port_latch: 'Engaged',
    charging_state: 'Charging',
    conn_charge_cable: '<invalid>',
    fast_charger_present: false,
    timestamp: 1_764_000_000_000,
  },
  drive_state: {
    active_route_destination: null,
    gps_as_of: 1_763_999_990,
    latitude: 52.5,
    longitude: 13.4,
    shift_state: null,
    speed: null,
    timestamp: 1_764_000_000_000,
  },
  vehicle_state: {
    ...{ df: 1, dr: 0, pf: 0, pr: 0, ft: 0, rt: 0 },
    fd_window: 1,
    locked: false,
    odometer: 12_345.678,
    rd_window: 0,
    sentry_mode: true,
    timestamp: 1_764_000_000_000,
  },
}

const createdMs = 1_764_000_001_000
const read = (given: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries([...documentValues(given, createdMs)].map(({ field, value }) => [field, value]))

describe('a vehicle_data document', () => {
  test('gives telemetry fields their values, spelled as in the telemetry', () => {
    expect(read(document)).toMatchObject({
      BatteryLevel: 71,
      ChargePortLatch: 'Engaged',
      DestinationName: null,
      DetailedChargeState: 'Charging',
      DoorState: {
        ...{ driverFront: true, driverRear: false, passengerFront: false },
        ...{ passengerRear: false, trunkFront: false, trunkRear: false },
      },
      Gear: 'P',
      Location: { latitude: 52.5, longitude: 13.4 },
      Locked: false,
      Odometer: 12_345.678,
      RdWindow: 'Closed',
    })
  })

  test('gives a field no value where it says less than the telemetry', () => {
    // A document does not distinguish an open window from a partly open one, or an armed sentry from an aware one.
    for (const field of ['FdWindow', 'SentryMode', 'ChargingCableType'])
      expect(read(document)).not.toHaveProperty(field)
  })

  test('has the times of its sections, never later than the document', () => {
    const times = Object.fromEntries([...documentValues(document, createdMs)].map(({ field, atMs }) => [field, atMs]))
    expect(times).toMatchObject({ BatteryLevel: 1_764_000_000_000, Location: 1_763_999_990_000 })
    const ahead = { charge_state: { battery_level: 5, timestamp: createdMs + 60_000 } }
    expect([...documentValues(ahead, createdMs)][0]?.atMs).toBe(createdMs)
  })

  test.each([[{}], [{ charge_state: null }], [{ charge_state: [] }], [{ vehicle_state: { df: 'open' } }]])(
    'of another shape gives no values: %j',
    (given) => expect(read(given)).toEqual({}),
  )

  test('maps each member of the table to a field of the catalogue', () => {
    const names = Object.values(documentFields)
      .flatMap((members) => Object.values(members))
      .map((entry) => (typeof entry === 'string' ? entry : 'field' in entry ? entry.field : entry[0]))
    for (const name of names) expect(Object.keys(builtInFields)).toContain(name)
    expect(names.length).toBeGreaterThan(40)
  })
})
