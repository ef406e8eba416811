import type { Alert, VehicleError, WireTopic } from '../events/event.ts'
import { readFieldList, readFieldMap, type FieldRules } from './data.ts'
import type { NormalizedEvent } from './normalized-event.ts'
import { isJsonObject, type JsonObject, wireObject, type WireObject } from './record.ts'

type ReadEntry<Entry> = (sent: JsonObject, name: string) => Entry

/**
 * Reads a list of entries, or an object of name to one entry or a list of them. `undefined` when the payload is neither, or
 * when an entry is not an object or has no name.
 */
function readEntries<Entry>(sent: unknown, readEntry: ReadEntry<Entry>): readonly Entry[] | undefined {
  const entries: Entry[] = []
  const add = (entry: unknown, key: string | undefined): boolean => {
    if (!isJsonObject(entry)) return false
    const name = typeof entry['name'] === 'string' ? entry['name'] : key
    if (name === undefined) return false
    entries.push(readEntry(entry, name))
    return true
  }
  if (Array.isArray(sent)) return sent.every((entry) => add(entry, undefined)) ? entries : undefined
  if (!isJsonObject(sent)) return undefined
  for (const key of Object.keys(sent)) {
    const value = sent[key]
    if (!(Array.isArray(value) ? value.every((entry) => add(entry, key)) : add(value, key))) return undefined
  }
  return entries
}

function rest(sent: JsonObject, known: readonly string[]): WireObject<unknown> {
  const kept = wireObject<unknown>()
  for (const key of Object.keys(sent)) if (!known.includes(key)) kept[key] = sent[key]
  return kept
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []
}

function textMap(value: unknown): Readonly<WireObject<string>> {
  const map = wireObject<string>()
  if (!isJsonObject(value)) return map
  for (const key of Object.keys(value)) {
    const text = value[key]
    if (typeof text === 'string') map[key] = text
    else if (typeof text === 'number' || typeof text === 'boolean') map[key] = String(text)
  }
  return map
}

const alertKeys = ['name', 'startedAt', 'endedAt', 'audiences']
const errorKeys = ['name', 'createdAt', 'tags', 'body']

function readAlert(sent: JsonObject, name: string): Alert {
  const { startedAt, endedAt } = sent
  return Object.assign(wireObject<unknown>(), {
    name,
    ...(typeof startedAt === 'string' && { startedAt }),
    ...(typeof endedAt === 'string' && { endedAt }),
    audiences: texts(sent['audiences']),
    ...rest(sent, alertKeys),
  })
}

function readError(sent: JsonObject, name: string): VehicleError {
  const { createdAt, body } = sent
  return Object.assign(wireObject<unknown>(), {
    name,
    ...(typeof createdAt === 'string' && { createdAt }),
    tags: textMap(sent['tags']),
    ...(typeof body === 'string' && { body }),
    ...rest(sent, errorKeys),
  })
}

function readData(event: NormalizedEvent, sent: unknown, rules: FieldRules): boolean {
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

function readConnectivity(event: NormalizedEvent, sent: unknown): boolean {
  if (!isJsonObject(sent)) return false
  const { status, networkInterface, connectionId } = sent
  if (typeof status !== 'string' || typeof networkInterface !== 'string') return false
  event.status = status.toLowerCase()
  event.networkInterface = networkInterface.toLowerCase()
  if (typeof connectionId === 'string') event.connectionId = connectionId
  return true
}

/** The payload of a topic in a message that has the topic's key. For `connectivity` the payload is the message itself. */
export function payloadIn(message: JsonObject, topic: WireTopic): unknown {
  return topic === 'connectivity' ? message : message[topic]
}

/** Reads the payload of a topic into its event. Returns false when the payload has a shape that the topic never has. */
export function readPayload(event: NormalizedEvent, topic: WireTopic, sent: unknown, rules: FieldRules): boolean {
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
      event.alerts = readEntries(sent, readAlert)
      return event.alerts !== undefined
    case 'errors':
      event.errors = readEntries(sent, readError)
      return event.errors !== undefined
    default:
      return readConnectivity(event, sent)
  }
}
