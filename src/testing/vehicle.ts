import { FleethookError } from '../base/errors.ts'
import type { Encodable } from '../wire/encode.ts'
import { type Duration, readDuration } from '../when/time.ts'
import { type Deliverable, deliver, type DeliverOptions } from './deliver.ts'
import type { FakeClock } from './fake-clock.ts'
import { message, type MessageDetails, type MessageFactories } from './message.ts'

/**
 * A vehicle that does not exist and sends messages to a receiver. It has the functions of {@link message}, and deliver the
 * message that they make. Each resolves when all handlers of its message, edges included, have succeeded or given
 * up.
 */
export type TestVehicle = {
  readonly [Topic in keyof MessageFactories]: (...given: Parameters<MessageFactories[Topic]>) => Promise<void>
} & {
  readonly vin: string
  /** Lets time pass on the clock of the receiver. Resolves when the handlers of rules whose time was up are done, unless they wait. */
  wait(time: Duration): Promise<void>
}

/** Options of {@link vehicle}. */
export interface VehicleOptions extends DeliverOptions {
  /** The clock of the receiver, for `wait`. The vehicle's own clock shows the same time. */
  readonly clock?: FakeClock
}

/**
 * A vehicle for tests of rules. Its first message sets the state, because the first value of a field is no change. Each later
 * message is one second newer than the one before.
 *
 * A call rejects with `message_unreadable` when the receiver does not take the message, for instance because of the secret.
 *
 * @example
 * ```ts
 * import { createReceiver, vehicles } from 'fleethook'
 * import { vehicle } from 'fleethook/testing'
 * import { becomes, below } from 'fleethook/when'
 *
 * const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Gear', 'BatteryLevel'] })] })
 *   .when(becomes('Gear', 'P').where(below('BatteryLevel', 20)), ({ vin }) => console.log(vin, 'parks with little charge'))
 *
 * const car = vehicle(receiver, '0FLEETV14T0000004')
 * await car.data({ Gear: 'D', BatteryLevel: 19 })
 * await car.data({ Gear: 'P' }) // 0FLEETV14T0000004 parks with little charge
 * ```
 */
export function vehicle(receiver: Deliverable, vin: string, options: VehicleOptions = {}): TestVehicle {
  const { clock } = options
  let nextMs = clock?.now() ?? Date.parse('2026-11-21T10:00:00Z')

  const details = (given: MessageDetails = {}): MessageDetails => {
    nextMs = Math.max(nextMs, clock?.now() ?? 0)
    const createdAt = new Date(nextMs).toISOString()
    nextMs += 1_000
    return { vin, createdAt, ...given }
  }

  async function send(made: Encodable): Promise<void> {
    const { status, body, settled } = await deliver(receiver, made, options)
    if (status !== 200)
      throw new FleethookError('message_unreadable', `The receiver answered with status ${status}: ${body.text}.`, {
        hint: body.hint,
      })
    await settled
  }

  return {
    vin,
    async wait(time) {
      if (clock !== undefined) return clock.advance(readDuration('wait', time).ms)
      throw new FleethookError('option_invalid', 'The vehicle has no clock to wait by.', {
        hint: 'const clock = fakeClock(), and pass it to createReceiver({ clock, … }) and to vehicle(receiver, vin, { clock }).',
      })
    },
    data: (data, given) => send(message.data(data, details(given))),
    state: (state, given) => send(message.state(state, details(given))),
    vehicleData: (document, given) => send(message.vehicleData(document, details(given))),
    alerts: (alerts, given) => send(message.alerts(alerts, details(given))),
    errors: (errors, given) => send(message.errors(errors, details(given))),
    connectivity: (connection, given) => send(message.connectivity(connection, details(given))),
  }
}
