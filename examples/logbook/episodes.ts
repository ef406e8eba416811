import { any, episode, growth, is, path, span } from 'fleethook/when'

export const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  measures: {
    odometer: span('Odometer'),
    energy: span('EnergyRemaining'),
    place: span('Location'),
    route: path({ everyMeters: 100 }),
  },
})

export const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  joins: { minutes: 15 }, // clouds
  splits: is('DetailedChargeState', 'Disconnected'),
  silence: { hours: 6 },
  measures: {
    percent: span('BatteryLevel'),
    place: span('Location'),
    atHome: span('LocatedAtHome'),
    ac: growth('ACChargingEnergyIn', { startsAt: 0 }),
    dc: growth('DCChargingEnergyIn', { startsAt: 0 }),
  },
})

/** What the receiver keeps of each vehicle. Stream at least these. */
export const fields = [
  'Gear',
  'Odometer',
  'EnergyRemaining',
  'Location',
  'DetailedChargeState',
  'BatteryLevel',
  'LocatedAtHome',
  'ACChargingEnergyIn',
  'DCChargingEnergyIn',
] as const
