import { spend, warm } from './battery.ts'
import { vehicleDocument } from './document.ts'
import { courseTo } from './motion.ts'
import { connect, disconnect } from './network.ts'
import { between, chance, whole } from './random.ts'
import { changes, changeState, post, vehicleTime } from './say.ts'
import type { Steps } from './simulated.ts'
import { fault } from './trouble.ts'
import type { Vehicle } from './vehicle.ts'

/** Stands parked and awake. */
export function* park(vehicle: Vehicle, minutes: number): Steps {
  const until = vehicle.now + minutes * 60_000
  while (vehicle.now < until) yield* idle(vehicle, Math.min(15, vehicle.stepSeconds))
}

/** Says that it falls asleep, and then nothing for a long while. */
export function* sleep(vehicle: Vehicle, minutes: number): Steps {
  yield changeState(vehicle, 'asleep')
  yield disconnect(vehicle, vehicle.now + between(vehicle.random, 500, 3_000))
  vehicle.said = []
  vehicle.streaming?.said.clear()
  vehicle.tyresSeen = false
  vehicle.watts = 0
  yield* slumber(vehicle, minutes * 60)
}

/** Says nothing. */
export function* slumber(vehicle: Vehicle, seconds: number): Steps {
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

/**
 * Comes back: a connection, at home often a second one over wifi, the state, everything it knows in one large message, and
 * now and then the full document. Until the first time signal its clock can be minutes ahead.
 */
export function* wake(vehicle: Vehicle): Steps {
  const { random } = vehicle
  vehicle.clockAheadMs = chance(random, 0.25) ? whole(random, 4_000, 290_000) : 0
  yield connect(vehicle, 'cellular', vehicle.now)
  yield changeState(vehicle, 'online')
  vehicle.now += 700
  const everything = changes(vehicle)
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
  if (chance(random, 0.25)) yield* document(vehicle)
  if (chance(random, 0.08)) yield fault(vehicle)
  for (let look = whole(random, 1, 4); look > 0; look--) yield* idle(vehicle, 4)
  vehicle.clockAheadMs = 0
}

function* document(vehicle: Vehicle): Steps {
  yield post(vehicle, {
    topic: 'vehicle_data',
    vin: vehicle.vin,
    createdAt: vehicleTime(vehicle),
    vehicleData: vehicleDocument(vehicle),
  })
}

function* idle(vehicle: Vehicle, seconds: number): Steps {
  vehicle.now += seconds * 1_000
  vehicle.watts = 0
  spend(vehicle, seconds)
  warm(vehicle, seconds)
  yield changes(vehicle)
}
