import { any, curve, drives, energy, episode, fact, is, last, path, span } from 'fleethook/when'

/** Who has the vehicle, as the table `bookings` says it. */
export const customer = fact('customer', 'string')

export const trip = episode('trip', {
  during: drives(), // by its gear, or by its speed where it has none
  by: [customer], // a handover ends it, and begins the next one
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  tellsEach: { minutes: 1 }, // so that its row is there while it lasts
  measures: {
    odometer: span('Odometer'),
    energy: span('EnergyRemaining'),
    place: span('Location'),
    route: path({ everyMeters: 100 }),
  },
})
export type Trip = ReturnType<typeof trip.in>[number]

export const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  by: [customer],
  joins: { minutes: 15 }, // clouds
  splits: is('DetailedChargeState', 'Disconnected'),
  silence: { hours: 6 },
  tellsEach: { minutes: 1 },
  measures: {
    energy: energy(), // what the socket gave with AC, and what the battery got with DC
    socket: curve('ACChargingEnergyIn'), // by quarter hours, for prices that change
    battery: curve('DCChargingEnergyIn'),
    percent: span('BatteryLevel'),
    place: last('Location'),
    atHome: last('LocatedAtHome'),
  },
})
export type Charge = ReturnType<typeof charge.in>[number]

/** What the receiver keeps of each vehicle. Stream at least these. */
export const fields = [
  'Gear',
  'VehicleSpeed',
  'Odometer',
  'EnergyRemaining',
  'Location',
  'DetailedChargeState',
  'BatteryLevel',
  'LocatedAtHome',
  'ACChargingEnergyIn',
  'DCChargingEnergyIn',
] as const
