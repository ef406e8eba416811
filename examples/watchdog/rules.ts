import type { Receiver } from 'fleethook'
import { all, below, heardAgain, is, silent, starts } from 'fleethook/when'

export const fields = ['BatteryLevel', 'Gear'] as const

/** A vehicle that is asleep or offline by its last `state` message is silent on purpose, and is not meant here. */
const lost = silent({ hours: 1 })
const parkedLow = starts(all(is('Gear', 'P'), below('BatteryLevel', 20)), { first: true }).after({ days: 7 })

/** Calls `post` once per case. A crash can repeat a call, with the same `id`. */
export function watch(
  receiver: Receiver,
  post: (text: string, id: string, signal: AbortSignal) => Promise<void>,
): Receiver {
  return receiver
    .when(lost, ({ vin, change, id }, { signal }) =>
      post(`${vin} has been silent since ${change.lastAt.toISOString()}`, id, signal),
    )
    .when(heardAgain(lost), ({ vin, change, id }, { signal }) =>
      post(`${vin} is back after ${Math.round(change.silentMs / 60_000)} minutes`, id, signal),
    )
    .when(parkedLow.named('parked for a week below 20 %'), ({ vin, change, vehicle, id }, { signal }) =>
      post(
        `${vin} has been parked since ${change.since.toISOString()}, at ${vehicle.value('BatteryLevel')} %`,
        id,
        signal,
      ),
    )
}
