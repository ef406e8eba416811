import type { Format, Meta } from '../events/event.ts'
import { identity } from './identity.ts'
import { inspect } from './inspect.ts'
import type { JsonObject } from './record.ts'

const ids: WeakMap<Reading, string> = /* @__PURE__ */ new WeakMap()

/**
 * An event as the normaliser makes it. A class, because the `id` is computed when it is read, and a getter on a
 * prototype costs nothing where one on each object would cost more than the rest of the event.
 */
export class Reading {
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
    Object.defineProperty(Reading.prototype, inspect, {
      value(this: Reading): object {
        return this.toJSON()
      },
    })
  }
}

function payloadOf(event: Reading): unknown {
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
