import {
  alertMessage,
  changeState,
  connect,
  dataMessage,
  disconnect,
  documentMessage,
  errorMessage,
  loseNetwork,
  startAlert,
  type Steps,
} from './messages.ts'
import { between, chance, oneOf, whole } from './random.ts'
import { type Charging, courseTo, isAtHome, placeAt, socPercent, type Vehicle } from './vehicle.ts'

export type StartActivity = 'leave' | 'charge' | 'stand' | 'sleep'

/** The longest step of a parked and of a sleeping vehicle, in seconds. A driving vehicle moves every second. */
const parkedStep = 5
const asleepStep = 60

const awakeWatts = 120
const climateWatts = 900
const wattsPerMeterPerSecond = 576

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
    if (soc < 30) yield* charge(vehicle, 'dc')
    else if (isAtHome(vehicle) && soc < vehicle.battery.chargeLimitPercent - 8 && chance(random, 0.6))
      yield* charge(vehicle, 'ac')
    yield* pass(vehicle, 60 * between(random, 2, 12))
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
  yield* slumber(vehicle, activity === 'sleep' ? between(random, 300, 5_400) : between(random, 0, 20))
  yield* wake(vehicle)
  if (activity === 'charge') yield* charge(vehicle, oneOf(random, ['ac', 'dc']))
  if (activity === 'stand') yield* pass(vehicle, 60 * between(random, 5, 30))
}

/** Lets time pass for a vehicle that is parked and awake. */
function* pass(vehicle: Vehicle, seconds: number): Steps {
  for (let left = seconds; left > 0; left -= parkedStep) yield* step(vehicle, Math.min(left, parkedStep))
}

function* step(vehicle: Vehicle, seconds: number): Steps {
  const { battery, cabin, drive } = vehicle
  const { charging } = battery
  vehicle.now += seconds * 1_000
  if (charging?.state === 'Charging') {
    battery.watts = -charging.watts
    charging.energyInWh += (charging.watts * seconds) / 3_600
  } else
    battery.watts = awakeWatts + (cabin.climateOn ? climateWatts : 0) + wattsPerMeterPerSecond * drive.metersPerSecond
  battery.energyWh = Math.max(0, battery.energyWh - (battery.watts * seconds) / 3_600)
  yield dataMessage(vehicle)
}

const places: readonly [string, ...string[]] = ['Market Square', 'Office', 'Lakeside', 'Airport', 'Hospital']

/** A trip from unlocking to locking. From home it goes to a random place, and from anywhere else it goes home. */
function* drive(vehicle: Vehicle): Steps {
  const { random, home, latitude, longitude } = vehicle
  const atHome = isAtHome(vehicle)
  const reach = Math.min(45_000, vehicle.battery.energyWh * 1.5)
  const destination = atHome
    ? placeAt(vehicle, between(random, 1_500, Math.max(3_000, reach)), between(random, 0, 2 * Math.PI))
    : home
  const { meters, radians } = courseTo(vehicle, destination)
  const name = atHome ? oneOf(random, places) : 'Home'
  vehicle.drive.trip = { origin: { latitude, longitude }, destination, name, meters, metersLeft: meters }
  vehicle.drive.headingRadians = radians

  vehicle.cabin.locked = false
  yield* pass(vehicle, between(random, 2, 5))
  vehicle.cabin.driverDoorOpen = true
  yield* pass(vehicle, between(random, 3, 7))
  Object.assign(vehicle.cabin, { driverDoorOpen: false, occupied: true, climateOn: true })
  yield* pass(vehicle, between(random, 4, 15))
  yield changeState(vehicle, 'driving')
  vehicle.drive.gear = 'R'
  yield* pass(vehicle, 3)
  vehicle.drive.gear = 'D'
  yield* travel(vehicle, vehicle.drive.trip)

  Object.assign(vehicle.drive, { gear: 'P', trip: undefined })
  yield* pass(vehicle, between(random, 1, 3))
  yield changeState(vehicle, 'online')
  yield* pass(vehicle, between(random, 2, 6))
  Object.assign(vehicle.cabin, { driverDoorOpen: true, trunkOpen: chance(random, 0.2), occupied: false })
  yield* pass(vehicle, between(random, 3, 30))
  Object.assign(vehicle.cabin, { driverDoorOpen: false, trunkOpen: false, climateOn: false })
  yield* pass(vehicle, between(random, 3, 10))
  vehicle.cabin.locked = chance(random, 0.97)
  yield* pass(vehicle, 2)
}

/** Drives in a straight line. Some trips have a tunnel without a network, or an alert until they end. */
function* travel(vehicle: Vehicle, trip: NonNullable<Vehicle['drive']['trip']>): Steps {
  const { random } = vehicle
  const { meters, origin } = trip
  const cruise = meters < 5_000 ? 15.5 : meters < 15_000 ? 23 : between(random, 26, 33)
  let tunnelAt = chance(random, 0.2) ? between(random, 0.1, 0.9) * meters : -1
  const tunnelSeconds = chance(random, 0.1) ? between(random, 600, 2_400) : between(random, 25, 240)
  const alert = chance(random, 0.15) ? startAlert(vehicle) : undefined
  if (alert) yield alertMessage(vehicle, alert, false)
  while (trip.metersLeft > 1) {
    const wanted = cruise * (1 + 0.06 * Math.sin(trip.metersLeft / 350))
    const braking = Math.max(1, Math.sqrt(2 * trip.metersLeft) - 1)
    vehicle.drive.metersPerSecond = Math.min(wanted, braking, vehicle.drive.metersPerSecond + 1.8, trip.metersLeft)
    trip.metersLeft -= vehicle.drive.metersPerSecond
    vehicle.drive.odometerMeters += vehicle.drive.metersPerSecond
    Object.assign(vehicle, placeAt(origin, meters - trip.metersLeft, vehicle.drive.headingRadians))
    yield* step(vehicle, 1)
    if (trip.metersLeft < tunnelAt) {
      tunnelAt = -1
      yield* loseNetwork(vehicle, tunnelSeconds * 1_000)
    }
    if (chance(random, 1 / 2_500)) yield errorMessage(vehicle)
  }
  vehicle.drive.metersPerSecond = 0
  yield* step(vehicle, 1)
  if (alert) yield alertMessage(vehicle, alert, true)
}

/** Plugs in, charges to the limit, stays plugged in for a while, and unplugs. */
function* charge(vehicle: Vehicle, kind: 'ac' | 'dc'): Steps {
  const { random } = vehicle
  const maxWatts = kind === 'ac' ? oneOf(random, [3_700, 7_400, 11_000]) : oneOf(random, [50_000, 120_000, 170_000])
  const charging: Charging = { kind, maxWatts, state: 'Disconnected', watts: 0, energyInWh: 0 }
  vehicle.battery.portOpen = true
  yield* pass(vehicle, 4)
  vehicle.battery.charging = charging
  charging.state = 'Starting'
  yield* pass(vehicle, between(random, 3, 12))
  charging.state = 'Charging'
  while (socPercent(vehicle) < vehicle.battery.chargeLimitPercent) {
    // The battery takes less as it fills.
    const share = kind === 'ac' ? 1 : Math.min(1, Math.max(0.06, 1 - (socPercent(vehicle) - 45) / 58))
    // A command may have stopped it.
    charging.watts = charging.state === 'Charging' ? maxWatts * share : 0
    yield* step(vehicle, parkedStep)
  }
  Object.assign(charging, { state: 'Complete', watts: 0 })
  yield* pass(vehicle, 60 * between(random, 1, 30))
  charging.state = 'Disconnected'
  vehicle.battery.charging = undefined
  yield* pass(vehicle, 3)
  vehicle.battery.portOpen = false
  yield* pass(vehicle, 2)
}

/** Falls asleep, and sends nothing until it wakes. */
export function* sleep(vehicle: Vehicle, minutes: number): Steps {
  yield changeState(vehicle, 'asleep')
  yield disconnect(vehicle, vehicle.now + between(vehicle.random, 500, 3_000))
  vehicle.link.streaming.sent.clear()
  vehicle.battery.watts = 0
  yield* slumber(vehicle, minutes * 60)
}

function* slumber(vehicle: Vehicle, seconds: number): Steps {
  for (let left = seconds; left > 0; left -= asleepStep) {
    vehicle.now += Math.min(left, asleepStep) * 1_000
    yield undefined
  }
}

/** Connects, reports state and all values, sometimes the full document. Its clock can be minutes ahead for a while. */
export function* wake(vehicle: Vehicle): Steps {
  const { random } = vehicle
  vehicle.link.clockAheadMs = chance(random, 0.25) ? whole(random, 4_000, 290_000) : 0
  yield connect(vehicle, 'cellular', vehicle.now)
  yield changeState(vehicle, 'online')
  vehicle.now += 700
  const everything = dataMessage(vehicle)
  if (everything) yield everything
  if (isAtHome(vehicle) && chance(random, 0.5)) {
    const cellular = vehicle.link.connectionId
    yield connect(vehicle, 'wifi', vehicle.now + 2_000)
    const wifi = vehicle.link.connectionId
    Object.assign(vehicle.link, { connectionId: cellular, networkInterface: 'cellular' })
    yield disconnect(vehicle, vehicle.now + 5_000)
    Object.assign(vehicle.link, { connectionId: wifi, networkInterface: 'wifi' })
  }
  if (chance(random, 0.25)) yield documentMessage(vehicle)
  if (chance(random, 0.08)) yield errorMessage(vehicle)
  yield* pass(vehicle, whole(random, 4, 16))
  vehicle.link.clockAheadMs = 0
}
