import { chance, oneOf, whole } from './random.ts'
import { post, vehicleTime } from './say.ts'
import type { SimulatedMessage } from './simulated.ts'
import type { Vehicle } from './vehicle.ts'

interface Ailment {
  readonly name: string
  readonly audiences: readonly string[]
  readonly text: string
}

const ailments: readonly [Ailment, ...Ailment[]] = [
  { name: 'TPMS_a101_pressureLow', audiences: ['Customer', 'Service'], text: 'Tyre pressure low. Inflate the tyres.' },
  { name: 'UI_a021_washerFluidLow', audiences: ['Customer'], text: 'Washer fluid low.' },
  { name: 'CP_a043_cableNotLatched', audiences: ['Customer', 'ServiceFix'], text: 'Charge port latch not engaged.' },
  { name: 'BMS_a067_brickImbalance', audiences: ['Service'], text: 'Service battery at the next visit.' },
  { name: 'DAS_a211_cameraBlocked', audiences: ['Customer'], text: 'Camera blocked or blinded.' },
]

const faults: readonly [string, ...string[]] = [
  'stream_backpressure',
  'certificate_expires_soon',
  'config_field_unsupported',
]

/** An alert that is active, to be said, and later to be ended. */
export interface ActiveAlert extends Ailment {
  readonly startedAt: string
}

/** Something is wrong with the vehicle from now on. */
export function fallIll(vehicle: Vehicle): ActiveAlert {
  return { ...oneOf(vehicle.random, ailments), startedAt: vehicleTime(vehicle) }
}

/** Says that an alert is active, or, with its end, that it is over. */
export function alert(
  vehicle: Vehicle,
  { name, startedAt, audiences, text }: ActiveAlert,
  over: boolean,
): SimulatedMessage {
  const end = over ? { endedAt: vehicleTime(vehicle) } : {}
  const alerts = [{ name, startedAt, ...end, audiences, userText: text }]
  return post(vehicle, { topic: 'alerts', vin: vehicle.vin, createdAt: vehicleTime(vehicle), alerts })
}

/** The vehicle's software reports an error of its own. */
export function fault(vehicle: Vehicle): SimulatedMessage {
  const name = oneOf(vehicle.random, faults)
  const code = whole(vehicle.random, 100, 999)
  const error = {
    name,
    createdAt: vehicleTime(vehicle, vehicle.now - whole(vehicle.random, 200, 4_000)),
    tags: { firmware: vehicle.version.split(' ')[0] ?? vehicle.version, network: vehicle.networkInterface },
    ...(chance(vehicle.random, 0.8) ? { body: `${name} (${code})` } : {}),
  }
  return post(vehicle, { topic: 'errors', vin: vehicle.vin, createdAt: vehicleTime(vehicle), errors: [error] })
}
