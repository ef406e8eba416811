import type { Vehicle } from '../fleet/vehicle.ts'
import type { JsonObject } from '../../wire/record.ts'

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
    return set(vehicle, { vented: command === 'vent' })
  },
  set_vehicle_name: (vehicle, { vehicle_name: name }) => set(vehicle, { name: String(name).slice(0, 64) }),
  set_sentry_mode: (vehicle, { on }) => set(vehicle, { sentry: on === true }),
  set_charging_amps: (vehicle, { charging_amps: amps }) =>
    typeof amps === 'number' && amps >= 1 && amps <= 48
      ? set(vehicle, { chargingAmps: Math.round(amps) })
      : refused('invalid_amps'),
}

/** Carries out a command. A command without a simulated effect is answered as done. */
export function carryOut(vehicle: Vehicle, name: string, body: JsonObject): CommandEffect {
  const effect = Object.hasOwn(effects, name) ? effects[name] : undefined
  return effect === undefined ? done : effect(vehicle, body)
}

function set(vehicle: Vehicle, change: Partial<Vehicle>): CommandEffect {
  Object.assign(vehicle, change)
  return done
}
