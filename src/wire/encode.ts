import { FleethookError } from '../base/errors.ts'
import { builtInFields } from '../events/fields.ts'
import type { Alert, Format, Meta, VehicleError, WireTopic } from '../events/event.ts'
import type { FieldCatalogue } from '../events/fields.ts'
import { encodeMap, encodeList } from './encode-data.ts'
import { encodeEntries } from './encode-entries.ts'
import { readInstant } from './instant.ts'
import { named } from './named.ts'
import type { JsonObject } from './record.ts'
import { topicOfLabel } from './topic.ts'

interface EncodableBase {
  readonly vin: string
  readonly createdAt: string
  readonly meta?: Meta
}

/** The least of an event that can be written as a message: a whole event is one too. */
export type Encodable =
  | (EncodableBase & { readonly topic: 'data'; readonly data: JsonObject; readonly undecoded?: JsonObject })
  | (EncodableBase & { readonly topic: 'state'; readonly state: string })
  | (EncodableBase & { readonly topic: 'vehicle_data'; readonly vehicleData: JsonObject })
  | (EncodableBase & { readonly topic: 'alerts'; readonly alerts: readonly Alert[] })
  | (EncodableBase & { readonly topic: 'errors'; readonly errors: readonly VehicleError[] })
  | (EncodableBase & {
      readonly topic: 'connectivity'
      readonly status: string
      readonly networkInterface: string
      readonly connectionId?: string
    })
  | { readonly topic: 'unknown'; readonly raw: JsonObject }

/** Words of the wire, and what fleethook adds: they would make another message of this one. */
const reserved: ReadonlySet<string> = /* @__PURE__ */ new Set([
  'vin',
  'createdAt',
  'state',
  'data',
  'errors',
  'alerts',
  'networkInterface',
  'vehicle_data',
  'event',
  'createdAtMissing',
  'conflated',
])

function writeMeta(
  message: { [key: string]: unknown },
  { meta = {}, topic }: Exclude<Encodable, { topic: 'unknown' }>,
): void {
  for (const key of Object.keys(meta)) {
    if (reserved.has(key) || (topic === 'connectivity' && (key === 'status' || key === 'connectionId'))) continue
    message[key] = meta[key]
  }
}

function payloadOf(
  event: Exclude<Encodable, { topic: 'unknown' }>,
  format: Format,
  fields: FieldCatalogue,
): JsonObject {
  const list = format === 'vehicle_maker'
  switch (event.topic) {
    case 'data':
      return {
        data: list ? encodeList(event.data, event.undecoded, fields) : encodeMap(event.data, event.undecoded, fields),
      }
    case 'state':
      return { state: event.state }
    case 'vehicle_data':
      return { vehicle_data: event.vehicleData }
    case 'alerts':
      return { alerts: list ? event.alerts : encodeEntries(event.alerts) }
    case 'errors':
      return { errors: list ? event.errors : encodeEntries(event.errors) }
    default: {
      const { status, networkInterface, connectionId } = event
      // The emitters seen in public write these two in capitals.
      const shown = status === 'connected' || status === 'disconnected' ? status.toUpperCase() : status
      return { status: shown, networkInterface, ...(connectionId !== undefined && { connectionId }) }
    }
  }
}

function labelOf(topic: WireTopic, sourcetype: string | undefined): string {
  return sourcetype !== undefined && topicOfLabel(sourcetype) === topic ? sourcetype : `vehicle:telemetry:${topic}`
}

/** `time` of an envelope: seconds, but milliseconds from where seconds would be taken for them (the year 5138). */
function envelopeTime(createdAt: string): number {
  const ms = readInstant(createdAt)
  if (Number.isNaN(ms)) {
    throw new FleethookError('encode_unsupported', `createdAt is "${createdAt}", which is no ISO 8601 time.`, {
      hint: 'Write it like 2024-02-24T04:58:44.983Z.',
    })
  }
  return ms >= 1e14 ? ms : ms / 1000
}

/**
 * Writes an event as the message of a format, ready for `JSON.stringify`: the inverse of the normaliser.
 *
 * Normalising the message gives the same event again, with these limits of the formats:
 *
 * - `event_collector` has milliseconds: a finer `createdAt` loses the rest, and is written in UTC with `Z`. It always has a
 *   `sourcetype` and a `host`, which come back in `meta`.
 * - Only `data` differs between `service` and `vehicle_maker`; for the other topics the format read is `service`.
 * - Keys of `meta` that are words of the wire (`state`, `event`, `time`, …) are left out.
 * - An `unknown` event is its `raw` in every format.
 *
 * `fields` is the catalogue by which `data` is written, when it is not the built-in one.
 *
 * @example
 * ```ts
 * import { encode } from 'fleethook/normalize'
 *
 * const message = encode(
 *   { topic: 'data', vin: '0FLEETV14T0000004', createdAt: '2024-02-24T04:58:44.983Z', data: { Gear: 'D' } },
 *   'vehicle_maker',
 * )
 * console.log(JSON.stringify(message)) // … "data":[{"key":"Gear","value":{"shiftStateValue":"ShiftStateD"}}] …
 * ```
 *
 * Specification: "Payload of a `data` message". Throws `FleethookError` of code `encode_unsupported` for an event that no
 * wire carries (`gap`), and for a `createdAt` that is no time where the format needs one.
 */
export function encode(event: Encodable, format: Format, fields: FieldCatalogue = builtInFields): JsonObject {
  if (event.topic === 'unknown') return event.raw
  if (!(event.topic in known)) {
    throw new FleethookError('encode_unsupported', `An event of topic ${JSON.stringify(event)} is never on the wire.`)
  }
  const message = named<unknown>()
  const dated = event.meta?.createdAtMissing !== true
  writeMeta(message, event)
  if (format !== 'event_collector') {
    Object.assign(message, payloadOf(event, format, fields))
    if (dated) message['createdAt'] = event.createdAt
    message['vin'] = event.vin
    return message
  }
  delete message['time']
  if (dated) message['time'] = envelopeTime(event.createdAt)
  message['host'] ??= 'localhost'
  message['source'] = event.vin
  message['sourcetype'] = labelOf(event.topic, event.meta?.sourcetype)
  const payload = payloadOf(event, format, fields)
  message['event'] = event.topic === 'data' ? payload['data'] : payload
  return message
}

const known: { readonly [Topic in WireTopic]: true } = {
  data: true,
  state: true,
  vehicle_data: true,
  alerts: true,
  errors: true,
  connectivity: true,
}
