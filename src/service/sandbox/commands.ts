import type { JsonObject } from '../../wire/record.ts'
import type { Vehicle } from '../fleet/vehicle.ts'

/** The maker's commands with their parameters `name:type`. One of the names between `|` is enough. */
type Commands = Readonly<Record<string, string>>

const plain = `
  auto_conditioning_start auto_conditioning_stop cancel_software_update charge_max_range charge_port_door_close
  charge_port_door_open charge_standard charge_start charge_stop clear_pin_to_drive_admin close_tonneau door_lock
  door_unlock erase_user_data flash_lights honk_horn media_next_fav media_next_track media_prev_fav media_prev_track
  media_toggle_playback media_volume_down media_volume_up open_tonneau remote_start_drive reset_pin_to_drive_pin
  reset_valet_pin speed_limit_clear_pin_admin stop_tonneau wake_up`

export const vehicleCommands: Commands = {
  ...Object.fromEntries(
    plain
      .trim()
      .split(/\s+/)
      .map((name) => [name, '']),
  ),
  actuate_trunk: 'which_trunk:string',
  add_charge_schedule:
    'days_of_week:string enabled:boolean lat:number lon:number start_enabled:boolean end_enabled:boolean',
  add_precondition_schedule: 'days_of_week:string enabled:boolean lat:number lon:number precondition_time:number',
  adjust_volume: 'volume:number',
  batch_remove_charge_schedules: '',
  batch_remove_precondition_schedules: '',
  guest_mode: 'enable:boolean',
  navigation_gps_request: 'lat:number lon:number',
  navigation_request: 'value:any',
  navigation_sc_request: 'id:number',
  navigation_waypoints_request: 'waypoints:string',
  remote_auto_seat_climate_request: 'auto_seat_position:number auto_climate_on:boolean',
  remote_auto_steering_wheel_heat_climate_request: 'on:boolean',
  remote_boombox: 'sound:number',
  remote_seat_cooler_request: 'seat_position:number seat_cooler_level:number',
  remote_seat_heater_request: 'seat_position|heater:number level|seat_heater_level:number',
  remote_steering_wheel_heat_level_request: 'level:number',
  remote_steering_wheel_heater_request: 'on:boolean',
  remove_charge_schedule: 'id:number',
  remove_precondition_schedule: 'id:number',
  schedule_software_update: 'offset_sec:number',
  set_bioweapon_mode: 'on:boolean manual_override:boolean',
  set_cabin_overheat_protection: 'on:boolean',
  set_charge_limit: 'percent:number',
  set_charging_amps: 'charging_amps:number',
  set_climate_keeper_mode: 'climate_keeper_mode:number',
  set_cop_temp: 'cop_temp:number',
  set_managed_charge_current_request: 'charging_amps:number',
  set_managed_charger_location: 'location:any',
  set_managed_scheduled_charging_time: 'time:number',
  set_pin_to_drive: 'on:boolean',
  set_preconditioning_max: 'on:boolean',
  set_scheduled_charging: 'enable:boolean',
  set_scheduled_departure: 'enable:boolean',
  set_sentry_mode: 'on:boolean',
  set_temps: 'driver_temp|passenger_temp:number',
  set_valet_mode: 'on:boolean',
  set_vehicle_name: 'vehicle_name:string',
  speed_limit_activate: 'pin:string',
  speed_limit_clear_pin: 'pin:string',
  speed_limit_deactivate: 'pin:string',
  speed_limit_set_limit: 'limit_mph:number',
  sun_roof_control: 'state:string',
  take_drivenote: 'note:string',
  trigger_homelink: 'lat:number lon:number',
  upcoming_calendar_entries: 'calendar_data:any',
  window_control: 'command:string',
}

export const energyCommands: Commands = {
  backup: 'backup_reserve_percent:number',
  grid_import_export: 'customer_preferred_export_rule|disallow_charge_from_grid_with_solar_installed:any',
  off_grid_vehicle_charging_reserve: 'off_grid_vehicle_charging_reserve_percent:number',
  operation: 'default_real_mode:string',
  storm_mode: 'enabled:boolean',
  time_of_use_settings: 'tou_settings:any',
}

/** Why a command is refused with `invalid_command`, as a sentence, or `undefined`. */
export function problemWithCommand(commands: Commands, name: string, body: JsonObject): string | undefined {
  const parameters = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (parameters === undefined)
    return `There is no command ${name.replace(/[^\w/]/g, '').slice(0, 60)}. The maker documents the commands.`
  for (const parameter of parameters.split(' ').filter(Boolean)) {
    const [written = '', type = 'any'] = parameter.split(':')
    const names = written.split('|')
    const given = names.find((one) => Object.hasOwn(body, one) && body[one] !== null)
    if (given === undefined)
      return `The command ${name} needs ${names.join(' or ')}${type === 'any' ? '' : `, a ${type}`}. Send it in the JSON body.`
    if (type !== 'any' && typeof body[given] !== type) return `\`${given}\` of the command ${name} must be a ${type}.`
  }
  return undefined
}

interface CommandEffect {
  readonly result: boolean
  readonly reason: string
}

const done: CommandEffect = { result: true, reason: '' }
const refused = (reason: string): CommandEffect => ({ result: false, reason })

const effects: Readonly<Record<string, (vehicle: Vehicle, body: JsonObject) => CommandEffect>> = {
  charge_start({ battery: { charging } }) {
    if (charging === undefined) return refused('disconnected')
    if (charging.state !== 'Stopped') return refused(charging.state === 'Complete' ? 'complete' : 'is_charging')
    charging.state = 'Charging'
    return done
  },
  charge_stop({ battery: { charging } }) {
    if (charging?.state !== 'Charging') return refused('not_charging')
    charging.state = 'Stopped'
    return done
  },
  set_charge_limit(vehicle, { percent }) {
    if (typeof percent !== 'number' || percent < 50 || percent > 100) return refused('invalid_percent')
    return set(vehicle.battery, { chargeLimitPercent: percent })
  },
  door_lock: ({ cabin }) => set(cabin, { locked: true }),
  door_unlock: ({ cabin }) => set(cabin, { locked: false }),
  auto_conditioning_start: ({ cabin }) => set(cabin, { climateOn: true }),
  auto_conditioning_stop: ({ cabin }) => set(cabin, { climateOn: false }),
  set_vehicle_name: (vehicle, { vehicle_name: name }) => set(vehicle, { name: String(name).slice(0, 64) }),
}

/** Carries out a command. A command without a simulated effect is answered as done. */
export function carryOut(vehicle: Vehicle, name: string, body: JsonObject): CommandEffect {
  const effect = Object.hasOwn(effects, name) ? effects[name] : undefined
  return effect === undefined ? done : effect(vehicle, body)
}

function set<Part extends object>(part: Part, change: Partial<Part>): CommandEffect {
  Object.assign(part, change)
  return done
}
