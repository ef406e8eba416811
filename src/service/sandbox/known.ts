import type { Alert, VehicleError } from '../../events/event.ts'
import { type Encodable, encode } from '../../wire/encode.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'

/** What the service has heard of a vehicle: what some of its endpoints answer with. */
export interface Known {
  hear(event: Encodable): void
  /** The last value of each field, in the shape of a `data` message. */
  telemetry(vin: string): JsonObject
  readonly alerts: readonly Alert[]
  readonly errors: readonly VehicleError[]
}

const most = 100

/** Hears what one vehicle says. */
export function createKnown(): Known {
  let data: JsonObject = {}
  let createdAt: string | undefined
  const alerts: Alert[] = []
  const errors: VehicleError[] = []
  return {
    hear(event) {
      if (event.topic === 'data') {
        const said = encode(event, 'service')['data']
        data = { ...data, ...(isJsonObject(said) ? said : {}) }
        createdAt = event.createdAt
      } else if (event.topic === 'alerts') {
        alerts.unshift(...event.alerts)
        alerts.splice(most)
      } else if (event.topic === 'errors') {
        errors.unshift(...event.errors)
        errors.splice(most)
      }
    },
    telemetry: (vin) => ({ data, createdAt: createdAt ?? null, vin }),
    alerts,
    errors,
  }
}
