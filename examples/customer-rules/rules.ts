import type { OtherField } from 'fleethook/normalize'
import type { Duration, NumberField } from 'fleethook/when'

/** It is on for a vehicle whose customer has set a limit. A new limit needs no deploy, a new rule does. */
export type Rule = Compared & {
  /** What the settings of a customer call it. It stays. */
  readonly name: string
  /** How long it must last. Default: it is told at once. */
  readonly for?: Duration
  /** It is told at most once in this time. Default: a day. */
  readonly cooldown?: Duration
  /** Only from one time of the day to another. */
  readonly hours?: readonly [from: string, until: string]
}

/** With `is`, the limit only switches the rule on. */
type Compared =
  | { readonly signal: Exclude<NumberField, OtherField>; readonly operator: 'below' | 'above' }
  | { readonly signal: 'Locked'; readonly operator: 'is'; readonly value: boolean }
  | {
      readonly signal: 'DetailedChargeState'
      readonly operator: 'is'
      readonly value: 'Complete' | 'NoPower' | 'Stopped'
    }

const hour = { hours: 1 }
const night = ['22:00', '06:00'] as const

/** Limits are in the units of the fields: percent, miles, miles per hour, degrees Celsius, bar. */
export const rules: readonly Rule[] = [
  { name: 'low_battery', signal: 'BatteryLevel', operator: 'below' },
  { name: 'low_at_night', signal: 'BatteryLevel', operator: 'below', hours: night },
  { name: 'full_for_long', signal: 'BatteryLevel', operator: 'above', for: { hours: 12 } },
  { name: 'short_range', signal: 'EstBatteryRange', operator: 'below' },
  { name: 'speeding', signal: 'VehicleSpeed', operator: 'above', for: { seconds: 10 }, cooldown: hour },
  { name: 'driven_at_night', signal: 'VehicleSpeed', operator: 'above', hours: night, cooldown: hour },
  { name: 'hot_inside', signal: 'InsideTemp', operator: 'above', for: { minutes: 10 }, cooldown: hour },
  { name: 'cold_inside', signal: 'InsideTemp', operator: 'below', for: { minutes: 10 } },
  { name: 'frost', signal: 'OutsideTemp', operator: 'below' },
  { name: 'hot_battery', signal: 'ModuleTempMax', operator: 'above', for: { minutes: 1 }, cooldown: hour },
  { name: 'tire_front_left', signal: 'TpmsPressureFl', operator: 'below' },
  { name: 'tire_front_right', signal: 'TpmsPressureFr', operator: 'below' },
  { name: 'tire_rear_left', signal: 'TpmsPressureRl', operator: 'below' },
  { name: 'tire_rear_right', signal: 'TpmsPressureRr', operator: 'below' },
  { name: 'service_due', signal: 'Odometer', operator: 'above', cooldown: { days: 30 } },
  { name: 'left_unlocked', signal: 'Locked', operator: 'is', value: false, for: { minutes: 10 }, cooldown: hour },
  { name: 'unlocked_at_night', signal: 'Locked', operator: 'is', value: false, for: { minutes: 2 }, hours: night },
  { name: 'charge_stopped', signal: 'DetailedChargeState', operator: 'is', value: 'Stopped', for: { minutes: 10 } },
  { name: 'no_power', signal: 'DetailedChargeState', operator: 'is', value: 'NoPower', for: { minutes: 10 } },
  { name: 'charged', signal: 'DetailedChargeState', operator: 'is', value: 'Complete', cooldown: hour },
]
