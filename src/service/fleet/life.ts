import { drive } from './drive.ts'
import { changeState, connect, dataMessage, disconnect, documentMessage, errorMessage, type Steps } from './messages.ts'
import { chargingWatts, courseTo, fill, spend, warm } from './physics.ts'
import { between, chance, oneOf, whole } from './random.ts'
import { type Charging, socPercent, type Vehicle } from './vehicle.ts'

export type StartActivity = 'leave' | 'charge' | 'stand' | 'sleep'

/** Everything that one vehicle does and sends. It never ends. */
export function* life(vehicle: Vehicle, activity?: StartActivity): Steps {
  yield* begin(vehicle, activity)
  yield* goOn(vehicle)
}

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

/** The simulation begins in the middle of the day: some vehicles leave at once, some charge, some stand, some sleep. */
function* begin(vehicle: Vehicle, given?: StartActivity): Steps {
  const { random } = vehicle
  const activity = given ?? oneOf(random, ['leave', 'leave', 'leave', 'leave', 'charge', 'charge', 'stand', 'sleep'])
  const seconds = activity === 'sleep' ? between(random, 300, 5_400) : between(random, 0, 20)
  if (given === undefined) vehicle.now += 1_000 * seconds
  else yield* slumber(vehicle, seconds)
  yield* wake(vehicle)
  if (activity === 'charge') yield* charge(vehicle, oneOf(random, ['ac', 'dc']))
  if (activity === 'stand') yield* park(vehicle, between(random, 5, 30))
}

/** Plugs in, charges to the limit, stays plugged in for a while, and unplugs. */
function* charge(vehicle: Vehicle, kind: 'ac' | 'dc'): Steps {
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

/** A command may have stopped it. */
function isStopped({ state }: Charging): boolean {
  return state === 'Stopped'
}

function* wait(vehicle: Vehicle, seconds: number): Steps {
  for (let left = seconds; left > 0; left -= vehicle.stepSeconds) {
    const step = Math.min(left, vehicle.stepSeconds)
    vehicle.now += step * 1_000
    warm(vehicle, step)
    yield dataMessage(vehicle)
  }
}

function* park(vehicle: Vehicle, minutes: number): Steps {
  const until = vehicle.now + minutes * 60_000
  while (vehicle.now < until) yield* idle(vehicle, Math.min(15, vehicle.stepSeconds))
}

/** Falls asleep, and sends nothing until it wakes. */
export function* sleep(vehicle: Vehicle, minutes: number): Steps {
  yield changeState(vehicle, 'asleep')
  yield disconnect(vehicle, vehicle.now + between(vehicle.random, 500, 3_000))
  vehicle.sent = []
  vehicle.streaming?.sent.clear()
  vehicle.tiresSeen = false
  vehicle.watts = 0
  yield* slumber(vehicle, minutes * 60)
}

function* slumber(vehicle: Vehicle, seconds: number): Steps {
  const longest = 10 * vehicle.stepSeconds
  for (let left = seconds; left > 0; left -= longest) {
    const step = Math.min(left, longest)
    vehicle.now += step * 1_000
    vehicle.watts = 0
    spend(vehicle, step, false)
    warm(vehicle, step)
    yield undefined
  }
}

/** Connects, reports state and all values, sometimes the full document. Its clock can be minutes ahead for a while. */
export function* wake(vehicle: Vehicle): Steps {
  const { random } = vehicle
  vehicle.clockAheadMs = chance(random, 0.25) ? whole(random, 4_000, 290_000) : 0
  yield connect(vehicle, 'cellular', vehicle.now)
  yield changeState(vehicle, 'online')
  vehicle.now += 700
  const everything = dataMessage(vehicle)
  if (everything) yield everything
  if (courseTo(vehicle, vehicle.home).meters < 100 && chance(random, 0.5)) {
    const cellular = vehicle.connectionId
    yield connect(vehicle, 'wifi', vehicle.now + 2_000)
    const wifi = vehicle.connectionId
    vehicle.connectionId = cellular
    vehicle.networkInterface = 'cellular'
    yield disconnect(vehicle, vehicle.now + 5_000)
    vehicle.connectionId = wifi
    vehicle.networkInterface = 'wifi'
  }
  if (chance(random, 0.25)) yield documentMessage(vehicle)
  if (chance(random, 0.08)) yield errorMessage(vehicle)
  for (let steps = whole(random, 1, 4); steps > 0; steps--) yield* idle(vehicle, 4)
  vehicle.clockAheadMs = 0
}

function* idle(vehicle: Vehicle, seconds: number): Steps {
  vehicle.now += seconds * 1_000
  vehicle.watts = 0
  spend(vehicle, seconds)
  warm(vehicle, seconds)
  yield dataMessage(vehicle)
}
