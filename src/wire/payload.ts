import type { WireTopic } from '../events/event.ts'
import { readFieldList, readFieldMap, type FieldRules } from './data.ts'
import { readAlerts, readErrors } from './entries.ts'
import type { Reading } from './reading.ts'
import { isJsonObject, type JsonObject } from './record.ts'

/** The payload of a topic in a message that has the topic's key. `connectivity` has none: its payload is the message. */
export function payloadIn(message: JsonObject, topic: WireTopic): unknown {
  return topic === 'connectivity' ? message : message[topic]
}

function readData(event: Reading, sent: unknown, rules: FieldRules): boolean {
  const fields = Array.isArray(sent)
    ? readFieldList(sent, rules)
    : isJsonObject(sent)
      ? readFieldMap(sent, rules)
      : undefined
  if (fields === undefined) return false
  event.data = fields.data
  event.undecoded = fields.undecoded
  return true
}

function readConnectivity(event: Reading, sent: unknown): boolean {
  if (!isJsonObject(sent)) return false
  const { status, networkInterface, connectionId } = sent
  if (typeof status !== 'string' || typeof networkInterface !== 'string') return false
  event.status = status.toLowerCase()
  event.networkInterface = networkInterface.toLowerCase()
  if (typeof connectionId === 'string') event.connectionId = connectionId
  return true
}

/** Reads the payload of a topic into its event; false when it has a shape that the topic never has. */
export function readPayload(event: Reading, topic: WireTopic, sent: unknown, rules: FieldRules): boolean {
  switch (topic) {
    case 'data':
      return readData(event, sent, rules)
    case 'state':
      event.state = sent
      return typeof sent === 'string'
    case 'vehicle_data':
      event.vehicleData = sent
      return isJsonObject(sent)
    case 'alerts':
      event.alerts = readAlerts(sent)
      return event.alerts !== undefined
    case 'errors':
      event.errors = readErrors(sent)
      return event.errors !== undefined
    default:
      return readConnectivity(event, sent)
  }
}
