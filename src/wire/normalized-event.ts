import type { DataEvent, Format, Meta } from '../events/event.ts'
import type { FieldValue, Json } from '../events/values.ts'
import { identity } from './identity.ts'
import { inspect, type JsonObject, wireObject, type WireObject } from './record.ts'

const ids: WeakMap<NormalizedEvent, string> = /* @__PURE__ */ new WeakMap()

/**
 * An event as the normalizer makes it. It is a class because the `id` is computed when it is read. A getter on a prototype
 * costs nothing. A getter on each object would cost more than the rest of the event.
 */
export class NormalizedEvent {
  readonly topic: string
  declare readonly vin?: string
  readonly createdAt: string
  readonly at: Date
  readonly receivedAt: Date
  readonly format: Format
  readonly meta: Meta
  readonly raw: JsonObject
  declare data?: unknown
  declare undecoded?: unknown
  declare state?: unknown
  declare vehicleData?: unknown
  declare alerts?: unknown
  declare errors?: unknown
  declare status?: string
  declare networkInterface?: string
  declare connectionId?: string
  declare reason?: string

  constructor(
    topic: string,
    vin: string | undefined,
    createdAt: string,
    at: Date,
    receivedAt: Date,
    format: Format,
    meta: Meta,
    raw: JsonObject,
  ) {
    this.topic = topic
    if (vin !== undefined) this.vin = vin
    this.createdAt = createdAt
    this.at = at
    this.receivedAt = receivedAt
    this.format = format
    this.meta = meta
    this.raw = raw
  }

  get id(): string {
    const known = ids.get(this)
    if (known !== undefined) return known
    const id = identity(this.vin, this.topic, this.at, payloadOf(this))
    ids.set(this, id)
    return id
  }

  toJSON(): object {
    const { meta, raw, ...rest } = this
    return { ...rest, id: this.id, meta, raw }
  }

  static {
    Object.defineProperty(NormalizedEvent.prototype, inspect, {
      value(this: NormalizedEvent): object {
        return this.toJSON()
      },
    })
  }
}

function payloadOf(event: NormalizedEvent): unknown {
  switch (event.topic) {
    case 'data':
      return [event.data, event.undecoded]
    case 'state':
      return event.state
    case 'vehicle_data':
      return event.vehicleData
    case 'alerts':
      return event.alerts
    case 'errors':
      return event.errors
    case 'connectivity':
      return [event.status, event.networkInterface, event.connectionId ?? null]
    default:
      return event.raw
  }
}

/** When the vehicle made each field of a merged event, so that the event can be merged again. */
const fieldTimes: WeakMap<DataEvent, WireObject<number>> = /* @__PURE__ */ new WeakMap()

/**
 * Merges `data` events of one VIN, given in order of arrival. Each field has its newest value by the vehicle's clock; of two
 * values of the same moment, the one that arrived later. Everything else is the newest event's. `meta.conflated` is the
 * number of messages that were merged.
 */
export function mergeData(events: readonly [DataEvent, ...DataEvent[]]): DataEvent {
  let [newest] = events
  const data = wireObject<FieldValue | undefined>()
  const undecoded = wireObject<Json>()
  const times = wireObject<number>()
  let conflated = 0
  for (const event of events) {
    conflated += event.meta.conflated ?? 1
    if (event.at >= newest.at) newest = event
    const known = fieldTimes.get(event)
    const values: Readonly<WireObject<FieldValue | undefined>> = event.data
    for (const name in values) {
      const time = known?.[name] ?? event.at.getTime()
      const newestTime = times[name]
      if (newestTime !== undefined && time < newestTime) continue
      times[name] = time
      data[name] = values[name]
      const left = event.undecoded[name]
      if (left === undefined) delete undecoded[name]
      else undecoded[name] = left
    }
  }
  const { createdAt, at, receivedAt, format, vin, raw } = newest
  const meta = Object.assign(wireObject<unknown>(), newest.meta, { conflated })
  const event = new NormalizedEvent('data', vin, createdAt, at, receivedAt, format, meta, raw)
  const merged = Object.assign(event, { topic: 'data' as const, vin, meta, data, undecoded })
  fieldTimes.set(merged, times)
  return merged
}
