import { charge } from './charge.ts'
import { drive } from './drive.ts'
import { courseTo } from './motion.ts'
import { between, chance, oneOf } from './random.ts'
import { park, sleep, wake } from './rest.ts'
import type { Messages } from './simulated.ts'
import { socPercent, type Vehicle } from './vehicle.ts'

/** Everything that one vehicle ever says. */
export function* life(vehicle: Vehicle): Messages {
  const { random } = vehicle
  yield* begin(vehicle)
  for (;;) {
    yield* drive(vehicle)
    const soc = socPercent(vehicle)
    const atHome = courseTo(vehicle, vehicle.home).meters < 300
    if (soc < 30) yield* charge(vehicle, 'dc')
    else if (atHome && soc < vehicle.chargeLimitPercent - 8 && chance(random, 0.6)) yield* charge(vehicle, 'ac')
    yield* park(vehicle, between(random, 2, 12))
    if (chance(random, 0.7)) {
      yield* sleep(vehicle, between(random, 20, 300))
      yield* wake(vehicle)
    }
  }
}

// The fleet is met in the middle of its day: some leave at once, some charge, some stand, some sleep on.
function* begin(vehicle: Vehicle): Messages {
  const { random } = vehicle
  const habit = oneOf(random, ['leave', 'leave', 'leave', 'leave', 'charge', 'charge', 'stand', 'sleep'])
  vehicle.now += 1_000 * (habit === 'sleep' ? between(random, 300, 5_400) : between(random, 0, 20))
  yield* wake(vehicle)
  if (habit === 'charge') yield* charge(vehicle, oneOf(random, ['ac', 'dc']))
  if (habit === 'stand') yield* park(vehicle, between(random, 5, 30))
}
