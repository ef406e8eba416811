import type { OtherField } from 'fleethook/normalize'
import type { Duration, NumberField } from 'fleethook/when'

/** It is on for a vehicle whose customer has set a limit. A new limit needs no deploy, a new rule does. */
export type Rule = (Compared | Switched) & {
  /** What the settings of a customer call it. It stays. */
  readonly name: string
  /** How long it must last. Default: it is told at once. */
  readonly for?: Duration
  /** It is told at most once in this time. Default: a day. */
  readonly cooldown?: Duration
  /** Only from one time of the day to another. */
  readonly hours?: readonly [from: string, until: string]
  /** Only while it is not driven. */
  readonly parked?: true
}

type Compared = {
  readonly signal: Exclude<NumberField, OtherField>
  readonly operator: 'below' | 'above'
  /** What a customer can choose, in the unit of the field. */
  readonly limit: readonly [least: number, most: number, unit: string]
  /** A value counts for this time. Default: until the next one, because a parked vehicle repeats nothing. */
  readonly fresh?: Duration
}

/** The limit is 1: it only switches the rule on. */
type Switched = { readonly operator: 'is'; readonly limit?: never } & (
  | { readonly signal: 'Locked'; readonly value: boolean }
  | { readonly signal: 'DetailedChargeState'; readonly value: 'Complete' | 'NoPower' | 'Stopped' }
)

const hour = { hours: 1 }
const night = ['22:00', '06:00'] as const
const percent = [1, 100, 'percent'] as const
const celsius = [-40, 80, 'degrees Celsius'] as const
const bar = [1, 5, 'bar'] as const
// The last speed before a tunnel, or before the vehicle was parked, says nothing of later.
const speed = {
  signal: 'VehicleSpeed',
  operator: 'above',
  for: { seconds: 10 },
  fresh: { seconds: 30 },
  cooldown: hour,
} as const
const unlocked = { signal: 'Locked', operator: 'is', value: false, parked: true } as const
const charge = { signal: 'DetailedChargeState', operator: 'is' } as const

export const rules: readonly Rule[] = [
  { name: 'low_battery', signal: 'BatteryLevel', operator: 'below', limit: percent },
  { name: 'low_at_night', signal: 'BatteryLevel', operator: 'below', limit: percent, hours: night },
  { name: 'full_for_long', signal: 'BatteryLevel', operator: 'above', limit: percent, for: { hours: 12 } },
  { name: 'short_range', signal: 'EstBatteryRange', operator: 'below', limit: [1, 500, 'miles'] },
  { name: 'speeding', ...speed, limit: [5, 200, 'miles per hour'] },
  { name: 'driven_at_night', ...speed, limit: [1, 200, 'miles per hour'], hours: night },
  { name: 'hot_inside', signal: 'InsideTemp', operator: 'above', limit: celsius, for: { minutes: 10 }, cooldown: hour },
  { name: 'cold_inside', signal: 'InsideTemp', operator: 'below', limit: celsius, for: { minutes: 10 } },
  { name: 'frost', signal: 'OutsideTemp', operator: 'below', limit: celsius },
  {
    name: 'hot_battery',
    signal: 'ModuleTempMax',
    operator: 'above',
    limit: celsius,
    for: { minutes: 1 },
    cooldown: hour,
  },
  { name: 'tire_front_left', signal: 'TpmsPressureFl', operator: 'below', limit: bar },
  { name: 'tire_front_right', signal: 'TpmsPressureFr', operator: 'below', limit: bar },
  { name: 'tire_rear_left', signal: 'TpmsPressureRl', operator: 'below', limit: bar },
  { name: 'tire_rear_right', signal: 'TpmsPressureRr', operator: 'below', limit: bar },
  { name: 'service_due', signal: 'Odometer', operator: 'above', limit: [1, 1_000_000, 'miles'] },
  { name: 'left_unlocked', ...unlocked, for: { minutes: 10 }, cooldown: hour },
  { name: 'unlocked_at_night', ...unlocked, for: { minutes: 2 }, hours: night },
  { name: 'charge_stopped', ...charge, value: 'Stopped', for: { minutes: 10 } },
  { name: 'no_power', ...charge, value: 'NoPower', for: { minutes: 10 } },
  { name: 'charged', ...charge, value: 'Complete', cooldown: hour },
]
