import {
  createReceiver,
  type Log,
  memoryInbox,
  type Receiver,
  type ReceiverOptions,
  type Vehicles,
  vehicles,
  type VehiclesOptions,
} from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import type { FieldName } from 'fleethook/normalize'
import type { Change, Edge } from 'fleethook/when'
import { deliver, type Delivered, type FakeClock, fakeClock, message } from 'fleethook/testing'

const nothing = (): void => {}
export const silent: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing }

/** A clock without what happens each second, the watch for stalls and for a deleted file: hours would take a test long. */
export function unwatched(clock: FakeClock): FakeClock {
  return { ...clock, after: (ms, run) => (ms === 1_000 ? { cancel() {}, unref() {} } : clock.after(ms, run)) }
}

export const fields = ['BatteryLevel', 'Gear', 'DestinationName', 'Location', 'DetailedChargeState'] as const

interface Told {
  readonly vin: string
  readonly id: string
  readonly changes: readonly string[]
}

export interface VehicleScene {
  readonly receiver: Receiver & { readonly vehicles: Vehicles }
  readonly clock: FakeClock
  /** What `on('data')` was told, as `Field from>to`, with `~` for a change across a gap. */
  readonly told: Told[]
  /** Sends a `data` message that the vehicle sent `agoMs` before it arrives, and waits until it is handled. */
  send(
    data: Readonly<Record<string, unknown>>,
    details?: { readonly vin?: string; readonly agoMs?: number },
  ): Promise<void>
  post(given: Parameters<typeof deliver>[1]): Promise<Delivered>
}

export const vin = '0FLEETV14T0000001'

export function shown({ field, from, to, acrossGap, first, invalid }: Change): string {
  const marks = `${acrossGap ? '~' : ''}${first ? '+' : ''}${invalid ? '?' : ''}`
  return `${field} ${JSON.stringify(from)}>${JSON.stringify(to)}${marks}`
}

export function vehicleScene(
  options: Omit<Partial<ReceiverOptions>, 'parts'> & {
    readonly clock?: FakeClock
    readonly inbox?: InboxFactory
    readonly vehicles?: VehiclesOptions<FieldName>
  } = {},
): VehicleScene {
  const { clock = fakeClock(), inbox = memoryInbox(), vehicles: kept = { fields }, ...others } = options
  const told: Told[] = []
  const receiver = createReceiver({
    ...{ secret: false, clock, log: silent, inbox },
    ...others,
    parts: [vehicles(kept)] as const,
  })
  receiver.on('data', (event, { changes, delivery }) => {
    told.push({ vin: event.vin, id: delivery.id, changes: changes.map(shown) })
  })
  const post = (given: Parameters<typeof deliver>[1]): Promise<Delivered> => deliver(receiver, given)
  return {
    receiver,
    clock,
    told,
    post,
    async send(data, { vin: of = vin, agoMs = 0 } = {}) {
      const createdAt = new Date(clock.now() - agoMs).toISOString()
      const { settled } = await post({ ...message.data({}, { vin: of, createdAt }), data })
      await settled
      await clock.advance(1_000)
    },
  }
}

/** A simple edge over one field. */
export function edgeOf(field: string, name: string = `any ${field}`): Edge<Change> {
  const edge: Edge<Change> = {
    name,
    fields: [field],
    reads: [field],
    topics: [],
    detect({ changes, memory }) {
      const happened = changes.find((change) => change.field === field && !change.first && !change.invalid)
      const count = Number(memory ?? 0) + 1
      return happened === undefined ? { memory: count } : { happened, memory: count }
    },
    where: () => edge,
  }
  return edge
}
