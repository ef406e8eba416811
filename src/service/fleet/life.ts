import { charge } from './charge.ts'
import { drive } from './drive.ts'
import { courseTo } from './motion.ts'
import { between, chance, oneOf } from './random.ts'
import { park, sleep, slumber, wake } from './rest.ts'
import type { Steps } from './simulated.ts'
import { socPercent, type Vehicle } from './vehicle.ts'

/** What a vehicle is at when it is first met. */
export type Habit = 'leave' | 'charge' | 'stand' | 'sleep'

/** Everything that one vehicle ever does and says. */
export function* life(vehicle: Vehicle, habit?: Habit): Steps {
  yield* begin(vehicle, habit)
  yield* goOn(vehicle)
}

/** Days like any other, of a vehicle that is awake. */
export function* goOn(vehicle: Vehicle): Steps {
  const { random } = vehicle
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
function* begin(vehicle: Vehicle, given?: Habit): Steps {
  const { random } = vehicle
  const habit = given ?? oneOf(random, ['leave', 'leave', 'leave', 'leave', 'charge', 'charge', 'stand', 'sleep'])
  const seconds = habit === 'sleep' ? between(random, 300, 5_400) : between(random, 0, 20)
  if (given === undefined) vehicle.now += 1_000 * seconds
  else yield* slumber(vehicle, seconds)
  yield* wake(vehicle)
  if (habit === 'charge') yield* charge(vehicle, oneOf(random, ['ac', 'dc']))
  if (habit === 'stand') yield* park(vehicle, between(random, 5, 30))
}
