import type { OwnerSettings, Vehicle } from '../fleet/vehicle.ts'
import type { JsonObject } from '../../wire/record.ts'

/** The vehicle's answer to a command that reached it. */
interface CommandEffect {
  readonly result: boolean
  readonly reason: string
}

const done: CommandEffect = { result: true, reason: '' }
const refused = (reason: string): CommandEffect => ({ result: false, reason })

const effects: Readonly<Record<string, (vehicle: Vehicle, body: JsonObject) => CommandEffect>> = {
  charge_start({ charging }) {
    if (charging === undefined) return refused('disconnected')
    if (charging.state === 'Complete') return refused('complete')
    if (charging.state === 'Charging' || charging.state === 'Starting') return refused('is_charging')
    charging.state = 'Charging'
    return done
  },
  charge_stop(vehicle) {
    if (vehicle.charging?.state !== 'Charging') return refused('not_charging')
    vehicle.charging.state = 'Stopped'
    vehicle.charging.watts = 0
    vehicle.watts = 0
    return done
  },
  set_charge_limit(vehicle, { percent }) {
    if (typeof percent !== 'number' || percent < 50 || percent > 100) return refused('invalid_percent')
    if (vehicle.chargeLimitPercent === percent) return refused('already_set')
    vehicle.chargeLimitPercent = percent
    return done
  },
  charge_port_door_open: (vehicle) => set(vehicle, { portOpen: true }),
  charge_port_door_close: (vehicle) =>
    vehicle.charging ? refused('cable_connected') : set(vehicle, { portOpen: false }),
  door_lock: (vehicle) => set(vehicle, { locked: true }),
  door_unlock: (vehicle) => set(vehicle, { locked: false }),
  auto_conditioning_start: (vehicle) => set(vehicle, { climateOn: true }),
  auto_conditioning_stop: (vehicle) => set(vehicle, { climateOn: false }),
  set_temps(vehicle, { driver_temp: driver, passenger_temp: passenger }) {
    const celsius = driver ?? passenger
    if (typeof celsius !== 'number' || celsius < 15 || celsius > 28) return refused('invalid_temperature')
    return set(vehicle, { wantedCelsius: Math.round(celsius * 2) / 2 })
  },
  actuate_trunk: (vehicle, { which_trunk: which }) =>
    which === 'rear'
      ? set(vehicle, { trunkOpen: !vehicle.trunkOpen })
      : which === 'front'
        ? done
        : refused('invalid_trunk'),
  window_control(vehicle, { command }) {
    if (command !== 'vent' && command !== 'close') return refused('invalid_command')
    vehicle.windowOpen = false
    return choose(vehicle, { vented: command === 'vent' })
  },
  set_vehicle_name: (vehicle, { vehicle_name: name }) => set(vehicle, { name: String(name).slice(0, 64) }),
  set_sentry_mode: (vehicle, { on }) => choose(vehicle, { sentry: on === true }),
  set_valet_mode: (vehicle, { on }) => choose(vehicle, { valet: on === true }),
  set_pin_to_drive: (vehicle, { on }) => choose(vehicle, { pinToDrive: on === true }),
  guest_mode: (vehicle, { enable }) => choose(vehicle, { guest: enable === true }),
  set_charging_amps: (vehicle, { charging_amps: amps }) =>
    typeof amps === 'number' && amps >= 1 && amps <= 48
      ? choose(vehicle, { chargingAmps: Math.round(amps) })
      : refused('invalid_amps'),
  set_cabin_overheat_protection: (vehicle, { on, fan_only: fanOnly }) =>
    choose(vehicle, { overheat: on !== true ? 'Off' : fanOnly === true ? 'FanOnly' : 'On' }),
  set_cop_temp(vehicle, { cop_temp: level }) {
    const overheatLimit = (['Low', 'Medium', 'High'] as const)[Number(level)]
    return overheatLimit === undefined ? refused('invalid_level') : choose(vehicle, { overheatLimit })
  },
  set_climate_keeper_mode(vehicle, { climate_keeper_mode: mode }) {
    const keeper = (['Off', 'On', 'Dog', 'Party'] as const)[Number(mode)]
    return keeper === undefined ? refused('invalid_mode') : choose(vehicle, { keeper })
  },
  set_preconditioning_max: (vehicle, { on }) => choose(vehicle, { defrost: on === true }),
  remote_seat_heater_request(vehicle, body) {
    const seat = Number(body['seat_position'] ?? body['heater'])
    const level = Number(body['level'] ?? body['seat_heater_level'])
    const place = [0, 1, 2, undefined, 3, 4][seat]
    if (place === undefined || !isLevel(level)) return refused('invalid_seat')
    return choose(vehicle, { seatHeat: vehicle.settings.seatHeat.map((heat, at) => (at === place ? level : heat)) })
  },
  remote_seat_cooler_request(vehicle, { seat_position: seat, seat_cooler_level: level }) {
    // Seats and levels count from one.
    const place = Number(seat) - 1
    const cool = Number(level) - 1
    if (!(place in vehicle.settings.seatCool) || !isLevel(cool)) return refused('invalid_seat')
    return choose(vehicle, { seatCool: vehicle.settings.seatCool.map((one, at) => (at === place ? cool : one)) })
  },
  remote_steering_wheel_heater_request: (vehicle, { on }) => choose(vehicle, { wheelHeat: on === true ? 3 : 0 }),
  remote_steering_wheel_heat_level_request: (vehicle, { level }) =>
    isLevel(Number(level)) ? choose(vehicle, { wheelHeat: Number(level) }) : refused('invalid_level'),
  adjust_volume: (vehicle, { volume }) =>
    typeof volume === 'number' && volume >= 0 && volume <= 10.333333
      ? choose(vehicle, { volume: Number(volume.toFixed(4)) })
      : refused('invalid_volume'),
  media_toggle_playback: (vehicle) => choose(vehicle, { mediaPaused: !vehicle.settings.mediaPaused }),
  speed_limit_activate: (vehicle) => choose(vehicle, { speedLimit: true }),
  speed_limit_deactivate: (vehicle) => choose(vehicle, { speedLimit: false }),
  speed_limit_set_limit: (vehicle, { limit_mph: limit }) =>
    typeof limit === 'number' && limit >= 50 && limit <= 120
      ? choose(vehicle, { speedLimitMph: limit })
      : refused('invalid_limit'),
  schedule_software_update: (vehicle, { offset_sec: seconds }) =>
    choose(vehicle, { updateAt: vehicle.now + 1_000 * Math.max(0, Number(seconds)) }),
  cancel_software_update: (vehicle) => choose(vehicle, { updateAt: undefined }),
}

const isLevel = (level: number): boolean => Number.isInteger(level) && level >= 0 && level <= 3

/** Carries out a command. A command without a simulated effect is answered as done. */
export function carryOut(vehicle: Vehicle, name: string, body: JsonObject): CommandEffect {
  const effect = Object.hasOwn(effects, name) ? effects[name] : undefined
  return effect === undefined ? done : effect(vehicle, body)
}

function set(vehicle: Vehicle, change: Partial<Vehicle>): CommandEffect {
  Object.assign(vehicle, change)
  return done
}

function choose(vehicle: Vehicle, change: Partial<OwnerSettings>): CommandEffect {
  Object.assign(vehicle.settings, change)
  return done
}
