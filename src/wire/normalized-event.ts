import type { Alert, Format, Meta, VehicleError, WireTopic } from '../events/event.ts'
import { identity } from './identity.ts'
import { type FieldRules, readFieldList, readFieldMap } from './field-types.ts'
import { inspect, isJsonObject, isPresent, type JsonObject, WireObject } from './record.ts'
import { isEmptyTime, isoText, isTimeSet, readInstant, readTime } from './scalars.ts'

const ids: WeakMap<NormalizedEvent, string> = /* @__PURE__ */ new WeakMap()

/** The getter of `id`: one function for all events, so that they have one shape. */
function idOf(this: NormalizedEvent): string {
  const known = ids.get(this)
  if (known !== undefined) return known
  const id = identity(this.vin, this.topic, this.at, payloadOf(this))
  ids.set(this, id)
  return id
}

export class NormalizedEvent {
  declare readonly topic: string
  declare readonly vin?: string
  declare readonly createdAt: string
  declare readonly at: Date
  declare readonly receivedAt: Date
  declare readonly format: Format
  /** An own property, so that copies have it, and a getter, because it is computed when it is read. */
  declare readonly id: string
  declare readonly meta: Meta
  declare readonly raw: JsonObject
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
  /** `Object.defineProperty` would take 100 ns more for each event on Node. */
  declare private readonly __defineGetter__: (name: 'id', get: typeof idOf) => void

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
    this.__defineGetter__('id', idOf)
    this.topic = topic
    if (vin !== undefined) this.vin = vin
    this.createdAt = createdAt
    this.at = at
    this.receivedAt = receivedAt
    this.format = format
    this.meta = meta
    this.raw = raw
  }

  toJSON(): object {
    const { id, meta, raw, ...rest } = this
    return { ...rest, id, meta, raw }
  }

  // Not a method: isolated declarations cannot infer a computed name. Not after the class: that would be a side effect of the module.
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

/** `undefined`: a member has a shape that it never has. */
type ReadEntry<Entry> = (sent: JsonObject, name: string) => Entry | undefined

/** Reads a list of entries, or an object of name to entries. `undefined`: it is neither, or an entry has no name. */
function readEntries<Entry>(sent: unknown, readEntry: ReadEntry<Entry>): readonly Entry[] | undefined {
  const entries: Entry[] = []
  const add = (entry: unknown, key: string | undefined): boolean => {
    if (!isJsonObject(entry)) return false
    const name = typeof entry['name'] === 'string' ? entry['name'] : key
    const read = name === undefined || name === '' ? undefined : readEntry(entry, name)
    if (read !== undefined) entries.push(read)
    return read !== undefined
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
  const kept = new WireObject<unknown>()
  for (const key of Object.keys(sent)) if (!known.includes(key)) kept[key] = sent[key]
  return kept
}

/** One text is a list of one. An emitter writes a constant that it does not know as a number. */
function texts(value: unknown): readonly string[] {
  const list: readonly unknown[] = Array.isArray(value) ? value : [value]
  return list.flatMap((item) => (typeof item === 'string' ? [item] : typeof item === 'number' ? [String(item)] : []))
}

/**
 * A time inside a payload as ISO 8601: a text as it was sent, a number in any unit. `undefined`: none, also an empty one.
 * `null`: the value is no time, and must not look like none: an alert would never end.
 */
function timeText(sent: unknown): string | undefined | null {
  if (!isPresent(sent) || sent === '') return undefined
  if (typeof sent !== 'string' && typeof sent !== 'number') return null
  const ms = readTime(sent)
  if (isEmptyTime(ms)) return undefined
  if (Number.isNaN(ms)) return typeof sent === 'string' ? sent : null
  const isIso = typeof sent === 'string' && (!isTimeSet(ms) || !Number.isNaN(readInstant(sent)))
  return isIso ? sent : isoText(ms)
}

function textMap(value: unknown): Readonly<WireObject<string>> {
  const map = new WireObject<string>()
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

function readAlert(sent: JsonObject, name: string): Alert | undefined {
  const [startedAt, endedAt] = [timeText(sent['startedAt']), timeText(sent['endedAt'])]
  if (startedAt === null || endedAt === null) return undefined
  return Object.assign(new WireObject<unknown>(), {
    name,
    ...(startedAt !== undefined && { startedAt }),
    ...(endedAt !== undefined && { endedAt }),
    audiences: texts(sent['audiences']),
    ...rest(sent, alertKeys),
  })
}

function readError(sent: JsonObject, name: string): VehicleError | undefined {
  const { body } = sent
  const createdAt = timeText(sent['createdAt'])
  if (createdAt === null) return undefined
  return Object.assign(new WireObject<unknown>(), {
    name,
    ...(createdAt !== undefined && { createdAt }),
    tags: textMap(sent['tags']),
    ...(typeof body === 'string' && { body }),
    ...rest(sent, errorKeys),
  })
}

function readConnectivity(event: NormalizedEvent, sent: unknown): boolean {
  if (!isJsonObject(sent)) return false
  const { status, networkInterface, connectionId } = sent
  if (typeof status !== 'string' || typeof networkInterface !== 'string') return false
  event.status = status.toLowerCase()
  event.networkInterface = networkInterface.toLowerCase()
  if (typeof connectionId === 'string') event.connectionId = connectionId
  else if (typeof connectionId === 'number') event.connectionId = String(connectionId)
  return status !== '' && networkInterface !== ''
}

/** Reads the payload of a topic into its event. Returns false when the payload has a shape that the topic never has. */
export function readPayload(event: NormalizedEvent, topic: WireTopic, sent: unknown, rules: FieldRules): boolean {
  switch (topic) {
    case 'data': {
      const isList = Array.isArray(sent)
      const fields = isList ? readFieldList(sent, rules) : isJsonObject(sent) ? readFieldMap(sent, rules) : undefined
      event.data = fields?.data
      event.undecoded = fields?.undecoded
      return fields !== undefined
    }
    case 'state':
      event.state = sent
      return typeof sent === 'string' && sent !== ''
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
