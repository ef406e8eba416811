import {
  createReceiver,
  type FieldValues,
  type HandlerFilter,
  memoryInbox,
  type Receiver,
  type Vehicles,
  vehicles,
} from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { fakeClock, type FakeClock, message } from 'fleethook/testing'
import type { Edge, Happening, Occurrence } from 'fleethook/when'
import { silent, unwatched } from '../vehicles/scene.ts'

export const vin = '0FLEETV14T0000004'
export const startMs: number = Date.UTC(2026, 10, 21, 10)

/** What a vehicle says, and when, in seconds of its clock after {@link startMs}. Arrives then, or as many seconds later as `late` says. */
export type Said = readonly [second: number, data: FieldValues | { readonly state: string }, late?: number]

export const fields: NonNullable<HandlerFilter['fields']> = [
  'Gear',
  'Odometer',
  'EnergyRemaining',
  'Location',
  'VehicleSpeed',
  'DetailedChargeState',
  'BatteryLevel',
  'ACChargingEnergyIn',
  'DCChargingEnergyIn',
  'DestinationName',
  'Locked',
]

export interface EpisodeScene<Happened extends Occurrence> {
  readonly receiver: Receiver & { readonly vehicles: Vehicles }
  readonly clock: FakeClock
  readonly told: Happened[]
  readonly happenings: Happening<Happened>[]
  /** Sends messages in the order of their arrival, and lets the time pass between them. */
  say(...said: readonly Said[]): Promise<void>
  /** Lets the time pass until this second. */
  until(second: number): Promise<void>
}

/** A receiver with one rule, and a clock that stands at second -3600. */
export function episodeScene<Happened extends Occurrence>(
  edge: Edge<Happened>,
  options: { readonly inbox?: InboxFactory; readonly clock?: FakeClock; readonly of?: string } = {},
): EpisodeScene<Happened> {
  const { inbox = memoryInbox(), clock = fakeClock(startMs - 3_600_000), of = vin } = options
  const happenings: Happening<Happened>[] = []
  const told: Happened[] = []
  const receiver = createReceiver({
    ...{ secret: false, log: silent, inbox, clock: unwatched(clock) },
    parts: [vehicles({ fields })],
  }).when(edge, (happening) => {
    happenings.push(happening)
    told.push(happening.change)
  })
  const settled = async (): Promise<void> => {
    for (let turn = 0; turn < 1_000; turn += 1) {
      await clock.advance(0)
      if (receiver.stats().pending.messages === 0) return
      await new Promise((resolve) => setImmediate(resolve))
    }
    throw new Error('Messages are still pending.')
  }
  const until = async (second: number): Promise<void> => {
    const left = startMs + second * 1_000 - clock.now()
    if (left > 0) await clock.advance(left)
    await settled()
  }
  return {
    receiver,
    clock,
    told,
    happenings,
    until,
    async say(...said) {
      const arrivals = said.map(([second, data, late = 0]) => ({ second, data, arrives: second + late }))
      for (const { second, data, arrives } of arrivals.toSorted((one, other) => one.arrives - other.arrives)) {
        await until(arrives)
        const createdAt = new Date(startMs + second * 1_000).toISOString()
        const about = { vin: of, createdAt }
        const made = 'state' in data ? message.state(data.state, about) : { ...message.data({}, about), data }
        const { status } = await receiver.accept({ authorization: undefined, body: made })
        if (status !== 200) throw new Error(`The message got ${status}.`)
        await settled()
      }
    },
  }
}
