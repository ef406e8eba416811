import {
  alertMessage,
  changeState,
  dataMessage,
  errorMessage,
  loseNetwork,
  startAlert,
  type Steps,
} from './messages.ts'
import { courseTo, move, placeAt, spend, warm } from './physics.ts'
import { between, chance, oneOf, whole } from './random.ts'
import type { Vehicle } from './vehicle.ts'

const places: readonly [string, ...string[]] = [
  'Market Square',
  'Office',
  'Lakeside',
  'North Station',
  'Airport',
  'Hospital',
]
const townSpeed = 13.6

/** A trip from unlocking to locking. From home it goes to a random place, and from anywhere else it goes home. */
export function* drive(vehicle: Vehicle): Steps {
  plan(vehicle)
  yield* getIn(vehicle)
  yield changeState(vehicle, 'driving')
  yield* reverse(vehicle)
  yield* travel(vehicle)
  yield* getOut(vehicle)
}

function plan(vehicle: Vehicle): void {
  const { random } = vehicle
  const origin = { latitude: vehicle.latitude, longitude: vehicle.longitude }
  const atHome = courseTo(vehicle, vehicle.home).meters < 300
  const reach = Math.min(45_000, (vehicle.energyWh / 0.2) * 0.3)
  const destination = atHome
    ? placeAt(vehicle, between(random, 1_500, Math.max(3_000, reach)), between(random, 0, 2 * Math.PI))
    : vehicle.home
  const metersLeft = courseTo(vehicle, destination).meters
  vehicle.trip = { origin, destination, name: atHome ? oneOf(random, places) : 'Home', metersLeft }
}

function* getIn(vehicle: Vehicle): Steps {
  vehicle.locked = false
  yield* still(vehicle, between(vehicle.random, 2, 5))
  vehicle.driverDoorOpen = true
  vehicle.passengerBuckled = chance(vehicle.random, 0.3)
  yield* still(vehicle, between(vehicle.random, 3, 7))
  vehicle.driverDoorOpen = false
  vehicle.occupied = true
  vehicle.climateOn = true
  yield* still(vehicle, between(vehicle.random, 2, 6))
  vehicle.buckled = true
  yield* still(vehicle, between(vehicle.random, 2, 9))
}

function* reverse(vehicle: Vehicle): Steps {
  if (chance(vehicle.random, 0.6)) {
    vehicle.gear = 'R'
    for (let seconds = whole(vehicle.random, 4, 8); seconds > 0; seconds--) yield* roll(vehicle, 1.3)
    while (vehicle.metersPerSecond > 0) yield* roll(vehicle, 0)
  }
  vehicle.gear = 'D'
}

function* travel(vehicle: Vehicle): Steps {
  const { random, trip } = vehicle
  if (!trip) return
  const length = trip.metersLeft
  const openRoad = length < 5_000 ? 15.5 : length < 15_000 ? 23 : between(random, 26, 33)
  const tunnelAt = chance(random, 0.2) ? between(random, 0.1, 0.9) * length : -1
  const tunnelSeconds = chance(random, 0.1) ? between(random, 600, 2_400) : between(random, 25, 240)
  const activeAlert = chance(random, 0.15) ? startAlert(vehicle) : undefined
  if (activeAlert) yield alertMessage(vehicle, activeAlert, false)
  const alertEndsAt = length * between(random, 0.2, 0.8)
  let isAlerting = activeAlert !== undefined
  let closest = trip.metersLeft
  let tunnelAhead = tunnelAt > 0
  let redLightSeconds = 0

  while (trip.metersLeft > 6 && !(closest < 90 && trip.metersLeft > closest + 0.5)) {
    closest = Math.min(closest, trip.metersLeft)
    const inTown = trip.metersLeft < 1_600 || length - trip.metersLeft < 1_600
    if (redLightSeconds === 0 && inTown && chance(random, 1 / 70)) redLightSeconds = whole(random, 12, 45)
    const brakingFor = redLightSeconds > 0 ? 0 : Math.sqrt(2 * 1.1 * Math.max(1, trip.metersLeft - 4))
    if (redLightSeconds > 0) redLightSeconds--
    const cruise = (inTown ? townSpeed : openRoad) * (1 + 0.06 * Math.sin(vehicle.odometerMeters / 350))
    yield* roll(vehicle, Math.min(cruise, brakingFor))

    if (tunnelAhead && trip.metersLeft < tunnelAt) {
      tunnelAhead = false
      yield* loseNetwork(vehicle, tunnelSeconds * 1_000)
    }
    if (activeAlert && isAlerting && trip.metersLeft < alertEndsAt) {
      isAlerting = false
      yield alertMessage(vehicle, activeAlert, true)
    }
    if (chance(random, 1 / 2_500)) yield errorMessage(vehicle)
  }
  while (vehicle.metersPerSecond > 0) yield* roll(vehicle, 0)
  if (activeAlert && isAlerting) yield alertMessage(vehicle, activeAlert, true)
}

function* getOut(vehicle: Vehicle): Steps {
  vehicle.gear = 'P'
  vehicle.trip = undefined
  vehicle.acceleration = 0
  vehicle.lateral = 0
  yield* still(vehicle, between(vehicle.random, 1, 3))
  yield changeState(vehicle, 'online')
  vehicle.buckled = false
  yield* still(vehicle, between(vehicle.random, 2, 6))
  vehicle.driverDoorOpen = true
  vehicle.occupied = false
  yield* still(vehicle, between(vehicle.random, 3, 8))
  vehicle.passengerBuckled = false
  vehicle.driverDoorOpen = false
  vehicle.climateOn = false
  if (chance(vehicle.random, 0.2)) {
    vehicle.trunkOpen = true
    yield* still(vehicle, between(vehicle.random, 10, 30))
    vehicle.trunkOpen = false
  }
  yield* still(vehicle, between(vehicle.random, 3, 10))
  vehicle.locked = chance(vehicle.random, 0.97)
  yield* still(vehicle, 2)
}

function* roll(vehicle: Vehicle, wantedMetersPerSecond: number): Steps {
  const seconds = between(vehicle.random, 0.94, 1.06)
  move(vehicle, seconds, wantedMetersPerSecond)
  yield* pass(vehicle, seconds)
}

function* still(vehicle: Vehicle, seconds: number): Steps {
  vehicle.watts = 0
  for (let left = seconds; left > 0; left -= vehicle.stepSeconds)
    yield* pass(vehicle, Math.min(left, vehicle.stepSeconds))
}

function* pass(vehicle: Vehicle, seconds: number): Steps {
  vehicle.now += seconds * 1_000
  spend(vehicle, seconds)
  warm(vehicle, seconds)
  yield dataMessage(vehicle)
}
