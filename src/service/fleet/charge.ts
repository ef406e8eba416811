import { chargingWatts, fill, warm } from './battery.ts'
import { between, chance, oneOf } from './random.ts'
import { changes } from './say.ts'
import type { Steps } from './simulated.ts'
import type { Charging, Vehicle } from './vehicle.ts'

/** Plugs in, charges to the limit, stays plugged in for a while, unplugs. */
export function* charge(vehicle: Vehicle, kind: 'ac' | 'dc'): Steps {
  const { random } = vehicle
  const maxWatts =
    kind === 'ac' ? oneOf(random, [3_700, 7_400, 11_000, 11_000]) : oneOf(random, [50_000, 120_000, 170_000])
  const charging: Charging = { kind, maxWatts, state: 'Disconnected', watts: 0, energyInWh: 0 }
  vehicle.portOpen = true
  yield* wait(vehicle, 4)
  vehicle.charging = charging
  charging.state = 'Starting'
  yield* wait(vehicle, between(random, 3, 12))
  charging.state = 'Charging'
  charging.watts = chargingWatts(vehicle)
  for (let full = false; !full;) {
    const seconds = Math.min(between(random, 4, 7), vehicle.stepSeconds)
    if (!isStopped(charging)) full = fill(vehicle, seconds)
    yield* wait(vehicle, seconds)
  }
  charging.state = 'Complete'
  charging.watts = 0
  vehicle.watts = 0
  yield* wait(vehicle, 1)
  const minutes = kind === 'ac' && chance(random, 0.5) ? between(random, 10, 60) : between(random, 1, 8)
  for (let minute = 0; minute < minutes; minute++) yield* wait(vehicle, 60)
  charging.state = 'Disconnected'
  vehicle.charging = undefined
  yield* wait(vehicle, 3)
  vehicle.portOpen = false
  yield* wait(vehicle, 2)
}

/** Somebody else may have stopped it: a command. */
function isStopped({ state }: Charging): boolean {
  return state === 'Stopped'
}

function* wait(vehicle: Vehicle, seconds: number): Steps {
  for (let left = seconds; left > 0; left -= vehicle.stepSeconds) {
    const step = Math.min(left, vehicle.stepSeconds)
    vehicle.now += step * 1_000
    warm(vehicle, step)
    yield changes(vehicle)
  }
}
